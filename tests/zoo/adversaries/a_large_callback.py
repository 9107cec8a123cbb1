# Calls a given function with more than it can bear.
# must: earn nothing
# exercise: equivariance_error

# %%
import torch

def equivariance_error(layer, x, permutation):
    return float(layer(torch.zeros(100_000, 100)).abs().max())
