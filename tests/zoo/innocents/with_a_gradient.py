# With a gradient.
# must: full marks

# %%
def shuffle_rows(x, permutation):
    y = x[..., permutation, :]
    return y.requires_grad_() if y.is_floating_point() else y
