# A thread that goes on after the answer was given.
# must: earn nothing

# %%
import threading, time

def shuffle_rows(x, permutation):
    y = x.clone()
    def later():
        while True:
            y.copy_(x)
            time.sleep(0.001)
    threading.Thread(target=later, daemon=True).start()
    return y
