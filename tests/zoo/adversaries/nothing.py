# Nothing.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    pass
