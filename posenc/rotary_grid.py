"""Rotary on several axes: each pair of features turns by the product of its frequency *vector* and the place.

Axial, mixed and multimodal rotary are one formula with different vectors. Axial: every vector lies on an axis. Mixed:
they point anywhere, and are learned. M-RoPE: three axes (time, row, column), every vector on one of them.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from posenc.absolute import frequencies
from posenc.encoding import PositionEncoding
from posenc.grids import places_in
from posenc.rotary import turn

Allocation = Literal["shared", "alternating"]


def grid_angles(positions: Tensor, vectors: Tensor) -> Tensor:
    """The angle of each pair at each place: the sum over the axes of position times frequency.

    positions: (axes, ..., n), vectors: (axes, pairs) or (axes, heads, pairs) -> (..., n, pairs) or
    (..., heads, n, pairs). Raises ValueError if they have different numbers of axes.
    """
    if len(positions) != len(vectors):
        raise ValueError(f"positions have {len(positions)} axes, the frequency vectors {len(vectors)}")
    return sum(p.unsqueeze(-1) * f.unsqueeze(-2) for p, f in zip(positions, vectors, strict=True))


class GridRotary(PositionEncoding):
    """Turns queries and keys by the angles of `grid_angles`. vectors: (axes, pairs) or (axes, heads, pairs)."""

    def __init__(self, vectors: Tensor):
        super().__init__()
        self.vectors = vectors  # not a buffer: `.to(torch.bfloat16)` would round it

    def queries_and_keys(
        self, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        vectors = self.vectors.to(queries.device)
        queries = turn(queries, grid_angles(query_positions, vectors))
        return queries, turn(keys, grid_angles(key_positions, vectors))


# --- Axial


def axial_vectors(head_dim: int, base: float = 100.0, allocation: Allocation = "shared") -> Tensor:
    """Half of the pairs for the rows, half for the columns. (2, head_dim / 2), float64.

    "shared": both axes have the frequencies of a head of half the width (Qwen2-VL's vision, DINOv3, EVA-02).
    "alternating": rows take those of pairs 0, 2, …, columns those of pairs 1, 3, … of the whole head (Pixtral).
    Raises ValueError if head_dim is no multiple of 4, or for another allocation.
    """
    if head_dim % 4:
        raise ValueError(f"two axes and pairs of features: head_dim must be a multiple of 4, got {head_dim}")
    if allocation == "shared":
        of_rows = of_columns = frequencies(head_dim // 2, base)
    elif allocation == "alternating":
        of_rows, of_columns = frequencies(head_dim, base).view(-1, 2).T
    else:
        raise ValueError(f"allocation must be 'shared' or 'alternating', got {allocation!r}")
    rest = torch.zeros_like(of_rows)
    return torch.stack([torch.cat([of_rows, rest]), torch.cat([rest, of_columns])])


class AxialRotary(GridRotary):
    """Rows turn one half of the pairs, columns the other. See `axial_vectors`."""

    def __init__(self, head_dim: int, base: float = 100.0, allocation: Allocation = "shared"):
        super().__init__(axial_vectors(head_dim, base, allocation))


# --- Mixed


def mixed_vectors(n_heads: int, head_dim: int, base: float = 10.0) -> Tensor:
    """Where mixed rotary starts: vectors of axial lengths, turned by one random angle a head. (2, n_heads, pairs).

    Lengths are base^(-4k / head_dim), each twice, at right angles. As `init_random_2d_freqs` in
    https://github.com/naver-ai/rope-vit
    Raises ValueError if head_dim is no multiple of 4.
    """
    if head_dim % 4:
        raise ValueError(f"two axes and pairs of features: head_dim must be a multiple of 4, got {head_dim}")
    lengths = frequencies(head_dim // 2, base)  # (head_dim / 4,)
    angle = 2 * torch.pi * torch.rand(n_heads, 1)
    cos, sin = lengths * angle.cos(), lengths * angle.sin()  # (n_heads, head_dim / 4)
    return torch.stack([torch.cat([cos, -sin], dim=-1), torch.cat([sin, cos], dim=-1)])


class MixedRotary(GridRotary):
    """Frequency vectors are parameters, one set a head. One object shares them among the layers it serves.

    Heo et al. 2024, Rotary Position Embedding for Vision Transformer, https://arxiv.org/abs/2403.13298, section 3.2
    (there each layer has its own).
    """

    def __init__(self, n_heads: int, head_dim: int, base: float = 10.0):
        super().__init__(nn.Parameter(mixed_vectors(n_heads, head_dim, base).to(torch.get_default_dtype())))


# --- Coordinates


def centred(rows: int, columns: int) -> Tensor:
    """DINOv3's coordinates: patch centres between -1 and 1 on each axis. (2, rows * columns), float64.

    https://github.com/huggingface/transformers/blob/main/src/transformers/models/dinov3_vit/modeling_dinov3_vit.py
    """
    return places_in(2, 2, rows, columns) - 0.5


# --- Text, pictures and films together


def mrope_vectors(head_dim: int, sections: Sequence[int], base: float = 10_000.0, interleaved: bool = False) -> Tensor:
    """One frequency a pair, as in text, given to one of the axes time, row, column. (3, head_dim / 2), float64.

    sections: how many pairs each axis has. In a row (Qwen2-VL: 16, 24, 24), or dealt out in turn, time, row, column,
    until an axis has its number, and the rest to time (Qwen3-VL: 24, 20, 20; Qwen 3.5: 11, 11, 10).
    Raises ValueError unless the sections add up to head_dim / 2, or if they cannot be dealt out so.
    """
    pairs = head_dim // 2
    if sum(sections) != pairs:
        raise ValueError(f"sections {tuple(sections)} must add up to {pairs} pairs of a head of {head_dim}")
    if interleaved:
        axis_of = torch.zeros(pairs, dtype=torch.long)
        for axis in (1, 2):
            axis_of[axis : 3 * sections[axis] : 3] = axis
    else:
        axis_of = torch.arange(3).repeat_interleave(torch.tensor(sections))
    dealt = axis_of.bincount(minlength=3).tolist()
    if dealt != list(sections):
        raise ValueError(f"sections {tuple(sections)} cannot be dealt out in turn, it comes to {tuple(dealt)}")
    vectors = torch.zeros(3, pairs, dtype=torch.float64)
    vectors[axis_of, torch.arange(pairs)] = frequencies(head_dim, base)
    return vectors


class MRotary(GridRotary):
    """Multimodal rotary. Positions are (3, n): time, row, column; a text token has one number three times.

    Wang et al. 2024, Qwen2-VL, https://arxiv.org/abs/2409.12191, section 2.1. See `mrope_vectors`.
    """

    def __init__(self, head_dim: int, sections: Sequence[int], base: float = 10_000.0, interleaved: bool = False):
        super().__init__(mrope_vectors(head_dim, sections, base, interleaved))


def mrope_positions(parts: Sequence[int | tuple[int, int, int]]) -> Tensor:
    """Places of a sequence of texts (their length) and pictures or films (frames, rows, columns). (3, n).

    A text counts on in all three numbers. A picture starts there too, and counts its own rows and columns from it. What
    follows starts one after the largest number so far (Qwen2-VL, section 2.1). Raises ValueError for an empty part.
    """
    start, places = 0, []
    for part in parts:
        shape = (part,) if isinstance(part, int) else part
        if min(shape) < 1:
            raise ValueError(f"every part needs at least one token, got {part}")
        if isinstance(part, int):
            new = torch.arange(part).expand(3, -1)
        else:
            new = torch.cartesian_prod(*(torch.arange(n) for n in part)).T
        places.append(start + new)
        start = int(places[-1].max()) + 1
    return torch.cat(places, dim=1) if places else torch.zeros(3, 0, dtype=torch.long)
