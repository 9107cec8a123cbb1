# A line that fails before the answer.
# must: full marks

# %%
data = open('mine.csv').read()
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
