"""`trivet encoders`: the catalogue, and downloads that name their size and licence first."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from trivet.commands.printing import echo
from trivet.models.config import TEXT
from trivet.models.encoder_download import download, published
from trivet.models.encoder_weights import cached
from trivet.models.encoders import CATALOGUE, encoder_named
from trivet.runtime.progress import show_progress


def listed() -> list[dict[str, Any]]:
    """A row for each encoder of the catalogue, with the folder that its weights are in, or None."""
    return [
        {**asdict(entry), "repository": entry.repository, "commercial": entry.commercial, "folder": cached(entry)}
        for entry in CATALOGUE
    ]


def downloaded(name: str, accepted: Collection[str]) -> dict[str, Any]:
    """An encoder that is downloaded, once its size and licence were printed on standard error.

    Raises:
        ValueError: see `published` and `download`.
    """
    texts = name.startswith(TEXT) or any(entry.name == name and entry.kind == "texts" for entry in CATALOGUE)
    entry = published(encoder_named(name, "texts" if texts else "images"), accepted)
    licence = entry.licence or "none that is named"
    echo(f"{name}: {entry.bytes / 1e6:,.0f} MB of {entry.encoder.repository}, licence {licence}", err=True)
    if entry.encoder.warning:
        echo(entry.encoder.warning, err=True)
    with show_progress(f"downloading {name}"):
        folder = download(entry)
    return {"name": entry.encoder.name, "folder": folder, "revision": entry.revision, "licence": entry.licence}
