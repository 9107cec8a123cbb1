# Uninitialised memory, hoping that the right answer is still in it.
# must: earn nothing

# %%
import torch

def shuffle_rows(x, permutation):
    return torch.empty_like(x)
