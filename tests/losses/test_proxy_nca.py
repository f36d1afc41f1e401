"""The proxy-NCA loss."""

from __future__ import annotations

import copy
from statistics import fmean

import pytest
import torch
from pytorch_metric_learning import losses
from tests import reference

import trivet

LABELS = torch.tensor(reference.V8_LABELS)
ROWS = 3 * torch.tensor(reference.V8, dtype=torch.float64)
PROXIES = [[2.0, 0.5], [-1.0, 1.0], [0.3, -0.4], [0.0, 5.0]]


def with_proxies(**options: object) -> trivet.ProxyNCALoss:
    loss = trivet.ProxyNCALoss(4, 2, **options).double()
    loss.proxies.data = torch.tensor(PROXIES, dtype=torch.float64)
    return loss


@pytest.mark.parametrize("scale", [1.0, 9.0, 100.0])
@pytest.mark.parametrize("block_size", [None, 1, 3])
def test_equals_the_definition(scale: float, block_size: int | None) -> None:
    terms = [
        reference.proxy_nca(row, label, PROXIES, scale)
        for row, label in zip(ROWS.tolist(), reference.V8_LABELS, strict=True)
    ]
    loss = with_proxies(scale=scale, block_size=block_size)
    assert loss(ROWS, LABELS).item() == pytest.approx(fmean(terms), rel=1e-12)
    assert loss.last.terms == 8
    assert loss.last.active_fraction == 1
    assert loss.last.dropped == {"no positive": 0, "no negative": 0, "no match": 0}
    trimmed = with_proxies(scale=scale, block_size=block_size, trim=0.25, reduction="sum")
    assert trimmed(ROWS, LABELS).item() == pytest.approx(sum(reference.trimmed(terms, 0.25)), rel=1e-12)


def test_the_sum_leaves_out_the_own_class_unlike_pytorch_metric_learning() -> None:
    theirs = losses.ProxyNCALoss(4, 2, softmax_scale=2).double()
    theirs.proxies.data = torch.tensor(PROXIES, dtype=torch.float64)
    rows = ROWS.tolist()
    with_own = [reference.proxy_nca(rows[i], int(LABELS[i]), PROXIES, 2.0, own_in_sum=True) for i in range(8)]
    assert theirs(ROWS, LABELS).item() == pytest.approx(fmean(with_own))
    loss = with_proxies(scale=2.0)
    ours = [loss(ROWS[i : i + 1], LABELS[i : i + 1]).item() for i in range(8)]
    assert [reference.log_one_plus_exp(value) for value in ours] == pytest.approx(with_own)
    assert min(ours) < 0


def test_the_proxies_learn() -> None:
    loss = trivet.ProxyNCALoss(3, 2, generator=torch.Generator().manual_seed(0))
    (group,) = loss.optimizer_groups()
    assert group["params"][0] is loss.proxies
    assert (group["lr"], group["weight_decay"]) == (1e-2, 0.0)
    optimizer = torch.optim.Adam(loss.optimizer_groups())
    directions = torch.tensor([[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]])
    for _ in range(300):
        optimizer.zero_grad()
        loss(directions, torch.tensor([2, 0, 1])).backward()
        optimizer.step()
    nearest = torch.cdist(directions, torch.nn.functional.normalize(loss.proxies.detach(), dim=1)).argmin(dim=1)
    assert nearest.tolist() == [2, 0, 1]


def test_initial_proxies_repeat() -> None:
    first, second = (trivet.ProxyNCALoss(5, 7, generator=torch.Generator().manual_seed(3)).proxies for _ in range(2))
    other = trivet.ProxyNCALoss(5, 7, generator=torch.Generator().manual_seed(4)).proxies
    assert first.shape == (5, 7)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    saved = copy.deepcopy(trivet.ProxyNCALoss(5, 7).state_dict())
    resumed = trivet.ProxyNCALoss(5, 7)
    resumed.load_state_dict(saved)
    assert torch.equal(resumed.proxies, saved["proxies"])


def test_ids_change_nothing() -> None:
    loss = with_proxies()
    assert loss(ROWS, LABELS, ids=torch.zeros(8, dtype=torch.int64)).item() == loss(ROWS, LABELS).item()


@pytest.mark.parametrize(
    "given",
    [
        {"references": ROWS, "reference_labels": LABELS},
        {"reference_labels": LABELS},
        {"ids": LABELS, "reference_ids": LABELS},
        {"indices": (LABELS, LABELS, LABELS)},
    ],
)
def test_references_are_refused(given: dict[str, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="references and indices must be left out"):
        with_proxies()(ROWS, LABELS, **given)


@pytest.mark.parametrize("labels", [[-1, 0], [0, 4]])
def test_labels_without_a_proxy(labels: list[int]) -> None:
    with pytest.raises(
        ValueError, match=rf"labels must lie in \[0, 4\) to have a proxy each: got {labels[0]} to {labels[1]}"
    ):
        with_proxies()(ROWS[:2], torch.tensor(labels))


def test_inputs_and_options_that_cannot_be_used() -> None:
    with pytest.raises(ValueError, match="embeddings must have the dimension of the proxies, 2: got 3"):
        with_proxies()(torch.ones(8, 3), LABELS)
    with pytest.raises(ValueError, match=r"embeddings must have shape \(N, d\)"):
        with_proxies()(torch.ones(8), LABELS)
    for options, said in [
        ({"num_classes": 1}, "num_classes must be at least 2: got 1"),
        ({"embedding_dim": 0}, "embedding_dim must be at least 1"),
        ({"scale": 0.0}, "scale must be a finite number above 0"),
        ({"proxy_learning_rate": -1.0}, "proxy_learning_rate must be a finite number of at least 0"),
    ]:
        with pytest.raises(ValueError, match=said):
            trivet.ProxyNCALoss(**{"num_classes": 3, "embedding_dim": 2, **options})
