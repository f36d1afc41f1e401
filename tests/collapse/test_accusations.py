"""What once was accused though nothing was lost, or cleared though something was."""

from __future__ import annotations

import numpy as np
import pytest
from tests.collapse.test_diagnosis import LABELS, clusters, found

from trivet.collapse import THRESHOLDS, diagnose
from trivet.collapse.measures import measure
from trivet.collapse.significance import FLOOR

pytestmark = pytest.mark.usefixtures("few_pairs")


def test_classes_that_keep_their_inside_are_no_class_collapse_however_tight() -> None:
    """One offset for half of the classes: no distance within a class changes."""
    before, offset = clusters(within=1.5), 200.0 * (LABELS % 2)[:, None] * np.eye(16)[0]
    result = diagnose(before + offset, LABELS, before)
    assert result.measures.class_spread < THRESHOLDS["blob"].value
    assert [verdict.kind for verdict in result.verdicts] == ["healthy"]
    assert result.verdicts[0].cause == "Items lie apart, but not in all directions."
    assert any("Nothing within them was lost" in note for note in result.notes)
    points = before.reshape(10, 40, 16).mean(axis=1)[LABELS] + offset + 0.1 * clusters(1)
    assert found(points, LABELS, before) == [("class-collapse", "full")]


def test_a_class_of_many_does_not_stand_for_all() -> None:
    """Inside it nothing is left of the reference; inside the others, of three items, nothing can be told."""
    labels = np.r_[np.zeros(6, int), np.repeat(np.arange(1, 41), 3)]
    after = clusters(0, 0.1, labels)
    before = after.copy()
    before[:6] = np.random.default_rng(5).permutation(before[:6]) + 0.1 * clusters(3, 1.0, labels)[:6]
    assert measure(after, labels, reference=before).retention is None
    assert [verdict.kind for verdict in diagnose(after, labels, before).verdicts] == ["healthy"]
    assert measure(after[:12], labels[:12], reference=before[:12]).retention is not None


def test_few_items_of_many_classes_do_not_show_that_an_embedding_knows_nothing() -> None:
    labels = np.repeat(np.arange(40), 2)[:60]
    weak = clusters(1, 2.5, labels)
    measures = measure(weak, labels)
    assert measures.chance_high is not None
    assert measures.chance < measures.recall <= measures.chance_high
    (verdict,) = diagnose(weak, labels).verdicts
    assert verdict.rule == "there are too few items to tell whether recall@1 is above chance"
    assert "little information" not in verdict.cause


def test_what_is_perhaps_lost_of_map_at_r_is_open() -> None:
    before = clusters(within=1.0)
    after = before + 0.35 * np.random.default_rng(0).normal(size=before.shape)
    (ranking,) = measure(after, LABELS, reference=before).rankings
    assert not ranking.worse
    assert ranking.difference <= -FLOOR
    (verdict,) = diagnose(after, LABELS, before).verdicts
    assert verdict.kind == "spread-out"
    assert "but perhaps not by all items of a class: MAP@R is" in verdict.rule


def test_classes_of_four_that_overlap_have_no_noisy_labels() -> None:
    """Of three neighbours two are often of one other class."""
    labels = np.repeat(np.arange(20), 4)
    for seed in range(3):
        points = clusters(seed, 0.8, labels, d=6)
        assert [verdict.kind for verdict in diagnose(points, labels).verdicts] == ["spread-out"]
    labels = np.repeat(np.arange(20), 7)
    item = np.arange(140) % 7
    wrong = np.where(item < 2, (labels + 1 + item) % 20, labels)
    assert [verdict.kind for verdict in diagnose(clusters(0, 0.2, labels, d=6), wrong).verdicts] == ["noisy-labels"]
