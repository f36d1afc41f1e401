"""The catalogue of pretrained encoders: what each is, what it was trained on, what it costs and who may use it."""

from __future__ import annotations

import csv
import inspect
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from trivet.config.plugins import is_reference, python_object
from trivet.models.config import TEXT, TIMM, TORCHVISION

EncoderKind = Literal["images", "texts"]
NON_COMMERCIAL = ("-nc", "noncommercial", "non-commercial", "research")  # in the name of a licence


@dataclass(frozen=True)
class Encoder:
    """A pretrained network, whose vectors a model can begin as.

    What prepares an image, its mean and deviation of colours, is timm's of the same name; the tokenizer, the pooling
    and the length of a text are those of its folder.

    Attributes:
        name: short, for options and reports.
        kind: what it embeds, "images" or "texts".
        network: its `model.name`: "timm:NAME", "text:" and its repository of the Hugging Face hub, or "python:..." of
            one outside Trivet.
        width: numbers of a vector; 0 where that is not known.
        licence: as its repository has it; empty where that is not known.
        trained_on: the data, in a few words.
        warning: which benchmarks it may know already, in a sentence, or empty.
        megabytes: of the download, about.
        per_second: images of 224 x 224 pixels, or short texts, on two cores of a CPU, about.
        measured: whether that was measured with its weights, not estimated from the size of the network.
        pixels: side of the images that it was trained on.
        patch: an image is cut into squares of that side; 1 for convolutions.
        prefix: text before each text.
        revision: commit of its repository; empty: the newest, which is recorded in the cache at the download.
    """

    name: str
    kind: EncoderKind
    network: str
    width: int = 0
    licence: str = ""
    trained_on: str = ""
    warning: str = ""
    megabytes: int = 0
    per_second: int = 0
    measured: bool = False
    pixels: int = 0
    patch: int = 1
    prefix: str = ""
    revision: str = ""

    @property
    def repository(self) -> str:
        """Its repository of the Hugging Face hub; empty where there is none."""
        if self.network.startswith(TIMM):
            return f"timm/{self.network.removeprefix(TIMM)}"
        return self.network.removeprefix(TEXT) if self.network.startswith(TEXT) else ""

    @property
    def commercial(self) -> bool:
        """False if its licence forbids commercial use."""
        return not any(word in self.licence.lower() for word in NON_COMMERCIAL)

    def image_size(self, pixels: int) -> int:
        """The side of images, near to `pixels` and at most what it was trained on, that is cut into whole squares."""
        most = min(pixels, self.pixels or pixels)
        return self.patch * max(1, round(most / self.patch))


def _catalogue() -> tuple[Encoder, ...]:
    """The encoders of `encoders.csv`, a row each."""
    with files("trivet.models").joinpath("encoders.csv").open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [*csv.DictReader(file)]
    for row in rows:
        row |= {name: int(row[name]) for name in ("width", "megabytes", "per_second", "pixels", "patch")}
        row["measured"] = row["measured"] == "yes"
    return tuple(Encoder(**row) for row in rows)


CATALOGUE = _catalogue()


def kind_of(name: str) -> EncoderKind:
    """The kind of what an encoder embeds, by its name or network."""
    entry = next((e for e in CATALOGUE if name.lower() in (e.name.lower(), e.network.lower())), None)
    if entry is not None:
        return entry.kind
    return "texts" if name.startswith(TEXT) else "images"


def encoder_named(name: str, kind: EncoderKind) -> Encoder:
    """The encoder of the catalogue of that name or network, or else of the network of that name.

    Raises:
        ValueError: if there is none, or it embeds something else.
    """
    entry = next((e for e in CATALOGUE if name.lower() in (e.name.lower(), e.network.lower())), None)
    if entry is None and name.startswith(TIMM):
        entry = _of_timm(name)
    elif entry is None and name.startswith(TORCHVISION):
        from trivet.models.backbones import check_backbone_name  # here: it loads torch

        check_backbone_name(name)
        entry = Encoder(name.removeprefix(TORCHVISION), "images", name)
    elif entry is None and is_reference(name):
        entry = Encoder(name, "images", name, width=_width(name))
    elif entry is None and name.startswith(TEXT):
        entry = Encoder(name.removeprefix(TEXT).rstrip("/").rpartition("/")[2], "texts", name)
    if entry is None:
        names = ", ".join(entry.name for entry in CATALOGUE if entry.kind == kind)
        other = "timm:NAME, torchvision:NAME, python:FILE.py:NAME" if kind == "images" else "text:NAME"
        raise ValueError(f"an encoder of {kind} must be one of {names}, {other}: got {name!r}.")
    if entry.kind != kind:
        raise ValueError(f"an encoder must take what the data are, {kind}: {name} embeds {entry.kind}; leave it out.")
    return entry


def _of_timm(name: str) -> Encoder:
    """The encoder of a network of timm by what timm knows of it."""
    import timm  # here: it takes seconds to load

    from trivet.models.backbones import check_backbone_name

    check_backbone_name(name)
    try:
        cfg = timm.get_pretrained_cfg(name.removeprefix(TIMM))
    except RuntimeError as error:  # of weights it does not know
        listed = timm.list_pretrained(name.removeprefix(TIMM).partition(".")[0])
        raise ValueError(f"{str(error).rstrip('.')}; timm has {', '.join(listed) or 'none'}.") from None
    if cfg is not None and cfg.tag and "." not in name:
        name = f"{name}.{cfg.tag}"
    entry = next((entry for entry in CATALOGUE if entry.network == name), None)
    if entry is not None:
        return entry
    if cfg is None or not cfg.has_weights:
        raise ValueError(
            f"how an encoder's images are prepared must be known: timm has no weights of {name}, so no mean and "
            "deviation of colours; give a folder that timm saved, whose config.json has them."
        )
    return Encoder(name.removeprefix(TIMM), "images", name, licence=cfg.license or "", pixels=cfg.input_size[-1])


def _width(reference: str) -> int:
    """The numbers of a vector of a network outside Trivet, as its class has them as default.

    Raises:
        ValueError: if it cannot be imported, or has no default.
    """
    known = inspect.signature(python_object(reference, kind="models")).parameters.get("embedding_dim")
    if known is None or not isinstance(known.default, int):
        raise ValueError(
            f"an encoder must say how many numbers its vectors have: embedding_dim of {reference} has no default; "
            "write embedding_dim: int = N in its constructor."
        )
    return known.default
