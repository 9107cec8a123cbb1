"""Rotary as one fused kernel: each number is read once and written once, where it was.

Written in Triton, which comes with PyTorch for CUDA. Elsewhere this module imports, and `triton` is None. With the
environment variable TRITON_INTERPRET=1, set before the import, Triton runs the same text on a CPU, slowly.
"""

from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # no Triton here
    triton = None

ROWS = 4  # of x that one program turns


if triton is not None:

    @triton.jit
    def _turn(x, cos, sin, n_rows, n, HALF: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
        rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
        columns = tl.arange(0, BLOCK)[None, :]  # pairs; BLOCK is a power of two, HALF need not be
        inside = (rows < n_rows) & (columns < HALF)
        pair = x + rows.to(tl.int64) * (2 * HALF) + 2 * columns  # int64: large tensors have more than 2^31 numbers
        angle = (rows % n) * HALF + columns  # row r of x stands at position r % n
        even = tl.load(pair, mask=inside).to(tl.float32)
        odd = tl.load(pair + 1, mask=inside).to(tl.float32)
        c = tl.load(cos + angle, mask=inside).to(tl.float32)
        s = tl.load(sin + angle, mask=inside).to(tl.float32)
        tl.store(pair, even * c - odd * s, mask=inside)
        tl.store(pair + 1, even * s + odd * c, mask=inside)


def turn_in_place(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of neighbours of x by its angle, where it stands. x: (..., n, head_dim), changed and returned.

    cos, sin: (n, head_dim / 2). As `posenc.rotary.turn`, whatever the dtype of x; products are float32.
    Raises RuntimeError without Triton, ValueError if x is not contiguous or the shapes do not fit.
    """
    if triton is None:
        raise RuntimeError("Triton is not installed; posenc.rotary.turn does the same, and not in place")
    n, head_dim = x.shape[-2:]
    if not x.is_contiguous():
        raise ValueError("x must be contiguous, to be changed where it stands; call x.contiguous() first")
    if head_dim % 2 or cos.shape != (n, head_dim // 2) or sin.shape != cos.shape:
        wanted = (n, head_dim // 2)
        raise ValueError(f"x {tuple(x.shape)} needs cos and sin of {wanted}, got {tuple(cos.shape)} {tuple(sin.shape)}")
    n_rows = x.numel() // head_dim
    programs = (triton.cdiv(n_rows, ROWS),)
    sizes = {"HALF": head_dim // 2, "BLOCK": triton.next_power_of_2(head_dim // 2), "ROWS": ROWS}
    _turn[programs](x, cos.contiguous(), sin.contiguous(), n_rows, n, **sizes)
    return x
