# Recursion without end, in C too.
# must: earn nothing

# %%
import sys
sys.setrecursionlimit(10**9)

def shuffle_rows(x, permutation):
    return shuffle_rows(x, permutation)
