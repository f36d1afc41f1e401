from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.datasets import load_digits

from trivet.evaluation import cluster, evaluate, nmi, nmi_plus, recall_at_k


def test_each_level_equals_its_measures_taken_alone() -> None:
    digits = load_digits()
    points, labels = digits.data[:600].astype(np.float32), digits.target[:600]
    levels = {"parity": labels % 2, "digit": labels}
    results = evaluate(points, levels, ks=(1, 5), nmi_plus_multiple={"parity": 3}, seed=4)
    assert list(results) == ["parity", "digit"]
    for level, multiple in (("parity", 3), ("digit", 10)):
        result, classes = results[level], len(np.unique(levels[level]))
        assert result.recall == recall_at_k(points, levels[level], (1, 5))
        assert result.nmi == nmi(levels[level], cluster(points, classes, seed=4).assignment)
        assert result.nmi_plus == nmi_plus(points, levels[level], multiple, seed=4)
        assert (result.items, result.classes, result.nmi_plus_clusters) == (600, classes, multiple * classes)


def test_chance_is_the_recall_of_a_constant_embedding() -> None:
    labels = np.repeat([5, 6, 7, 8], [7, 3, 1, 4])
    result = evaluate(np.full((15, 2), 0.3), {"class": labels}, nmi_plus_multiple=2)["class"]
    assert result.chance_recall == pytest.approx(result.recall[1], abs=1e-12)
    assert result.nmi == 0


def test_too_few_items_for_nmi_plus_is_said() -> None:
    result = evaluate(np.eye(4), {"class": np.array([0, 0, 1, 1])}, nmi_plus_multiple=3)["class"]
    assert result.nmi_plus is None
    assert result.nmi_plus_missing == "6 clusters need as many items: there are 4."
    enough = evaluate(np.eye(4), {"class": np.array([0, 0, 1, 1])}, nmi_plus_multiple=2)["class"]
    assert enough.nmi_plus is not None
    assert enough.nmi_plus_missing is None


def test_the_record_is_plain_json() -> None:
    result = evaluate(np.eye(4), {"class": np.array([0, 0, 1, 1])}, ks=(1, 2))["class"]
    record = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert record["recall@2"] == result.recall[2]
    assert record["nmi+"] is None
    assert {"recall@1", "chance_recall@1", "nmi", "items", "classes"} <= set(record)


def test_cosine_reaches_both_the_neighbours_and_the_clusters() -> None:
    angles = np.repeat([0.0, 2.0, 4.0], 10) + np.random.default_rng(0).normal(0, 0.05, 30)
    norms = np.tile([1, 100], 15)  # far apart in length, close in direction
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1) * norms[:, None]
    labels = {"direction": np.repeat([0, 1, 2], 10)}
    assert evaluate(points, labels, distance="cosine")["direction"].nmi == 1
    assert evaluate(points, labels)["direction"].nmi < 1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: evaluate(np.eye(3), {}), "at least one level"),
        (lambda: evaluate(np.eye(3), {"a": np.zeros(2, int)}), r"labels\['a'\] must hold one class per embedding"),
        (lambda: evaluate(np.eye(3)[:1], {"a": np.zeros(1, int)}), "at least two items: got 1"),
        (lambda: evaluate(np.eye(3), {"a": np.zeros(3, int)}, nmi_plus_multiple=0), "at least 1"),
        (lambda: evaluate(np.eye(3), {"a": np.zeros(3, int)}, nmi_plus_multiple={"b": 2}), r"\(a\): got \['b'\]"),
    ],
)
def test_bad_input_is_a_stated_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
