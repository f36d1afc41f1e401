"""The splits that `trivet leaks` compares: those of settings, a run or data, or several files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from trivet.commands.diagnose.encoders import embedded_texts, image_encoder
from trivet.commands.evaluate.sets import positions_of
from trivet.commands.init.data import DetectedData, detect
from trivet.commands.leaks.options import LeaksOptions
from trivet.config.base import read_settings
from trivet.datasets import DataConfig, Splits, load
from trivet.datasets.config import DATA_SETS
from trivet.datasets.dataset import Dataset
from trivet.datasets.folder import FolderConfig, list_folder
from trivet.datasets.image_files import ImageFilesConfig, split_listing
from trivet.datasets.inputs import FileInputs
from trivet.datasets.leaks import Content, NamedItems
from trivet.datasets.splitting import TRAIN
from trivet.datasets.table import TableConfig, list_table
from trivet.datasets.texts import TextsConfig
from trivet.datasets.vectors import VectorsConfig, dataset_of, vectors_like
from trivet.io.formats import open_rows
from trivet.io.image_file import Frame
from trivet.io.overwrite_guard import is_run_folder
from trivet.io.read_embeddings import read_texts, read_vectors
from trivet.runtime.progress import reporter
from trivet.runtime.text import counted, distinct_names, typed
from trivet.training.embed_dataset import check_embedded, embed
from trivet.training.run_folder import RunFolder

log = logging.getLogger("trivet")
DECODED_GB = 2.0  # of images that an encoder takes, up to which they are decoded once


def read_sides(request: LeaksOptions) -> tuple[list[NamedItems], Content]:
    """The items of each split, of which each is compared with those before it, and what they are.

    Raises:
        ValueError: if the data cannot be read, are pairs, or do not say what is trained on, or the encoder does not
            take such items.
    """
    sides, content = _files(request) if len(request.data) > 1 else _splits(request)
    if request.encoder is None and request.network is not None:
        raise ValueError("--network is of a file of weights: give the file with --encoder.")
    if request.encoder is not None:
        if content == "vectors":
            raise ValueError("--encoder embeds texts or images: the items are vectors; leave it out.")
        sides = [_embedded(side, content, request.encoder, request.network) for side in sides]
    return sides, content


def _embedded(side: NamedItems, content: Content, encoder: Path, network: str | None) -> NamedItems:
    """Items with their embeddings by an encoder, without images that cannot be read."""
    if content == "texts":
        texts = [str(side.dataset.show(i)) for i in range(len(side.dataset))]
        return replace(side, embeddings=embedded_texts(encoder, texts))
    model, inputs, data = image_encoder(encoder, network), side.dataset.inputs, side.dataset
    if isinstance(inputs, FileInputs):
        frame = Frame.of(model.input_shape, model.resize)
        files = FileInputs(inputs.sources, frame, inputs.rows, inputs.boxes)
        inputs, broken = files.decode_all(DECODED_GB, reporter("reading images"))
        if broken:
            log.warning("%s of %s cannot be read, and will be left out.", counted(len(broken), "image"), side.name)
        readable = np.setdiff1d(np.arange(len(data)), np.array([*broken], np.int64))
        data, inputs = data.subset(readable), inputs.subset(readable)
    if inputs.shape != model.input_shape:
        raise ValueError(
            f"--encoder takes images of {' x '.join(map(str, model.input_shape))}: those of {data.name} are in memory "
            f"as {' x '.join(map(str, inputs.shape))}; give them as a folder."
        )
    rows = embed(model, inputs, reporter(f"embedding {side.name}"))
    check_embedded(rows, data.ids)
    return replace(side, dataset=data, embeddings=rows)


def _splits(request: LeaksOptions) -> tuple[list[NamedItems], Content]:
    """The parts of settings, of a run, or of data that say what is trained on."""
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
        sides += _by_protocol(NamedItems(name, items, splits.level, _of_run(path, name, items)))
    of_images = len(splits.train.inputs.shape) == 3  # a data set of the user does not say what its items are
    return sides, "images" if of_images else config.item_kind


def _of_run(path: Path, split: str, items: Dataset) -> np.ndarray | None:
    """The embeddings that a run has of the items of a split; None without a run, or if it lacks some."""
    if not (path / "embeddings" / f"{split}.parquet").is_file():
        return None
    stored = read_vectors(path, split=split)
    rows = positions_of(np.array(items.ids), np.array(stored.names()))
    return None if (rows < 0).any() else np.asarray(stored.embeddings)[rows]


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
        items, embeddings = replace(side.dataset, protocol=None).subset(rows), side.embeddings
        yield NamedItems(f"{side.name} {name}", items, side.level, None if embeddings is None else embeddings[rows])


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
