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


def contents_fingerprint(paths: Iterable[Path]) -> str:
    """The fingerprint of the bytes of several files, of which some may be missing."""
    return fingerprint(file_fingerprint(path) if path.is_file() else None for path in paths)


def times_fingerprint(paths: Iterable[Path]) -> str:
    """The fingerprint of what changes with a file: which one it is, its size, and when it and its entry were changed.

    Who replaces a file can set the time of its content, but not that of its entry.
    """
    stats = (path.stat() if path.is_file() else None for path in paths)
    return fingerprint(stat and (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats)


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
