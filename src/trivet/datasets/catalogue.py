"""The table of the data sets, and how one of them is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trivet.datasets import (
    cifar,
    custom,
    fine_grained,
    folder,
    pairs,
    people,
    products,
    small_images,
    table,
    texts,
    vectors,
)
from trivet.datasets.config import DATA_SETS, DataConfig, ImagesConfig, ItemKind, with_validation_fold
from trivet.datasets.dataset import Dataset, Splits
from trivet.datasets.decisions import apply_decisions
from trivet.datasets.download import find_root
from trivet.datasets.equal_items import duplicate_text_warnings
from trivet.datasets.image_decoding import Progress
from trivet.datasets.label_noise import add_noise
from trivet.datasets.leaks import Content, leak_warnings
from trivet.datasets.pair_vectors import vectors_of_side
from trivet.datasets.pairs_config import PairsConfig
from trivet.datasets.sides import sides_of
from trivet.io.image_file import Frame
from trivet.io.label_decisions import read_decisions
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.models import Tokenize

DATA_SETS.update(
    {
        **small_images.ENTRIES,
        **cifar.ENTRIES,
        **fine_grained.ENTRIES,
        **products.ENTRIES,
        **people.ENTRIES,
        "folder": folder.ENTRY,
        "table": table.ENTRY,
        "vectors": vectors.ENTRY,
        "texts": texts.ENTRY,
        "pairs": pairs.ENTRY,
    }
)
DATA_SETS.outside = custom.entry


def settings_for(name: str, shape: tuple[int, ...]) -> DataConfig:
    """The settings of a data set, by name or reference, such that its inputs have the shape that a network takes.

    Raises:
        ValueError: if they cannot have it.
    """
    shaped = {}
    if issubclass(DATA_SETS.entry(name).config, ImagesConfig):
        shaped = {"channels": shape[0], "image_size": shape[-1] if shape[-1] == shape[-2] else shape[-2:]}
    return DataConfig.parse({"name": name, **shaped}, source=f"{name} as this network takes it")


def load_file(
    config: DataConfig,
    path: Path,
    data_root: Path | None,
    *,
    kind: ItemKind | None = None,
    tokenize: Tokenize | None = None,
    frame: Frame | None = None,
    progress: Progress | None = None,
    unread: bool = False,
    choice: VectorChoice = NO_CHOICE,
) -> Dataset:
    """The items of another file, or of a Hugging Face data set saved on disk, as a run on `config` takes them.

    Args:
        kind: of the items, where these have sides of several kinds.
        tokenize: see `load`, of a single network.
        frame: of a network of images, for which the file is a table of them, what they are brought to.
        progress, unread: of such a table, as of `table_like`.
        choice: of vectors, where it is not that of the run.

    Raises:
        ValueError: if the file cannot be used, or the items of that data set are in no file.
    """
    kind = config.item_kind if kind is None else kind
    if kind == "texts":
        return texts.texts_like(config, path, tokenize)
    if isinstance(config, PairsConfig) and kind == "vectors":
        return vectors_of_side(config, path, choice)
    if isinstance(config, vectors.VectorsConfig):
        return vectors.vectors_like(config, path, choice)
    if frame is not None:
        return table.table_like(config, path, frame, progress, unread=unread)
    raise ValueError(f"a run on {config.name} embeds a data set by name: got the file {path}; give a name.")


def load(
    config: DataConfig,
    data_root: Path | None,
    progress: Progress | None = None,
    *,
    tokenize: Tokenize | tuple[Tokenize | None, ...] | None = None,
) -> Splits:
    """Load a data set, split it, put in the label noise and carry out the decisions that `config` asks for, in this
    order; the same each time.

    Args:
        config: which data, and how they are prepared and split.
        data_root: see `find_root`; "digits" and "folder" do not use it.
        progress: called with (images decoded, images in all) now and then, for data that take time.
        tokenize: for a network that reads texts, what makes tokens of them, see `trivet.models.tokenize_of`; for a
            network of each side of pairs, that of each.

    Raises:
        ValueError: if files are missing, broken or not laid out as they must be; if `config.level` is not a level; if
            there is only one training class, an evaluation split has fewer than
            two images, or `config.noise` or `config.decisions` does not fit the data.
    """
    decisions = None if config.decisions is None else read_decisions(config.decisions)  # first: data take time
    entry = DATA_SETS.entry(config.name)
    if isinstance(tokenize, tuple):
        assert isinstance(config, PairsConfig), "the settings of a run are checked"
        splits = pairs.load_sides(config, tokenize, progress)
    elif tokenize is None:
        splits = entry.load(config, find_root(data_root), progress)
    elif entry.unencoded is not None:
        splits = texts.with_tokens(*entry.unencoded(config), tokenize)
    else:
        raise ValueError(f'a network of texts needs texts: set data.name = "texts" in place of {config.name!r}.')
    of_texts = config.item_kind == "texts"
    unfolded, splits = splits, with_validation_fold(splits, config)
    shapes = [side.shape for side in sides_of(splits.train.inputs)]
    if config.changes_images and all(len(shape) != 3 for shape in shapes):
        raise ValueError(
            f"data.augment is for images (C, H, W): the inputs of {config.name} have the shape {shapes[0]}; remove it."
        )
    # Splits of pairs may search one collection, and say so themselves; equal texts are one item of a side.
    of_pairs = splits.level in splits.train.numbers
    if not of_pairs:
        content: Content = "texts" if of_texts else "images" if len(shapes[0]) == 3 else "vectors"
        splits = replace(splits, warnings=(*splits.warnings, *leak_warnings(unfolded, content)))
    if config.noise is not None:
        splits = add_noise(splits, config.noise)
    if decisions is not None:
        assert config.decisions is not None
        splits = apply_decisions(splits, decisions, config.decisions)
    if of_texts and not of_pairs:
        splits = replace(splits, warnings=(*splits.warnings, *duplicate_text_warnings(splits.train, splits.level)))
    return splits
