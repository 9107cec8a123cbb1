# A dict whose comparison lies.
# must: earn nothing
# exercise: what_commutes

# %%
class Liar(dict):
    def __getitem__(self, key): return True
    def __eq__(self, other): return True
    def items(self): return [(k, True) for k in self]

def what_commutes():
    return Liar()
