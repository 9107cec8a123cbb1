# Raises what nobody catches.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    raise BaseException('ha')
