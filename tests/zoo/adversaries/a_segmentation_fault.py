# Reads where nothing is.
# must: earn nothing
# say: crashed

# %%
import ctypes

def shuffle_rows(x, permutation):
    return ctypes.string_at(0)
