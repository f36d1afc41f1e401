"""Label levels of tags: a "class" is a set of tags, and a rule says which sets belong together."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from trivet.io.embedding_table import Names, class_numbers
from trivet.io.tag_cells import JOINED, TagMatch
from trivet.mining import Classes, Relation


def tag_relations(names: Mapping[str, tuple[str, ...]], tags: Mapping[str, TagMatch]) -> dict[str, Relation]:
    """Level of tags -> the rule by which its sets belong together, of items 0 .. C - 1.

    Args:
        names: level -> the C sets of tags, each joined by ";".
        tags: the levels of tags, and how these match.
    """
    if not tags:
        return {}
    from trivet.mining.tags import Tags  # here: it needs scipy

    return {level: Tags([name.split(JOINED) for name in names[level]], match) for level, match in tags.items()}


def column_relations(*columns: Names, match: TagMatch | None) -> tuple[list[Relation], tuple[str, ...]]:
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
