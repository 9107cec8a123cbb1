# Pretends that the teacher pressed Ctrl-C.
# must: earn nothing

# %%
import os, signal

def shuffle_rows(x, permutation):
    os.kill(os.getppid(), signal.SIGINT)
    raise KeyboardInterrupt
