# Calls a given function with things that are no tensors.
# must: earn nothing
# exercise: equivariance_error

# %%
def equivariance_error(layer, x, permutation):
    for thing in (None, 'x', [[]], {1: {2: 3}}, object(), print, 10**400, b'x', float('nan')):
        try: layer(thing)
        except Exception: pass
    return None
