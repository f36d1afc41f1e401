"""Fingerprints: what tells data, settings and files from others, as SHA-256 in hexadecimal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def file_fingerprint(path: Path) -> str:
    """The fingerprint of the bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(values: Iterable[Any]) -> str:
    """The fingerprint of values, one after the other.

    Args:
        values: arrays, of which shape, type and content count, and anything else, by its `repr`.
    """
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            digest.update(repr((value.shape, str(value.dtype))).encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()
