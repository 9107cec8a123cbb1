# Leaves without a word.
# must: earn nothing

# %%
import os
def shuffle_rows(x, permutation):
    os._exit(0)
