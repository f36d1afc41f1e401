"""Label levels of tags: a "class" is a set of tags, and a rule says which sets belong together."""

from __future__ import annotations

from collections.abc import Mapping

from trivet.io.tag_cells import JOINED, TagMatch
from trivet.mining import Relation


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
