"""Random changes to training images that leave their class alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Generator, Tensor

from trivet.datasets.config import DataConfig
from trivet.datasets.dataset import Inputs
from trivet.datasets.image_decoding import Decoders
from trivet.datasets.inputs import ArrayInputs, Change, Crops, FileInputs
from trivet.io.image_file import Region
from trivet.models import in_unit_range

PAD = 10  # pixels, of pad-crop
SHIFT = 8  # crop-flip moves by up to one in so many parts of a side
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of random-resized-crop
ERASED_AREA, ERASED_RATIO = (0.02, 0.4), (0.3, 1 / 0.3)
TRIES = 10  # until a random rectangle lies inside an image


class Augment:
    """Batches of training images, changed at random.

    Images are changed as the bytes that they are stored in, before they become floating point. All follows from the
    generator alone.

    Args:
        cut: how images are cut, as `DataConfig.augment`.
        mirror: whether half of the images are mirrored.
        jitter: brightness, contrast and, of RGB images, saturation are multiplied by numbers from 1 - jitter to
            1 + jitter, in this order.
        erase: the share of images of which a rectangle is replaced by noise.

    Source:
        Random parts: Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, section 6, as torchvision's
        RandomResizedCrop. Padding: Xuan et al., "Hard negative examples are hard, but useful", ECCV 2020, section 5.
        Erasing: Zhong et al., "Random Erasing Data Augmentation", AAAI 2020.
    """

    def __init__(self, cut: str, *, mirror: bool, jitter: float = 0.0, erase: float = 0.0) -> None:
        self.cut, self.mirror, self.jitter, self.erase = cut, mirror, jitter, erase

    def __call__(self, inputs: Inputs, index: np.ndarray, generator: Generator, span: slice | None = None) -> Tensor:
        """Images `(B, C, H, W)` of the items at the positions `index (B,)`, of bytes or float32 in [0, 1] as stored.

        Where rectangles are erased, float32.

        Args:
            span: the consecutive images of the batch that are made, and changed as they are among all; None for all.
        """
        with Decoders() as decoders:
            return self.begin(inputs, index, generator, decoders, span)()

    def begin(
        self, inputs: Inputs, index: np.ndarray, generator: Generator, decoders: Decoders, span: slice | None = None
    ) -> Callable[[], Tensor]:
        """Begin to decode a batch from files; what comes back waits for that, and gives the images as a call does."""
        first = 0 if span is None else span.start
        selected = index if span is None else index[span]
        cut, turned = self._drawn(inputs, len(index), generator)
        mirrored = turned[first : first + len(selected)]
        if isinstance(inputs, FileInputs):
            finish = inputs.begin(selected, _shifted(first, cut), mirrored, decoders)
        else:
            finish = partial(_changed, inputs, selected, _shifted(first, cut), mirrored)

        def finished() -> Tensor:
            images = finish()
            if self.jitter:
                images = jittered(images, self.jitter, generator, first=first, count=len(index))
            if not self.erase:
                return images
            return erased(in_unit_range(images), self.erase, generator, first=first, count=len(index))

        return finished

    def _drawn(self, inputs: Inputs, count: int, generator: Generator) -> tuple[Change, list[bool]]:
        """Draw how each image of a batch is cut and whether it is then mirrored, before any of them is read."""
        size = (inputs.shape[1], inputs.shape[2])
        stored = inputs.stored_shape if isinstance(inputs, ArrayInputs | FileInputs) else size
        cut = self._cut(size, stored, count, generator)
        if not self.mirror:
            return cut, [False] * count
        return cut, (torch.rand(count, generator=generator) < 0.5).tolist()

    def _cut(self, size: tuple[int, int], stored: tuple[int, int], count: int, generator: Generator) -> Change:
        if self.cut == "random-resized-crop":
            return random_resized_crop(size, count, generator)
        height, width = size
        if self.cut == "pad-crop":
            return pad_and_crop(size, stored, (PAD, PAD), count, generator)
        if self.cut == "crop-flip":
            shift = (0, 0) if stored != size else (max(1, height // SHIFT), max(1, width // SHIFT))
            return pad_and_crop(size, stored, shift, count, generator, reflect=self.mirror)
        return Crops([Region((stored[0] - height) // 2, (stored[1] - width) // 2, height, width)] * count)


def _changed(inputs: Inputs, index: np.ndarray, change: Change, mirrored: list[bool]) -> Tensor:
    if isinstance(inputs, ArrayInputs):
        return inputs.changed(index, change, mirrored)
    stored = inputs.batch(index).numpy()  # of code outside Trivet, which has what is in a batch
    made = np.stack([change(i, image) for i, image in enumerate(stored)])
    made[mirrored] = made[mirrored][..., ::-1]
    return torch.from_numpy(made)


def _shifted(first: int, change: Change) -> Change:
    """The change of the images of a batch from the one at the position `first` on."""
    if isinstance(change, Crops):
        return Crops(change.crops[first:])
    return lambda position, image: change(first + position, image)


def augmentation(config: DataConfig) -> Augment | None:
    """The changes that `config` asks for; None if there are none."""
    if not config.changes_images:
        return None
    mirror = config.mirrored and config.augment != "none"
    return Augment(config.augment, mirror=mirror, jitter=config.jitter, erase=config.erase)


def pad_and_crop(
    size: tuple[int, int],
    stored: tuple[int, int],
    pad: tuple[int, int],
    count: int,
    generator: Generator,
    *,
    reflect: bool = False,
) -> Change:
    """Pads each of `count` images `(C, *stored)`, and cuts it to `size` at a random place.

    Args:
        pad: rows above and below, and columns left and right.
        reflect: pad with the mirror image, not with 0.
    """
    (height, width), (above, left) = size, pad

    def starts(side: int, length: int, extra: int) -> list[int]:
        """Draw the first row or column of the cut in the padded side of each image."""
        most = length + 2 * extra - side
        drawn: list[int] = torch.randint(0, most + 1, (count, 1), generator=generator).flatten().tolist()
        return drawn

    rows, columns = starts(height, stored[0], above), starts(width, stored[1], left)
    crops = Crops([Region(row, column, height, width) for row, column in zip(rows, columns, strict=True)])
    if not above and not left:
        return crops
    down, across = _beyond(stored[0], above), _beyond(stored[1], left)

    def cut(position: int, image: np.ndarray) -> np.ndarray:
        padded = np.zeros((len(image), stored[0] + 2 * above, stored[1] + 2 * left), image.dtype)
        padded[:, above : above + stored[0], left : left + stored[1]] = image
        if reflect:
            padded[:, :, across[0]] = padded[:, :, across[1]]
            padded[:, down[0]] = padded[:, down[1]]
        return crops(position, padded)

    return cut


def _beyond(length: int, extra: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of a padded side outside the image, and where the mirror image has them; the edge is not repeated."""
    position = np.arange(-extra, length + extra)
    mirrored = np.where(np.abs(position) < length, np.abs(position), 2 * (length - 1) - np.abs(position)).clip(0)
    outside = (position < 0) | (position >= length)
    return np.flatnonzero(outside), mirrored[outside] + extra


def random_resized_crop(size: tuple[int, int], count: int, generator: Generator) -> Change:
    """Takes a random part of `AREA` of each of `count` images `(C, H', W')` of any sizes, its ratio within `RATIO`.

    The ratio is that of `size` where no change is drawn. Where no drawn part lies inside, the largest centre is taken.
    """
    from torchvision.transforms.v2.functional import resized_crop  # here: it takes seconds to load

    draws = torch.rand(count, TRIES, 4, generator=generator).tolist()

    def cut(position: int, image: np.ndarray) -> np.ndarray:
        top, left, height, width = _draw_crop(image.shape[1], image.shape[2], size, draws[position])
        patch = torch.from_numpy(np.ascontiguousarray(image[:, top : top + height, left : left + width]))
        resized: np.ndarray = resized_crop(patch, 0, 0, height, width, list(size), antialias=True).numpy()
        return resized

    return cut


def _draw_crop(height: int, width: int, size: tuple[int, int], draws: list[list[float]]) -> tuple[int, int, int, int]:
    shape = size[1] / size[0]
    for area, ratio, down, across in draws:
        cut = height * width * (AREA[0] + (AREA[1] - AREA[0]) * area)
        wide = shape * math.exp(math.log(RATIO[0]) + math.log(RATIO[1] / RATIO[0]) * ratio)
        h, w = round(math.sqrt(cut / wide)), round(math.sqrt(cut * wide))
        if 0 < h <= height and 0 < w <= width:
            return int(down * (height - h + 1)), int(across * (width - w + 1)), h, w
    h, w = min(height, round(width / shape)), min(width, round(height * shape))
    return (height - h) // 2, (width - w) // 2, max(1, h), max(1, w)


def jittered(
    images: Tensor, jitter: float, generator: Generator, *, first: int = 0, count: int | None = None
) -> Tensor:
    """Images `(B, C, H, W)` of bytes or in [0, 1], of another brightness, contrast and saturation each.

    Args:
        first, count: the images are those from `first` on of a batch of `count`; by default they are all of it.
    """
    from torchvision.transforms.v2 import functional  # here: it takes seconds to load

    changes = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)
    drawn = torch.rand(len(images) if count is None else count, len(changes), generator=generator)
    factors = 1 + jitter * (2 * drawn[first : first + len(images)] - 1)
    changed = []
    for image, item_factors in zip(images, factors.tolist(), strict=True):
        for change, factor in zip(changes, item_factors, strict=True):
            if image.shape[0] == 3 or change is not functional.adjust_saturation:
                image = change(image, factor)
        changed.append(image)
    return torch.stack(changed) if changed else images


def erased(images: Tensor, share: float, generator: Generator, *, first: int = 0, count: int | None = None) -> Tensor:
    """Images `(B, C, H, W)` in [0, 1], a share of them with a rectangle of noise.

    Args:
        first, count: as of `jittered`.
    """
    images = images.clone()
    drawn = torch.rand(len(images) if count is None else count, generator=generator)
    for i in torch.nonzero(drawn < share)[:, 0].tolist():
        height, width = images.shape[2:]
        for area, ratio, down, across in torch.rand(TRIES, 4, generator=generator).tolist():
            cut = height * width * (ERASED_AREA[0] + (ERASED_AREA[1] - ERASED_AREA[0]) * area)
            tall = math.exp(math.log(ERASED_RATIO[0]) + math.log(ERASED_RATIO[1] / ERASED_RATIO[0]) * ratio)
            h, w = round(math.sqrt(cut * tall)), round(math.sqrt(cut / tall))
            if 0 < h < height and 0 < w < width:
                top, left = int(down * (height - h + 1)), int(across * (width - w + 1))
                noise = torch.rand(images.shape[1], h, w, generator=generator)
                if first <= i < first + len(images):
                    images[i - first, :, top : top + h, left : left + w] = noise
                break
    return images
