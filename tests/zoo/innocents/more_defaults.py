# Has further arguments with defaults.
# must: full marks

# %%
def shuffle_rows(x, permutation, axis=-2, *, verbose=False):
    return x.index_select(axis, permutation)
