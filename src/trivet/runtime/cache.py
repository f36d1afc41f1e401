"""The folder of the user for what can be made again."""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal

Subject = Literal["data", "baselines", "features"]
SUBJECTS: dict[Subject, str] = {
    "data": "data sets",
    "baselines": "measures of references",
    "features": "features of frozen encoders",
}
MADE_AGAIN = [name for name in SUBJECTS if name != "data"]  # by computing, and not by fetching or copying
SHARED = {"darwin": "Library/Caches", "win32": "AppData/Local"}  # of the home folder; elsewhere .cache
VARIABLE, LIMIT = "TRIVET_CACHE", "TRIVET_CACHE_LIMIT"
MOST_GB = 10.0  # of the files of a subject; nothing removes data sets


def cache_folder(subject: Subject) -> Path:
    """The folder of a subject: data sets, measures of references, or features of a frozen encoder.

    It lies in the folder that the environment variable TRIVET_CACHE names; else in `trivet` of XDG_CACHE_HOME, if that
    is an absolute path, or of the platform: `~/Library/Caches` of macOS, `~/AppData/Local` of Windows, or `~/.cache`.

    Raises:
        ValueError: if no variable names one and the user has no home folder.
    """
    if variable := os.environ.get(VARIABLE):
        return Path(variable).expanduser() / subject
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not shared.is_absolute():
        try:
            shared = Path.home() / SHARED.get(sys.platform, ".cache")
        except RuntimeError:
            raise ValueError(
                f"a folder must be known for what can be made again: this user has no home folder; set {VARIABLE}."
            ) from None
    return shared / "trivet" / subject


def cache_limit() -> int:
    """The most bytes that a subject may take: 10 GB, or as many GB as the variable TRIVET_CACHE_LIMIT says.

    Raises:
        ValueError: if that is no such number.
    """
    text = os.environ.get(LIMIT) or str(MOST_GB)
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise ValueError(f"{LIMIT} must be a number of GB, from 0 on: got {text!r}; set it to 10, or to none at all.")
    return int(limit * 1e9)


def cached_files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The files of arrays in a folder of the cache, with what is known of each, the one used last first."""
    files: list[tuple[Path, os.stat_result]] = []
    for file in folder.rglob("*.np[yz]"):
        with suppress(OSError):  # another process has removed it
            files.append((file, file.stat()))
    return sorted(files, key=lambda entry: -entry[1].st_mtime_ns)


def limit_size(folder: Path) -> None:
    """Remove the files of a folder that were used longest ago, until the others are within `cache_limit`."""
    total, most = 0, cache_limit()
    for file, stat in cached_files(folder):
        total += stat.st_size
        if total > most:
            with suppress(OSError):
                file.unlink()
