"""An index of codes: its candidates are ranked by the rows themselves, and what it misses is measured."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from trivet.knn import codes
from trivet.knn import index as module
from trivet.knn.codes import quantized
from trivet.knn.index import Index, build_index
from trivet.knn.kinds import Coded, Kind

ROWS, WIDTH, SAMPLED = 1500, 20, 300


def clusters(count: int = ROWS, width: int = WIDTH) -> tuple[np.ndarray, np.ndarray]:
    """Rows `(count, width)` about 60 centres, and which centre."""
    draw = np.random.default_rng(1)
    near = draw.integers(60, size=count)
    rows = 0.6 * draw.standard_normal((60, width))[near] + draw.standard_normal((count, width))
    return rows.astype(np.float32), near


@pytest.fixture(autouse=True)
def few_rows_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "LEAST_ROWS", 1000)
    monkeypatch.setattr(module, "SAMPLE", SAMPLED)


def exact(rows: np.ndarray, queries: np.ndarray, k: int, distance: str) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of all rows and their distances, in float64; a query does not find itself."""
    rows = rows.astype(np.float64)
    if distance == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    far = cdist(rows[queries], rows, "sqeuclidean")
    far[np.arange(len(queries)), queries] = np.inf
    found = np.argsort(far, axis=1, kind="stable")[:, :k]
    near = np.take_along_axis(far, found, axis=1)
    return found, near / 2 if distance == "cosine" else np.sqrt(near)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize(("kind", "size", "listed"), [("ivf-pq", 10, 8), ("int8", 20, 0), ("binary", 3, 0)])
def test_what_it_finds_has_its_exact_distance_and_its_recall_is_what_it_misses(
    kind: Coded, size: int, listed: int, distance: module.Metric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "int8":  # which would find all
        monkeypatch.setattr(codes, "CANDIDATES", 1)
        monkeypatch.setattr(codes, "MORE", 1)
        monkeypatch.setattr(module, "SPARE", 0)
    rows, _ = clusters()
    made = build_index(rows, distance=distance, kind=kind, recall=0.9, seed=3)
    assert made.info.parameters.get("nlist") == (38 if listed else None)
    assert made.info.parameters["bytes"] == size
    assert made.bytes_per_item == size + listed
    made.save(tmp_path)
    index = Index.load(tmp_path)
    assert index.info == made.info
    sample = np.sort(np.random.default_rng(3).choice(ROWS, SAMPLED, replace=False))
    truth, far = exact(rows, sample, 10, distance)
    for one in (made, index):
        found = one.search_rows(sample, 10)
        hits = [len(set(a) & set(b)) for a, b in zip(truth.tolist(), found.indices.tolist(), strict=True)]
        assert sum(hits) / (10 * SAMPLED) == pytest.approx(made.info.recall, abs=1e-3)
        assert 0.9 <= made.info.recall < 1
        whole = np.array(hits) == 10
        assert whole.any()
        np.testing.assert_array_equal(found.indices[whole], truth[whole])
        np.testing.assert_allclose(found.distances[whole], far[whole], rtol=1e-5, atol=1e-6)
    queries = rows[:50] + np.float32(0.01)
    np.testing.assert_array_equal(made.search(queries, 7).indices, index.search(queries, 7).indices)


@pytest.mark.parametrize("kind", ["int8", "binary", "ivf-pq"])
def test_a_row_beyond_all_is_found(kind: Coded) -> None:
    """A row of zeros, equal rows, and one far from those that ranges were learned from."""
    rows, _ = clusters()
    rows[3:6] = rows[3]
    rows[9] *= 1000
    index = build_index(rows, distance="euclidean", kind=kind)
    assert index.search_rows([9], 1).indices[0, 0] >= 0
    assert index.search(rows[9:10], 1).indices.tolist() == [[9]]
    assert index.search_rows([4], 2).indices.tolist() == [[3, 5]]


@pytest.mark.parametrize("kind", ["ivf", "ivf-pq"])
def test_the_same_seed_gives_the_same_index(kind: Kind) -> None:
    rows, _ = clusters(1200)
    one, two, other = (build_index(rows, kind=kind, recall=0.97, seed=seed) for seed in (1, 1, 2))
    assert one.info == two.info
    assert one.info.parameters["nlist"] == 1200 // 39  # below 4 sqrt(1200)
    found = [index.search_rows(np.arange(100), 5).indices for index in (one, two)]
    np.testing.assert_array_equal(*found)
    assert one.info.tried != other.info.tried


def test_less_recall_takes_less_effort_and_more_than_was_measured_is_refused(tmp_path: Path) -> None:
    rows, _ = clusters()
    for kind in ("ivf-pq", "ivf"):
        made = build_index(rows, kind=kind, recall=0.999)
        tried = made.info.tried
        assert len(tried) > 2
        assert tried[-1]["recall"] == made.info.recall
        least = tried[0]
        easy = made.with_recall(least["recall"])
        assert easy.info.parameters["nprobe"] == least["nprobe"]
        assert easy.info.recall == least["recall"]
        sample = np.sort(np.random.default_rng(0).choice(ROWS, SAMPLED, replace=False))
        truth, _ = exact(rows, sample, 10, "cosine")
        before = made.search_rows(sample, 10).indices
        found = easy.search_rows(sample, 10).indices
        assert (found != before).any()
        np.testing.assert_array_equal(made.search_rows(sample, 10).indices, before)  # it is left as it is
        easy.save(tmp_path)
        np.testing.assert_array_equal(Index.load(tmp_path).search_rows(sample, 10).indices, found)
        share = sum(len(set(a) & set(b)) for a, b in zip(truth.tolist(), found.tolist(), strict=True)) / (10 * SAMPLED)
        assert share == pytest.approx(least["recall"], abs=1e-3)
        if made.info.recall < 1:
            with pytest.raises(
                ValueError, match=r"at most 0\.[0-9]+: got 1; index the embeddings again with --recall 1"
            ):
                made.with_recall(1)
    for wrong in (0, 1.1, float("nan")):
        with pytest.raises(ValueError, match="recall must be a share above 0, at most 1"):
            build_index(rows, kind="ivf-pq", recall=wrong)
    assert build_index(rows[:9]).with_recall(1).info.recall == 1


def test_more_candidates_where_all_lists_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "CANDIDATES", 1)
    monkeypatch.setattr(codes, "GROUPS", {1: 10})  # codes so short that they confuse rows
    monkeypatch.setattr(module, "SPARE", 0)
    rows, _ = clusters()
    parameters = build_index(rows, kind="ivf-pq", recall=0.97).info.parameters
    assert parameters["bytes"] == 2
    assert parameters["nprobe"] == parameters["nlist"]
    assert parameters["candidates"] in (2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize("dimension", [1, 3, 17, 33, 257, 768])
def test_every_dimension_has_a_code(dimension: int) -> None:
    width, size = codes.coded_width("pq", dimension), codes.code_bytes("pq", dimension)
    assert dimension <= width < dimension + 8
    assert width % size == 0
    rows = np.ones((2, dimension + 1), np.float32)
    assert codes.coded(rows, "pq", dimension).sum() == 2 * dimension


def test_rows_are_stored_by_the_definitions_of_the_codes() -> None:
    rows, _ = clusters(40)
    rows[7, 3] = 99  # beyond the rows that are learned from
    learned = clusters(300)[0]
    for i, row in enumerate(rows.tolist()):
        bits = [1 if number > sum(column) / 300 else -1 for number, column in zip(row, learned.T.tolist(), strict=True)]
        assert quantized(rows, learned, "binary")[i].tolist() == bits
    low, high = (np.quantile(learned, share, axis=0) for share in (0.005, 0.995))
    stored = quantized(rows, learned, "int8")
    inside = (rows >= low) & (rows <= high)
    assert (np.abs(stored - rows)[inside] <= ((high - low) / 510)[np.nonzero(inside)[1]] * 1.001).all()
    np.testing.assert_allclose(stored[~inside], np.clip(rows, low, high)[~inside], rtol=1e-5, atol=1e-6)
    for column, values in enumerate(stored.T):  # at most 256 different ones
        steps = (values - low[column]) / (high[column] - low[column]) * 255
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)
    np.testing.assert_array_equal(quantized(rows, learned, "float16"), rows.astype(np.float16).astype(np.float32))
    constant = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(quantized(constant, constant, "int8"), constant)


def test_product_quantization_replaces_groups_by_what_was_learned() -> None:
    rows, _ = clusters(1200)
    stored = quantized(rows, rows, "pq")
    for group in range(10):
        pairs = np.unique(stored[:, 2 * group : 2 * group + 2], axis=0)
        assert len(pairs) <= 256
        far = cdist(rows[:, 2 * group : 2 * group + 2], pairs)
        np.testing.assert_allclose(
            np.linalg.norm((stored - rows)[:, 2 * group : 2 * group + 2], axis=1), far.min(axis=1), atol=1e-4
        )
    assert np.square(stored - rows).mean() < 0.05 * np.square(rows).mean()


@pytest.mark.parametrize("kind", ["int8", "binary", "ivf-pq"])
def test_errors_say_what_to_do(kind: Coded, tmp_path: Path) -> None:
    rows, _ = clusters(1200)
    whole = tmp_path / "whole"
    whole.mkdir()
    build_index(rows, kind=kind).save(whole)
    assert {item.name for item in whole.iterdir()} == {"index.faiss", "index.json", "vectors.npy"}

    def broken(name: str, data: bytes | None) -> str:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(whole, copy)
        (copy / name).unlink()
        if data is not None:
            (copy / name).write_bytes(data)
        with pytest.raises(ValueError, match=r"must hold the vectors that index\.json describes") as raised:
            Index.load(copy)
        return str(raised.value)

    np.save(tmp_path / "wide.npy", np.ones((1200, WIDTH), np.float32))
    vectors, stored = (whole / "vectors.npy").read_bytes(), (whole / "index.faiss").read_bytes()
    assert "vectors.npy beside it is missing or empty" in broken("vectors.npy", None)
    assert "vectors.npy beside it is missing or empty" in broken("vectors.npy", b"")
    assert "1200 rows of 21 numbers in float32" in broken("vectors.npy", (tmp_path / "wide.npy").read_bytes())
    broken("vectors.npy", vectors[:-40])
    broken("vectors.npy", b"no array")
    for place in range(0, len(stored), len(stored) // 40):
        broken("index.faiss", stored[:place])
    broken("index.faiss", stored + b"more")
    assert "it begins with" in broken("index.faiss", b"IwFl" + stored[4:])
    if kind != "ivf-pq":
        return
    with pytest.raises(ValueError, match=f"codes of kind {kind} are learned from at least 1000 rows: got 999"):
        build_index(rows[:999], kind=kind)
