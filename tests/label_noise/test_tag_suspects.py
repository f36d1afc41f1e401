"""Suspect tags: the model against its definition, planted mistakes, and silence where nothing can be judged."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trivet import Tags
from trivet.label_noise import find_tag_suspects
from trivet.label_noise.neighbourhoods import LabelledPoints
from trivet.label_noise.tag_scores import tag_scores


def tagged(seed: int = 0, count: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Points whose place is the sum of those of their tags, and the tags."""
    random = np.random.default_rng(seed)
    tags = random.random((count, 6)) < 0.25
    return tags @ random.normal(size=(6, 12)) * 3 + random.normal(size=(count, 12)), tags


def planted(tags: np.ndarray, seed: int = 1) -> np.ndarray:
    """Tags of which every twentieth is removed, and as many added."""
    random, given = np.random.default_rng(seed), tags.copy()
    for there in (True, False):
        cells = np.argwhere(tags == there)
        cells = cells[random.permutation(len(cells))[: int(tags.sum()) // 20]]
        given[cells[:, 0], cells[:, 1]] = not there
    return given


def test_finds_planted_mistakes_and_hardly_anything_else() -> None:
    points, tags = tagged()
    given = planted(tags)
    suspects = find_tag_suspects(points, Tags(given.astype(int)), distance="euclidean")
    called = suspects.probability_wrong > 0.5
    right = (given != tags)[suspects.items, suspects.tags][called]
    for missing in (True, False):
        kind = suspects.missing[called] == missing
        assert right[kind].mean() > 0.8
        assert right[kind].sum() > 0.6 * (given != tags).sum() / 2
    assert (suspects.missing == ~given[suspects.items, suspects.tags]).all()
    assert (np.diff(suspects.probability_wrong) <= 0).all()
    for least, most in suspects.ranges.values():
        assert least <= 0.05 <= most
        assert least * given.sum() == pytest.approx(round(least * given.sum()), abs=1e-9)  # whole tags


def test_right_tags_are_not_accused() -> None:
    points, tags = tagged()
    suspects = find_tag_suspects(points, Tags(tags.astype(int)), distance="euclidean")
    assert suspects.judged.all()
    assert (suspects.probability_wrong > 0.5).sum() <= 2


@pytest.mark.parametrize("rare", [False, True], ids=["tags at random", "a tag of nine items"])
def test_tags_that_cannot_be_judged(rare: bool) -> None:
    points, tags = tagged()
    tags = np.arange(len(tags))[:, None] < 9 if rare else np.random.default_rng(3).random(tags.shape) < 0.2
    points = points + 50 * tags[:, :1] if rare else points
    suspects = find_tag_suspects(points, Tags(tags.astype(int)), distance="euclidean")
    assert not suspects.judged.any()
    assert len(suspects.items) == len(suspects.probability_wrong) == 0
    assert suspects.ranges == {}


def test_equal_rows_say_nothing_of_each_other() -> None:
    points, tags = tagged(count=60)
    points[30:] = points[:30]
    setting = LabelledPoints(torch.from_numpy(points), np.arange(1), *(np.zeros(60, np.int64),) * 2, "euclidean")
    scores = []
    for changed in (False, True):
        given = tags.copy()
        given[30, 0] ^= changed
        of_first = tag_scores(setting, given, 0)[0, 0]
        scores.append(of_first[:2] - of_first[2])
    assert scores[0] == pytest.approx(scores[1], abs=0.2)


def test_errors() -> None:
    points, tags = tagged(count=20)
    with pytest.raises(ValueError, match="got 19 items with tags for 20 embeddings"):
        find_tag_suspects(points, Tags(tags[:19].astype(int)))
    with pytest.raises(ValueError, match="seed must not be negative: got -1"):
        find_tag_suspects(points, Tags(tags.astype(int)), seed=-1)
