# Asks for many threads and deterministic algorithms.
# must: full marks

# %%
import torch
torch.set_num_threads(4)
torch.use_deterministic_algorithms(True)

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
