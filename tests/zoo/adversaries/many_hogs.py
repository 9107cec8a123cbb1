# Many processes, each below the limit on memory, together above the one that these tests set.
# must: earn nothing
# say: memory

# %%
import os, time

def shuffle_rows(x, permutation):
    for _ in range(20):
        if not os.fork():
            kept = b"x" * 100_000_000
            time.sleep(60)
            os._exit(0)
    time.sleep(60)
    return x
