# A class.
# must: full marks

# %%
class Shuffler:
    def __call__(self, x, permutation):
        return x[..., permutation, :]

# %%
shuffle_rows = Shuffler()
