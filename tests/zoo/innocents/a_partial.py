# The answer is a partial of a helper.
# must: full marks

# %%
from functools import partial

def take(axis, x, permutation):
    return x.index_select(axis, permutation)

shuffle_rows = partial(take, -2)
