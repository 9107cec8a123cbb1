# Imports everything from everywhere.
# must: full marks

# %%
from math import *
from torch import *
from numpy import *

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
