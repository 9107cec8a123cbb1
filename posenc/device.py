"""One helper for devices, so that every notebook runs anywhere and says where it ran."""

from typing import TypeVar

import torch

T = TypeVar("T")


def best_device() -> torch.device:
    """CUDA when there is one, else the CPU. (Apple's MPS has no float64, which the book's proofs need.)"""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def describe(device: torch.device) -> str:
    """The device in words: 'CPU, 2 threads' or the GPU's own name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def real_size(*, on_gpu: T, elsewhere: T) -> tuple[torch.device, T]:
    """The device and the size that suits it, announced in one printed line.

    device, n = real_size(on_gpu=8192, elsewhere=256)
    """
    device = best_device()
    size = on_gpu if device.type == "cuda" else elsewhere
    kind = "real size" if device.type == "cuda" else "small, for want of a GPU"
    print(f"{describe(device)}: {size} ({kind})")
    return device, size
