# Kills itself.
# must: earn nothing

# %%
import os, signal
def shuffle_rows(x, permutation):
    os.kill(os.getpid(), signal.SIGKILL)
