# Magics and shell lines.
# must: full marks

# %%
%matplotlib inline
!pip install torch
%load_ext autoreload
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
