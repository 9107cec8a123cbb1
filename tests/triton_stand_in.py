"""The few words of Triton that the library's kernel says, in plain PyTorch: programs run one after the other.

It is stricter than a GPU. An address outside the tensor is an error, and so is one that is read or written after it has
been written: programs run in no order. What is masked out is read as NaN. Indices have 32 bits, as Triton's have.

    with triton_stand_in.installed():
        import posenc.kernels  # in an interpreter that has not imported it
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import Tensor


@dataclass
class Memory:
    """The numbers behind a tensor, whatever its strides, and which of them have been written."""

    numbers: Tensor
    written: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, x: Tensor) -> "Memory":
        size = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
        return cls(x.as_strided((size,), (1,), x.storage_offset()))

    def addresses(self, offsets: Tensor, mask: Tensor) -> Tensor:
        """The addresses that are not masked out, in order."""
        found = offsets.expand(mask.shape)[mask]
        if found.is_floating_point() or not bool(((found >= 0) & (found < len(self.numbers))).all()):
            raise IndexError("an address is outside the tensor")
        if self.written.intersection(found.tolist()):
            raise RuntimeError("a number is used after it has been written")
        return found


@dataclass(frozen=True)
class Pointer:
    memory: Memory
    offsets: Tensor

    def __add__(self, more: Tensor | int) -> "Pointer":
        return Pointer(self.memory, self.offsets + more)


class Kernel:
    """What `triton.jit` makes of a function: `kernel[grid](…)` runs a program for each place of the grid."""

    def __init__(self, function: Callable) -> None:
        self.function = function

    def __getitem__(self, grid: tuple[int]) -> Callable:
        (programs,) = grid
        return lambda *given, **sizes: self.run(range(programs), *given, **sizes)

    def run(self, programs: range, *given: Tensor | int, **sizes: int) -> None:
        """Run some of the programs."""
        first = torch.zeros((), dtype=torch.int32)
        given = [Pointer(Memory.of(each), first) if isinstance(each, Tensor) else each for each in given]
        for which in programs:
            Language.program = which
            self.function(*given, **sizes)


class Language(ModuleType):
    """`triton.language`."""

    constexpr, int64, float32 = int, torch.int64, torch.float32
    program = 0

    @classmethod
    def program_id(cls, axis: int) -> Tensor:
        if axis:
            raise ValueError("the grid has one axis")
        return torch.tensor(cls.program, dtype=torch.int32)

    @staticmethod
    def arange(start: int, end: int) -> Tensor:
        if end - start != next_power_of_2(end - start):
            raise ValueError("a range must be a power of 2")
        return torch.arange(start, end, dtype=torch.int32)

    @staticmethod
    def load(pointer: Pointer, mask: Tensor) -> Tensor:
        """The numbers at the addresses, in the tensor's dtype."""
        places = pointer.memory.addresses(pointer.offsets, mask)
        found = torch.full(mask.shape, torch.nan, dtype=torch.float64)
        found[mask] = pointer.memory.numbers[places].double()
        return found

    @staticmethod
    def store(pointer: Pointer, value: Tensor, mask: Tensor) -> None:
        places = pointer.memory.addresses(pointer.offsets, mask)
        pointer.memory.numbers[places] = value[mask].to(pointer.memory.numbers.dtype)
        pointer.memory.written.update(places.tolist())


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()


def cdiv(a: int, b: int) -> int:
    return (a + b - 1) // b


@contextmanager
def installed() -> Iterator[None]:
    """Put the stand-in where Triton would be."""
    triton, language = ModuleType("triton"), Language("triton.language")
    triton.jit, triton.cdiv, triton.next_power_of_2, triton.language = Kernel, cdiv, next_power_of_2, language
    names = {"triton": triton, "triton.language": language}
    there = {name: sys.modules.get(name) for name in names}
    sys.modules.update(names)
    try:
        yield
    finally:
        for name, module in there.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
