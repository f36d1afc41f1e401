"""An index finds what plain loops find; an approximate one says how often; a broken one says so."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from trivet.knn import index as module
from trivet.knn.index import Index, build_index


def euclidean(a: list[float], b: list[float]) -> float:
    return math.dist(a, b)


def cosine(a: list[float], b: list[float]) -> float:
    """1 - cosine similarity; zeros are at similarity 0 to others, and coincide."""
    if not any(a) or not any(b):
        return 0.0 if not any(a) and not any(b) else 1.0
    return 1 - sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


DEFINITION = {"euclidean": euclidean, "cosine": cosine}


def nearest(rows: list[list[float]], query: list[float], k: int, distance: str, without: int = -1) -> list[int]:
    others = [i for i in range(len(rows)) if i != without]
    return sorted(others, key=lambda i: (DEFINITION[distance](query, rows[i]), i))[:k]


def points(count: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, d)).astype(np.float32)


def clusters(count: int, d: int) -> np.ndarray:
    draw = np.random.default_rng(1)
    return (draw.standard_normal((20, d)) * 5)[draw.integers(20, size=count)] + draw.standard_normal((count, d))


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("kind", ["exact", "ivf", "hnsw"])
def test_finds_what_plain_loops_find(kind: module.Kind, distance: module.Metric, tmp_path: Path) -> None:
    rows, queries = points(60, 5), points(20, 5, seed=1)
    rows[7] = 0
    queries[3] = 0
    build_index(rows, distance=distance, kind=kind).save(tmp_path)
    index = Index.load(tmp_path)
    found = index.search(queries, 4)
    for query, near, far in zip(queries.tolist(), found.indices.tolist(), found.distances.tolist(), strict=True):
        assert far == pytest.approx([DEFINITION[distance](query, rows[i].tolist()) for i in near], rel=1e-5, abs=1e-6)
        if any(query):  # zeros are at one distance from all rows but one, and rounding orders them
            assert near == nearest(rows.tolist(), query, 4, distance)
    assert found.indices[3, 0] == 7 or distance == "euclidean"
    others = index.search_rows(np.arange(60), 4).indices.tolist()
    for row in set(range(60)) - {7}:
        assert others[row] == nearest(rows.tolist(), rows[row].tolist(), 4, distance, without=row)


def test_torch_and_half_precision_rows() -> None:
    rows = torch.from_numpy(points(30, 4)).half()
    found = build_index(rows, distance="euclidean").search(rows[:2], 3, leave_out=[0, -1])
    plain = rows.double().tolist()
    assert found.indices.tolist() == [
        nearest(plain, plain[0], 3, "euclidean", without=0),
        nearest(plain, plain[1], 3, "euclidean"),
    ]


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_a_nearly_collapsed_embedding_keeps_its_order(distance: module.Metric) -> None:
    """Far from the origin and close together, where |x|^2 + |y|^2 - 2xy has no digits left."""
    rows = 100 + 1e-4 * points(50, 3).astype(np.float64)
    index = build_index(rows, distance=distance)
    found = index.search_rows(np.arange(50), 3)
    for row in range(50):
        if distance == "euclidean":
            assert found.indices[row].tolist() == nearest(rows.tolist(), rows[row].tolist(), 3, distance, without=row)
            want = [math.dist(rows[row], rows[i]) for i in found.indices[row]]
        else:  # |u - v|^2 / 2, as 1 - S itself has no digits left
            unit = rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))
            order = sorted(set(range(50)) - {row}, key=lambda i: math.dist(unit[row], unit[i]))[:3]
            assert found.indices[row].tolist() == order
            want = [math.dist(unit[row], unit[i]) ** 2 / 2 for i in order]
        assert found.distances[row] == pytest.approx(want, rel=1e-3)


def test_equal_rows_come_by_row_number() -> None:
    index = build_index(np.full((70, 3), 0.1), distance="euclidean")
    found = index.search_rows([0, 2], 4)
    assert found.indices.tolist() == [[1, 2, 3, 4], [0, 1, 3, 4]]
    assert (found.distances == 0).all()


def test_k_beyond_the_rows_is_all_of_them() -> None:
    index = build_index(points(5, 2))
    assert index.search(points(3, 2), 99).indices.shape == (3, 5)
    assert [set(row) for row in index.search_rows([0, 4], 99).indices.tolist()] == [{1, 2, 3, 4}, {0, 1, 2, 3}]
    assert index.search(points(2, 2), 99, leave_out=[1, -1]).indices[0, -1] == -1
    alone = build_index(points(1, 2))
    assert alone.search_rows([0], 3).indices.shape == (1, 0)
    assert alone.search(points(1, 2), 3).indices.tolist() == [[0]]


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_the_stated_recall_is_what_is_missed(kind: module.Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = clusters(1500, 6)
    for name, value in {"NPROBE": 1, "EF_SEARCH": 1, "LINKS": 4, "EF_CONSTRUCTION": 4, "ENOUGH": 0.0}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("trivet.metrics.points.PIECE", 3000)  # several pieces
    careless = build_index(rows, distance="euclidean", kind=kind, seed=5)
    sample = np.sort(np.random.default_rng(5).choice(1500, 1000, replace=False))
    far = np.sqrt(((rows[sample, None] - rows) ** 2).sum(axis=2))
    far[np.arange(1000), sample] = np.inf
    truth = np.argsort(far, axis=1)[:, :10].tolist()
    found = careless.search_rows(sample, 10).indices.tolist()
    share = sum(len(set(a) & set(b)) for a, b in zip(truth, found, strict=True)) / 10_000
    assert share < 0.95
    assert careless.info.recall == pytest.approx(share, abs=1e-3)
    assert (careless.info.recall_at, careless.info.recall_queries) == (10, 1000)

    monkeypatch.setattr(module, "ENOUGH", 0.95)
    careful = build_index(rows, distance="euclidean", kind=kind, seed=5)
    effort = {"ivf": "nprobe", "hnsw": "efSearch"}[kind]
    assert careful.info.recall >= 0.95 or kind == "hnsw"  # so few links leave rows that no walk reaches
    assert careful.info.recall > careless.info.recall
    doubled = careful.info.parameters[effort]
    assert doubled > 1
    assert (doubled & (doubled - 1)) == 0 or doubled == 1500
    assert getattr(careful.faiss.hnsw if kind == "hnsw" else careful.faiss, effort) == doubled


def test_auto_goes_by_the_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT_ROWS", 50)
    monkeypatch.setattr(module, "HNSW_ROWS", 60)
    made = [build_index(points(rows, 3)) for rows in (50, 51, 60, 61)]
    assert [index.info.kind for index in made] == ["exact", "hnsw", "hnsw", "ivf"]
    index = made[1]
    assert dict(index.info.parameters) == {"M": 32, "efConstruction": 200, "efSearch": 128}


def test_saved_and_loaded(tmp_path: Path) -> None:
    made = build_index(points(200, 4), kind="ivf", about={"source": "somewhere"})
    made.save(tmp_path)
    assert {item.name for item in tmp_path.iterdir()} == {"index.faiss", "index.json"}
    index = Index.load(tmp_path)
    assert (index.info, index.about, index.scale) == (made.info, made.about, made.scale)
    before, after = (one.search(points(30, 4, seed=3), 5) for one in (made, index))
    np.testing.assert_array_equal(before.indices, after.indices)
    np.testing.assert_array_equal(before.distances, after.distances)


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    broken = points(9, 3)
    broken[4, 1] = np.nan
    with pytest.raises(ValueError, match=r"embeddings must be finite: row 4 holds NaN"):
        build_index(broken)
    with pytest.raises(ValueError, match="an index needs at least one row: got none"):
        build_index(np.empty((0, 3)))
    with pytest.raises(ValueError, match=r"kind = 'hsnw' is not known; did you mean 'hnsw'"):
        build_index(points(9, 3), kind="hsnw")
    with pytest.raises(ValueError, match="seed must be between"):
        build_index(points(9, 3), seed=-1)
    index = build_index(points(9, 3))
    with pytest.raises(ValueError, match="queries must have the 3 dimensions of the index: got 4"):
        index.search(points(2, 4), 1)
    with pytest.raises(ValueError, match="queries must be finite: row 4 holds NaN"):
        index.search(broken, 1)
    with pytest.raises(ValueError, match="leave_out must hold a row number below 9"):
        index.search(points(2, 3), 1, leave_out=[0, 9])
    with pytest.raises(ValueError, match="rows must be a list of row numbers from 0 to 8"):
        index.search_rows([9], 1)
    with pytest.raises(ValueError, match="k must be a whole number of at least 1: got 0"):
        index.search(points(2, 3), 0)
    with pytest.raises(ValueError, match="within 1e\\+15 times the spread"):
        build_index(np.ones((3, 2)), distance="euclidean").search(np.full((1, 2), 1e60), 1)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        index.save(tmp_path / "file")


def test_a_folder_that_is_no_index(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"an index folder must hold index\.json"):
        Index.load(tmp_path)
    build_index(points(9, 3)).save(tmp_path)
    description = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps(description | {"format": 2}))
    with pytest.raises(ValueError, match=r"must describe an index: format must be .*: got 2"):
        Index.load(tmp_path)
    (tmp_path / "index.json").write_text("{")
    with pytest.raises(ValueError, match="must describe an index: Expecting property"):
        Index.load(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps(description | {"items": 8}))
    with pytest.raises(ValueError, match="it holds 9 vectors of 4 numbers"):
        Index.load(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps(description))
    (tmp_path / "index.faiss").write_bytes((tmp_path / "index.faiss").read_bytes()[:60])
    with pytest.raises(ValueError, match=r"index\.faiss must hold the vectors"):
        Index.load(tmp_path)
