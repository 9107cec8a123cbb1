# Keeps the check.
# must: full marks

# %%
from posenc.checks import check, scoreboard

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]

# %%
check(shuffle_rows)
scoreboard(1)
