"""Rules that depend on where tensors are: when their numbers are read, and how many are worked on at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

FLOAT64 = {"cpu": True, "cuda": True, "meta": True, "mps": False}  # others are tried
UNKNOWN_MEMORY = 2**33  # bytes, taken for the memory of a device that does not tell it
SHARE = 2**-10  # numbers that are worked on at once, for each byte of a device: a hundred copies leave room for more


def read_freely(values: Tensor) -> bool:
    """Return whether numbers of a tensor can be read at no cost: on no device that would have to finish its work first.

    Nor under `torch.compile`, whose graph has none.
    """
    return values.is_cpu and not torch.compiler.is_compiling()


def read(numbers: Tensor) -> list[float]:
    """The numbers `(K,)`, for which a device must finish its work: once at the start of a step, to check it."""
    values: list[float] = numbers.tolist()
    return values


def read_extremes(values: Tensor | npt.NDArray[Any]) -> tuple[float, float]:
    """The least and the largest of `values (K,)`, K >= 1, read as `read` does; both NaN if one of them is."""
    if isinstance(values, np.ndarray) or read_freely(values):
        array = values if isinstance(values, np.ndarray) else values.numpy()
        return np.minimum.reduce(array).item(), np.maximum.reduce(array).item()
    least, largest = read(torch.stack(values.aminmax()))
    return least, largest


def numbers_at_once(values: Tensor, *, cached: int) -> int:
    """The count of numbers to work on at once: on a CPU those that stay in a cache, elsewhere a share of the memory."""
    if read_freely(values) or torch.compiler.is_compiling():
        return cached
    return int(SHARE * _memory(values.device))


@cache
def _memory(device: torch.device) -> int:
    if device.type != "cuda" or not torch.cuda.is_available():
        return UNKNOWN_MEMORY
    return int(torch.cuda.get_device_properties(device).total_memory)


def product_rounding(device: torch.device) -> float:
    """By what share float32 products on a device may be off beyond the rounding of float32: 0 where all of it is kept.

    As the switches of torch say, the newer ones for each backend or the one for all.
    """
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # torch 2.9; then the old one is an error at times
        backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
        return {"none": 0.0, "ieee": 0.0, "tf32": 2**-9}.get(backend.matmul.fp32_precision, 2**-6)
    return {"highest": 0.0, "high": 2**-9, "medium": 2**-6}[torch.get_float32_matmul_precision()]


def precise(values: Tensor) -> Tensor:
    """The values on a device that computes in float64: their own, or the CPU, with the way back for a gradient.

    Ties, random choices and sums need float64, which MPS lacks. There, all that is computed of embeddings is computed
    on the CPU, exactly as of embeddings that lie there. A batch of embeddings is small beside the network they are of.
    """
    device = values.device.type
    known = FLOAT64.get(device)  # a graph of torch.compile has no trial
    return values if known or (known is None and _has_float64(device)) else values.cpu()


@cache
def _has_float64(device: str) -> bool:
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


class PreciseModule(nn.Module):
    """A module that stays on the CPU where the device to which it is brought has no float64, as `precise` says."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        module = super().__new__(cls)
        nn.Module.__init__(module)  # before options, which somebody may give a module
        return module

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(lambda values: precise(fn(values)), recurse)  # type: ignore[no-untyped-call]  # torch has no types
        return self


def without_autocast(device: str) -> AbstractContextManager[Any]:
    """A context in which operations keep their precision."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(device):
        return torch.autocast(device_type=device, enabled=False)
    return nullcontext()
