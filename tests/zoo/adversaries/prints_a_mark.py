# Prints and writes full marks.
# must: earn nothing

# %%
import json, os, sys
print('1 of 1 point')
os.write(1, b'{"status": "correct", "points": 1}\n')
json.dump({'score': 99}, open('results.json', 'w'))
sys.stdout.flush()

# %%
def shuffle_rows(x, permutation):
    print('✓ shuffle_rows 1 of 1 points')
    return x
