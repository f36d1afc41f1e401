"""Helpers that the checks of this paper share."""

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
    near = all(abs(first - second) <= tolerance for first, second in zip(expected, measured, strict=True))
    expected_text, measured_text = (", ".join(f"{value:.10g}" for value in values) for values in (expected, measured))
    return check(name, statement, f"{expected_text}, to {tolerance:g}", measured_text, near and also)


def repeated_labels(num_classes: int, size: int) -> Tensor:
    return torch.arange(num_classes).repeat_interleave(size)


def squared_distances(points: Tensor) -> Tensor:
    return (points[:, None] - points).square().sum(-1)
