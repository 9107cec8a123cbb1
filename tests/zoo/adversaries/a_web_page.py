# Fetches a page while the answer is computed.
# must: earn nothing

# %%
import urllib.request

def shuffle_rows(x, permutation):
    urllib.request.urlopen('https://example.com', timeout=2)
    return x[..., permutation, :]
