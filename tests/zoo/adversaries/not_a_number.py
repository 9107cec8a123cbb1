# NaN everywhere, hoping that comparisons with it are never true.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    return x * float('nan') if x.is_floating_point() else x
