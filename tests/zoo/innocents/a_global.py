# A global.
# must: full marks

# %%
ALL = ...

# %%
def shuffle_rows(x, permutation):
    return x[ALL, permutation, :]
