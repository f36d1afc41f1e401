"""What a page shows of an item: a small image, or its text."""

from __future__ import annotations

import base64
import io

from PIL import Image

Shown = Image.Image | str
LONGEST = 120  # characters of a text in a plot


def called(id: str, shown: Shown | None) -> str:
    """What a plot calls an item: the beginning of its text, where it is one, else its id."""
    if not isinstance(shown, str):
        return id
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]} ..."


def as_json(shown: Shown | None) -> dict[str, str | None]:
    """Its two parts of a record, one of which is there: "thumbnail", an image as a data URI, and "text"."""
    if shown is None or isinstance(shown, str):
        return {"thumbnail": None, "text": shown}
    sink = io.BytesIO()
    if shown.mode == "L":
        shown.save(sink, "PNG")
    else:
        shown.save(sink, "JPEG", quality=80)
    kind = "png" if shown.mode == "L" else "jpeg"
    return {"thumbnail": f"data:image/{kind};base64,{base64.b64encode(sink.getvalue()).decode()}", "text": None}
