# Runs its tests behind a main guard.
# must: full marks

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]

# %%
if __name__ == '__main__':
    import torch
    assert shuffle_rows(torch.eye(2), torch.tensor([1, 0]))[0, 1] == 1
