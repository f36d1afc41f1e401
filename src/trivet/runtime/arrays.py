"""Types of arrays."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any] | Tensor
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


def how_to_number(values: object, name: str = "labels", *, tensor: bool = False) -> str:
    """Advice, with the code, on how to get a number for each of `values`, labels or ids that a caller passes as `name`.

    Args:
        tensor: whether they are to be a tensor.
    """
    if sides := re.fullmatch("(reference|gallery|anchor|true|query)[ _](.+)", name):  # a class has one number in both
        second = f"{'gallery' if sides[1] == 'query' else sides[1]}_{sides[2]}"
        code = f"np.unique(np.concatenate([{sides[2]}, {second}]), return_inverse=True)[1]"
        return f"number those of both together, with {code}, and divide the numbers again"
    if isinstance(values, Tensor):
        return f"number them with {name}.unique(return_inverse=True)[1]"
    code = f"np.unique(np.asarray({name}, str), return_inverse=True)[1]"
    return f"number them with {f'torch.from_numpy({code})' if tensor else code}"


def how_to_float(values: Array, name: str = "embeddings") -> str:
    """Advice, with the code, on how to get floating-point rows."""
    if isinstance(values, Tensor):
        return "take their real parts" if values.is_complex() else f"convert them with {name}.float()"
    if values.dtype.kind == "O":
        return f"join rows of one length with np.stack({name})"
    return "take their real parts" if values.dtype.kind == "c" else f"convert them with {name}.astype(np.float32)"


def how_to_tensor(values: object, name: str) -> str:
    """Advice, with the code, on how to get a tensor."""
    if isinstance(values, list | tuple) and values and isinstance(values[0], Tensor):
        return f"join them with torch.stack({name})"
    return f"convert them with torch.as_tensor(np.asarray({name}))"


def how_to_align(values: object, name: str, length: int) -> str:
    """Advice, with the code, on how to get a number for each of `length` rows from labels of another shape."""
    shape = tuple(values.shape if isinstance(values, Tensor) else np.asarray(values).shape)
    if math.prod(shape) == length:
        variable = name.removeprefix("query ").replace(" ", "_")
        code = f"{variable}.flatten()" if isinstance(values, Tensor) else f"np.ravel({variable})"
        return f"flatten them: {code}"
    if isinstance(values, Tensor) and values.ndim == 2 and len(values) == length:
        return (
            f"if each row has several tags, pass trivet.Tags({name}); if there is a column for each class, take the "
            f"largest: {name}.argmax(dim=1)"
        )
    if isinstance(values, Tensor) and values.ndim == 1 and 0 < len(values) < length and length % len(values) == 0:
        views = length // len(values)
        return f"if each item has {views} views in the batch, all first views first, repeat it: {name}.repeat({views})"
    return "give one for each row"
