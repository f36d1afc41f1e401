"""One image file: opened safely, decoded to an array of one size and the colours that a network takes."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
from PIL import Image, ImageOps, features

from trivet.runtime.safe_read import check_regular


class Packed(Protocol):
    """A file in a larger one."""

    def read(self) -> bytes: ...


# A file, a picture, or pixels (H, W) or (H, W, 3) uint8.
Source = Path | Packed | Image.Image | np.ndarray
FORMATS: tuple[str, ...] = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF")
SUFFIXES = frozenset((".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff"))
UNREAD = frozenset((".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".psd", ".dng", ".cr2", ".cr3", ".nef", ".arw"))
if features.check("avif"):  # a Pillow that was built without it, or is older than 11.3
    FORMATS, SUFFIXES, UNREAD = (*FORMATS, "AVIF"), SUFFIXES | {".avif"}, UNREAD - {".avif"}


def open_image(source: Path | BinaryIO, formats: tuple[str, ...] = FORMATS) -> Image.Image:
    """An image file, opened but not decoded: every image that Trivet reads is opened here.

    Pillow knows many more formats, some of which start other programs (PostScript) or read other files; under whatever
    name a file comes, only these are tried.

    Raises:
        ValueError: if it is a device or a pipe.
        Exception: whatever Pillow finds wrong with the file.
    """
    if isinstance(source, Path):
        check_regular(source, "an image")
        if source.suffix.lower() in UNREAD:
            raise ValueError(f"{source.suffix} files are not read; convert it to jpg or png")
    return Image.open(source, formats=formats)


class Region(NamedTuple):
    """A rectangle of an image: its upper left corner, and how high and wide it is."""

    top: int
    left: int
    height: int
    width: int


class Frame(NamedTuple):
    """Size and colours that a network takes, and how images are brought to them.

    Attributes:
        channels: C, 1 or 3.
        size: H and W, what the network takes.
        resize: the shorter side that an image of this shape has before its edges are cut off; None: no edge is.
    """

    channels: int
    size: tuple[int, int]
    resize: int | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        return (self.channels, *self.size)

    @property
    def cover(self) -> tuple[int, int]:
        """Height and width before the edges are cut off."""
        height, width = self.size
        if self.resize is None:
            return self.size
        scale = self.resize / min(self.size)
        return round(height * scale), round(width * scale)

    @classmethod
    def of(cls, shape: tuple[int, ...], resize: int | None = None) -> Frame:
        """Frame of inputs of a shape; ValueError where these are no images."""
        if len(shape) != 3:
            raise ValueError(f"this network needs inputs of shape {shape}, not images; use data of that shape.")
        return cls(shape[0], (shape[1], shape[2]), resize)


def decode_image(
    source: Source,
    *,
    size: int | tuple[int, int],
    channels: int,
    box: np.ndarray | None = None,
    overflow: bool = False,
    region: Region | None = None,
    mirror: bool = False,
) -> np.ndarray:
    """One image as `(channels, H, W)` uint8: turned upright, resized to cover `size`, and centre cropped to it.

    The first frame of an animation; transparent parts on white; 16-bit grey keeps its upper eight bits.

    Args:
        size: H and W, or the side of a square.
        overflow: leave what is beyond `size` on one side, up to twice as much.
        box: left, upper, right and lower edge in pixels of the file, `(4,)`: what the image is cut to first, as far as
            it lies within.
        region: what of the cropped image is wanted: the rest is not even made, where that is the same to the last bit.
        mirror: exchange left and right at the end; as an array this takes five times as long.

    Raises:
        Exception: whatever Pillow finds wrong with the file.
    """
    high, wide = (size, size) if isinstance(size, int) else size
    with _opened(source) as opened:
        width, height = opened.size
        across, down = (width, height) if box is None else (box[2] - box[0], box[3] - box[1])
        if across > 0 and down > 0:  # JPEG only: decode at about the size that is needed, also if it lies on its side
            side = 2 * max(high, wide)
            opened.draft("RGB", (int(side * width / across), int(side * height / down)))
        image: Image.Image = opened
        if box is not None:
            image = image.crop(_within(box * np.tile([image.width / width, image.height / height], 2), image.size))
        ImageOps.exif_transpose(image, in_place=True)  # not a copy: most images stand upright
        if image.mode.startswith("I;16"):
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif image.mode in ("I", "F"):
            raise ValueError("32-bit pixels have no fixed range; save it as 8-bit")
        elif "A" in image.getbands() or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        mode = "L" if channels == 1 else "RGB"
        if image.mode != mode:
            image = image.convert(mode)
        if overflow:
            scale = max(high / image.height, wide / image.width)
            high, wide = (
                min(max(round(scale * side), least), 2 * least)
                for side, least in ((image.height, high), (image.width, wide))
            )
        image = _fitted(image, high, wide, region)
        if mirror:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = np.asarray(image).reshape(image.height, image.width, channels).transpose(2, 0, 1)
        return pixels.copy() if overflow else pixels  # one that is kept as it is; Pillow's own cannot be written to


def _opened(source: Source) -> Image.Image:
    if isinstance(source, np.ndarray):
        return Image.fromarray(source)
    if isinstance(source, Image.Image):
        return source.copy()  # which is decoded whole: the caller's own is left as it is
    return open_image(source if isinstance(source, Path) else io.BytesIO(source.read()))


def _fitted(image: Image.Image, high: int, wide: int, region: Region | None) -> Image.Image:
    """A part of the image that `ImageOps.fit` gives, or all of it.

    Where the shorter side has its length already, an image is not resized, but moved by half a pixel if what is cut off
    is odd: then only the part is made. Otherwise the order in which Pillow resizes the sides, and with it the rounding,
    depends on how much of them is asked for.
    """
    upper, left = (image.height - high) / 2, (image.width - wide) / 2
    if region is None or min(upper, left) != 0:
        fitted = ImageOps.fit(image, (wide, high), method=Image.Resampling.BICUBIC)
        return fitted if region is None else _cut(fitted, *region)
    upper, left = upper + region.top, left + region.left
    moved_down, moved_across = upper % 1 > 0, left % 1 > 0
    top, height = (0, image.height) if moved_down else (int(upper), region.height)
    start, width = (0, image.width) if moved_across else (int(left), region.width)
    cut = _cut(image, top, start, height, width)
    if moved_down or moved_across:
        upper, left = upper - top, left - start
        box = (left, upper, left + region.width, upper + region.height)
        cut = cut.resize((region.width, region.height), Image.Resampling.BICUBIC, box=box)
    return cut


def _cut(image: Image.Image, top: int, left: int, height: int, width: int) -> Image.Image:
    return image.crop((left, top, left + width, top + height))


def _within(box: np.ndarray, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """A box in whole pixels that lies within an image."""
    left, upper = (int(max(0, math.floor(edge))) for edge in box[:2])
    right, lower = (int(min(side, math.ceil(edge))) for edge, side in zip(box[2:], size, strict=True))
    if left >= right or upper >= lower:
        raise ValueError(f"the box {[round(float(edge), 1) for edge in box]} holds no pixel of the image")
    return left, upper, right, lower
