"""Your own images: one folder per class, nested folders for coarser and finer classes."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Dataset, Splits
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import ImageFilesConfig, Listing, load_listing, path_levels, without_unreadable
from trivet.datasets.inputs import FileInputs
from trivet.datasets.splitting import TEST, TRAIN, VAL, LevelsConfig, Split
from trivet.io.image_file import SUFFIXES, UNREAD, Frame
from trivet.io.label_columns import odd_labels, split_names

log = logging.getLogger("trivet")


class FolderConfig(LevelsConfig, ImageFilesConfig):
    """Your own images.

    Args:
        root: the folder of images, relative to the current folder.
        levels: names of the nested folder levels, coarse first, such as ["make", "model"].
        split: "class-disjoint" trains on half of the classes, "in-class" on a share of each; "auto" takes given
            folders first.
    """

    name: Literal["folder"] = "folder"
    root: Path
    levels: tuple[str, ...] | None = None
    split: Split = "auto"

    def path_of(self, id: str) -> Path:
        """The file of an image."""
        return self.root / id


def load_folder(config: FolderConfig, data_root: Path, progress: Progress | None) -> Splits:
    """See `list_folder`, for what it raises, too; also if more than `config.allow_corrupt` of the images are broken."""
    return load_listing(config, list_folder(config), progress)


def list_folder(config: FolderConfig) -> Listing:
    """The images below `config.root` as CLASS/.../NAME, split as `config.split` says.

    Levels: "class" if all images lie one folder deep, else "level1", "level2", ... or `config.levels`. A class is named
    by its path below the root. With given train/, test/ and val/ folders, the main evaluation split is test/ (or val/
    without it), called "seen" if all its classes are trained on, "unseen" if none is, "mixed" otherwise; val/ beside
    test/ is called "val".

    Raises:
        ValueError: if the folders do not have this form.
    """
    images, unread = find_images(config.root)
    subsets = _split_folders(config, images)
    levels = _level_names(config, images, 1 if subsets else 0)
    labels, names = path_levels(images, levels, 1 if subsets else 0)  # the folders train/ and test/ are no classes
    top = np.array([path.split("/")[0] for path in images])
    odd = [
        note
        for level in levels
        for note in odd_labels(
            level,
            dict(zip(names[level], np.bincount(labels[level], minlength=len(names[level])).tolist(), strict=True)),
        )
    ]
    return Listing(
        name=config.root.resolve().name,
        location=config.root,
        sources=[config.root / path for path in images],
        ids=tuple(images),
        labels=labels,
        names=names,
        subsets={name: np.flatnonzero(np.isin(top, folders)) for name, folders in subsets.items()},
        notes=tuple(filter(None, [unread, *odd])),
    )


def load_images(root: Path, frame: Frame, progress: Progress | None = None, *, unread: bool = False) -> Dataset:
    """All readable images below `root`, labelled by their folders where all lie equally deep, else without labels.

    The unreadable ones are listed in `skipped`.

    Args:
        frame: what they are brought to.
        unread: no image is read yet, and none left out.

    Raises:
        ValueError: if `root` is no folder, or holds no readable image.
    """
    images, left_out = find_images(root)
    if left_out is not None:
        log.warning(left_out)
    depths = {path.count("/") for path in images}
    labels, names = path_levels(images, _default_levels(depths.pop()) if len(depths) == 1 else ())
    inputs = FileInputs([root / path for path in images], frame, np.arange(len(images)))
    items = Dataset(root.resolve().name, inputs, labels, names, tuple(images))
    return items if unread else without_unreadable(items, root, progress)


def _default_levels(depth: int) -> tuple[str, ...]:
    return ("class",) if depth == 1 else tuple(f"level{i}" for i in range(1, depth + 1))


def find_images(root: Path) -> tuple[list[str], str | None]:
    """Sorted paths below `root`, with "/", of all files with an image suffix, and a sentence on images that are not
    read, if there are any; hidden files and folders are left out.

    Linked folders are entered, each real folder once.
    """
    if not root.is_dir():
        raise ValueError(
            f"data.root must be a folder: {root} {'is a file' if root.exists() else 'does not exist'}; correct it."
        )
    images, visited, unread = [], set(), Counter[str]()
    for folder, subfolders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in files:
            suffix = Path(name).suffix.lower()
            if not name.startswith(".") and suffix in SUFFIXES:
                images.append((Path(folder) / name).relative_to(root).as_posix())
            elif not name.startswith("."):
                unread.update({suffix} & UNREAD)
    counts = ", ".join(f"{count:,} {suffix}" for suffix, count in unread.most_common())
    if not images:
        raise ValueError(
            f"data.root must hold images ({', '.join(sorted(SUFFIXES))}) in one folder per class: {root} has "
            f"{f'only {counts}, which are not read; convert them to jpg or png' if counts else 'none'}."
        )
    for path in images:
        try:
            path.encode()
        except UnicodeEncodeError:
            raise ValueError(f"file names must be UTF-8: got {path!r} in {root}; rename it.") from None
    sentence = f"Files of {root} that are not read, and left out: {counts}. Convert them to jpg or png."
    return sorted(images), sentence if counts else None


def _split_folders(config: FolderConfig, images: Sequence[str]) -> dict[str, list[str]]:
    """The splits train, test and val -> their folders below the root, as `split_names` reads them; empty without."""
    called = split_names({PurePosixPath(path).parts[0] for path in images})
    if TRAIN not in called.values() or not {TEST, VAL} & {*called.values()}:
        return {}
    if config.split != "auto":
        raise ValueError(
            f"split = {config.split!r} needs class folders: {config.root} holds train/ and test/ or val/, which are a "
            "split already; remove data.split, or set data.root to one of them."
        )
    if others := sorted(folder for folder, name in called.items() if name not in (TRAIN, TEST, VAL)):
        raise ValueError(f"{config.root} must hold images in train/, test/ and val/ only: it also has {others[0]}.")
    folders = {name: [folder for folder, other in called.items() if other == name] for name in (TRAIN, TEST, VAL)}
    return {name: named for name, named in folders.items() if named}


def _level_names(config: FolderConfig, images: Sequence[str], skip: int) -> tuple[str, ...]:
    by_depth = {path.count("/") - skip: path for path in reversed(images)}
    if list(by_depth) == [0]:
        raise ValueError(
            f"every image must be in the folder of its class: {images[0]} in {config.root} does not; make one folder "
            "per class and move the images there."
        )
    if len(by_depth) > 1:
        examples = " and ".join(f"{by_depth[depth]} ({depth} class folders)" for depth in sorted(by_depth)[:2])
        raise ValueError(
            f"all images must be at the same folder depth, one folder per label level: {config.root} has {examples}; "
            "move them."
        )
    (depth,) = by_depth
    if config.levels is None:
        return _default_levels(depth)
    if len(config.levels) != depth:
        raise ValueError(
            f"data.levels must name each of the {depth} folder levels, as in {by_depth[depth]}: "
            f"got {list(config.levels)}."
        )
    return config.levels


ENTRY = DatasetEntry(FolderConfig, load_folder, description="your own images, one folder per class")
