# Claims a set of lists and a dict with lists as keys.
# must: earn nothing

# %%
import posenc.grading.wire as wire
wire.Writer.write = lambda self, value, depth=0: {'t': 'set', 'items': [{'t': 'list', 'items': []}]}

# %%
def shuffle_rows(x, permutation):
    return x
