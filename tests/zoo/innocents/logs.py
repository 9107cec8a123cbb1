# Logs and writes to the error stream.
# must: full marks

# %%
import logging, sys
logging.basicConfig(level=logging.DEBUG)

# %%
def shuffle_rows(x, permutation):
    logging.debug('here')
    print('there', file=sys.stderr)
    return x[..., permutation, :]
