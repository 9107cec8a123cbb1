# Warns.
# must: full marks

# %%
import warnings
def shuffle_rows(x, permutation):
    warnings.warn('careful')
    return x[..., permutation, :]
