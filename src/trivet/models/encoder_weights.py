"""The weights of encoders: in the cache of the Hugging Face hub, in files and folders, or downloaded once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.models.backbones import read_timm_folder
from trivet.models.config import TEXT, TIMM, TORCHVISION
from trivet.models.encoders import CATALOGUE, Encoder, EncoderKind, encoder_named
from trivet.models.text_folder import find_text_folder
from trivet.runtime.text import typed

WEIGHTS = "model.safetensors"
VOCABULARIES = ("tokenizer.json", "vocab.txt", "sentencepiece.bpe.model")


@dataclass(frozen=True)
class EncoderAtHand:
    """An encoder whose weights are on this machine.

    Attributes:
        model: settings of `ModelConfig` that begin from it, without a network: `name`, and where it needs them
            `weights` and `prefix`.
        revision: the commit of its repository, or empty for files of one's own.
    """

    encoder: Encoder
    model: dict[str, Any]
    revision: str = ""


def at_hand(
    kind: EncoderKind,
    weights: Mapping[str, Path] | None = None,
    further: Collection[str] = (),
    accepted: Collection[str] = (),
) -> list[EncoderAtHand]:
    """The encoders of a kind that can be used without a network, those of the catalogue first.

    Args:
        weights: of an encoder, by its name in the catalogue or its network: a file of weights, or a folder.
        further: networks beside the catalogue's: "timm:NAME" whose weights are in the cache, "text:FOLDER" or
            "python:FILE.py:NAME".
        accepted: names of encoders, or licences, whose licence may forbid commercial use.

    Raises:
        ValueError: if a name is not known or embeds something else, or weights are not there.
    """
    files = {encoder_named(name, kind): Path(path) for name, path in (weights or {}).items()}
    others = [encoder_named(name, kind) for name in further]
    listed = dict.fromkeys([*(entry for entry in CATALOGUE if entry.kind == kind), *files, *others])
    ready_encoders = []
    for encoder in listed:
        named = encoder in files or encoder in others
        if not (named or usable(encoder, accepted)):
            continue
        ready = _from_path(encoder, files[encoder]) if encoder in files else _ready(encoder)
        if ready is not None:
            ready_encoders.append(ready)
        elif named:
            name = encoder.name if encoder in CATALOGUE else encoder.network
            raise ValueError(
                f"the weights of {encoder.name} must be on this machine: the cache of the Hugging Face hub has none; "
                f"download them with trivet encoders --download {typed(name)}, or give a file of them."
            )
    return ready_encoders


def missing(kind: EncoderKind) -> list[Encoder]:
    """The encoders of the catalogue of a kind whose weights are not in the hub's cache."""
    return [entry for entry in CATALOGUE if entry.kind == kind and cached(entry) is None]


def usable(encoder: Encoder, accepted: Collection[str]) -> bool:
    """True if the licence allows any use, or was accepted, by the encoder's name or its own."""
    return encoder.commercial or encoder.name in accepted or encoder.licence in accepted


def cached(encoder: Encoder) -> Path | None:
    """The folder of an encoder in the hub's cache, of its pinned revision if that is there."""
    from huggingface_hub import constants  # here: few need it

    if not encoder.repository:
        return None
    folder = Path(constants.HF_HUB_CACHE) / f"models--{encoder.repository.replace('/', '--')}" / "snapshots"
    snapshots = [path for path in folder.iterdir() if _complete(path, encoder.kind)] if folder.is_dir() else []
    return max(snapshots, key=lambda path: (path.name == encoder.revision, path.stat().st_mtime), default=None)


def from_folder(folder: Path, kind: EncoderKind) -> EncoderAtHand:
    """A checkpoint of sentence-transformers, transformers or timm as an encoder, called like its folder.

    Raises:
        ValueError: if it is none of these, or of another kind.
    """
    if kind == "images":
        name, _, preparation = read_timm_folder(folder)
        pixels = int((preparation.get("input_size") or (3, 0, 0))[-1])
        encoder = Encoder(folder.resolve().name, kind, name, pixels=pixels)
        return EncoderAtHand(encoder, {"name": name, "weights": str(folder.resolve())})
    find_text_folder(str(folder))
    name = f"{TEXT}{folder.resolve()}"
    return EncoderAtHand(Encoder(folder.resolve().name, kind, name), {"name": name})


def _complete(folder: Path, kind: EncoderKind) -> bool:
    """True if a folder has what a network needs: a download that was broken off leaves some of it."""
    if kind == "images":
        return (folder / WEIGHTS).is_file()
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    described = not names.isdisjoint(("config.json", "modules.json"))
    return described and WEIGHTS in names and not names.isdisjoint(VOCABULARIES)


def _ready(encoder: Encoder) -> EncoderAtHand | None:
    """An encoder that needs no weights of its own, or whose weights are in the cache."""
    folder = cached(encoder)
    if folder is not None:
        weights = folder / WEIGHTS if encoder.kind == "images" else folder
        return EncoderAtHand(encoder, _settings(encoder, weights), folder.name)
    here = Path(encoder.network.removeprefix(TEXT)).expanduser()
    if encoder.network.startswith(TEXT) and here.is_dir():
        return from_folder(here, "texts")
    if encoder.network.startswith((TIMM, TORCHVISION, TEXT)):
        return None
    return EncoderAtHand(encoder, {"name": encoder.network})


def _from_path(encoder: Encoder, path: Path) -> EncoderAtHand:
    """An encoder with the weights of a file or a folder."""
    if not path.exists():
        raise ValueError(f"the weights of {encoder.name} must be a file or a folder: {path} does not exist.")
    path = path.resolve()
    if encoder.kind == "images" and path.is_dir():
        name = read_timm_folder(path)[0]
        if encoder.network.partition(".")[0] != name.partition(".")[0]:
            raise ValueError(
                f"the weights of {encoder.name} must be those of {encoder.network}: {path} holds {name}; give another "
                "folder."
            )
    if encoder.kind == "texts":
        if not path.is_dir():
            raise ValueError(
                f"the weights of a text network must be its whole folder, with its tokenizer: {path} is a file."
            )
        find_text_folder(str(path))
    return EncoderAtHand(encoder, _settings(encoder, path))


def _settings(encoder: Encoder, path: Path) -> dict[str, Any]:
    """The settings of a network whose weights lie at a path."""
    if encoder.kind == "texts":
        prefix = find_text_folder(str(path)).prefix or encoder.prefix
        return {"name": f"{TEXT}{path}"} | ({"prefix": prefix} if prefix else {})
    return {"name": encoder.network, "weights": str(path)}
