"""What the checks of this paper share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trivet_papers.checks import Check, Checker

check = Checker("levi2021")


def check_values(
    name: str,
    statement: str,
    expected: Sequence[float],
    measured: Sequence[float],
    tolerance: float,
    *,
    also: bool = True,
) -> Check:
    """Numbers that must agree one by one."""
    near = all(abs(one - other) <= tolerance for one, other in zip(expected, measured, strict=True))
    shown, seen = (", ".join(f"{value:.10g}" for value in values) for values in (expected, measured))
    return check(name, statement, f"{shown}, to {tolerance:g}", seen, near and also)


def own_classes(num_classes: int, size: int) -> Tensor:
    return torch.arange(num_classes).repeat_interleave(size)


def squared_distances(points: Tensor) -> Tensor:
    return (points[:, None] - points).square().sum(-1)
