"""Large arrays on disk, numbers that smaller types would merge, and embeddings that products of rows cannot rank."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.metrics.test_positive_ranks import NAMES, counts, force, of_order

from trivet.metrics import points, positive_ranks, retrieve, retrieve_levels
from trivet.metrics.points import Points


def reference(points: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The measures by sorting, in float64."""
    exact = points.astype(np.float64)
    rows = []
    for query in queries.tolist():
        distances = np.sqrt(((exact - exact[query]) ** 2).sum(axis=1))
        distances[query] = np.inf
        order = distances.argsort(kind="stable")[:-1]
        found = labels[order] == labels[query]
        ordered = distances[order][: np.flatnonzero(found)[-1] + 2]
        assert (np.diff(ordered) > 1e-12 * ordered[1:]).all()  # no ties that could matter
        rows.append([float(value) for value in of_order(found.tolist())])
    return np.array(rows)


@pytest.mark.parametrize("classes", [2000, 25])
def test_an_array_on_disk_gives_what_it_gives_in_memory(classes: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(10_000) % classes
    points = generator.normal(size=(classes, 32))[labels] + generator.normal(size=(10_000, 32))
    np.save(tmp_path / "rows.npy", points.astype(np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    sample = generator.choice(10_000, 200, replace=False)
    on_disk = retrieve(mapped, labels, sample=sample, measures=NAMES)
    in_memory = retrieve(points.astype(np.float32), labels, sample=sample, measures=NAMES)
    as_tensor = retrieve(torch.from_numpy(points.astype(np.float32)), labels, sample=sample, measures=NAMES)
    np.testing.assert_array_equal(on_disk.values, in_memory.values)
    np.testing.assert_array_equal(on_disk.values, as_tensor.values)
    assert on_disk.positives.tolist() == [10_000 // classes - 1] * 200
    expected = reference(points.astype(np.float32), labels, sample[:10])
    np.testing.assert_allclose(on_disk.values[:10], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("offset", [0, 1e6], ids=["plain", "near collapse"])
@pytest.mark.parametrize("classes", [1000, 50, 2])
def test_rows_are_made_float64_piece_by_piece(classes: int, offset: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever way of counting decides."""
    rows, read = Points.rows, []

    def watched(points: Points, which: torch.Tensor | slice) -> torch.Tensor:
        found = rows(points, which)
        read.append(len(found))
        return found

    monkeypatch.setattr(Points, "rows", watched)
    monkeypatch.setattr(points, "PIECE", 2**12)  # 256 rows
    monkeypatch.setattr(positive_ranks, "TILE", (64, 256))
    monkeypatch.setattr(points, "PAIR_NUMBERS", 2**12)
    gallery = np.random.default_rng(0).normal(size=(10_000, 16))
    gallery[::3] += offset
    labels = np.arange(10_000) % classes
    retrieve(gallery[:100], labels[:100], gallery=gallery, gallery_labels=labels)
    assert max(read) == 5000  # a sample, of which the centre is taken
    assert sorted(read)[-2] <= 256


def test_integers_that_a_float_would_merge_stay_apart() -> None:
    points = np.array([[0.0], [1.0], [3.0], [7.0]])
    for base in (2**24, 2**53, 2**62):
        labels = np.array([base, base + 1, base, base + 1])
        found = retrieve(points, labels, measures=["map"])
        np.testing.assert_allclose(found.values[:, 0], [1 / 2, 1 / 3, 1 / 2, 1 / 2], atol=1e-12)
        assert found.labels.tolist() == [base, base + 1]
        beside = retrieve(points, labels, gallery=points + 1, gallery_labels=labels, measures=["map"])
        assert beside.positives.tolist() == [2, 2, 2, 2]
        cameras = retrieve(points, np.zeros(4, int), cameras=labels, measures=["map"])
        assert cameras.positives.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("dtype", [np.float16, torch.bfloat16])
def test_half_precision_ranks_as_its_float64_numbers(dtype: type[np.float16] | torch.dtype) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 20, 500)
    points = generator.normal(size=(20, 24))[labels] + generator.normal(size=(500, 24))
    half = torch.from_numpy(points).to(torch.bfloat16) if dtype is torch.bfloat16 else points.astype(np.float16)
    exact = half.double().numpy() if isinstance(half, torch.Tensor) else half.astype(np.float64)
    assert not np.array_equal(exact, points)
    found = retrieve(half, labels, measures=NAMES)
    np.testing.assert_array_equal(found.values, retrieve(exact, labels, measures=NAMES).values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("count", "classes"), [(200, 20), (1500, 20), (1500, 150)])
def test_clusters_far_finer_than_their_distance(
    count: int, classes: int, dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two centres, and classes told apart by 1e-7 of their distance; in several tiles."""
    monkeypatch.setattr(positive_ranks, "TILE", (256, 1024))
    generator = np.random.default_rng(0)
    labels = np.arange(count) % classes
    jitter = generator.normal(size=(classes, 8))[labels] + 0.5 * generator.normal(size=(count, 8))
    # Float32 holds the jitter in coordinates that are 0 otherwise.
    centres = np.array([[0.0], [1.0]]) * (np.arange(8) == 0 if dtype is np.float32 else generator.normal(size=8))
    points = (centres[labels % 2] + 1e-7 * jitter).astype(dtype)
    found = retrieve(points, labels, measures=NAMES)
    asked = np.arange(0, count, max(1, count // 50))
    np.testing.assert_allclose(found.values[asked], reference(points, labels, asked), rtol=0, atol=1e-12)
    assert found.mean()["recall@1"] > 0.1


def hard_rows(kind: str, generator: np.random.Generator) -> np.ndarray:
    """Rows `(10, 8)` whose distances products of rows confuse."""
    rows = generator.normal(size=(10, 8))
    if kind == "about a sphere":  # all but one as far from that one, but for the last digits
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        rows[1:] *= 1 + generator.normal(size=(9, 1)) * 10.0 ** -generator.uniform(5, 14)
        rows[0] = 0
    elif kind == "on a grid":
        rows = generator.integers(-2, 3, (10, 8)) * 10.0 ** -generator.integers(0, 30)
    elif kind == "two clusters":
        rows = np.where(rows[:, :1] > 0, 0.3, -0.4) + rows * 10.0 ** -generator.uniform(4, 12)
    elif kind == "far from the origin":
        rows += 10.0 ** generator.integers(2, 12)
    elif kind == "of very different norms":
        rows *= 10.0 ** generator.uniform(-20, 0, (10, 1))
    elif kind == "too small for float32":
        rows *= 10.0 ** -generator.integers(20, 60)
    return rows.astype(np.float32 if generator.random() < 0.3 else np.float64)


@cache
def hard_case(kind: str, seed: int) -> tuple[np.ndarray, list[int], list[list[tuple[list[int], list[int]]]]]:
    """Points, their labels, and for the positives of each query at least and at most how many are nearer, or as near.

    In fractions. A tie is 1e-13 wide, give or take the rounding of the distances themselves.
    """
    generator = np.random.default_rng(seed)
    points, labels = hard_rows(kind, generator), generator.integers(0, 2, 10).tolist()
    exact = [[Fraction(value) for value in row] for row in points.astype(np.float64).tolist()]
    found = []
    for query, place in enumerate(exact):
        squares = {
            j: sum((x - y) ** 2 for x, y in zip(place, row, strict=True)) for j, row in enumerate(exact) if j != query
        }
        of_query = []
        for square in sorted(squares[j] for j in squares if labels[j] == labels[query]):
            edges = [square * (1 + Fraction(width, 10**14)) ** 2 for width in (-12, -8, 8, 12)]
            below = [sum(one < edge for one in squares.values()) for edge in edges[:2]]
            of_query.append((below, [sum(one <= edge for one in squares.values()) for edge in edges[2:]]))
        found.append(of_query)
    return points, labels, found


@pytest.mark.parametrize("way", ["singles", "codes", "doubles"])
@pytest.mark.parametrize(
    "kind",
    [
        "about a sphere",
        "on a grid",
        "two clusters",
        "far from the origin",
        "of very different norms",
        "too small for float32",
    ],
)
def test_no_rounding_error_decides(kind: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, way, (8, 4))
    for seed in range(25):
        points, labels, exact = hard_case(kind, seed)
        for rows, expected in zip(counts(points, labels), exact, strict=True):
            for (nearer, tied, *_), (below, within) in zip(rows, expected, strict=True):
                assert below[0] <= nearer <= below[1]
                assert within[0] <= nearer + tied <= within[1]


@pytest.mark.parametrize("largest", [1.0, 1e6])
def test_codes_sorted_once_count_at_every_level(largest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directions that know nothing of the classes, at two levels, with cameras; rows of many lengths."""
    generator = np.random.default_rng(0)
    points = generator.normal(size=(1500, 12)) * np.exp(generator.uniform(0, np.log(largest), (1500, 1)))
    levels = {"fine": generator.integers(0, 300, 1500), "coarse": generator.integers(0, 90, 1500)}
    cameras = generator.integers(0, 3, 1500)
    asked = np.arange(0, 1500, 5)

    def found() -> list[np.ndarray]:
        results = retrieve_levels(points, levels, cameras=cameras, sample=asked, measures=NAMES)
        return [result.values for result in results.values()]

    made = []
    codes = positive_ranks.SortedCodes
    monkeypatch.setattr(positive_ranks, "SortedCodes", lambda *args: made.append(codes(*args)) or made[-1])
    monkeypatch.setattr(positive_ranks, "TILE", (64, 500))
    once = found()
    assert len(made) == 5 * 3  # tiles of 64 queries and 500 rows
    force(monkeypatch, "differences")
    for one, other in zip(once, found(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=0)


def test_reduced_precision_of_products_changes_nothing() -> None:
    """Training may ask for it, and some processors then multiply float32 numbers as bfloat16."""
    generator = np.random.default_rng(0)
    labels = np.arange(1500) % 500
    points = (generator.normal(size=(500, 64))[labels] + generator.normal(size=(1500, 64))).astype(np.float32)
    before = retrieve(points, labels, measures=NAMES).values
    used, default = torch.get_float32_matmul_precision(), torch.get_default_dtype()
    try:
        torch.set_float32_matmul_precision("medium")
        np.testing.assert_array_equal(retrieve(points, labels, measures=NAMES).values, before)
        torch.set_default_dtype(torch.float64)
        np.testing.assert_array_equal(retrieve(points, labels, measures=NAMES).values, before)
    finally:
        torch.set_float32_matmul_precision(used)
        torch.set_default_dtype(default)
    assert torch.backends.mkldnn.enabled
