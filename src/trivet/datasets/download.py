"""The folder of the data sets, and what is downloaded into it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.datasets.config import DATA_SETS
from trivet.io.atomic_files import scratch_folder
from trivet.runtime.cache import cache_folder


def find_root(data_root: Path | None) -> Path:
    """The folder of data sets: `data_root`, else the environment variable TRIVET_DATA, else `data` of the cache."""
    if data_root is not None:
        return data_root
    variable = os.environ.get("TRIVET_DATA")
    return Path(variable) if variable else cache_folder("data")


def fetch_by_torchvision(kind: str, subfolder: str, options: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Let a class of `torchvision.datasets` download into a folder, once with each of the options.

    Returns:
        The folder of the files, in `subfolder`.
    """
    from torchvision import datasets  # here: it takes seconds to load

    for arguments in options:
        getattr(datasets, kind)(folder, download=True, **arguments)
    return folder / subfolder


def download(name: str, data_root: Path | None) -> Path | None:
    """Fetch a data set, with checksums where its publisher has them, into `find_root(data_root) / name`.

    Returns:
        The folder of the files; None where there are none to fetch, as for "digits", which comes with scikit-learn.
        Files that are all there are kept.

    Raises:
        ValueError: if there is no such data set, or it cannot be had; nothing half-written is left.
    """
    dataset = DATA_SETS.entry(name)
    if not dataset.published:
        raise ValueError(f'"{name}" is your own data: there is nothing to download; say where they are in [data].')
    if not dataset.files:
        return None
    target = find_root(data_root) / name
    if all((target / file).exists() for file in dataset.files):
        return target
    copy = f"copy {', '.join(dataset.files)} to {target}"
    if dataset.fetch is None:
        raise ValueError(f"{name} must be fetched by hand: get it from {dataset.published}, and {copy}.")
    with scratch_folder(target) as temporary:
        try:
            raw = dataset.fetch(temporary)
        except (OSError, RuntimeError) as error:  # torchvision lists each mirror that it tried, the last one last
            lines = [line.strip(" <>") for line in str(error).split("\n") if line.strip()]
            cause = lines[-1] if lines else type(error).__name__
            raise ValueError(f"{name} could not be downloaded ({cause}): connect to the network, or {copy}.") from None
        target.mkdir(exist_ok=True)
        for file in dataset.files:
            if not (target / file).exists():
                os.replace(raw / file, target / file)
    return target
