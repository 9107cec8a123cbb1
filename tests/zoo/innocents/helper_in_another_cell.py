# Helper in another cell.
# must: full marks

# %%
def rows(x):
    return x

# %%
def shuffle_rows(x, permutation):
    return rows(x)[..., permutation, :]
