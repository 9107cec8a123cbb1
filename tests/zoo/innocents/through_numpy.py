# Through numpy.
# must: full marks

# %%
import torch

# %%
def shuffle_rows(x, permutation):
    return torch.from_numpy(x.numpy()[..., permutation.numpy(), :])
