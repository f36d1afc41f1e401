"""Previews of items for pages: a small image, or a text."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

Preview = Image.Image | str
LONGEST = 120  # characters of a text in a plot


def item_title(id: str, preview: Preview | None) -> str:
    """The title of an item in a plot: the beginning of its text, if it is one, else its id."""
    if not isinstance(preview, str):
        return id
    return preview if len(preview) <= LONGEST else f"{preview[:LONGEST]} ..."


def to_thumbnail(pixels: np.ndarray) -> Image.Image:
    """An image of at most 64 pixels a side from `(C, H, W)` uint8, C being 1 or 3."""
    image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    image.thumbnail((64, 64))
    return image


def preview_record(preview: Preview | None) -> dict[str, str | None]:
    """A preview in a record: "thumbnail", an image as a data URI, and "text", one of which is None."""
    if preview is None or isinstance(preview, str):
        return {"thumbnail": None, "text": preview}
    sink = io.BytesIO()
    if preview.mode == "L":
        preview.save(sink, "PNG")
    else:
        preview.save(sink, "JPEG", quality=80)
    kind = "png" if preview.mode == "L" else "jpeg"
    return {"thumbnail": f"data:image/{kind};base64,{base64.b64encode(sink.getvalue()).decode()}", "text": None}
