"""Queries, gallery, junk and cameras of an evaluation split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trivet.datasets import Dataset, in_memory
from trivet.metrics import QueryGallery, evaluate


def mask(*values: int) -> np.ndarray:
    return np.array(values, bool)


def four_items(protocol: QueryGallery | None) -> Dataset:
    return Dataset(
        name="four",
        inputs=in_memory(np.zeros((4, 1, 2, 2), np.uint8)),
        labels={"class": np.array([0, 0, 1, 1])},
        names={"class": ("a", "b")},
        ids=("p", "q", "r", "s"),
        protocol=protocol,
        columns={"place": ("1", "2", "3", "4")},
    )


def test_a_subset_keeps_what_is_asked_and_retrieved_of_its_items() -> None:
    protocol = QueryGallery(mask(1, 0, 1, 0), mask(0, 1, 0, 1), mask(0, 0, 0, 1), cameras=np.array([1, 2, 1, 2]))
    part = four_items(protocol).subset(np.array([1, 0]))
    assert part.columns == {"place": ("2", "1")}
    assert part.protocol is not None
    assert part.protocol.cameras is not None
    assert [part.protocol.query.tolist(), part.protocol.gallery.tolist()] == [[False, True], [True, False]]
    assert part.protocol.cameras.tolist() == [2, 1]
    assert four_items(protocol).subset(np.array([0, 2, 3])).protocol is None  # only junk to retrieve


def test_a_protocol_must_fit_its_items() -> None:
    protocol = QueryGallery(mask(1, 0, 1), mask(0, 1, 0), mask(0, 0, 0))
    with pytest.raises(ValueError, match="protocol must have a value for each of the 4 items: got 3"):
        four_items(protocol)
    with pytest.raises(ValueError, match="place must have a value for each of the 4 items: got 1"):
        replace(four_items(None), columns={"place": ("1",)})


@pytest.mark.parametrize(
    ("query", "gallery", "junk", "cameras", "message"),
    [
        (mask(0, 0), mask(1, 1), mask(0, 0), None, "got 0 queries and 2 such items"),
        (mask(1, 0), mask(1, 1), mask(1, 1), None, "got 1 queries and 0 such items"),
        (mask(1, 0), mask(1), mask(0, 0), None, "bools of one shape"),
        (mask(1, 0), mask(1, 1), mask(0, 0), np.array([1.0, 2.0]), "cameras must be int64"),
    ],
)
def test_a_protocol_without_sense_is_refused(
    query: np.ndarray, gallery: np.ndarray, junk: np.ndarray, cameras: np.ndarray | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        QueryGallery(query, gallery, junk, cameras)


def recall_by_hand(points: np.ndarray, labels: np.ndarray, protocol: QueryGallery) -> float:
    hits = []
    for i in range(len(points)):
        if not protocol.query[i]:
            continue
        allowed = []
        for j in range(len(points)):
            same_camera = protocol.cameras is not None and protocol.cameras[i] == protocol.cameras[j]
            left_out = j == i or protocol.junk[j] or (labels[i] == labels[j] and same_camera)
            if protocol.gallery[j] and not left_out:
                allowed.append((float(((points[i] - points[j]) ** 2).sum()), j))
        hits.append(labels[min(allowed)[1]] == labels[i])
    return float(np.mean(hits))


@pytest.mark.parametrize("cameras", [True, False])
def test_recall_follows_queries_gallery_junk_and_cameras(cameras: bool) -> None:
    generator = np.random.default_rng(3)
    points, labels = generator.normal(size=(60, 3)), generator.integers(0, 5, 60)
    seen_by = generator.integers(0, 3, 60) if cameras else None
    protocol = QueryGallery(generator.random(60) < 0.5, generator.random(60) < 0.7, generator.random(60) < 0.2, seen_by)
    found = evaluate(**protocol.arguments(points, {"class": labels}), measures=("recall@1",))["class"]
    assert found.mean()["recall@1"] == recall_by_hand(points, labels, protocol)
    assert found.items == protocol.query.sum()
    plain = evaluate(points, {"class": labels}, measures=("recall@1",))["class"]
    assert plain.mean() != found.mean()


def test_what_is_related_is_without_junk_and_distractors() -> None:
    protocol = QueryGallery(mask(1, 0, 0, 0, 0), mask(0, 1, 1, 1, 0), mask(0, 0, 1, 0, 0))
    labels = np.array([0, 0, 0, 1, 0])  # item 3 is of no query's class, item 4 in neither part
    assert protocol.related(labels).tolist() == [0, 1]
    assert protocol.unanswered(labels).tolist() == []
    assert protocol.unanswered(np.array([2, 0, 0, 1, 0])).tolist() == [2]
    assert protocol.counts() == {"queries": 1, "gallery": 2, "junk": 1, "cameras": False}
