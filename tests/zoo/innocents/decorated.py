# Decorated.
# must: full marks

# %%
import functools

# %%
def logged(f):
    return functools.wraps(f)(lambda *a: f(*a))
@logged
def shuffle_rows(x, permutation):
    return x[..., permutation, :]

# %%
shuffle_rows.__name__ = 'mine'
