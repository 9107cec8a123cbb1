# Wrong first, right last.
# must: full marks

# %%
def shuffle_rows(x, permutation):
    return x

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
