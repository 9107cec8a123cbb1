# Multiplies with a permutation matrix.
# must: full marks

# %%
import torch

def shuffle_rows(x, permutation):
    matrix = torch.eye(len(permutation), dtype=x.dtype)[permutation]
    return torch.einsum('ij,...jd->...id', matrix, x)
