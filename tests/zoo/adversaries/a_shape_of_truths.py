# Claims a shape of truths and a size of text.
# must: earn nothing

# %%
import posenc.grading.wire as wire
wire.Writer.write = lambda self, value, depth=0: {'t': 'tensor', 'dtype': 'float64', 'shape': [True], 'size': '8'}

# %%
def shuffle_rows(x, permutation):
    return x
