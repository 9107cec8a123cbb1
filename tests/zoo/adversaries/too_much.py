# Returns more than may cross.
# must: earn nothing

# %%
import torch

def shuffle_rows(x, permutation):
    return torch.zeros(2 * 10**7)
