# Names and texts in other alphabets.
# must: full marks

# %%
größe = 'été 位置 🙂'
π = 3

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
