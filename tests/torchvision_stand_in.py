"""What timm asks of torchvision when it is imported, and no more: names that are looked up but never called here.

torchvision cannot be installed beside the CPU build of torch that the tests use.

    with torchvision_stand_in.installed():
        import timm
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

NAMES = (
    "torchvision",
    "torchvision.datasets",
    "torchvision.models",
    "torchvision.models.feature_extraction",
    "torchvision.ops",
    "torchvision.ops.misc",
    "torchvision.transforms",
    "torchvision.transforms.functional",
)

InterpolationMode = Enum("InterpolationMode", ["NEAREST", "BILINEAR", "BICUBIC", "BOX", "HAMMING", "LANCZOS"])


class _Names(ModuleType):
    """A module in which every public name is an empty layer."""

    InterpolationMode = InterpolationMode

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (torch.nn.Module,), {})
        setattr(self, name, made)
        return made


@contextmanager
def installed() -> Iterator[None]:
    """The stand-in is found by `import torchvision`, until the block ends. A real torchvision is left alone."""
    if find_spec("torchvision") is not None:
        yield
        return
    for name in NAMES:
        module = sys.modules[name] = _Names(name)
        module.__spec__ = ModuleSpec(name, loader=None, is_package=True)
        module.__path__ = []
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    try:
        yield
    finally:
        for name in NAMES:
            del sys.modules[name]
