# Returns a numpy scalar.
# must: full marks
# exercise: log10_orders

# %%
import numpy as np
from collections import Counter
from math import lgamma

def log10_orders(tokens):
    n = lgamma(len(tokens) + 1) - sum(lgamma(c + 1) for c in Counter(tokens).values())
    return np.float64(n / np.log(10))
