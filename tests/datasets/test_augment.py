from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from trivet.datasets import Augment, DigitsConfig, FolderConfig, augmentation, in_memory
from trivet.datasets.augment import erased, jittered
from trivet.datasets.image_decoding import Decoders
from trivet.datasets.inputs import FileInputs
from trivet.io.image_file import Frame


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def moved(image: Tensor, down: int, right: int, *, reflect: bool) -> list[list[list[float]]]:
    """The image moved, pixel by pixel."""
    channels, height, width = image.shape
    values = image.tolist()

    def pixel(c: int, i: int, j: int) -> float:
        if reflect:
            i, j = (abs(i) if i < height else 2 * (height - 1) - i), (abs(j) if j < width else 2 * (width - 1) - j)
        return values[c][i][j] if 0 <= i < height and 0 <= j < width else 0.0

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
    changed = Augment("crop-flip", mirror=False)(in_memory(images.numpy(), white=1), np.arange(200), seeded(1))
    seen = Counter(places(a, b, reflect=False, most=(1, 2)) for a, b in zip(images, changed, strict=True))
    assert len(seen) == 15
    assert max(seen.values()) < 40  # 200 images over 15 places


def test_photographs_are_reflected_at_the_edge_and_half_are_mirrored() -> None:
    images = (torch.rand(200, 2, 8, 8, generator=seeded(0)) * 255).to(torch.uint8)
    augment = Augment("crop-flip", mirror=True)
    changed = augment(in_memory(images.numpy()), np.arange(200), seeded(1))
    assert changed.dtype == torch.uint8
    flipped = 0
    for original, image in zip(images, changed, strict=True):
        try:
            places(original, image, reflect=True, most=(1, 1))
        except ValueError:  # no such place
            places(original, image.flip(2), reflect=True, most=(1, 1))
            flipped += 1
    assert 70 < flipped < 130


def test_what_resize_leaves_is_cut_at_every_place_and_in_the_centre_for_evaluation() -> None:
    pixels = np.arange(7 * 6, dtype=np.uint8).reshape(1, 1, 7, 6).repeat(300, 0)
    inputs = in_memory(pixels, size=(4, 5))
    assert inputs.shape == (1, 4, 5)
    assert inputs.batch(np.array([3]))[0, 0, 0, 0] == 6 * 1 + 0
    corners = Augment("crop-flip", mirror=False)(inputs, np.arange(300), seeded(2))[:, 0, 0, 0]
    assert sorted(set(corners.tolist())) == [6 * row + column for row in range(4) for column in range(2)]
    padded = Augment("pad-crop", mirror=False)(inputs, np.arange(300), seeded(2))
    assert padded.shape == (300, 1, 4, 5)
    assert (padded == 0).flatten(1).all(1).any()  # nothing but padding, in some


def process_slices(image: Tensor, count: int, size: int, generator: torch.Generator) -> Tensor:
    inputs = in_memory(image.numpy()[None], white=1, size=(size, size))
    return Augment("random-resized-crop", mirror=False)(inputs, np.zeros(count, int), generator)


def test_random_parts_lie_inside_and_are_of_every_size() -> None:
    down, across = torch.meshgrid(torch.arange(60.0), torch.arange(80.0), indexing="ij")
    image = torch.stack([down / 60, across / 80, torch.zeros(60, 80)])  # each colour tells the place
    parts = process_slices(image, 300, 12, seeded(4))
    assert parts.shape == (300, 3, 12, 12)
    heights = (parts[:, 0, -1].mean(1) - parts[:, 0, 0].mean(1)) * 60 * 12 / 11
    widths = (parts[:, 1, :, -1].mean(1) - parts[:, 1, :, 0].mean(1)) * 80 * 12 / 11
    areas, ratios = heights * widths / 4800, widths / heights
    assert 0.06 < areas.min() < 0.15
    assert 0.8 < areas.max() <= 1.02
    assert ratios.log().abs().max() < math.log(1.42)  # 4/3, with the edges of a few pixels
    assert parts.min() >= 0
    assert parts.max() <= 1
    assert process_slices(image[:, :, :6], 1, 4, seeded(0)).shape == (1, 3, 4, 4)  # 10 times as high as wide


def test_colours_are_multiplied_and_greys_stay_grey() -> None:
    images = torch.full((200, 3, 4, 4), 100, dtype=torch.uint8)
    changed = jittered(images, 0.25, seeded(5))
    values = changed[:, 0, 0, 0].float()
    assert changed.dtype == torch.uint8
    assert 72 <= values.min() < 80  # bytes lose up to one at each of three steps
    assert 120 < values.max() <= 126
    assert (changed.flatten(1).amax(1) == changed.flatten(1).amin(1)).all()
    assert jittered(images[:2, :1], 0.25, seeded(5)).shape == (2, 1, 4, 4)


def test_a_share_of_images_has_a_rectangle_of_noise() -> None:
    images = torch.full((400, 3, 16, 8), 2.0)
    changed = erased(images, 0.5, seeded(6))
    touched = (changed != 2).any(1)  # (B, H, W)
    count = touched.flatten(1).any(1).sum().item()
    assert 160 < count < 240
    assert (images == 2).all()
    for one in touched[touched.flatten(1).any(1)]:
        rows, columns = one.any(1).nonzero()[:, 0], one.any(0).nonzero()[:, 0]
        assert one.sum() == len(rows) * len(columns)  # a whole rectangle
        assert 0.01 < one.float().mean() < 0.45
    assert changed[changed != 2].std() > 0.2


@pytest.mark.parametrize("cut", ["none", "flip", "crop-flip", "pad-crop", "random-resized-crop"])
def test_the_change_follows_from_the_generator_alone(cut: str) -> None:
    inputs = in_memory((torch.rand(16, 3, 9, 9, generator=seeded(0)) * 255).to(torch.uint8).numpy())
    augment = Augment(cut, mirror=True, jitter=0.2, erase=0.5)
    index = np.arange(16)
    assert torch.equal(augment(inputs, index, seeded(5)), augment(inputs, index, seeded(5)))
    assert not torch.equal(augment(inputs, index, seeded(5)), augment(inputs, index, seeded(6)))
    assert augment(inputs, index[:0], seeded(5)).shape == (0, 3, 9, 9)
    for part in (slice(0, 7), slice(7, 16)):  # as several processes make them
        assert torch.equal(augment(inputs, index, seeded(5), part), augment(inputs, index, seeded(5))[part])


def test_only_photographs_are_mirrored() -> None:
    assert augmentation(DigitsConfig()) is None
    digits = augmentation(DigitsConfig(augment="crop-flip"))
    assert digits is not None
    assert not digits.mirror
    photographs = augmentation(FolderConfig(root=Path("x"), augment="flip", jitter=0.1))
    assert photographs is not None
    assert (photographs.mirror, photographs.jitter, photographs.erase) == (True, 0.1, 0)
    only_colours = augmentation(FolderConfig(root=Path("x"), jitter=0.1))
    assert only_colours is not None
    assert not only_colours.mirror
    with pytest.raises(ValueError, match='"flip" mirrors photographs: digits has none'):
        DigitsConfig(augment="flip")


class Corner:
    """Takes the upper left corner, and remembers the shapes that come."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, position: int, image: np.ndarray) -> np.ndarray:
        self.shapes.append(image.shape)
        return image[:, :10, :10]


def test_whole_images_are_kept_for_random_parts_and_cut_for_evaluation(tmp_path: Path) -> None:
    from PIL import Image

    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, :20, 0], wide[:, 40:, 2] = 255, 255  # red on the left, blue on the right: the centre is black
    Image.fromarray(wide).save(tmp_path / "wide.png")
    frame = Frame(3, (10, 10), resize=12)
    assert frame.cover == (12, 12)
    files = FileInputs([tmp_path / "wide.png"], frame, np.arange(1), full_size=True)
    for memory_gb in (1, 0):
        inputs, broken = files.decode_all(memory_gb, None)
        assert not broken
        assert isinstance(inputs, FileInputs)
        assert (inputs.decoded is not None) == (memory_gb == 1)
        corner = Corner()
        with Decoders() as decoders:
            inputs.begin(np.array([0]), corner, [False], decoders)()
        assert corner.shapes == [(3, 12, 24)]  # up to twice as wide as it must be
        assert inputs.batch(np.array([0])).shape == (1, 3, 10, 10)
        assert inputs.batch(np.array([0]))[0, :, :, 2:-2].max() < 26
        parts = Augment("random-resized-crop", mirror=False)(inputs, np.zeros(100, int), seeded(0))
        assert parts[:, 0].max() > 128
        assert parts[:, 2].max() > 128


@pytest.mark.parametrize("cut", ["none", "flip", "crop-flip", "pad-crop"])
def test_a_file_is_changed_as_an_image_in_memory(cut: str, tmp_path: Path) -> None:
    from PIL import Image

    pixels = (torch.rand(12, 11, 9, 3, generator=seeded(0)) * 255).to(torch.uint8).numpy()
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    files = FileInputs([tmp_path / f"{i}.png" for i in range(12)], Frame(3, (11, 9)), np.arange(12))
    kept, _ = files.decode_all(1, None)
    plain = in_memory(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
    augment, index = Augment(cut, mirror=True), np.arange(12)[::-1]
    expected = augment(plain, index, seeded(3))
    assert not torch.equal(expected, plain.batch(index))
    for inputs in (files, kept):
        changed = augment(inputs, index, seeded(3))
        assert torch.equal(changed, expected)
        assert changed.is_contiguous(memory_format=torch.channels_last)  # as decoded: no copy in another order
        assert inputs.batch(index).is_contiguous()


@pytest.mark.parametrize("cut", ["flip", "crop-flip", "pad-crop"])
@pytest.mark.parametrize("shape", [(20, 31), (12, 14), (12, 11), (19, 9)], ids=["resized", "moved", "as it is", "tall"])
@pytest.mark.parametrize("kind", ["RGB", "L"])
def test_what_is_cut_off_a_file_is_that_of_an_image_in_memory(
    cut: str, kind: str, shape: tuple[int, int], tmp_path: Path
) -> None:
    """Files are cut before they are an array, and here the edges that are cut off are not equally wide."""
    from PIL import Image

    frame = Frame(3, (8, 6), resize=9)
    assert frame.cover == (12, 9)
    for i in range(12):
        pixels = (torch.rand(*shape, 3, generator=seeded(i)) * 255).to(torch.uint8).numpy()
        Image.fromarray(pixels).convert(kind).save(tmp_path / f"{i}.png")
    files = FileInputs([tmp_path / f"{i}.png" for i in range(12)], frame, np.arange(12))
    kept, _ = files.decode_all(1, None)
    augment, index = Augment(cut, mirror=True), np.arange(12)
    expected = augment(kept, index, seeded(3))
    assert torch.equal(augment(files, index, seeded(3)), expected)
    assert torch.equal(augment(files, index, seeded(3), slice(5, 9)), expected[5:9])
    unmirrored = Augment(cut, mirror=False)(kept, index, seeded(3))
    turned = [not torch.equal(one, other) for one, other in zip(expected, unmirrored, strict=True)]
    assert 0 < sum(turned) < 12
    assert all(
        torch.equal(one, other.flip(2))
        for one, other, mirror in zip(expected, unmirrored, turned, strict=True)
        if mirror
    )


def test_code_outside_trivet_has_its_images_mirrored_alike() -> None:
    class Outside:
        """What `Inputs` asks for, and nothing else."""

        def __init__(self, images: Tensor) -> None:
            self.images, self.shape = images, tuple(images.shape[1:])

        def __len__(self) -> int:
            return len(self.images)

        def batch(self, index: np.ndarray) -> Tensor:
            return self.images[index]

        def show(self, index: int) -> str:
            return ""

        def subset(self, index: np.ndarray) -> Outside:
            return Outside(self.images[index])

    images = torch.rand(10, 3, 8, 16, generator=seeded(0))
    index = np.arange(10)
    for cut in ("flip", "crop-flip", "pad-crop", "random-resized-crop"):
        augment = Augment(cut, mirror=True)
        known = augment(in_memory(images.numpy(), white=1), index, seeded(1))
        assert torch.equal(augment(Outside(images), index, seeded(1)), known), cut
