# Exits.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    raise SystemExit(0)
