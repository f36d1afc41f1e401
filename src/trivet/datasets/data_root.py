"""Finds the folder of the data sets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def find_root(data_root: Path | None) -> Path:
    """The folder of data sets: `data_root`, else the environment variable TRIVET_DATA, else ~/.cache/trivet."""
    if data_root is not None:
        return data_root
    variable = os.environ.get("TRIVET_DATA")
    return Path(variable) if variable else Path.home() / ".cache" / "trivet"


def missing(name: str, files: Sequence[str], folders: Sequence[Path]) -> ValueError:
    """The error for data that are not there."""
    return ValueError(
        f"{name} needs {' and '.join(files)}: not found in {' or '.join(str(folder) for folder in folders)}; "
        f"run `trivet data download {name}`, or say where they are with --data-root."
    )
