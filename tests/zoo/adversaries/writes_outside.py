# Leaves files wherever it can.
# must: earn nothing

# %%
for folder in ('/tmp', '/dev/shm', '/', '/home', '/root', '/usr', '/var/tmp', '..', '/proc'):
    try: open(f'{folder}/posenc-zoo-was-here', 'w').write('x')
    except OSError: pass

# %%
def shuffle_rows(x, permutation):
    return x
