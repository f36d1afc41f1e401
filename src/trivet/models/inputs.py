"""Images and vectors as anybody has them, made ready for a network as `trivet embed` does it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Items = Sequence[Any] | npt.NDArray[Any] | Tensor


def as_inputs(items: Items, shape: tuple[int, ...], resize: int | None) -> Tensor:
    """Inputs `(B, *shape)` of a network from B images, as bytes, or B vectors.

    Args:
        items: images, each a path, a picture of Pillow, or an array `(H, W)` or `(H, W, 3)` of bytes; or vectors.
        resize: the shorter side of an image before its edges are cut off; None: no edge is.

    Raises:
        ValueError: if an item is no such thing, or cannot be read.
    """
    if len(shape) == 1:
        return _vectors(items, shape[0])
    if len(shape) == 3:
        return _images(items, shape, resize)
    raise ValueError(
        f"embed takes images, texts and vectors: this model takes inputs of shape {shape}; call it itself."
    )


def _vectors(items: Items, width: int) -> Tensor:
    try:
        rows = torch.as_tensor(items if isinstance(items, Tensor) else np.asarray(items, np.float32)).float()
    except (ValueError, TypeError):
        rows = torch.empty(0)
    if rows.ndim != 2 or rows.shape[1] != width:
        got = f"shape {tuple(rows.shape)}" if rows.ndim else "none"
        raise ValueError(
            f"this model takes vectors (N, {width}), of the encoder that it was trained on: got "
            f"{got if rows.numel() else type(items[0]).__name__ + ' items'}; encode them first."
        )
    if not bool(rows.isfinite().all()):
        raise ValueError("vectors must be finite: some hold NaN or infinity; check how they were made.")
    return rows


def _images(items: Items, shape: tuple[int, ...], resize: int | None) -> Tensor:
    from PIL import Image  # here: vectors and texts need none of it

    from trivet.io.image_file import Frame, decode_image

    frame = Frame.of(shape, resize)
    (height, width), (high, wide) = frame.size, frame.cover
    top, left = (high - height) // 2, (wide - width) // 2
    batch = np.empty((len(items), frame.channels, height, width), np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for position, item in enumerate(items):
            source = Path(item) if isinstance(item, str) else item
            pixels = isinstance(source, np.ndarray) and source.dtype == np.uint8 and source.ndim in (2, 3)
            if not pixels and not isinstance(source, Path | Image.Image):
                what = f"{source.dtype} {source.shape}" if isinstance(source, np.ndarray) else type(source).__name__
                raise ValueError(
                    "an image must be a path, a picture of Pillow, or an array (H, W) or (H, W, 3) of bytes: item "
                    f"{position} is {what}; convert it."
                )
            try:
                decoded = decode_image(source, size=frame.cover, channels=frame.channels)
            except Exception as error:  # Pillow's readers raise many kinds on broken files
                name = f", {source}," if isinstance(source, Path) else ""
                raise ValueError(
                    f"items must be images that can be read: item {position}{name} cannot ({type(error).__name__}: "
                    f"{error}); leave it out."
                ) from None
            batch[position] = decoded[:, top : top + height, left : left + width]
    return torch.from_numpy(batch)
