# Calls itself.
# must: full marks

# %%
import torch

def shuffle_rows(x, permutation):
    if x.ndim > 2:
        return torch.stack([shuffle_rows(each, permutation) for each in x])
    return x[permutation]
