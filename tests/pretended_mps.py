"""A device as MPS is, pretended: it computes, on the CPU, and refuses float64 and tensors of other devices.

Its name is "pretended", and it is the accelerator that torch finds. A tensor of it wraps one of the CPU. Every
operation comes here: its tensors must be of the device, but for numbers of no dimension and indices, and none of its
results may be float64. In a process of its own, as a device cannot be taken back: `begin()`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as set_up

NAME = "pretended"
WIDE = (torch.float64, torch.complex128)
REFUSED = (
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 "
    "instead."
)
COPIES = ("aten::copy_", "aten::_to_copy")
BY_INDEX = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")


class OnDevice(Tensor):
    """A tensor of the device; its numbers are in `raw`."""

    raw: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: Tensor) -> OnDevice:  # a tensor
        if raw.dtype in WIDE:
            raise TypeError(REFUSED)
        made: OnDevice = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device(NAME, 0),
        )
        made.raw = raw
        return made

    def __repr__(self, **_: Any) -> str:
        return f"OnDevice({self.raw!r})"

    def tolist(self) -> Any:
        return self.raw.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() first.")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Factories(TorchDispatchMode):
    """What makes tensors of a device that are named by it alone."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of an operation, on the device if its tensors, or the device that it names, are of that."""
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    here = any(isinstance(value, OnDevice) for value in tensors)
    named = kwargs.get("device")
    if not here and (named is None or torch.device(named).type != NAME):
        return func(*args, **kwargs)
    name = func._schema.name
    others = [value for value in tensors if not isinstance(value, OnDevice) and value.ndim]
    if here and others and name not in COPIES + BY_INDEX:
        raise RuntimeError(f"Expected all tensors to be on the same device, but {name} got one of the CPU.")
    away = name == "aten::_to_copy" and named is not None and torch.device(named).type != NAME
    if named is not None and not away:
        if kwargs.get("dtype") in WIDE:
            raise TypeError(REFUSED)
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if name == "aten::copy_" and not isinstance(args[0], OnDevice):  # to the CPU
        args[0].copy_(args[1].raw)
        return args[0]
    if kwargs.get("dtype") in WIDE and not away:
        raise TypeError(REFUSED)
    plain_args, plain_kwargs = tree_map(lambda x: x.raw if isinstance(x, OnDevice) else x, (args, kwargs))
    result = func(*plain_args, **plain_kwargs)
    if away:
        return result.clone()
    wrapped = tree_map(lambda x: OnDevice(x) if isinstance(x, Tensor) else x, result)
    if not here:
        return wrapped
    return return_and_correct_aliasing(func, args, kwargs, wrapped)


def begin() -> None:
    """Let this process have the device, and none else."""
    set_up(NAME)
    torch.__future__.set_swap_module_params_on_conversion(True)  # parameters stay the same objects, as on MPS
    Factories().__enter__()
