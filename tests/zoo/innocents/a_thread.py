# A thread.
# must: full marks

# %%
import threading
threading.Thread(target=print).start()

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
