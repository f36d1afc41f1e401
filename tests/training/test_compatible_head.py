"""A compatible head searches the old index better than a map, and is chosen on items that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from trivet.distances import unit_rows
from trivet.metrics import retrieve
from trivet.mining.tags import Tags
from trivet.models.linear_map import LinearMap, fit_map
from trivet.training import compatible_head as module
from trivet.training.compatible_head import Labels, compatible_head, compatible_loss

CLASSES, EACH = 12, 24


@pytest.fixture
def spaces() -> tuple[Tensor, Tensor, np.ndarray]:
    """New and old vectors of twelve classes; what varies within a class is not the same in both."""
    draw = torch.Generator().manual_seed(0)
    label = np.repeat(np.arange(CLASSES), EACH)
    means = torch.randn(CLASSES, 6, generator=draw)[label]

    def embedding(within: float) -> Tensor:
        light = within * torch.randn(len(label), 6, generator=draw)
        return torch.cat([means, light], dim=1) @ torch.randn(12, 24, generator=draw)

    return unit_rows(embedding(1.5)).double(), unit_rows(embedding(1.2)).double(), label


def head(spaces: tuple[Tensor, Tensor, np.ndarray], labels: Labels) -> tuple[LinearMap, LinearMap, np.ndarray]:
    """A map, a head that begins as it, and the rows that neither of them knows."""
    new, old, _ = spaces
    order = np.random.default_rng(0).permutation(len(new))
    fitting, choosing, others = np.split(order, [140, 190])
    start = fit_map(new[fitting], old[fitting], generator=torch.Generator().manual_seed(0))
    return (
        start,
        compatible_head(
            new,
            old,
            labels,
            start=start,
            fitting=fitting,
            choosing=choosing,
            generator=torch.Generator().manual_seed(0),
        ),
        others,
    )


def test_it_finds_more_in_the_old_vectors_than_a_map(
    spaces: tuple[Tensor, Tensor, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old, label = spaces
    monkeypatch.setattr(module, "STEPS", 75)  # of 200
    start, trained, others = head(spaces, label)

    def recall(rows: Tensor) -> float:
        of = {"gallery_labels": label[others], "self_rows": np.arange(len(others)), "measures": ["recall@1"]}
        return retrieve(rows[others], label[others], gallery=old[others], distance="cosine", **of).mean()["recall@1"]

    assert recall(trained(new)) > recall(start(new)) + 0.05
    monkeypatch.setattr(module, "STEPS", 25)
    trained = head(spaces, label)[1]
    assert trained.name == "head of 25 steps"
    assert torch.equal(trained.matrix, head(spaces, label)[1].matrix)
    tags = Tags([[str(number)] for number in label.tolist()])
    torch.testing.assert_close(head(spaces, tags)[1].matrix, trained.matrix, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("scores", "step"), [([3, 2, 2], 0), ([1, 2, 2], 25), ([1, 2, 3], 50)])
def test_the_step_is_the_first_of_the_best(
    scores: list[float], step: int, spaces: tuple[Tensor, Tensor, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: Iterator[float] = iter(scores)

    def measure(*_: object) -> float:
        return next(left)

    monkeypatch.setattr(module, "STEPS", 50)
    monkeypatch.setattr(module, "_recall", measure)
    start, trained, _ = head(spaces, spaces[2])
    assert trained.name == f"head of {step} steps"
    same = torch.allclose(trained(spaces[0]), start(spaces[0]), atol=1e-5)
    assert same == (step == 0)


def test_the_choice_is_by_both_searches() -> None:
    points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    label = np.array([0, 0, 1, 1])
    assert module._recall(points, points, label) == 2
    assert module._recall(points, points[[2, 3, 0, 1]], label) == 1
    assert module._recall(points, points, np.arange(4)) == 0  # none finds itself


def test_the_loss_equals_its_definition() -> None:
    draw = np.random.default_rng(0)
    rows, old, labels = draw.normal(size=(5, 3)), draw.normal(size=(4, 3)), [0, 0, 1, 1, 2]

    def term(others: np.ndarray, of_others: list[int], *, itself: bool) -> float:
        """Minus the mean log share of the positives in the softmax of similarities over 0.1."""
        losses = []
        for a, anchor in enumerate(rows.tolist()):
            near = {
                b: math.fsum(x * y for x, y in zip(anchor, other, strict=True))
                / math.hypot(*anchor)
                / math.hypot(*other)
                / 0.1
                for b, other in enumerate(others.tolist())
                if itself or a != b
            }
            total = math.log(math.fsum(map(math.exp, near.values())))
            positives = [near[b] for b in near if of_others[b] == labels[a]]
            losses += [total - math.fsum(positives) / len(positives)] if positives else []
        return math.fsum(losses) / len(losses)

    value = compatible_loss(
        torch.from_numpy(rows), torch.tensor(labels), torch.from_numpy(old), torch.tensor([0, 1, 1, 2])
    )
    expected = term(rows, labels, itself=False) + term(old, [0, 1, 1, 2], itself=True)
    assert value.item() == pytest.approx(expected, rel=1e-9)
