# The wrong shape that broadcasts.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :][None]
