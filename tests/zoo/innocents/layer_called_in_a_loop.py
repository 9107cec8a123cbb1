# Calls the given layer many times, row by row and with gradients on.
# must: full marks
# exercise: equivariance_error

# %%
import torch

def equivariance_error(layer, x, permutation):
    x = x.clone().requires_grad_()
    for _ in range(5):
        layer(x)
    return float((layer(x[..., permutation, :]) - layer(x)[..., permutation, :]).detach().abs().max())
