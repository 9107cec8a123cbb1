# Leaves while the cells run.
# must: earn nothing

# %%
import os
os._exit(0)

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
