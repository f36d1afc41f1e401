"""Sums over a set of negatives that several losses share."""

from __future__ import annotations

import torch
from torch import Tensor


def log_sum_exp(exponents: Tensor) -> Tensor:
    """log(sum_m exp(x_m)) of each row of `exponents (B, M)`, `(B,)`; -inf entries count as nothing.

    -inf with gradient 0 for a row without a finite entry.
    """
    if exponents.shape[1] == 0:
        return exponents.sum(dim=1) - torch.inf
    return torch.logsumexp(exponents, dim=1)
