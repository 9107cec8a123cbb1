# Defined in a branch.
# must: full marks

# %%
try:
    import nowhere
except ImportError:
    nowhere = None
if nowhere is None:
    def shuffle_rows(x, permutation):
        return x[..., permutation, :]
