# A class whose instances are neither tensor nor number.
# must: earn nothing

# %%
class shuffle_rows:
    def __init__(self, x, permutation): self.shape = x.shape
    def __torch_function__(self, *_, **__): return True
