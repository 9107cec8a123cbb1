# A timed cell.
# must: full marks

# %%
%%time
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
