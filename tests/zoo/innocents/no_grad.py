# Decorated with no_grad.
# must: full marks

# %%
import torch

@torch.no_grad()
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
