# Uses the names of builtins for its own things.
# must: full marks

# %%
sum = 0
list = [1, 2]
len = max = min = print = 5
id = type = isinstance = None

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
