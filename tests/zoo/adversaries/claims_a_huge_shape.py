# Claims a huge shape.
# must: earn nothing

# %%
import posenc.grading.wire as wire
wire.Writer.write = lambda self, value, depth=0: {'t': 'tensor', 'dtype': 'float64', 'shape': [10**11], 'size': 8 * 10**11}
def shuffle_rows(x, permutation):
    return x
