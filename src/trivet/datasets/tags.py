"""Label levels of tags or pairs: a "class" is a set of tags, or of pairs, and a rule says which belong together."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from trivet.io.embedding_table import Names, class_numbers
from trivet.io.tag_cells import JOINED, CellRule
from trivet.mining import Classes, Relation


def tag_relations(names: Mapping[str, tuple[str, ...]], tags: Mapping[str, CellRule]) -> dict[str, Relation]:
    """Level of tags or pairs -> the rule by which its sets belong together, of items 0 .. C - 1.

    Args:
        names: level -> the C sets of tags, each joined by ";", or the cells of pairs, in their order.
        tags: the levels of tags, and how these match.
    """
    if not tags:
        return {}
    from trivet.datasets.judged_pairs import pairs_of_cells  # here: they need scipy
    from trivet.mining.tags import Tags

    return {
        level: pairs_of_cells(names[level])
        if match == "pairs"
        else Tags([name.split(JOINED) for name in names[level]], match)
        for level, match in tags.items()
    }


def column_relations(*columns: Names, match: CellRule | None) -> tuple[list[Relation], tuple[str, ...]]:
    """The relations of the items of several columns of a level under one rule, and the class names or sets of tags.

    Args:
        columns: `(N,)` class names each, or sets of tags joined by ";".
        match: how tags match; None for classes.
    """
    numbers, names = class_numbers(*columns)
    items = [torch.from_numpy(of_column) for of_column in numbers]
    if match is None:
        return [Classes(of_column) for of_column in items], names
    rule = tag_relations({"": names}, {"": match})[""]
    return [rule.with_items(of_column) for of_column in items], names
