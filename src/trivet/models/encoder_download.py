"""Weights of encoders from the Hugging Face hub: size and licence first, then safetensors of one revision, by hash."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from trivet.models.encoder_weights import WEIGHTS, cached
from trivet.models.encoders import Encoder
from trivet.models.hub import HubError, hashes, snapshot
from trivet.models.text_folder import SKIPPED_FILES, TEXT_FILES, briefly


@dataclass(frozen=True)
class PublishedEncoder:
    """An encoder as the hub has it.

    Attributes:
        revision: the commit that is downloaded.
        licence: of its repository.
        files: name -> hash, see `Revision`.
        bytes: of all these files.
    """

    encoder: Encoder
    revision: str
    licence: str
    files: dict[str, str | None]
    bytes: int


def published(encoder: Encoder, accepted: Collection[str] = ()) -> PublishedEncoder:
    """Description of an encoder on the hub, by one request; nothing is downloaded.

    Args:
        accepted: names of encoders, or licences, whose licence may forbid commercial use.

    Raises:
        HubError: if the hub cannot be reached.
        ValueError: if the repository is gated or has no safetensors, or the licence is not accepted.
    """
    import huggingface_hub as hub  # here: few need it
    from huggingface_hub.errors import GatedRepoError

    if not encoder.repository:
        raise ValueError(f"{encoder.name} must be on the Hugging Face hub to be downloaded: {encoder.network} is not.")
    check_licence(encoder, encoder.licence, accepted)
    try:
        details: Any = hub.model_info(encoder.repository, revision=encoder.revision or None, files_metadata=True)
        if details.gated:
            hub.auth_check(encoder.repository)
    except GatedRepoError:
        raise ValueError(
            f"the weights of {encoder.name} are gated: log in with hf auth login, accept the terms on the page of "
            f"{encoder.repository} on the Hugging Face hub, and try again."
        ) from None
    except Exception as error:  # the hub's client raises many kinds
        raise HubError(
            f"the weights of {encoder.name} must come from {encoder.repository} on the Hugging Face hub, which cannot "
            f"be read ({briefly(error)}); try again, or copy its folder of ~/.cache/huggingface/hub from a machine "
            "that has it."
        ) from None
    card = getattr(details.card_data, "license", None)
    licence = encoder.licence or (card if isinstance(card, str) else "")
    check_licence(encoder, licence, accepted)
    siblings = [file for file in details.siblings or [] if _needed(file.rfilename, encoder)]
    if not any(file.rfilename.endswith(WEIGHTS) for file in siblings):
        raise ValueError(
            f"weights must be safetensors, as other files can run code: {encoder.repository} has no {WEIGHTS}; use "
            "another encoder."
        )
    files = {name: digest for name, digest in hashes(details).items() if _needed(name, encoder)}
    return PublishedEncoder(encoder, details.sha, licence, files, sum(file.size or 0 for file in siblings))


def download(entry: PublishedEncoder) -> Path:
    """The folder of the weights in the hub's cache, after a download where they are not there.

    Raises:
        HubError: if the download fails.
        ValueError: if a file is not what the hub says; then it is removed.
    """
    encoder = entry.encoder
    folder = snapshot(encoder.repository, entry.revision, entry.files)
    if cached(encoder) is None:
        raise ValueError(f"{encoder.repository} must hold a network with its tokenizer: it lacks one; use another.")
    return folder


def check_licence(encoder: Encoder, licence: str, accepted: Collection[str]) -> None:
    """Raise ValueError unless the licence allows any use, or was accepted, by the encoder's name or its own."""
    if not (replace(encoder, licence=licence).commercial or encoder.name in accepted or licence in accepted):
        raise ValueError(
            f"the licence of {encoder.name}, {licence}, forbids commercial use: accept it with "
            f"--accept-licence {encoder.name}, or use another encoder."
        )


def _needed(name: str, encoder: Encoder) -> bool:
    """True for a file that is read: of images timm knows all but the weights."""
    if encoder.kind == "images":
        return name == WEIGHTS
    return any(fnmatch(name, pattern) for pattern in TEXT_FILES) and not any(
        fnmatch(name, pattern) for pattern in SKIPPED_FILES
    )
