"""Fetching the public data sets."""

from __future__ import annotations

import os
from pathlib import Path

from trivet.datasets.config import DATA_SETS
from trivet.datasets.data_root import find_root
from trivet.io.atomic_files import scratch_folder


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
    root = find_root(data_root)
    target = root / name
    if all((target / file).exists() for file in dataset.files):
        return target
    copy = f"copy {', '.join(dataset.files)} to {target}"
    if dataset.fetch is None:
        raise ValueError(f"{name} must be fetched by hand: get it from {dataset.published}, and {copy}.")
    with scratch_folder(target) as temporary:
        try:
            raw = dataset.fetch(temporary)
        except (OSError, RuntimeError) as error:
            raise ValueError(
                f"{name} could not be downloaded ({_last_cause(error)}): connect to the network, or {copy}."
            ) from None
        target.mkdir(exist_ok=True)
        for file in dataset.files:
            if not (target / file).exists():
                os.replace(raw / file, target / file)
    return target


def _last_cause(error: Exception) -> str:
    """One line: torchvision lists every mirror that it tried, each with what went wrong."""
    lines = str(error).split("\n")
    return next((line.strip(" <>") for line in reversed(lines) if line.strip()), type(error).__name__)
