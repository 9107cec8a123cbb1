# Turns warnings into errors in a cell of its own.
# must: full marks

# %%
import warnings
warnings.simplefilter('error')

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
