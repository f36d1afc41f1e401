"""The published lists of Market-1501 and CUHK03: their counts, and the evaluation that their authors describe.

The reference sorts, takes out what is junk, and walks down the list. Its average precision is the mean of the precision
at each positive, as ours; the Matlab code published with Market-1501 takes the mean of that and of the precision just
before each positive (the trapezoid rule), which is a little less.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat

from trivet.metrics import retrieve

REAL = Path(os.environ.get("TRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "reid-lists"
NAMES = ("recall@1", "recall@5", "recall@10", "map", "mrr")

real = pytest.mark.skipif(not REAL.is_dir(), reason="needs the lists that TRIVET_DATA names")


@dataclass(frozen=True, eq=False)
class Lists:
    """Identity and camera of each query and gallery item."""

    query_ids: np.ndarray
    query_cameras: np.ndarray
    ids: np.ndarray
    cameras: np.ndarray

    def vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """Queries and gallery: a place for each identity, another for each camera, and noise."""
        generator = np.random.default_rng(0)
        places, views = generator.normal(size=(1502, 16)), 0.3 * generator.normal(size=(7, 16))
        queries, gallery = (
            places[ids] + views[cameras] + 0.4 * generator.normal(size=(len(ids), 16))
            for ids, cameras in ((self.query_ids, self.query_cameras), (np.maximum(self.ids, 0), self.cameras))
        )
        gallery[self.ids < 1] += generator.normal(size=((self.ids < 1).sum(), 16))
        return queries.astype(np.float32), gallery.astype(np.float32)


def column(file: str, name: str) -> np.ndarray:
    """A variable of a Matlab file, which holds numbers and no code."""
    values: np.ndarray = loadmat(REAL / file, variable_names=[name])[name].ravel()
    return values


def market() -> Lists:
    folder = "market1501"
    return Lists(
        column(f"{folder}/queryID.mat", "queryID"),
        column(f"{folder}/queryCam.mat", "queryCAM"),
        column(f"{folder}/testID.mat", "testID"),
        column(f"{folder}/testCam.mat", "testCAM"),
    )


def cuhk03(kind: str) -> Lists:
    file = f"cuhk03/cuhk03_new_protocol_config_{kind}.mat"
    ids, cameras = column(file, "labels"), column(file, "camId")
    queries, gallery = (column(file, name).astype(int) - 1 for name in ("query_idx", "gallery_idx"))
    return Lists(ids[queries], cameras[queries], ids[gallery], cameras[gallery])


def reference(distances: np.ndarray, query: tuple[int, int], ids: np.ndarray, cameras: np.ndarray) -> list[float]:
    """CMC at 1, 5 and 10, average precision and reciprocal rank of one query."""
    found = []
    for item in distances.argsort(kind="stable").tolist():
        if ids[item] == -1 or (ids[item] == query[0] and cameras[item] == query[1]):
            continue
        found.append(bool(ids[item] == query[0]))
    ranks = [rank for rank, hit in enumerate(found, start=1) if hit]
    precisions = [number / rank for number, rank in enumerate(ranks, start=1)]
    return [
        *(float(ranks[0] <= k) for k in (1, 5, 10)),
        sum(precisions) / len(precisions),
        1 / ranks[0],
    ]


@real
@pytest.mark.parametrize(
    ("name", "positives", "fewest", "most"),
    [("market", 49649, 1, 68), ("detected", 5332, 1, 4), ("labeled", 5328, 1, 4)],
)
def test_values_are_those_of_sorted_lists(name: str, positives: int, fewest: int, most: int) -> None:
    lists = market() if name == "market" else cuhk03(name)
    queries, gallery = lists.vectors()
    found = retrieve(
        queries,
        lists.query_ids.astype(np.int64),
        gallery=gallery,
        gallery_labels=lists.ids.astype(np.int64),
        cameras=lists.query_cameras,
        gallery_cameras=lists.cameras,
        junk=lists.ids == -1,
        measures=NAMES,
    )
    assert found.gallery == (lists.ids != -1).sum()
    assert (found.positives.sum(), found.positives.min(), found.positives.max()) == (positives, fewest, most)
    assert found.without_positive == 0
    assert 0.2 < found.mean()["map"] < 0.9
    assert found.chance["map"] < 0.02
    for query in range(0, len(queries), 29):
        own = (int(lists.query_ids[query]), int(lists.query_cameras[query]))
        right = (lists.ids == own[0]) & (lists.cameras != own[1])
        assert found.positives[query] == right.sum()
        distances = np.linalg.norm(gallery.astype(np.float64) - queries[query].astype(np.float64), axis=1)
        expected = reference(distances, own, lists.ids, lists.cameras)
        np.testing.assert_allclose(found.values[query], expected, rtol=0, atol=1e-9)


def test_the_query_itself_is_left_out_whatever_class_the_gallery_gives_it() -> None:
    points = np.array([[0.0], [1.0], [2.0], [4.0]])
    for own_class in (0, 1, 7):
        found = retrieve(
            points[:2],
            np.array([0, 0]),
            gallery=points,
            gallery_labels=np.array([own_class, 0, 1, 0]),
            self_rows=np.array([0, -1]),
            measures=["recall@1", "map"],
        )
        np.testing.assert_allclose(found.values[0], [1, (1 + 2 / 3) / 2], atol=1e-12)
        assert found.positives.tolist() == [2, 2 + (own_class == 0)]
    # Nothing else may be retrieved: chance is that of the items that are left.
    constant = retrieve(
        np.zeros((1, 1)),
        np.array([0]),
        gallery=np.zeros((4, 1)),
        gallery_labels=np.array([1, 0, 1, 1]),
        self_rows=np.array([0]),
        measures=["recall@1"],
    )
    assert constant.mean()["recall@1"] == pytest.approx(1 / 3)
    assert constant.chance["recall@1"] == pytest.approx(1 / 3)
