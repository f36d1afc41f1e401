from __future__ import annotations

from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from trivet.data import DigitsConfig, FolderConfig, augmentation
from trivet.data.augment import shift, shift_and_flip


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moved(image: Tensor, down: int, right: int, *, reflect: bool) -> list[list[list[float]]]:
    """The image moved, pixel by pixel."""
    channels, height, width = image.shape

    def pixel(c: int, i: int, j: int) -> float:
        if reflect:
            i, j = (abs(i) if i < height else 2 * (height - 1) - i), (abs(j) if j < width else 2 * (width - 1) - j)
        return image[c, i, j].item() if 0 <= i < height and 0 <= j < width else 0.0

    return [[[pixel(c, i - down, j - right) for j in range(width)] for i in range(height)] for c in range(channels)]


def places(original: Tensor, changed: Tensor, *, reflect: bool, most: tuple[int, int]) -> tuple[int, int]:
    down, right = most
    (place,) = [
        (i, j)
        for i in range(-down, down + 1)
        for j in range(-right, right + 1)
        if moved(original, i, j, reflect=reflect) == changed.tolist()
    ]
    return place


def test_shift_moves_each_image_by_up_to_an_eighth_over_black() -> None:
    images = torch.rand(200, 1, 8, 16, generator=seeded(0)) + 0.1
    changed = shift(images, seeded(1))
    seen = Counter(places(a, b, reflect=False, most=(1, 2)) for a, b in zip(images, changed, strict=True))
    assert len(seen) == 15
    assert max(seen.values()) < 40  # 200 images over 15 places


def test_photographs_are_reflected_at_the_edge_and_half_are_mirrored() -> None:
    images = torch.rand(200, 2, 8, 8, generator=seeded(0))
    changed = shift_and_flip(images, seeded(1))
    mirrored = 0
    for original, image in zip(images, changed, strict=True):
        try:
            places(original, image, reflect=True, most=(1, 1))
        except ValueError:  # no such place
            places(original, image.flip(2), reflect=True, most=(1, 1))
            mirrored += 1
    assert 70 < mirrored < 130


def test_the_change_follows_from_the_generator_alone() -> None:
    images = torch.rand(16, 1, 9, 9, generator=seeded(0))
    for change in (shift, shift_and_flip):
        assert torch.equal(change(images, seeded(5)), change(images, seeded(5)))
        assert not torch.equal(change(images, seeded(5)), change(images, seeded(6)))
        assert change(images[:0], seeded(5)).shape == (0, 1, 9, 9)


def test_only_photographs_are_mirrored() -> None:
    assert augmentation(DigitsConfig()) is None
    assert augmentation(DigitsConfig(augment="crop-flip")) is shift
    assert augmentation(FolderConfig(root=Path("x"), augment="crop-flip")) is shift_and_flip
