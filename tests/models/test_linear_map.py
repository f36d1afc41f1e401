"""Linear maps equal their definitions, and are chosen on items that they were not fitted on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes

from trivet.models.linear_map import RIDGES, fit_map, ridge_maps, rotation_map


def drawn(n: int, d: int, e: int, noise: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=draw, dtype=torch.float64) + 2
    return x, x @ torch.randn(d, e, generator=draw, dtype=torch.float64) + noise * torch.randn(
        n, e, generator=draw, dtype=torch.float64
    )


@pytest.mark.parametrize(("d", "e"), [(5, 5), (5, 8), (8, 5)])
def test_the_rotation_equals_its_definition(d: int, e: int) -> None:
    x, y = drawn(40, d, e)
    fitted = rotation_map(x, y)
    a, b = (side.numpy() - side.numpy().mean(axis=0) for side in (x, y))
    if d <= e:
        padded = np.pad(a, ((0, 0), (0, e - d)))
        rotation, _ = orthogonal_procrustes(padded, b)
        expected = rotation[:d] * (np.trace(rotation.T @ padded.T @ b) / np.square(a).sum())
        np.testing.assert_allclose(fitted.matrix, expected, atol=1e-8)
    # No turn of the rotation and no other scale comes nearer.
    least = np.square(fitted(x).numpy() - y.numpy()).sum()
    draw = np.random.default_rng(0)
    for _ in range(20):
        turn = np.linalg.qr(np.eye(e) + 0.05 * draw.normal(size=(e, e)))[0]
        turn = turn * np.sign(np.diag(turn))
        for scale in (0.97, 1.0, 1.03):
            assert np.square(a @ fitted.matrix.numpy() @ turn * scale - b).sum() >= least - 1e-9


def test_a_rotation_is_recovered() -> None:
    x, _ = drawn(30, 6, 6)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    fitted = rotation_map(x, 3 * x @ turn + 7)
    torch.testing.assert_close(fitted(x), 3 * x @ turn + 7)
    assert not rotation_map(torch.ones(12, 3), torch.ones(12, 2)).matrix.any()


def test_a_ridge_equals_least_squares_with_rows_for_the_penalty() -> None:
    x, y = drawn(30, 6, 4)
    a, b = (side.numpy() - side.numpy().mean(axis=0) for side in (x, y))
    for ridge, fitted in zip(RIDGES, ridge_maps(x, y), strict=True):
        penalty = ridge * np.square(a).sum() / 6
        rows = np.concatenate([a, np.sqrt(penalty) * np.eye(6)])
        expected = np.linalg.lstsq(rows, np.concatenate([b, np.zeros((6, 4))]), rcond=None)[0]
        np.testing.assert_allclose(fitted.matrix, expected, rtol=1e-6)
        np.testing.assert_allclose(fitted(x), a @ expected + y.numpy().mean(axis=0), rtol=1e-6)
    assert [not each.matrix.any() for each in ridge_maps(torch.ones(12, 3), torch.ones(12, 2))] == [True] * len(RIDGES)


def test_the_map_is_chosen_on_other_items() -> None:
    x, y = drawn(400, 8, 8)  # no rotation: the matrix stretches
    chosen = fit_map(x, y, generator=torch.Generator().manual_seed(0))
    assert chosen.name == "ridge 0.0001"
    turn = torch.linalg.qr(torch.randn(60, 60, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    points = torch.randn(80, 60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    turned = points @ turn + 0.3 * torch.randn(80, 60, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    # With about as many items as numbers, least squares fits what it saw best and other items worst.
    assert fit_map(points, turned, generator=torch.Generator().manual_seed(0)).name in ("rotation", "ridge 1")
    equal = fit_map(points, turned, generator=torch.Generator().manual_seed(0)).matrix
    assert torch.equal(equal, fit_map(points, turned, generator=torch.Generator().manual_seed(0)).matrix)


def test_too_few_items() -> None:
    with pytest.raises(ValueError, match="a map is fitted on 10 items or more, the same in both: got 9 and 9"):
        fit_map(torch.ones(9, 2), torch.ones(9, 2), generator=torch.Generator())
