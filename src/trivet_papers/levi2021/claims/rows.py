"""Helpers that the checks of this paper share."""

from __future__ import annotations

import torch
from torch import Tensor

from trivet_papers.checks import Checker

check = Checker("levi2021")


def repeated_labels(num_classes: int, size: int) -> Tensor:
    return torch.arange(num_classes).repeat_interleave(size)


def squared_distances(points: Tensor) -> Tensor:
    return (points[:, None] - points).square().sum(-1)
