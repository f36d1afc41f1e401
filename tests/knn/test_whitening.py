"""PCA whitening: what it does to rows, and an index that has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from trivet.knn.index import Index, build_index
from trivet.knn.kinds import Kind
from trivet.knn.whitening import WHITENING, whitening_map
from trivet.metrics.points import Metric


def stretched(count: int, seed: int = 0) -> np.ndarray:
    numbers = np.random.default_rng(seed)
    return (numbers.normal(size=(count, 6)) * [9, 5, 3, 1, 0.5, 0.2] @ np.linalg.qr(numbers.normal(size=(6, 6)))[0]) + 4


def test_principal_directions_get_variance_1_and_the_others_none() -> None:
    rows = stretched(2000)
    mapped = whitening_map(torch.from_numpy(rows))(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(mapped.mean(axis=0), 0, atol=1e-9)
    variances, directions = np.linalg.eigh(np.cov(rows.T, ddof=0))
    shares = variances[::-1].cumsum() / variances.sum()
    count = int(np.argmax(shares >= 0.8)) + 1
    assert 1 < count < 6
    chosen = directions[:, ::-1][:, :count]
    np.testing.assert_allclose(np.cov(mapped.T, ddof=0), chosen @ chosen.T, atol=1e-8)


def test_equal_rows_are_only_moved() -> None:
    rows = torch.ones(5, 3)
    np.testing.assert_allclose(whitening_map(rows)(rows), 0)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("kind", ["exact", "int8"])
def test_an_index_maps_its_rows_and_queries_alike(tmp_path: Path, kind: Kind, distance: Metric) -> None:
    rows, queries, more = stretched(200), stretched(7, seed=1), stretched(30, seed=2)

    def directions(of: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(of / np.linalg.norm(of, axis=1, keepdims=True) if distance == "cosine" else of)

    fitted = whitening_map(directions(rows))
    build_index(rows, distance=distance, kind=kind, whitening=fitted).save(tmp_path)
    index = Index.load(tmp_path, to_change=True).extended(more)
    expected = build_index(fitted(directions(np.concatenate([rows, more]))), distance=distance)
    found, wanted = index.search(queries, 5), expected.search(fitted(directions(queries)), 5)
    np.testing.assert_array_equal(found.indices, wanted.indices)
    np.testing.assert_allclose(found.distances, wanted.distances, rtol=1e-4)
    assert (found.indices != build_index(rows, distance=distance).search(queries, 5).indices).any()


@pytest.mark.parametrize("damage", ["missing", "cut", "shape", "nan"])
def test_a_broken_map_is_named(tmp_path: Path, damage: str) -> None:
    rows = stretched(50)
    build_index(rows, whitening=whitening_map(torch.from_numpy(rows))).save(tmp_path)
    path = tmp_path / WHITENING
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        np.save(path, np.full((7, 6), np.nan) if damage == "nan" else np.zeros((6, 6)))
    with pytest.raises(ValueError, match=r"whitening\.npy must hold the whitening of the index: .*; index the"):
        Index.load(tmp_path)
