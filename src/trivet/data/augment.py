"""Random changes to training images that leave their class alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

from trivet.data.config import DataConfig
from trivet.data.dataset import Inputs
from trivet.data.inputs import ArrayInputs, FileInputs
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

    def __call__(self, inputs: Inputs, index: np.ndarray, generator: Generator) -> Tensor:
        """Images `(B, C, H, W)` of the items at the positions `index (B,)`, of bytes or float32 in [0, 1] as stored.

        Where rectangles are erased, float32.
        """
        # Inputs of code outside Trivet have what is in a batch.
        stored = inputs.stored(index) if isinstance(inputs, ArrayInputs | FileInputs) else inputs.batch(index)
        images = self._cut(stored, (inputs.shape[1], inputs.shape[2]), generator)
        if self.mirror:
            images = mirrored(images, generator)
        if self.jitter:
            images = jittered(images, self.jitter, generator)
        return erased(in_unit_range(images), self.erase, generator) if self.erase else images

    def _cut(self, images: Tensor | list[Tensor], size: tuple[int, int], generator: Generator) -> Tensor:
        if self.cut == "random-resized-crop" or isinstance(images, list):
            return random_parts(list(images), size, generator)
        height, width = size
        spare = tuple(images.shape[2:]) != size
        if self.cut == "pad-crop":
            return random_places(images, size, (PAD, PAD), generator)
        if self.cut == "crop-flip":
            shift = (0, 0) if spare else (max(1, height // SHIFT), max(1, width // SHIFT))
            return random_places(images, size, shift, generator, reflect=self.mirror)
        top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
        return images[:, :, top : top + height, left : left + width]


def augmentation(config: DataConfig) -> Augment | None:
    """The changes that `config` asks for; None if there are none."""
    if not config.changes_images:
        return None
    mirror = config.mirrored and config.augment != "none"
    return Augment(config.augment, mirror=mirror, jitter=config.jitter, erase=config.erase)


def random_places(
    images: Tensor, size: tuple[int, int], pad: tuple[int, int], generator: Generator, *, reflect: bool = False
) -> Tensor:
    """Images `(B, C, H', W')`, each padded and cut to `size` at a random place.

    Args:
        pad: rows above and below, and columns left and right.
        reflect: pad with the mirror image, not with 0.
    """

    (height, width), (above, left) = size, pad

    def starts(side: int, length: int, extra: int) -> list[int]:
        """Where in the padded side each image is cut."""
        most = length + 2 * extra - side
        drawn: list[int] = torch.randint(0, most + 1, (len(images), 1), generator=generator).flatten().tolist()
        return drawn

    rows = starts(height, images.shape[2], above)
    columns = starts(width, images.shape[3], left)
    if reflect and (above or left):
        images = images.index_select(2, _reflected(images.shape[2], above))
        images = images.index_select(3, _reflected(images.shape[3], left))
    elif above or left:
        images = functional.pad(images, (left, left, above, above))
    cut = [
        image[:, row : row + height, column : column + width]
        for image, row, column in zip(images, rows, columns, strict=True)
    ]
    return torch.stack(cut) if cut else images[:, :, :height, :width]


def _reflected(length: int, extra: int) -> Tensor:
    """The places of a side that is continued by its mirror image at both ends; the edge is not repeated."""
    place = torch.arange(-extra, length + extra).abs()
    return torch.where(place < length, place, 2 * (length - 1) - place).clamp(min=0)


def random_parts(images: Sequence[Tensor], size: tuple[int, int], generator: Generator) -> Tensor:
    """Images `(C, H', W')` of any sizes, of each a random part of `AREA` of it, its ratio changed within `RATIO`.

    The ratio is that of `size` where no change is drawn. Where no drawn part lies inside, the largest centre is taken.
    """
    from torchvision.transforms.v2.functional import resized_crop  # here: it takes seconds to load

    parts = []
    for image in images:
        top, left, height, width = _part(image.shape[1], image.shape[2], size, generator)
        parts.append(resized_crop(image, top, left, height, width, list(size), antialias=True))
    return torch.stack(parts) if parts else torch.empty(0, 3, *size)


def _part(height: int, width: int, size: tuple[int, int], generator: Generator) -> tuple[int, int, int, int]:
    shape = size[1] / size[0]
    for area, ratio, down, across in torch.rand(TRIES, 4, generator=generator).tolist():
        cut = height * width * (AREA[0] + (AREA[1] - AREA[0]) * area)
        wide = shape * math.exp(math.log(RATIO[0]) + math.log(RATIO[1] / RATIO[0]) * ratio)
        h, w = round(math.sqrt(cut / wide)), round(math.sqrt(cut * wide))
        if 0 < h <= height and 0 < w <= width:
            return int(down * (height - h + 1)), int(across * (width - w + 1)), h, w
    h, w = min(height, round(width / shape)), min(width, round(height * shape))
    return (height - h) // 2, (width - w) // 2, max(1, h), max(1, w)


def mirrored(images: Tensor, generator: Generator) -> Tensor:
    """Images `(B, C, H, W)`, half of them mirrored."""
    turned = (torch.rand(len(images), generator=generator) < 0.5).tolist()
    each = [image.flip(2) if turn else image for image, turn in zip(images, turned, strict=True)]
    return torch.stack(each) if each else images


def jittered(images: Tensor, jitter: float, generator: Generator) -> Tensor:
    """Images `(B, C, H, W)` of bytes or in [0, 1], of another brightness, contrast and saturation each."""
    from torchvision.transforms.v2 import functional as of_images  # here: it takes seconds to load

    changes = (of_images.adjust_brightness, of_images.adjust_contrast, of_images.adjust_saturation)
    factors = 1 + jitter * (2 * torch.rand(len(images), len(changes), generator=generator) - 1)
    changed = []
    for image, own in zip(images, factors.tolist(), strict=True):
        for change, factor in zip(changes, own, strict=True):
            if image.shape[0] == 3 or change is not of_images.adjust_saturation:
                image = change(image, factor)
        changed.append(image)
    return torch.stack(changed) if changed else images


def erased(images: Tensor, share: float, generator: Generator) -> Tensor:
    """Images `(B, C, H, W)` in [0, 1], a share of them with a rectangle of noise."""
    images = images.clone()
    for i in torch.nonzero(torch.rand(len(images), generator=generator) < share)[:, 0].tolist():
        height, width = images.shape[2:]
        for area, ratio, down, across in torch.rand(TRIES, 4, generator=generator).tolist():
            cut = height * width * (ERASED_AREA[0] + (ERASED_AREA[1] - ERASED_AREA[0]) * area)
            tall = math.exp(math.log(ERASED_RATIO[0]) + math.log(ERASED_RATIO[1] / ERASED_RATIO[0]) * ratio)
            h, w = round(math.sqrt(cut * tall)), round(math.sqrt(cut / tall))
            if 0 < h < height and 0 < w < width:
                top, left = int(down * (height - h + 1)), int(across * (width - w + 1))
                images[i, :, top : top + h, left : left + w] = torch.rand(images.shape[1], h, w, generator=generator)
                break
    return images
