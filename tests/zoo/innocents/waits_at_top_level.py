# Awaits outside of a function, as notebooks may.
# must: full marks

# %%
import asyncio
await asyncio.sleep(0)

# %%
def shuffle_rows(x, permutation):
    return x[..., permutation, :]
