"""The folder of the data sets, and what is fetched into it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


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


def fetch_by_torchvision(kind: str, subfolder: str, options: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Let a class of `torchvision.datasets` download into a folder, once with each of the options.

    Returns:
        The folder of the files, in `subfolder`.
    """
    from torchvision import datasets  # here: it takes seconds to load

    for arguments in options:
        getattr(datasets, kind)(folder, download=True, **arguments)
    return folder / subfolder
