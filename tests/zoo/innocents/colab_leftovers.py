# Colab leftovers.
# must: full marks

# %%
from google.colab import drive
drive.mount('/content/drive')
def shuffle_rows(x, permutation):
    return x[..., permutation, :]

# %%
from google.colab import files
files.upload()
