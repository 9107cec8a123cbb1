# A list that contains itself, many times.
# must: earn nothing

# %%
def shuffle_rows(x, permutation):
    self = []
    self.append(self)
    return self
