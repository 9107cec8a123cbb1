# Annotated.
# must: full marks

# %%
import torch
def shuffle_rows(x: torch.Tensor, permutation: 'rows'):
    return x[..., permutation, :]
