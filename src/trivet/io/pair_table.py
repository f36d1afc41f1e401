"""Tables of pairs: which rows of a left side belong to which of a right side, and how much."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trivet.config.base import nearest
from trivet.io.embedding_table import display_texts
from trivet.io.formats import open_rows
from trivet.io.image_cells import holds_images, named_images
from trivet.io.label_columns import is_numeric, split_column, split_names
from trivet.io.table import DataTable, is_list, listed
from trivet.runtime.arrays import Floats, Integers
from trivet.runtime.text import counted

# Columns that are the two sides, the likelier first.
SIDES = (
    ("left", "right"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "document"),
    ("query", "passage"),
    ("query", "answer"),
    ("query", "text"),
    ("question", "answer"),
    ("question", "context"),
    ("question", "passage"),
    ("question1", "question2"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("text_a", "text_b"),
    ("image", "caption"),
    ("image", "text"),
    ("path", "caption"),
    ("path", "text"),
    ("source", "target"),
    ("premise", "hypothesis"),
)
NEGATIVE = re.compile(r"(hard_)?negatives?_?\d*")
SCORES = ("score", "similarity", "similarity_score", "relevance", "grade", "label", "is_duplicate")


class PairSides(NamedTuple):
    """The columns of both sides, the files of their vectors where these are the items, and which pairs belong together.

    Attributes:
        left, right: None for a column with a usual name.
        left_vectors, right_vectors, relevant: see `trivet.datasets.pairs_config.PairsConfig`.
    """

    left: str | None = None
    right: str | None = None
    left_vectors: Path | None = None
    right_vectors: Path | None = None
    relevant: float | None = None


@dataclass(frozen=True, eq=False)
class PairSide:
    """The different contents of a side.

    Attributes:
        name: of its column.
        contents: C texts.
        ids: C different names of them.
        titles: those of the contents that have a title of their own, which begins them; empty without.
    """

    name: str
    contents: Sequence[str]
    ids: Sequence[str]
    titles: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class PairTable:
    """Pairs of a left and a right side.

    Attributes:
        path: which errors name.
        left, right: the contents of each side.
        pairs: `(P, 2)` int64, positions of both; each pair once in a split.
        grades: `(P,)` float64, how much they belong together; 0 of what is listed as a negative, 1 without scores.
        splits: `(P,)` the names of the splits; None without.
        collection: whether all splits search all of the right side, as in BEIR.
        notes: what was found, in sentences.
    """

    path: Path
    left: PairSide
    right: PairSide
    pairs: Integers
    grades: Floats
    splits: npt.NDArray[np.str_] | None
    collection: bool = False
    notes: tuple[str, ...] = ()


def read_pairs(
    path: Path,
    *,
    left: str | None = None,
    right: str | None = None,
    negatives: Sequence[str] | None = None,
    score: str | None = None,
    skip_empty: bool = False,
) -> PairTable:
    """Read pairs of texts, or of images, from a table: a row is a pair, with any number of negatives of its left side.

    The contents of images are their paths, or their names as of `trivet.io.image_cells`, where cells hold them.

    Args:
        path: a csv, tsv, parquet or JSON file, or a Hugging Face data set saved on disk.
        left, right: the columns of the sides; by default those with usual names, such as query and answer.
        negatives: the columns of negatives, of texts or lists of texts; by default negative, negative_1, ...
        score: the column that says how much a pair belongs together; by default score, similarity, label, ...
        skip_empty: leave out rows without a side or a score.

    Raises:
        ValueError: if the file is broken, the sides are not clear, or a row has no side or score.
    """
    table = open_rows(path, "pairs")
    sides = _sides(table, left, right)
    if negatives is None:
        negatives = [name for name in table.names if NEGATIVE.fullmatch(_plain_name(name)) and name not in sides]
    score = _score_column(table, sides) if score is None else score
    for name in [*negatives, *([] if score is None else [score])]:
        if name not in table.types:
            raise ValueError(f"a column of pairs must exist: {path} has no {name!r}; {nearest(name, table.names)}")
    texts = [_texts(table, name) for name in sides]
    scores = None if score is None else score_numbers(table, score)
    empty = np.array([not all(row) for row in zip(*texts, strict=True)])
    if scores is not None:
        empty |= np.isnan(scores)
    notes: list[str] = []
    if empty.any():
        where = table.where(np.flatnonzero(empty))
        if not skip_empty or empty.all():
            raise ValueError(
                f"every row of {path} must have both sides{'' if score is None else ' and a score'}: {empty.sum():,} "
                f"of {len(empty):,} have not, {where}; fill them in, or set data.skip_empty = true."
            )
        notes.append(f"{empty.sum():,} of {len(empty):,} rows of {path.name} were left out as incomplete: {where}.")
    divided = split_column(table, [*sides, *negatives, *([] if score is None else [score])])
    splits = None if divided is None else np.array(_texts(table, divided))
    builder = _Builder()
    refused = [_lists(table, name) for name in negatives]
    for row in np.flatnonzero(~empty).tolist():
        split = "" if splits is None else str(splits[row])
        anchor = builder.left(texts[0][row])
        builder.add(split, anchor, texts[1][row], 1.0 if scores is None else float(scores[row]))
        for column in refused:
            for negative in column[row]:
                builder.add(split, anchor, negative, 0.0)
    return builder.table(path, sides, divided=splits is not None, notes=notes)


class _Builder:
    """Numbers the contents, and collects each pair of a split once, with its highest grade."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._right: dict[str, int] = {}
        self._grades: dict[tuple[str, int, int], float] = {}
        self._repeated = 0

    def left(self, text: str) -> int:
        return self._left.setdefault(text, len(self._left))

    def add(self, split: str, left: int, text: str, grade: float) -> None:
        key = (split, left, self._right.setdefault(text, len(self._right)))
        known = self._grades.get(key)
        self._repeated += known is not None and known != grade
        self._grades[key] = grade if known is None else max(known, grade)

    def table(self, path: Path, sides: Sequence[str], *, divided: bool, notes: Iterable[str]) -> PairTable:
        notes = [*notes]
        if self._repeated:
            notes.append(
                f"{counted(self._repeated, 'pair')} of {path.name} come again with another score, or as a negative: "
                "the highest score counts."
            )
        splits = np.array([split for split, _, _ in self._grades])
        called = split_names(set(splits.tolist()))
        names = ["left", "right"] if sides[0] == sides[1] else list(sides)
        left, right = (
            PairSide(name, list(side), [f"{name}-{number}" for number in range(len(side))])
            for name, side in zip(names, (self._left, self._right), strict=True)
        )
        return PairTable(
            path,
            left,
            right,
            np.array([[left, right] for _, left, right in self._grades], np.int64).reshape(-1, 2),
            np.array(list(self._grades.values()), np.float64),
            np.array([called[name] for name in splits.tolist()]) if divided else None,
            notes=tuple(notes),
        )


def _plain_name(name: str) -> str:
    return re.sub(r"[\s\-]+", "_", name.strip().casefold())


def likely_sides(table: DataTable, left: str | None = None, right: str | None = None) -> tuple[str, str] | None:
    """The columns of both sides by their names; None where names do not say.

    Args:
        left, right: what is known of them.
    """
    known = {_plain_name(name): name for name in _possible_sides(table)}
    for first, second in SIDES:
        guess = left or known.get(first), right or known.get(second)
        if guess[0] is not None and guess[1] is not None and guess[0] != guess[1]:
            return guess[0], guess[1]
    return None


def _possible_sides(table: DataTable) -> list[str]:
    """The columns of texts and of images."""
    return [name for name, kind in table.types.items() if name in table.columns or holds_images(kind)]


def side_columns(path: Path, left: str | None = None, right: str | None = None) -> tuple[str, str]:
    """The columns of both sides of a table of pairs.

    Raises:
        ValueError: if the file is broken, or names do not say which they are.
    """
    return _sides(open_rows(path, "pairs"), left, right)


def _sides(table: DataTable, left: str | None, right: str | None) -> tuple[str, str]:
    """The columns of both sides; ValueError that asks for them where names do not say."""
    for name in (left, right):
        if name is not None and name not in (possible := _possible_sides(table)):
            raise ValueError(
                f"a side of the pairs must be a column: {table.path} has no {name!r}; {nearest(name, possible)}"
            )
    sides = likely_sides(table, left, right)
    if sides is None:
        raise ValueError(
            f"a table of pairs must have a column for each side, such as query and answer: {table.path} has "
            f"{listed(table.names)}; name them with --left and --right (data.left and data.right in settings)."
        )
    return sides


def _score_column(table: DataTable, sides: Sequence[str]) -> str | None:
    known = {_plain_name(name): name for name in table.columns if name not in sides}
    name = next((known[name] for name in SCORES if name in known), None)
    if name is not None and not is_numeric(table.values(name)):
        raise ValueError(
            f"the scores of pairs must be numbers: {name!r} of {table.path} holds texts; write 1 for pairs that belong "
            "together and 0 for others, or name the column of scores with data.score."
        )
    return name


def score_numbers(table: DataTable, name: str) -> Floats:
    """The scores `(N,)`, NaN where there is none."""
    texts = _texts(table, name)
    truth = {"true": "1", "false": "0", "": "nan"}
    try:
        return np.array([float(truth.get(text.strip().casefold(), text)) for text in texts])
    except ValueError as error:
        raise ValueError(
            f"the scores of pairs must be numbers: {name!r} of {table.path} holds others ({error}); correct them."
        ) from None


def _texts(table: DataTable, name: str) -> list[str]:
    """The values as texts of any length, without white space around them; of images their names."""
    if holds_images(table.types[name]):
        return [*named_images(table.path).names[name]]
    return [text.strip() for text in display_texts(table.values(name), np.arange(table.count))]


def _lists(table: DataTable, name: str) -> list[list[str]]:
    """The texts in each cell of a column of texts or of lists of texts."""
    if not is_list(table.types[name]):
        return [[text] if text else [] for text in _texts(table, name)]
    if not pa.types.is_string(table.types[name].value_type) and not pa.types.is_large_string(
        table.types[name].value_type
    ):
        raise ValueError(f"negatives must be texts: {name!r} of {table.path} holds {table.types[name]}.")
    return [[text.strip() for text in cell or () if text and text.strip()] for cell in table.read(name).to_pylist()]
