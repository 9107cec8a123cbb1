# Asks for gradients that do not exist.
# must: earn nothing
# exercise: equivariance_error

# %%
import posenc.grading.wire as wire

def equivariance_error(layer, x, permutation):
    wire.send(layer.peer.write, {'op': 'gradients', 'output': 5, 'inputs': [1, 2]}, [])
    return 0.0
