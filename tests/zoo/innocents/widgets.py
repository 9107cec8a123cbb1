# Imports what is not installed.
# must: full marks

# %%
import ipywidgets
from ipywidgets import interact

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
