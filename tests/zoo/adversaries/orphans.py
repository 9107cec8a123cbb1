# Leaves processes behind in sessions of their own.
# must: earn nothing

# %%
import os, subprocess, sys, time
for _ in range(3):
    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', 'posenc-zoo-orphan'], start_new_session=True)
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(600)
    os._exit(0)

# %%
def shuffle_rows(x, permutation):
    return x
