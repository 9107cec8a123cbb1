# Prints a gigabyte in little pieces, then answers wrongly.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    for _ in range(1000):
        print('x' * 10**6)
    return x
