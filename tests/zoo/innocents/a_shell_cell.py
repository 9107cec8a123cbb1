# A shell cell.
# must: full marks

# %%
%%bash
rm -rf nothing

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
