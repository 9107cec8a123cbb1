# Returns an OrderedDict that was filled in a loop.
# must: full marks
# exercise: what_commutes

# %%
from collections import OrderedDict

def what_commutes():
    right = OrderedDict()
    for name in (
        'feed-forward on each row', 'layer norm over the features of each row',
        'batch norm over all rows, training mode', 'subtract the mean row from every row',
        'attention with the softmax down the columns',
    ):
        right[name] = True
    for name in (
        'dropout with the same mask both times', "sort each feature's column", 'running sum down the rows'
    ):
        right[name] = False
    return right
