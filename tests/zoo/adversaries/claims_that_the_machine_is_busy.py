# Raises the words with which the grader gives up on a busy machine.
# must: earn nothing
# say: wrong

# %%
from posenc.checks.calling import TOO_BUSY

def shuffle_rows(x, permutation):
    error = ValueError(TOO_BUSY)
    error.in_words = TOO_BUSY
    raise error
