# A view.
# must: full marks

# %%
def shuffle_rows(x, permutation):
    return x.clone()[..., permutation, :][:]
