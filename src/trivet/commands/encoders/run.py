"""`trivet encoders`: the catalogue, and downloads that name their size and licence first, also for a ladder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import typer

from trivet.commands.printing import echo
from trivet.models.config import TEXT
from trivet.models.encoder_download import check_licence, download, published
from trivet.models.encoder_weights import at_hand, cached, missing
from trivet.models.encoders import CATALOGUE, Encoder, EncoderKind, encoder_named
from trivet.models.hub import HubError
from trivet.runtime.progress import show_progress

ALL = "all"
YES, NO = ("y", "yes", ALL), ("n", "no", "none")  # of an answer at the terminal


def listed() -> list[dict[str, Any]]:
    """A row for each encoder of the catalogue, with the folder that its weights are in, or None."""
    return [
        {**asdict(entry), "repository": entry.repository, "commercial": entry.commercial, "folder": cached(entry)}
        for entry in CATALOGUE
    ]


def any_encoder(name: str) -> Encoder:
    """The encoder of a name, of images or texts; ValueError if there is none."""
    texts = name.startswith(TEXT) or any(entry.name == name and entry.kind == "texts" for entry in CATALOGUE)
    return encoder_named(name, "texts" if texts else "images")


def downloaded(encoder: Encoder, accepted: Collection[str]) -> dict[str, Any]:
    """An encoder that is downloaded, once its size and licence were printed on standard error.

    Raises:
        ValueError: see `published` and `download`.
    """
    entry, name = published(encoder, accepted), encoder.name
    licence = entry.licence or "none that is named"
    echo(f"{name}: {entry.bytes / 1e6:,.0f} MB of {encoder.repository}, licence {licence}", err=True)
    if encoder.warning:
        echo(encoder.warning, err=True)
    with show_progress(f"downloading {name}"):
        folder = download(entry)
    return {"name": name, "folder": folder, "revision": entry.revision, "licence": entry.licence}


def fetched(
    kind: EncoderKind,
    named: Sequence[str] | None,
    wanted: Sequence[str],
    accepted: Collection[str],
    *,
    interactive: bool,
) -> list[str] | None:
    """The encoders that a ladder compares, as `LadderConfig.encoders`, once further ones were downloaded.

    If the hub cannot be reached a line says so, and they are those that are there.

    Args:
        named: those that its settings name; None for all that are there.
        wanted: names of further ones, or ALL of the catalogue that are missing.
        accepted: see `published`.
        interactive: whether to ask for them at the terminal, where none are wanted.
    """
    absent = missing(kind)
    if interactive and not wanted and named is None and absent:
        wanted = _answer(absent)
    names = [name for name in wanted if name != ALL]
    further = [*map(partial(encoder_named, kind=kind), names), *(absent if ALL in wanted else ())]
    for encoder in further:
        check_licence(encoder, encoder.licence, accepted)
    ready = list[Encoder]()
    try:
        for encoder in further:
            if cached(encoder) is None:
                downloaded(encoder, accepted)
            ready.append(encoder)
    except HubError as error:
        echo(f"Not compared: {error}", err=True)
    if named is None and all(encoder in CATALOGUE and encoder.commercial for encoder in ready):
        return None  # they are compared anyway
    there = [entry.encoder.name for entry in at_hand(kind)] if named is None else named
    return [*dict.fromkeys([*there, *(encoder.name if encoder in CATALOGUE else encoder.network for encoder in ready)])]


def _answer(absent: Sequence[Encoder]) -> list[str]:
    """Names of the encoders that are wanted of those that are absent, as they are typed at the terminal."""
    echo("These encoders are not on this machine; each is a further one to compare:", err=True)
    for encoder in absent:
        echo(f"  {encoder.name}: {encoder.megabytes} MB, {encoder.licence}, trained on {encoder.trained_on}", err=True)
    answer = typer.prompt(
        f"Download {ALL}, some by name, or none (Enter)?", default="", show_default=False, prompt_suffix=" ", err=True
    )
    words = str(answer).replace(",", " ").split()
    return [ALL if word.lower() in YES else word for word in words if word.lower() not in NO]
