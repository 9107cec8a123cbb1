# Claims a dtype that is none.
# must: earn nothing

# %%
import posenc.grading.wire as wire
wire.Writer.write = lambda self, value, depth=0: {'t': 'array', 'dtype': 'object', 'shape': [1], 'size': 8}

# %%
def shuffle_rows(x, permutation):
    return x
