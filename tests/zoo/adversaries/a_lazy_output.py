# A lazy output.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    return (row for row in x)
