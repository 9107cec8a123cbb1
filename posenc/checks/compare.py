"""Is this the expected value? Shape first, then kind, then NaN and infinity, then the numbers.

Nothing is broadcast: (3,) is not (2, 3). Whatever means the same number is accepted: a tensor on a GPU or with a
gradient, a bfloat16, an array, a list, a Python number.
"""

import math
from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch

from posenc.checks.exercise import Complaint

# A right answer that sums in another order is off by a few last bits, one that went through float32 by 1e-6; a wrong
# one by far more.
RELATIVE_TOLERANCE = {torch.float64: 5e-6, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


def compare(got: Any, expected: Any, where: str = "") -> Complaint:
    """None if `got` means the same as `expected`, else a sentence: what was expected, what came, where."""
    at = f" at {where}" if where else ""
    if got is None and expected is not None:
        return f"got None{at}; did you forget the `return`?"
    if isinstance(expected, str):
        return None if isinstance(got, str) and str(got) == expected else f"expected {expected!r}{at}, got {short(got)}"
    if isinstance(expected, Mapping):
        return _compare_mappings(got, expected, where)
    if isinstance(expected, (set, frozenset)):
        same = isinstance(got, (set, frozenset)) and set(got) == set(expected)
        return None if same else f"expected the set {sorted(expected)}{at}, got {short(got)}"
    if isinstance(expected, Sequence):
        return _compare_sequences(got, expected, where)
    return _compare_arrays(got, expected, at)


def _compare_mappings(got: Any, expected: Mapping, where: str) -> Complaint:
    if not isinstance(got, Mapping):
        return f"expected a dict, got {short(got)}"
    if set(got) != set(expected):
        missing = [k for k in expected if k not in got]
        extra = [k for k in got if k not in expected]
        return "the keys differ: " + "; ".join(
            f"{word} {keys}" for word, keys in (("missing", missing), ("not asked for", extra)) if keys
        )
    return _first_complaint((got[key], expected[key], f"{where}[{key!r}]") for key in expected)


def _compare_sequences(got: Any, expected: Sequence, where: str) -> Complaint:
    if not isinstance(got, Sequence) or isinstance(got, str):
        things = f"{len(expected)} things{' at ' + where if where else ''}"
        return f"expected {things}, as in `return {', '.join('abcdefgh'[: len(expected)])}`; got {short(got)}"
    if len(got) != len(expected):
        return f"expected {len(expected)} values{' at ' + where if where else ''}, got {len(got)}"
    return _first_complaint((g, e, f"{where}[{i}]") for i, (g, e) in enumerate(zip(got, expected, strict=True)))


def _first_complaint(triples) -> Complaint:
    return next((complaint for triple in triples if (complaint := compare(*triple))), None)


def _compare_arrays(got: Any, expected: Any, at: str) -> Complaint:
    if isinstance(expected, Number) and isinstance(got, (list, tuple)):
        return f"expected one number{at}, got {short(got)}"
    try:
        got_array, expected_array = as_tensor(got), as_tensor(expected)
    except (TypeError, ValueError, RuntimeError):
        return f"expected {short(expected)}{at}, got {short(got)}, which is not made of numbers"
    if got_array.shape != expected_array.shape:
        return f"expected shape {tuple(expected_array.shape)}{at}, got {tuple(got_array.shape)}"
    if (got_kind := kind(got_array)) != (expected_kind := kind(expected_array)):
        whole_where_float = (got_kind, expected_kind) == ("whole", "floating-point")
        if not (isinstance(got, Number) and isinstance(expected, Number)) or "true/false" in (got_kind, expected_kind):
            return f"expected {expected_kind} values{at}, got {got_kind} ones ({got_array.dtype})"
        if not whole_where_float and not float(got).is_integer():
            return f"expected a whole number{at}, got {short(got)}"
    return _compare_numbers(got_array, expected_array, at)


def _compare_numbers(got: torch.Tensor, expected: torch.Tensor, at: str) -> Complaint:
    if got.dtype == expected.dtype and torch.equal(got, expected):  # then there is no NaN either
        return None
    tolerance = max(RELATIVE_TOLERANCE.get(t.dtype, 0.0) for t in (got, expected))
    if expected.dtype in (torch.float64, torch.float32):
        tolerance = min(tolerance, RELATIVE_TOLERANCE[torch.float32])
    truth = expected.dtype == torch.bool
    wide = torch.complex128 if got.is_complex() or expected.is_complex() else torch.float64
    got, expected = got.to(wide), expected.to(wide)
    for word, odd in (("NaN", torch.isnan), ("infinity", torch.isinf)):
        if not torch.equal(odd(got), odd(expected)):
            many, wanted = int(odd(got).sum()), int(odd(expected).sum())
            return f"expected {wanted} times {word}{at}, got {many}" if wanted else f"got {word}{at}, {many} times"
    finite = torch.isfinite(expected)
    scale = max(1e-3, expected[finite].abs().max().item()) if finite.any() else 1.0
    wrong = ((got - expected).abs() > tolerance * scale) & finite
    wrong |= torch.isinf(expected) & (got != expected)
    if not wrong.any():
        return None
    first = tuple(int(i) for i in wrong.nonzero()[0])
    index = f" at {list(first)}" if first else at
    count = f"; {int(wrong.sum())} of {wrong.numel()} differ" if wrong.numel() > 1 else ""
    if truth:
        wanted, came = bool(expected[first].real), bool(got[first].real)
    else:
        wanted, came = _distinguishable(expected[first].item(), got[first].item())
    return f"expected {wanted}{index}, got {came}{count}"


def as_tensor(value: Any) -> torch.Tensor:
    """A plain, dense, detached CPU tensor of the same numbers. Raises TypeError or ValueError where there is none."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        value = value.to_dense() if value.layout != torch.strided else value
        return value.as_subclass(torch.Tensor).cpu().resolve_conj().resolve_neg().clone()
    if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        return torch.stack([as_tensor(v) for v in value])
    if isinstance(value, (str, bytes)):
        raise TypeError("text is not a number")
    if type(value) is int and abs(value) >= 2**63:  # too large for any array of whole numbers
        value = math.inf if abs(value) > 1e300 else float(value)
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"not numbers: {array.dtype}")
    return torch.from_numpy(np.array(array))


def kind(tensor: torch.Tensor) -> str:
    """The kind of number in words, for a message."""
    if tensor.dtype == torch.bool:
        return "true/false"
    if tensor.is_complex():
        return "complex"
    return "floating-point" if tensor.is_floating_point() else "whole"


def short(value: Any) -> str:
    """A value in a few words: never longer than a line, never raising."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _distinguishable(a: complex, b: complex) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to tell them apart, and no more."""
    for digits in (4, 7, 10, 17):
        words = _number(a, digits), _number(b, digits)
        if words[0] != words[1]:
            return words
    return words


def _number(value: complex, digits: int) -> str:
    if value.imag:
        return f"{value:.{digits}g}"
    value = value.real
    if value and abs(value) < 1e-12:
        return "nearly 0"
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.{digits}g}"
