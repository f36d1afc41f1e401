"""Omniglot: handwritten characters of fifty alphabets."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from PIL import Image

from trivet.datasets.config import Channels, DatasetEntry, ImagesConfig, Side
from trivet.datasets.data_root import fetch_by_torchvision, missing
from trivet.datasets.dataset import Dataset, Splits, choose_level
from trivet.datasets.image_decoding import CHUNK, Progress, open_image
from trivet.datasets.image_files import numbered
from trivet.datasets.inputs import in_memory

FOLDERS = ("omniglot", "omniglot-py")
SUBSETS = ("images_background", "images_evaluation")
LARGEST = 1 << 16  # bytes of one image; the published ones have a few hundred


class OmniglotConfig(ImagesConfig):
    """Omniglot."""

    name: Literal["omniglot"] = "omniglot"
    image_size: Side = 28
    channels: Channels = 1


def load_omniglot(config: OmniglotConfig, root: Path, progress: Progress | None) -> Splits:
    """Omniglot with levels alphabet > character; a character is named "Latin/character03".

    Trained on: the 30 background alphabets; "unseen": the 20 evaluation alphabets. Images are resized by averaging
    (box filter) and inverted, so that ink is 1.
    """
    size = config.image_size
    train, test = (_read(root, subset) for subset in SUBSETS)
    names = [*train, *test]
    pixels = np.empty((len(names), 1, size, size), np.uint8)
    for i, name in enumerate(names):  # no threads: such small images spend their time in Python
        pixels[i, 0] = _decode(name, train[name] if i < len(train) else test[name], size)
        if progress is not None and ((i + 1) % CHUNK == 0 or i + 1 == len(names)):
            progress(i + 1, len(names))

    levels = {
        level: numbered(["/".join(name.split("/")[:depth]) for name in names])
        for depth, level in enumerate(("alphabet", "character"), start=1)
    }
    labels = {level: numbers for level, (numbers, _) in levels.items()}
    classes = {level: titles for level, (_, titles) in levels.items()}
    items = Dataset("omniglot", in_memory(pixels, white=255, channels=config.channels), labels, classes, tuple(names))
    return Splits(
        train=items.subset(np.arange(len(train))),
        evaluation={"unseen": items.subset(np.arange(len(train), len(names)))},
        level=choose_level(config.level, labels),
    )


def _decode(name: str, data: bytes, size: int) -> np.ndarray:
    try:
        with open_image(io.BytesIO(data), ("PNG",)) as image:
            if image.size != (105, 105):
                raise ValueError(f"it is {image.width} x {image.height} pixels, not 105 x 105")
            return ~np.asarray(image.convert("L").resize((size, size), Image.Resampling.BOX))
    except Exception as error:  # Pillow's readers raise many kinds on broken files
        raise ValueError(f"{name} must be an image of Omniglot: {error}; download omniglot again.") from None


def _read(root: Path, subset: str) -> dict[str, bytes]:
    """The files of a part's images by their sorted names below the part's folder."""
    path = _find(root, subset)
    if path.is_dir():
        names = _names(path, [f"{subset}/{file.relative_to(path).as_posix()}" for file in path.glob("*/*/*")], subset)
        return {name: (path / name).read_bytes() for name in names}
    try:
        with zipfile.ZipFile(path) as archive:
            names = _names(path, archive.namelist(), subset)
            for name in names:
                if archive.getinfo(f"{subset}/{name}").file_size > LARGEST:
                    raise ValueError(f"{path} holds {name!r}, too large for an image of Omniglot; download it again.")
            return {name: archive.read(f"{subset}/{name}") for name in names}
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} must be a complete zip file: {error}; download omniglot again.") from None


def _find(root: Path, subset: str) -> Path:
    folders = [root / folder for folder in FOLDERS]
    for folder in folders:
        if (folder / f"{subset}.zip").is_file():
            return folder / f"{subset}.zip"
        if (folder / subset).is_dir():
            return folder / subset
    raise missing("omniglot", [f"{subset}.zip (or the folder {subset})"], folders)


def _names(source: Path, members: Sequence[str], subset: str) -> list[str]:
    names = []
    for member in members:
        path = PurePosixPath(member)
        if path.is_absolute() or ".." in path.parts or "\\" in member:
            raise ValueError(f"{source} holds the name {member!r}, which leaves its folder; download omniglot again.")
        if path.suffix == ".png" and len(path.parts) == 4 and path.parts[0] == subset:
            names.append("/".join(path.parts[1:]))
    if not names:
        raise ValueError(f"{source} must hold {subset}/ALPHABET/CHARACTER/NAME.png: it holds none; download it again.")
    return sorted(names)


ENTRY = DatasetEntry(
    OmniglotConfig,
    load_omniglot,
    description="32,460 handwritten characters of 50 alphabets",
    levels=("alphabet", "character"),
    published="https://github.com/brendenlake/omniglot (MIT)",
    files=tuple(f"{subset}.zip" for subset in SUBSETS),
    fetch=partial(fetch_by_torchvision, "Omniglot", "omniglot-py", ({"background": True}, {"background": False})),
)
