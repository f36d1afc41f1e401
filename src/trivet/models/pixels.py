"""Images of bytes as the numbers that networks compute with."""

from __future__ import annotations

import torch
from torch import Tensor


def in_unit_range(inputs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Bytes 0 to 255 as numbers of `dtype` from 0 to 1; inputs that are no bytes as they are."""
    if inputs.dtype != torch.uint8:
        return inputs
    # By a tensor: a GPU multiplies by the reciprocal of a plain number, which is another number in the last bit.
    return inputs.to(dtype) / torch.full((1,), 255, dtype=dtype, device=inputs.device)
