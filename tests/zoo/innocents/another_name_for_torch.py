# Another name for torch.
# must: full marks

# %%
import torch as t
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
