# The reference imported.
# must: earn nothing

# %%
from posenc.checks.chapter_01 import shuffle_rows

# %%
from posenc.checks.registry import all_exercises
shuffle_rows = all_exercises()['shuffle_rows'].reference
