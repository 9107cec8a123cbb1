"""Functions of sets: what is left of a sequence when its order is gone."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def shares(tokens: Tensor, vocabulary: int) -> Tensor:
    """What share of the tokens each kind has. tokens: (..., n) -> (..., vocabulary), each row sums to 1.

    All that an encoder with softmax attention and neither positions nor a mask can see of its input.
    """
    return F.one_hot(tokens, vocabulary).to(torch.get_default_dtype()).mean(dim=-2)


class DeepSets(nn.Module):
    """rho(sum of phi(x)) over the rows of x: (..., n, d_in) -> (..., d_out). The order of the rows cannot matter.

    Zaheer et al. 2017, Deep Sets, theorem 2, https://arxiv.org/abs/1703.06114
    """

    def __init__(self, d_in: int, d_out: int, width: int = 32):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(d_in, width), nn.ReLU(), nn.Linear(width, width))
        self.rho = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, d_out))

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.phi(x).sum(dim=-2)  # (..., width)
        return self.rho(pooled)
