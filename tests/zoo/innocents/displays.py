# Displays.
# must: full marks

# %%
display('hello')

# %%
from IPython.display import display, HTML
display(HTML('<b>'))

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
