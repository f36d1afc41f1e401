"""The weights of encoders that are on this machine: in the cache of the Hugging Face hub, in files and folders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trivet.config.plugins import is_reference
from trivet.models.backbones import read_timm_folder
from trivet.models.config import TEXT
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
    """

    encoder: Encoder
    model: dict[str, Any]


def at_hand(
    kind: EncoderKind, weights: Mapping[str, Path] | None = None, names: Collection[str] | None = None
) -> list[EncoderAtHand]:
    """The encoders of a kind that can be used without a network: those with weights of one's own first.

    Of the catalogue, those whose licence forbids commercial use are left out, unless they are named.

    Args:
        weights: of an encoder, by its name in the catalogue or its network: a file of weights, or a folder.
        names: those of the catalogue, or networks, that are wanted beside them; None for all that are there.

    Raises:
        ValueError: if a name is not known or embeds something else, or weights are not there.
    """
    files = {encoder_named(name, kind): Path(path) for name, path in (weights or {}).items()}
    ready = [_from_path(encoder, path) for encoder, path in files.items()]
    for encoder in _usable(kind) if names is None else [encoder_named(name, kind) for name in names]:
        if encoder in files:
            continue
        if is_reference(encoder.network):
            ready.append(EncoderAtHand(encoder, {"name": encoder.network, "embedding_dim": encoder.width}))
            continue
        folder = cached(encoder)
        if folder is not None:
            path = folder / WEIGHTS if kind == "images" else folder
            ready.append(EncoderAtHand(encoder, _settings(encoder, path)))
        elif names is not None:
            fetch = (
                f"download them with trivet encoders --download {typed(encoder.name)}, or "
                if encoder.repository
                else ""
            )
            raise ValueError(
                f"the weights of {encoder.name} must be on this machine: the cache of the Hugging Face hub has none; "
                f"{fetch}name a file: trivet train --weights {typed(encoder.name)}=FILE."
            )
    return ready


def missing(kind: EncoderKind) -> list[Encoder]:
    """The encoders of the catalogue of a kind that would be compared, if their weights were in the hub's cache."""
    return [encoder for encoder in _usable(kind) if cached(encoder) is None]


def _usable(kind: EncoderKind) -> list[Encoder]:
    return [encoder for encoder in CATALOGUE if encoder.kind == kind and encoder.commercial]


def from_folder(folder: Path, kind: EncoderKind, name: str) -> EncoderAtHand:
    """A checkpoint of sentence-transformers, transformers or timm as an encoder of a name.

    Raises:
        ValueError: if it is none of these, or of another kind.
    """
    folder = folder.resolve()
    encoder = Encoder(name, kind, read_timm_folder(folder)[0] if kind == "images" else f"{TEXT}{folder}")
    return EncoderAtHand(encoder, _settings(encoder, folder))


def kind_of_folder(folder: Path) -> EncoderKind:
    """The kind of what a checkpoint embeds: images where timm saved it, else texts."""
    try:
        read_timm_folder(folder)
    except ValueError:
        return "texts"
    return "images"


def cached(encoder: Encoder) -> Path | None:
    """The folder of an encoder in the hub's cache, of its pinned revision if that is there."""
    from huggingface_hub import constants  # here: few need it

    if not encoder.repository:
        return None
    folder = Path(constants.HF_HUB_CACHE) / f"models--{encoder.repository.replace('/', '--')}" / "snapshots"
    snapshots = [path for path in folder.iterdir() if _complete(path, encoder.kind)] if folder.is_dir() else []
    return max(snapshots, key=lambda path: (path.name == encoder.revision, path.stat().st_mtime), default=None)


def _complete(folder: Path, kind: EncoderKind) -> bool:
    """True if a folder has what a network needs: a download that was broken off leaves some of it."""
    if kind == "images":
        return (folder / WEIGHTS).is_file()
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    described = not names.isdisjoint(("config.json", "modules.json"))
    return described and WEIGHTS in names and not names.isdisjoint(VOCABULARIES)


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
