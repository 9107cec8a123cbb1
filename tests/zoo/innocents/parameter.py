# Returns a Parameter where the dtype allows it.
# must: full marks

# %%
import torch

def shuffle_rows(x, permutation):
    y = x[..., permutation, :]
    return torch.nn.Parameter(y) if y.is_floating_point() else y
