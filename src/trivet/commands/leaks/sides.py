"""The splits that `trivet leaks` compares: those of settings, a run or data, or several files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from trivet.commands.init.data import DetectedData, detect
from trivet.commands.leaks.options import LeaksOptions
from trivet.config.base import read_settings
from trivet.datasets import DataConfig, Splits, load
from trivet.datasets.config import DATA_SETS
from trivet.datasets.folder import FolderConfig, list_folder
from trivet.datasets.image_files import ImageFilesConfig, split_listing
from trivet.datasets.inputs import FileInputs
from trivet.datasets.leaks import Content, NamedItems
from trivet.datasets.splitting import TRAIN
from trivet.datasets.table import TableConfig, list_table
from trivet.datasets.texts import TextsConfig
from trivet.datasets.vectors import VectorsConfig, dataset_of, vectors_like
from trivet.io.formats import open_rows
from trivet.io.overwrite_guard import is_run_folder
from trivet.io.read_embeddings import read_texts
from trivet.runtime.progress import reporter
from trivet.runtime.text import distinct_names, typed
from trivet.training.run_folder import RunFolder


def read_sides(request: LeaksOptions) -> tuple[list[NamedItems], Content]:
    """The items of each split, of which each is compared with those before it, and what they are.

    Raises:
        ValueError: if the data cannot be read, are pairs, or do not say what is trained on.
    """
    if len(request.data) > 1:
        return _files(request)
    (path,) = request.data
    if path.suffix == ".toml":
        config = DataConfig.parse(read_settings(path).get("data", {}), source=f"{path}: [data]")
    elif is_run_folder(path) and (path / "config.toml").is_file():
        config = RunFolder.open(path).config().data
    else:
        detected = _detect(path, request)
        if not detected.divided:
            raise ValueError(
                f"leaks are copies of what is trained on: nothing in {path} says what is (a column split, or folders "
                f"train/ and test/); give two files or folders, or the settings that trivet init {typed(path)} writes."
            )
        config = DataConfig.parse(detected.data | {"level": detected.main}, source=str(path))
    if config.item_kind not in ("images", "texts", "vectors"):
        raise _pairs(path)
    splits = _load(config, request.data_root)
    if splits.level in splits.train.numbers:
        raise _pairs(path)
    sides = [NamedItems(TRAIN, splits.train, splits.level)]
    for name, items in splits.evaluation.items():
        sides += _by_protocol(NamedItems(name, items, splits.level))
    of_images = len(splits.train.inputs.shape) == 3  # a data set of the user does not say what its items are
    return sides, "images" if of_images else config.item_kind


def _pairs(path: Path) -> ValueError:
    return ValueError(
        f"leaks compares single items: {path} holds pairs; give the queries of each split as a file of its own."
    )


def _detect(path: Path, request: LeaksOptions) -> DetectedData:
    return detect(
        path,
        request.labels,
        request.text,
        request.choice,
        skip_empty=request.skip_empty,
        root=request.data_root,
    )


def _load(config: DataConfig, data_root: Path | None) -> Splits:
    """The splits of settings; no image of a folder or table is decoded, and no text encoded, as none is needed yet."""
    if isinstance(config, FolderConfig):
        return split_listing(config, list_folder(config))
    if isinstance(config, TableConfig):
        return split_listing(config, list_table(config, open_rows(config.path)))
    entry = DATA_SETS.entry(config.name)
    if isinstance(config, TextsConfig) and entry.unencoded is not None:
        return entry.unencoded(config)[0]
    return load(config, data_root, reporter("decoding images"))


def _by_protocol(side: NamedItems) -> Iterator[NamedItems]:
    """An evaluation split, or its gallery and its queries where these are other items."""
    protocol = side.dataset.protocol
    queries = np.zeros(0, np.int64) if protocol is None else np.flatnonzero(protocol.query & ~protocol.gallery)
    if protocol is None or not len(queries):
        yield side
        return
    for name, rows in (("gallery", protocol.retrieved), ("queries", queries)):
        yield replace(side, name=f"{side.name} {name}", dataset=replace(side.dataset, protocol=None).subset(rows))


def _files(request: LeaksOptions) -> tuple[list[NamedItems], Content]:
    """All items of each file or folder."""
    sides, kinds = [], []
    for path, name in zip(request.data, distinct_names(request.data), strict=True):
        if path.suffix == ".toml" or (is_run_folder(path) and (path / "config.toml").is_file()):
            raise ValueError(f"several arguments are files or folders of items: {path} holds settings; give it alone.")
        detected = _detect(path, request)
        config = DataConfig.parse(detected.data, source=str(path))
        if detected.item_kind not in ("images", "texts", "vectors"):
            raise _pairs(path)
        if detected.listing is not None:
            assert isinstance(config, ImageFilesConfig)
            listing = detected.listing
            frame = config.frame(config.input_shape)
            rows = np.setdiff1d(
                np.arange(len(listing.sources)), [] if detected.images is None else list(detected.images.broken)
            )
            items = listing.items(FileInputs(listing.sources, frame, np.arange(len(listing.sources)), listing.boxes))
            items = items.subset(rows)
        elif isinstance(config, TextsConfig):
            table = read_texts(path, text=config.text, levels=config.levels, others=True, skip_empty=request.skip_empty)
            items = dataset_of(table, path, text=config.text, labelled=False)
        else:
            assert isinstance(config, VectorsConfig)
            items = vectors_like(config, path, request.choice)
        sides.append(NamedItems(name, items, detected.main))
        kinds.append(detected.item_kind)
    if len(set(kinds)) > 1:
        raise ValueError(f"items must be of one kind to be compared: got {' and '.join(dict.fromkeys(kinds))}.")
    widths = {side.dataset.inputs.shape[0] for side in sides}
    if kinds[0] == "vectors" and len(widths) > 1:
        raise ValueError(
            f"vectors must be of one length to be compared: got {sorted(widths)}; give files of one model."
        )
    return sides, kinds[0]
