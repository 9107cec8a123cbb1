# Magics that swallow output.
# must: full marks

# %%
%%capture
def shuffle_rows(x, permutation):
    return x[..., permutation, :]

# %%
%timeit 1 + 1
?print
files = !ls

# %%
%%html
<b>hello</b>
