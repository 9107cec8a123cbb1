# Asks for input.
# must: full marks

# %%
name = input('your name')

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
