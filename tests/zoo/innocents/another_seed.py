# Another seed.
# must: full marks

# %%
import torch
torch.manual_seed(3)

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
