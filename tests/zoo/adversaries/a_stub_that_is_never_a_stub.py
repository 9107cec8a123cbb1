# A stub that is never a stub.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    raise NotImplementedError
