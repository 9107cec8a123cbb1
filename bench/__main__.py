"""The book's attention beside PyTorch's fused kernel, in one run.

Only ratios are printed: medians of several runs, both sides in turn on the same machine. Seconds would say more
about the machine than about the code.
"""

import torch
from torch.nn import functional as F
from torch.utils.benchmark import Timer

from posenc.attention import attention
from posenc.device import best_device, describe

LENGTHS = (64, 256, 1024)
ROUNDS = 5


def median_ratio(ours: Timer, theirs: Timer) -> tuple[float, float, float]:
    """Least, median and largest of ours / theirs over rounds in which the two take turns."""
    ratios = []
    for _ in range(ROUNDS):
        ratios.append(
            ours.blocked_autorange(min_run_time=0.1).median / theirs.blocked_autorange(min_run_time=0.1).median
        )
    ratios.sort()
    return ratios[0], ratios[ROUNDS // 2], ratios[-1]


def main() -> None:
    device = best_device()
    print(f"{describe(device)}, torch {torch.__version__}, float32, 8 heads of width 64, forward only")
    print("length   posenc.attention / scaled_dot_product_attention: median (least to largest)")
    for n in LENGTHS:
        queries, keys, values = torch.randn(3, 1, 8, n, 64, device=device)
        scope = {"q": queries, "k": keys, "v": values}
        ours = Timer("attention(q, k, v)", globals=scope | {"attention": attention})
        theirs = Timer("fused(q, k, v)", globals=scope | {"fused": F.scaled_dot_product_attention})
        least, median, largest = median_ratio(ours, theirs)
        print(f"{n:6}   {median:.2f} ({least:.2f} to {largest:.2f})")


if __name__ == "__main__":
    main()
