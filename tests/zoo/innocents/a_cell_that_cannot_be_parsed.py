# A cell that cannot be parsed.
# must: full marks

# %%
for for for

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
