# A lambda.
# must: full marks

# %%
shuffle_rows = lambda x, permutation: x[..., permutation, :]
