# Plots within the answer.
# must: full marks

# %%
import matplotlib.pyplot as plt

# %%
def shuffle_rows(x, permutation):
    plt.figure()
    plt.show()
    plt.close('all')
    return x[..., permutation, :]
