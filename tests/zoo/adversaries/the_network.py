# Asks the network for the answer.
# must: earn nothing

# %%
import socket, urllib.request

def shuffle_rows(x, permutation):
    for address in (('127.0.0.1', 22), ('8.8.8.8', 53)):
        socket.create_connection(address, 1)
    return x[..., permutation, :]
