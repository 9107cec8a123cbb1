# A cell that fails.
# must: full marks

# %%
1 / 0

# %%
open('/nowhere')

# %%
import nowhere

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
