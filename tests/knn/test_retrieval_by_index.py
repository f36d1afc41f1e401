from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch

from trivet import Classes, Pairs, Relation, Tags
from trivet.knn.retrieval_by_index import retrieve_by_index
from trivet.metrics.retrieval import retrieve_levels

NAMES = ("recall@1", "recall@8", "precision@5", "r-precision", "map@r", "found@5", "map@3", "ndcg@40")


def blobs(seed: int, count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    centres = np.random.default_rng(9).normal(size=(classes, 16))
    return (centres[labels] + 0.7 * generator.normal(size=(count, 16))).astype(np.float32), labels


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "ivf-pq"])
def test_close_to_the_exact_measures_and_states_its_recall(
    kind: Literal["hnsw", "ivf", "ivf-pq"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.knn.codes.LEAST_ROWS", 2000)
    points, labels = blobs(0, 2000, 60)
    levels = {"parity": labels % 2, "class": labels}
    found = retrieve_by_index(points, {"class": labels}, kind=kind, measures=NAMES)
    exact = retrieve_levels(points, {"class": labels}, measures=NAMES)["class"]
    assert 0.9 < found.index.recall <= 1
    assert found.index.recall_queries == 1000
    values = found.levels["class"]
    assert values.mean() == pytest.approx(exact.mean(), abs=0.03)
    assert values.chance == exact.chance
    assert values.positives.tolist() == exact.positives.tolist()
    both = retrieve_by_index(points, levels, kind=kind, measures=("recall@1",)).levels
    assert list(both) == ["parity", "class"]


def test_equal_to_the_exact_measures_where_the_index_is_complete() -> None:
    """So few rows that the graph finds all: what is left out and how measures are taken is then compared exactly."""
    points, labels = blobs(1, 300, 12)
    cameras = np.random.default_rng(0).integers(0, 3, 300)
    queries, gallery = slice(0, 40), slice(40, 300)
    options = {
        "gallery": points[gallery],
        "gallery_labels": {"class": labels[gallery]},
        "cameras": cameras[queries],
        "gallery_cameras": cameras[gallery],
        "junk": labels[gallery] == 3,
        "measures": NAMES,
    }
    found = retrieve_by_index(points[queries], {"class": labels[queries]}, kind="hnsw", **options)
    assert found.index.recall == 1
    exact = retrieve_levels(points[queries], {"class": labels[queries]}, **options)["class"]
    np.testing.assert_allclose(found.levels["class"].values, exact.values, atol=1e-12)
    assert exact.without_positive > 0
    assert found.levels["class"].chance == exact.chance


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"measures": ("map",)}, "needs the rank of every positive"),
        ({"measures": ("recall@4000",)}, "at most 2048 neighbours"),
        ({"measures": ("recal@1",)}, "got 'recal@1'"),
    ],
)
def test_bad_input_is_a_stated_error(options: dict[str, object], sentence: str) -> None:
    points, labels = blobs(2, 4100, 3)
    with pytest.raises(ValueError, match=sentence):
        retrieve_by_index(points, {"class": labels}, kind="hnsw", **options)


@pytest.mark.parametrize("name", ["tags", "tags, Jaccard", "pairs", "classes"])
@pytest.mark.parametrize("form", ["one set", "a gallery"])
def test_equal_to_the_exact_measures_by_any_relation(name: str, form: str) -> None:
    """What a relation ignores is left out of the lists, which are long enough for it."""
    draw = np.random.default_rng(3)
    points = draw.normal(size=(120, 5))
    tags = [[tag for tag in "abcdefghij" if draw.random() < 0.15] for _ in points]
    relation: Relation = {
        "tags": Tags(tags),
        "tags, Jaccard": Tags(tags, 0.4),
        "pairs": Pairs(draw.integers(25, size=60).tolist(), draw.integers(25, size=60).tolist()),
        "classes": Classes(torch.from_numpy(draw.integers(9, size=120))),
    }[name]
    names = ("recall@1", "precision@5", "found@5", "map@3", "r-precision", "map@r")
    given: dict[str, Any] = {"embeddings": points, "labels": {"level": relation}}
    if form == "a gallery":
        rows, others = (draw.permutation(120)[:60].tolist() for _ in range(2))
        given = {"embeddings": points[rows], "labels": {"level": relation[rows]}}
        given |= {"gallery": points[others], "gallery_labels": {"level": relation[others]}}
        given["self_rows"] = np.array([others.index(row) if row in others else -1 for row in rows])
    for some in (names, names[:1]):
        found = retrieve_by_index(**given, kind="hnsw", measures=some)
        assert found.index.recall == 1
        exact = retrieve_levels(**given, measures=some)["level"]
        np.testing.assert_allclose(found.levels["level"].values, exact.values, atol=1e-12)
        assert 0 < exact.mean()["recall@1"] < 1
        assert found.levels["level"].chance == exact.chance
        assert found.levels["level"].positives.tolist() == exact.positives.tolist()
