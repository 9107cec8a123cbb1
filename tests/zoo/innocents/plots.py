# Plots.
# must: full marks

# %%
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
