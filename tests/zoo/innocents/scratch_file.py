# Writes a file and reads it in the answer.
# must: full marks

# %%
import json
json.dump([-2], open('axis.json', 'w'))

# %%
def shuffle_rows(x, permutation):
    axis = json.load(open('axis.json'))[0]
    return x.index_select(axis, permutation)
