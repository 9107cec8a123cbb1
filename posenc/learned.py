"""Learned tables: one row of parameters a position, added to the token (the token door). BERT and GPT-2 do this.

Nothing tells the table that position 7 lies next to position 8; what its rows have to do with each other, training
decides. It ends at its last row: see `resize_table` for longer texts.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.encoding import PositionEncoding


def check_positions(positions: Tensor, n_max: int) -> None:
    """Raise ValueError unless all positions lie between 0 and n_max - 1.

    Torch's own message for a position that is too large names neither the position nor the table; for a negative
    one, `table[position]` raises nothing and takes a row from the end. On a GPU the check waits for the device.
    """
    if positions.numel() == 0:
        return
    lowest, highest = positions.min().item(), positions.max().item()
    if lowest < 0:
        raise ValueError(f"positions count from 0, got {lowest}; give padding a row of its own, not a negative number")
    if highest >= n_max:
        raise ValueError(
            f"position {highest} has no row: the table has {n_max}, for positions 0 to {n_max - 1}; "
            "shorten the text, or extend the table and train on"
        )


class Learned(PositionEncoding):
    """Adds a learned row to each token: x_i + p_i, where p_i is row i of a table (n_max, d_model).

    The start is normal noise of the given standard deviation, 0.02 in BERT (https://arxiv.org/abs/1810.04805; there
    cut off at two deviations). Raises ValueError for a position that has no row.
    """

    def __init__(self, n_max: int, d_model: int, std: float = 0.02):
        super().__init__()
        self.table = nn.Parameter(std * torch.randn(n_max, d_model))

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        check_positions(positions, len(self.table))
        return x + self.table[positions].to(x.dtype)


def resize_table(table: Tensor, n_new: int, mode: Literal["linear", "cubic"] = "linear", reserved: int = 0) -> Tensor:
    """Stretch or shrink a table to serve n_new positions: (reserved + n, d) -> (reserved + n_new, d).

    Its first row stays the first and its last row the last (`align_corners=True`); the first `reserved` rows belong
    to no position and are kept as they are. Raises ValueError for an unknown mode, or if nothing is left to resize.
    """
    if mode not in ("linear", "cubic"):
        raise ValueError(f"mode must be 'linear' or 'cubic', got {mode!r}")
    if n_new < 1 or not 0 <= reserved < len(table):
        raise ValueError(f"need n_new >= 1 and 0 <= reserved < {len(table)} rows; got {n_new} and {reserved}")
    kept, rows = table[:reserved], table[reserved:].T  # (reserved, d), (d, n)
    if mode == "linear":
        resized = F.interpolate(rows[None], size=n_new, mode="linear", align_corners=True)[0]
    else:  # cubic comes for pictures only: take the table for one that is 1 wide
        resized = F.interpolate(rows[None, :, :, None], size=(n_new, 1), mode="bicubic", align_corners=True)[0, ..., 0]
    return torch.cat([kept, resized.T])


def roberta_rows(ids: Tensor, padding: int = 1) -> Tensor:
    """Which row each token reads in RoBERTa: real tokens padding + 1, padding + 2, …; padding the row `padding`.

    ids: (batch, n) whole numbers. The convention is fairseq's; see `create_position_ids_from_input_ids` in
    https://github.com/huggingface/transformers/blob/main/src/transformers/models/roberta/modeling_roberta.py
    """
    real = (ids != padding).long()
    return real.cumsum(dim=-1) * real + padding


def opt_rows(real: Tensor) -> Tensor:
    """Which row each token reads in OPT: real tokens 2, 3, …; padding the row 1. real: (batch, n), True where real.

    https://github.com/huggingface/transformers/blob/main/src/transformers/models/opt/modeling_opt.py
    """
    real = real.long()
    return real.cumsum(dim=-1) * real - 1 + 2


def bart_rows(n: int) -> Tensor:
    """Which row each token reads in BART as transformers has it: 2, 3, … n + 1, padding included. Returns (n,).

    https://github.com/huggingface/transformers/blob/main/src/transformers/models/bart/modeling_bart.py
    """
    return torch.arange(n) + 2
