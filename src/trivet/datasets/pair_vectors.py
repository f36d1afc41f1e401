"""Vectors of both sides of pairs that were made elsewhere, by the ids of the contents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trivet.datasets.dataset import Dataset
from trivet.datasets.pair_contents import read_pair_table, side_ids
from trivet.datasets.pairs_config import PairsConfig
from trivet.datasets.vectors import VectorInputs, VectorsConfig, check_finite, vectors_like
from trivet.io.beir import is_beir
from trivet.io.embedding_table import Vectors
from trivet.io.pair_table import PairSide
from trivet.io.read_embeddings import read_vectors
from trivet.io.vector_choice import VectorChoice


def vectors_of_sides(config: PairsConfig) -> npt.NDArray[np.float32]:
    """The vectors `(C, d)` of the contents of both sides, the left ones first, from the files of the settings.

    Raises:
        ValueError: if a content has no vector, or towers share vectors of two lengths.
    """
    assert config.left_vectors is not None
    assert config.right_vectors is not None
    sides = read_pair_table(config)
    left, right = (
        vectors_by_id(side, path, config)
        for side, path in ((sides.left, config.left_vectors), (sides.right, config.right_vectors))
    )
    widths = left.shape[1], right.shape[1]
    if config.towers == "shared" and widths[0] != widths[1]:
        raise ValueError(
            f'data.towers = "shared" needs vectors of one length: got {widths[0]} on the left and {widths[1]} on the '
            'right; set "separate".'
        )
    return np.concatenate([_placed(left, 0, widths, config), _placed(right, 1, widths, config)])


def vectors_of_side(config: PairsConfig, path: Path, choice: VectorChoice) -> Dataset:
    """The vectors of another file as a run on `config` takes them; which side they are of, their length says.

    Raises:
        ValueError: if the file cannot be used, or the length does not say it.
    """
    assert config.left_vectors is not None
    assert config.right_vectors is not None
    items = vectors_like(VectorsConfig(path=path), path, choice)
    assert isinstance(items.inputs, VectorInputs)
    widths = tuple(
        read_vectors(file, levels=()).embeddings.shape[1] for file in (config.left_vectors, config.right_vectors)
    )
    width = items.inputs.vectors.shape[1]
    if width not in widths:
        raise ValueError(
            f"the vectors of {path} must have the length of a side that the run was trained on, {widths[0]} or "
            f"{widths[1]}: got {width}; make them with the encoder of that side."
        )
    if config.towers == "separate" and widths[0] == widths[1]:
        raise ValueError(
            f"the length of the vectors of {path} must say of which side they are, and both have {width}: embed the "
            f"pairs themselves, with trivet embed RUN {config.name}."
        )
    placed = _placed(np.asarray(items.inputs.vectors), widths.index(width), widths, config)
    return replace(items, inputs=replace(items.inputs, vectors=placed))


def paired_vectors(config: PairsConfig, items: Vectors) -> Vectors:
    """The items of `pair_items` with the vectors of both sides, from the files of the settings.

    Raises:
        ValueError: if a content has no vector, or those of both sides differ in length.
    """
    assert config.left_vectors is not None
    assert config.right_vectors is not None
    table = read_pair_table(config)
    left, right = (
        vectors_by_id(table.left, config.left_vectors, config),
        vectors_by_id(table.right, config.right_vectors, config),
    )
    if left.shape[1] != right.shape[1]:
        raise ValueError(
            f"vectors of both sides must have one length to be compared: got {left.shape[1]} in {config.left_vectors} "
            f"and {right.shape[1]} in {config.right_vectors}; give those of one space, such as what a run that was "
            "trained on both makes of each (trivet embed RUN FILE)."
        )
    rows = {id: row for row, id in enumerate(side_ids(table, config))}
    positions = np.array([rows[id] for id in items.names()])
    return replace(items, embeddings=np.concatenate([left, right])[positions])


def vectors_by_id(side: PairSide, path: Path, config: PairsConfig) -> npt.NDArray[np.float32]:
    """The vectors `(C, d)` of the contents of a side, by their ids."""
    known = read_vectors(path, levels=())
    rows = {id: row for row, id in enumerate(known.names())}
    wanted = side.ids if is_beir(config.path) else side.contents
    if lacking := [content for content in wanted if content not in rows]:
        raise ValueError(
            f"each {side.name!r} of {config.path} must be an id in {path}: {len(lacking)} of {len(wanted)} are "
            f"not, first {lacking[0][:60]!r}; embed these too, or correct the ids."
        )
    positions = np.array([rows[content] for content in wanted])
    vectors = np.asarray(known.embeddings[positions], np.float32)
    check_finite(vectors, positions, path)
    return vectors


def _placed(
    vectors: npt.NDArray[np.floating], side: int, widths: tuple[int, int], config: PairsConfig
) -> npt.NDArray[np.float32]:
    """The vectors of a side: of one space as they are, of two in numbers of their own, with 0 in those of the other.

    A linear map of the latter is a head for each side.
    """
    if config.towers == "shared" or (config.towers == "auto" and widths[0] == widths[1]):
        return vectors.astype(np.float32)
    placed = np.zeros((len(vectors), sum(widths)), np.float32)
    start = widths[0] * side
    placed[:, start : start + widths[side]] = vectors
    return placed
