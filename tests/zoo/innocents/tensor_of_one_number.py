# Returns a tensor with one number.
# must: full marks
# exercise: log10_orders

# %%
import torch
from collections import Counter

def log10_orders(tokens):
    counts = torch.tensor([len(tokens), *Counter(tokens).values()], dtype=torch.float64)
    logs = torch.lgamma(counts + 1)
    return (logs[0] - logs[1:].sum()) / torch.log(torch.tensor(10.0, dtype=torch.float64))
