"""Images of the sides of pairs: which side holds them, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from trivet.datasets.image_decoding import Progress
from trivet.datasets.inputs import ArrayInputs, FileInputs
from trivet.datasets.pairs_config import PairsConfig
from trivet.datasets.table import are_image_paths, path_inside
from trivet.io.beir import is_beir
from trivet.io.image_cells import ImageCell, NamedImages, named_images
from trivet.io.image_file import Frame
from trivet.io.label_columns import FIRST
from trivet.io.pair_table import PairTable
from trivet.models.towers import SIDES

MEMORY_GB = 4  # of decoded images, beyond which files are read again


def sides_of_images(table: PairTable) -> list[bool]:
    """Test whether the left and the right side hold images, in their cells or by their paths."""
    in_cells = images_in_cells(table.path).names
    return [side.name in in_cells or are_image_paths(side.contents[:FIRST]) for side in (table.left, table.right)]


def check_images(table: PairTable, config: PairsConfig) -> None:
    """ValueError if a side whose column holds images is to be read as texts."""
    if config.left_vectors is not None:
        return
    in_cells = images_in_cells(config.path).names
    sides = zip((table.left.name, table.right.name), config.side_kinds, strict=True)
    if texts := [name for name, kind in sides if name in in_cells and kind == "texts"]:
        side = "both" if len(texts) > 1 or config.images != "none" else SIDES[texts[0] == table.right.name]
        raise ValueError(
            f"a side of images must be read as images: {texts[0]!r} of {config.path} holds them; set data.images = "
            f'"{side}".'
        )


def images_in_cells(path: Path) -> NamedImages:
    return NamedImages({}, {}) if is_beir(path) else named_images(path)


def image_root(config: PairsConfig) -> Path:
    """The folder that the paths of images start from."""
    return config.root or (config.path if config.path.is_dir() else config.path.parent)


def images_of(
    config: PairsConfig, paths: Sequence[str], progress: Progress | None, *, unread: bool = False
) -> FileInputs | ArrayInputs:
    """Images by their paths or names, in memory where there is room for them.

    Raises:
        ValueError: if one is missing or cannot be read.
    """
    root = image_root(config)
    cells = images_in_cells(config.path).cells
    sources = tuple(cells.get(path) or root / path_inside(path, root) for path in paths)
    files = [(path, source) for path, source in zip(paths, sources, strict=True) if isinstance(source, Path)]
    if lacking := [path for path, source in files if not source.is_file()]:
        remedy = "add them, leave their rows out, or name the folder that the paths start from with data.root"
        if len(lacking) == len(paths):
            remedy = f'data.images = "{config.images}" says which side has them, data.root where the paths start'
        raise ValueError(
            f"every image of {config.path} must be a file below {root}: {len(lacking):,} of {len(paths):,} are not, "
            f"first {lacking[0][:60]!r}; {remedy}."
        )
    frame, full_size = Frame.of(config.image_shape, config.resize), config.augment == "random-resized-crop"
    if unread:
        return FileInputs(sources, frame, np.arange(len(sources)), full_size=full_size)
    return _decoded_files(sources, frame, full_size, progress)


@lru_cache(maxsize=2)  # a ladder reads both sides again for each encoder of texts
def _decoded_files(
    sources: tuple[Path | ImageCell, ...], frame: Frame, full_size: bool, progress: Progress | None
) -> FileInputs | ArrayInputs:
    files = FileInputs(sources, frame, np.arange(len(sources)), full_size=full_size)
    images, broken = files.decode_all(MEMORY_GB, progress)
    if broken:
        position, reason = next(iter(broken.items()))
        raise ValueError(
            f"every image of a pair must be readable: {len(broken):,} of {len(sources):,} cannot be read, first "
            f"{sources[position]} ({reason}); repair them, or leave their rows out."
        )
    return images
