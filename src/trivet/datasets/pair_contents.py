"""Tables of pairs by the settings: which contents belong together, and the ids of these."""

from __future__ import annotations

import numpy as np

from trivet.config.base import nearest
from trivet.datasets.judged_pairs import JudgedPairs, pair_cells
from trivet.datasets.pairs_config import LEVEL, PairsConfig
from trivet.io.beir import is_beir, read_beir
from trivet.io.embedding_table import Vectors
from trivet.io.pair_table import PairTable, read_pairs
from trivet.io.tag_cells import PAIRS


def read_pair_table(config: PairsConfig) -> PairTable:
    """The table or folder of the settings."""
    if is_beir(config.path):
        return read_beir(config.path)
    return read_pairs(
        config.path,
        left=config.left,
        right=config.right,
        negatives=config.negatives,
        score=config.score,
        skip_empty=config.skip_empty,
    )


def judged_pairs(table: PairTable, config: PairsConfig) -> JudgedPairs:
    """The relation of the contents of a table, by the settings.

    Raises:
        ValueError: if the least score of what belongs together is not clear, or no pair has it.
    """
    relevant = _least_relevant(table, config.relevant)
    positions = {text: position for position, text in enumerate(table.right.contents)}
    equal = [(i, positions[text]) for i, text in enumerate(table.left.contents) if text in positions]
    relation = JudgedPairs(
        len(table.left.contents),
        len(table.right.contents),
        table.pairs,
        table.grades,
        relevant=relevant,
        equal=np.array(equal, np.int64).reshape(-1, 2),
    )
    if not len(relation.pairs):
        raise ValueError(
            f"some pairs of {table.path} must belong together: no score reaches data.relevant = {relevant:g}; lower it."
        )
    return relation


def side_ids(table: PairTable, config: PairsConfig) -> tuple[str, ...]:
    """Different ids of the contents of both sides; images are named by their paths."""
    sides = (table.left, table.right)
    named = [
        side.contents if kind == "images" else side.ids for side, kind in zip(sides, config.side_kinds, strict=True)
    ]
    ids = (*named[0], *named[1])
    if len(set(ids)) == len(ids):
        return ids
    return tuple(f"{side.name}-{id}" for side, names in zip(sides, named, strict=True) for id in names)


def pair_items(config: PairsConfig, split: str | None = None) -> Vectors:
    """The contents of both sides of a table, the left ones first, without vectors, and with the cells of their pairs.

    Of the left side those that something belongs to; of the right one all that may be found.

    Args:
        split: the pairs of which split of the table; all, if not given.

    Raises:
        ValueError: as `load_pairs`, or if there is no such split.
    """
    table = read_pair_table(config)
    relation = judged_pairs(table, config)
    left = relation.first_of_right
    judged, gallery = table.pairs, np.arange(left, len(relation.groups))
    if split is not None:
        if table.splits is None:
            raise ValueError(f"--split chooses rows of a table: {config.path} has no column split; leave it out.")
        if split not in (names := sorted({*table.splits.tolist()})):
            raise ValueError(
                f"some pairs of {config.path} must be of the split {split!r}: none is; {nearest(split, names)}"
            )
        judged = judged[table.splits == split]
        gallery = gallery if table.collection else np.unique(judged[:, 1]) + left
    queries = np.intersect1d(judged[:, 0], relation.pairs[:, 0])
    numbers = np.concatenate([queries, gallery])
    ids, contents = side_ids(table, config), [*table.left.contents, *table.right.contents]
    return Vectors(
        name=config.path.name,
        embeddings=np.empty((len(numbers), 0), np.float32),
        labels={LEVEL: np.array(pair_cells(relation, numbers))},
        ids=np.array(ids)[numbers],
        rows=np.arange(len(numbers)),
        columns=(table.left.name, table.right.name),
        texts=[contents[number] for number in numbers.tolist()],
        notes=table.notes,
        tags={LEVEL: PAIRS},
    )


def _least_relevant(table: PairTable, relevant: float | None) -> float:
    """The least score of what belongs together; ValueError that asks for it where scores are no whole numbers."""
    if relevant is not None:
        return relevant
    fractional = table.grades[table.grades != np.floor(table.grades)]
    if len(fractional):
        least = float(np.quantile(table.grades, 0.75))
        raise ValueError(
            f"the least score of a pair that belongs together must be known: {table.path} has scores from "
            f"{table.grades.min():g} to {table.grades.max():g}; say it with --relevant, such as "
            f"--relevant {least:g}, or data.relevant in settings."
        )
    return 1.0
