# A list that is nested without end.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    return deep
