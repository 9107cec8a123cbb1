# Another default dtype.
# must: full marks

# %%
import torch
torch.set_default_dtype(torch.float64)

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
