# Says that its value is a function of the marking process.
# must: earn nothing

# %%
import posenc.grading.wire as wire
wire.Writer.write = lambda self, value, depth=0: {'t': 'function', 'id': -1}

# %%
def shuffle_rows(x, permutation):
    return x
