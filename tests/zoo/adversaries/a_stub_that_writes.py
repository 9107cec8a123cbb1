# Says that it is no stub, nor an answer.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    if x is None:
        raise NotImplementedError
    return None
