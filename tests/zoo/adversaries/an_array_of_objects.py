# A numpy array of objects, and a structured one.
# must: earn nothing

# %%
import numpy as np

def shuffle_rows(x, permutation):
    return np.array([x, None], dtype=object)
