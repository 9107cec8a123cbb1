# Claims a shape with negative sizes.
# must: earn nothing

# %%
import posenc.grading.wire as wire
wire.Writer.write = lambda self, value, depth=0: {'t': 'tensor', 'dtype': 'float64', 'shape': [-1, -8], 'size': 64}

# %%
def shuffle_rows(x, permutation):
    return x
