# An object that equals everything.
# must: earn nothing

# %%
class Yes:
    def __eq__(self, other): return True
    shape = dtype = property(lambda s: s)
def shuffle_rows(x, permutation):
    return Yes()
