"""Random changes to training images that leave their class alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from trivet.data.config import DataConfig

Augment = Callable[[Tensor, Generator], Tensor]


def augmentation(config: DataConfig) -> Augment | None:
    """The change that `config` asks for, as a function of a batch and a generator; None if there is none."""
    if config.augment == "none":
        return None
    return shift_and_flip if config.mirrored else shift


def shift(images: Tensor, generator: Generator) -> Tensor:
    """Images `(B, C, H, W)`, each moved by up to 1/8 of its side, at least one pixel; what moves in is 0."""
    return _crop(images, generator, mode="constant")


def shift_and_flip(images: Tensor, generator: Generator) -> Tensor:
    """Images `(B, C, H, W)`, each moved by up to 1/8 of its side (its mirror image moves in), half of them mirrored."""
    images = _crop(images, generator, mode="reflect")
    mirrored = torch.rand(len(images), generator=generator, device=generator.device) < 0.5
    return torch.where(mirrored.to(images.device)[:, None, None, None], images.flip(3), images)


def _crop(images: Tensor, generator: Generator, *, mode: str) -> Tensor:
    count, channels, height, width = images.shape
    rows, columns = max(1, height // 8), max(1, width // 8)
    padded = pad(images, (columns, columns, rows, rows), mode=mode)

    def places(side: int, most: int) -> Tensor:  # (B, side)
        start = torch.randint(0, 2 * most + 1, (count, 1), generator=generator, device=generator.device)
        return (start + torch.arange(side, device=generator.device)).to(images.device)

    from_rows, from_columns = places(height, rows), places(width, columns)
    return padded[
        torch.arange(count, device=images.device)[:, None, None, None],
        torch.arange(channels, device=images.device)[:, None, None],
        from_rows[:, None, :, None],
        from_columns[:, None, None, :],
    ]
