"""Fetching the public data sets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from trivet.config import nearest
from trivet.data.root import find_root

_IDX = tuple(f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
_FILES = {
    "mnist": _IDX,
    "fashion-mnist": _IDX,
    "omniglot": ("images_background.zip", "images_evaluation.zip"),
}


def download(name: str, data_root: Path | None) -> Path | None:
    """Fetch a data set with torchvision, which checks its checksums, into `find_root(data_root) / name`.

    Returns:
        The folder of the files; None for "digits", which comes with scikit-learn. Files that are all there are kept.

    Raises:
        ValueError: if there is no such data set, or it cannot be had; nothing half-written is left.
    """
    if name == "digits":
        return None
    if name == "folder":
        raise ValueError('"folder" is your own images: there is nothing to download; set data.root to their folder.')
    if name not in _FILES:
        raise ValueError(f"there is no data set {name!r}; {nearest(name, ['digits', *_FILES])}")
    root = find_root(data_root)
    target = root / name
    if all((target / file).is_file() for file in _FILES[name]):
        return target
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as temporary:
        try:
            raw = _fetch(name, Path(temporary))
        except (OSError, RuntimeError) as error:
            raise ValueError(
                f"{name} could not be downloaded ({_last_cause(error)}): connect to the network, "
                f"or copy {', '.join(_FILES[name])} to {target}."
            ) from None
        target.mkdir(exist_ok=True)
        for file in _FILES[name]:
            os.replace(raw / file, target / file)
    return target


def _last_cause(error: Exception) -> str:
    """One line: torchvision lists every mirror that it tried, each with what went wrong."""
    lines = str(error).split("\n")
    return next((line.strip(" <>") for line in reversed(lines) if line.strip()), type(error).__name__)


def _fetch(name: str, folder: Path) -> Path:
    """Download into `folder` and return where the files lie."""
    from torchvision import datasets

    if name == "mnist":
        datasets.MNIST(folder, download=True)
        return folder / "MNIST" / "raw"
    if name == "fashion-mnist":
        datasets.FashionMNIST(folder, download=True)
        return folder / "FashionMNIST" / "raw"
    datasets.Omniglot(folder, background=True, download=True)
    datasets.Omniglot(folder, background=False, download=True)
    return folder / "omniglot-py"
