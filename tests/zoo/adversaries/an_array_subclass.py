# A numpy subclass that answers every function with zeros.
# must: earn nothing

# %%
import numpy as np

class Zero(np.ndarray):
    def __array_function__(self, *_): return np.zeros(1)
    def __array_ufunc__(self, *_, **__): return np.zeros(1)
    def __array__(self, *_, **__): return np.zeros(1)

def shuffle_rows(x, permutation):
    return np.zeros(1).view(Zero)
