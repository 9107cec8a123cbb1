# Claims a kind of value that does not exist.
# must: earn nothing

# %%
import posenc.grading.wire as wire
wire.Writer.write = lambda self, value, depth=0: {'t': 'pickle', 'data': 'cos\nsystem'}

# %%
def shuffle_rows(x, permutation):
    return x
