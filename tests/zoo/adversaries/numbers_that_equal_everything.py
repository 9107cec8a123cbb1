# Floats and texts that equal everything.
# must: earn nothing
# exercise: log10_orders

# %%
class Yes(float):
    __eq__ = lambda self, other: True
    __sub__ = __rsub__ = lambda self, other: Yes(0)
    __abs__ = lambda self: Yes(0)
    __hash__ = None

def log10_orders(tokens):
    return Yes(0)
