"""Plain values over a pipe: JSON for the structure, raw bytes for the numbers. Nothing is pickled.

A frame is two lengths, a JSON text and a buffer. What is not on the list of kinds travels as its type's name only.
Both sides check lengths, shapes and dtypes before they copy anything.
"""

import json
import math
import os
import select
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST_TEXT = 8_000_000  # bytes of JSON in a frame
LARGEST_BUFFER = 64_000_000  # bytes of numbers in a frame
DEEPEST = 60
SHORT = 1000  # bytes of JSON

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    )
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
ARRAY_DTYPES = {str(np.dtype(kind)): np.dtype(kind) for kind in "?bBhHiIlLefdFD"}
SEQUENCES: dict[str, Callable] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}

_as_json = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode  # made once, used often


class Malformed(ValueError):
    """What came over the pipe is no frame, or no value. It is thrown away."""


class Closed(EOFError):
    """The other side is gone. `in_words` is what a report says of it."""

    in_words = "the process of your function ended while it ran"


@dataclass(frozen=True)
class Opaque:
    """Stands for a value that may not travel: only the name of its type does."""

    type_name: str

    def __repr__(self) -> str:
        return f"a {self.type_name}"


class Writer:
    """Turns values into a tree of JSON and one buffer. `export` gives a number to each function and graph tensor."""

    def __init__(self, export: Callable[[Any], int]):
        self.export = export
        self.buffers: list[bytes] = []

    def write(self, value: Any, depth: int = 0) -> Any:
        if depth > DEEPEST:
            return {"t": "opaque", "name": "value nested too deeply"}
        if value is None or value is True or value is False:
            return value
        if isinstance(value, Tensor):
            return self._tensor(value)
        kind = type(value)
        if kind is tuple or kind is list:
            return {"t": kind.__name__, "items": [self.write(v, depth + 1) for v in value]}
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(value)
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            number = int(value)
            return number if abs(number) < 2**63 else {"t": "int", "hex": hex(number)}
        if isinstance(value, float):
            return {"t": "float", "hex": float.hex(float(value))}
        if isinstance(value, complex):
            return {"t": "complex", "re": value.real.hex(), "im": value.imag.hex()}
        if isinstance(value, dict):
            pairs = [[self.write(k, depth + 1), self.write(v, depth + 1)] for k, v in dict.items(value)]
            return {"t": "dict", "items": pairs}
        return self._sequence(value, depth)

    def _sequence(self, value: Any, depth: int) -> Any:
        for name, base in SEQUENCES.items():
            if isinstance(value, base):
                return {"t": name, "items": [self.write(v, depth + 1) for v in base.__iter__(value)]}
        if isinstance(value, range):
            return {"t": "list", "items": list(value[:100_000])}
        if isinstance(value, torch.dtype):
            return {"t": "dtype", "name": str(value).removeprefix("torch.")}
        if callable(value):
            return {"t": "function", "id": self.export(value)}
        return {"t": "opaque", "name": type(value).__name__[:60]}

    def _tensor(self, value: Tensor) -> Any:
        plain = value.detach()
        plain = plain if type(plain) is Tensor else plain.as_subclass(Tensor)
        plain = plain.to_dense() if plain.layout != torch.strided else plain
        plain = plain.resolve_conj().resolve_neg() if plain.is_conj() or plain.is_neg() else plain
        plain = plain if plain.is_cpu else plain.cpu()
        name = NAMES.get(plain.dtype)
        if name is None:
            return {"t": "opaque", "name": f"tensor of {plain.dtype}"}
        bits = plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain  # which numpy lacks
        self.buffers.append(bits.numpy().tobytes())
        tree = {"t": "tensor", "dtype": name, "shape": list(plain.shape), "size": len(self.buffers[-1])}
        if value.requires_grad:
            tree["graph"] = self.export(value)
        return tree

    def _array(self, value: Any) -> Any:
        plain = np.ascontiguousarray(np.asarray(value)).reshape(np.shape(value))
        name = str(plain.dtype.newbyteorder("="))
        if name not in ARRAY_DTYPES:
            return {"t": "opaque", "name": f"array of {name}"[:60]}
        self.buffers.append(plain.astype(ARRAY_DTYPES[name]).tobytes())
        return {"t": "array", "dtype": name, "shape": list(plain.shape), "size": len(self.buffers[-1])}


class Reader:
    """Turns a tree and its buffer back into values. `function` makes something callable from a number.

    `graph` is told of each tensor that belongs to the other side's autograd graph.
    """

    def __init__(self, buffer: bytes, function: Callable[[int], Any], graph: Callable[[Tensor, int], Tensor]):
        self.buffer, self.function, self.graph = buffer, function, graph
        self.at = 0

    def read(self, tree: Any, depth: int = 0) -> Any:
        if tree is None or isinstance(tree, (bool, str)) or type(tree) is int:
            return tree
        if not isinstance(tree, dict):
            raise Malformed(f"a bare {type(tree).__name__}")
        if depth > DEEPEST + 2:
            raise Malformed("nested too deeply")
        try:
            return self._read(tree, depth)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise Malformed(f"a broken value: {type(error).__name__}") from None

    def _read(self, tree: dict, depth: int) -> Any:
        kind = tree["t"]
        if kind in ("tensor", "array"):
            return self._numbers(tree)
        if kind in SEQUENCES:
            return SEQUENCES[kind]([self.read(item, depth + 1) for item in tree["items"]])
        if kind == "dict":
            return {self.read(k, depth + 1): self.read(v, depth + 1) for k, v in tree["items"]}
        if kind == "float":
            return float.fromhex(tree["hex"])
        if kind == "int":
            return int(tree["hex"], 16)
        if kind == "complex":
            return complex(float.fromhex(tree["re"]), float.fromhex(tree["im"]))
        if kind == "dtype":
            return DTYPES[tree["name"]]
        if kind == "function":
            return self.function(int(tree["id"]))
        if kind == "opaque":
            return Opaque(str(tree["name"])[:60])
        raise Malformed(f"a value of unknown kind {str(kind)[:40]!r}")

    def _numbers(self, tree: dict) -> Any:
        shape, size = tree["shape"], tree["size"]
        if not all(type(n) is int and 0 <= n < 2**40 for n in (*shape, size)) or len(shape) > 20:
            raise Malformed("a shape that is none")
        dtypes = DTYPES if tree["t"] == "tensor" else ARRAY_DTYPES
        dtype = dtypes[tree["dtype"]]
        if math.prod(shape) * dtype.itemsize != size or self.at + size > len(self.buffer):
            raise Malformed("numbers whose size does not fit their shape")
        data = bytearray(memoryview(self.buffer)[self.at : self.at + size])
        self.at += size
        if tree["t"] == "array":
            array = np.frombuffer(data, dtype=dtype).reshape(shape)
            return array if shape else array[()]
        tensor = torch.frombuffer(data, dtype=dtype).view(shape) if size else torch.empty(shape, dtype=dtype)
        return self.graph(tensor, int(tree["graph"])) if "graph" in tree else tensor


def send(pipe: int, message: dict, buffers: list[bytes]) -> None:
    """Write one frame. Raises Malformed if it is too large, Closed if nobody reads."""
    text, buffer = _as_json(message).encode(), b"".join(buffers)
    if len(text) > LARGEST_TEXT or len(buffer) > LARGEST_BUFFER:
        raise Malformed(f"too much to send: {len(text) + len(buffer):,} bytes")
    data = memoryview(struct.pack("<II", len(text), len(buffer)) + text + buffer)
    waiting.append((pipe, select.POLLOUT, time.monotonic()))
    try:
        while data:
            data = data[os.write(pipe, data) :]
    except (BrokenPipeError, OSError) as error:
        raise Closed(str(error)) from None
    finally:
        waiting.pop()


def receive(pipe: int) -> tuple[dict, bytes]:
    """Read one frame. Raises Closed at the end of the pipe, Malformed for anything that is no frame."""
    n_text, n_buffer = struct.unpack("<II", _exactly(pipe, 8))
    if n_text > LARGEST_TEXT or n_buffer > LARGEST_BUFFER:
        raise Malformed(f"a frame of {n_text + n_buffer:,} bytes")
    data = _exactly(pipe, n_text + n_buffer)
    try:
        message = _from_short_json(data[:n_text]) if n_text <= SHORT else json.loads(data[:n_text].decode())
    except (ValueError, RecursionError):
        raise Malformed("a frame that is not JSON") from None
    if not isinstance(message, dict):
        raise Malformed("a frame that is not an object")
    return message, data[n_text:]


@lru_cache(maxsize=64)
def _from_short_json(text: bytes) -> Any:
    """What a short text says, not to be changed: the next call of a function often differs in its numbers alone."""
    return json.loads(text.decode())


def _exactly(pipe: int, n: int) -> bytes:
    pieces = []
    waiting.append((pipe, select.POLLIN, time.monotonic()))
    try:
        while n:
            piece = os.read(pipe, min(n, 1 << 20))
            if not piece:
                raise Closed("the other side is gone")
            pieces.append(piece)
            n -= len(piece)
    finally:
        waiting.pop()
    return b"".join(pieces)


waiting: list[tuple[int, int, float]] = []  # the pipe that this process reads or writes right now, and since when


def seconds_of_others_turn() -> float:
    """How long we have waited for the other side, if it has not moved yet. Asked in the midst of that, by a signal."""
    for pipe, event, since in waiting:
        poll = select.poll()
        poll.register(pipe, event)
        return 0.0 if poll.poll(0) else time.monotonic() - since
    return 0.0
