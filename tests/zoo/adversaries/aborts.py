# Aborts while it is called.
# must: earn nothing
# say: crashed

# %%
import os

def shuffle_rows(x, permutation):
    os.abort()
