"""The skew of picked negatives, against its definition in plain Python and a reference on synthetic classes."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import trivet
from trivet import mine
from trivet.label_noise import PickCounts, count_picks, estimate_skew, loss_picks, unpicked
from trivet.label_noise.skew import DISTANCE_BINS, RANK_BINS
from trivet.runtime.json_numbers import as_json

Array = np.ndarray[Any, np.dtype[Any]]
BETA, MARGIN = 1.4, 0.2


def definition(batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The estimates over picks, one at a time: each batch has points, labels, truth, picks (a, p, n, active)."""
    bins, share, wrong, wrong_share, active, active_wrong, count = [0.0] * 10, [0.0] * 10, 0.0, 0.0, 0, 0, 0
    tables: list[list[float]] = [[0.0] * 20 for _ in range(4)]
    for batch in batches:
        points, labels, truth = batch["points"], batch["labels"], batch["truth"]
        anchors = set()
        for a, p, n, used in batch["picks"]:
            others = [k for k in range(len(points)) if labels[k] != labels[a]]
            others.sort(key=lambda k: (math.dist(points[a], points[k]), k))
            m = len(others)
            bins[10 * others.index(n) // m] += 1
            for b in range(10):
                share[b] += sum(10 * r // m == b for r in range(m)) / m
            wrong += truth[n] == truth[a]
            wrong_share += sum(truth[k] == truth[a] for k in others) / m
            count, active = count + 1, active + used
            active_wrong += used and truth[n] == truth[a]
            for row, k, has_loss in (
                (0, p, True),
                (1, p, math.dist(points[a], points[p]) > BETA - MARGIN),
                (3, n, math.dist(points[a], points[n]) < BETA + MARGIN),
            ):
                tables[row][min(19, int(10 * math.dist(points[a], points[k])))] += has_loss
            anchors.add(a)
        for a in anchors:
            for k in range(len(points)):
                if labels[k] != labels[a]:
                    tables[2][min(19, int(10 * math.dist(points[a], points[k])))] += 1
    rho = [x / y for x, y in zip(bins, share, strict=True) if y]

    def relative(part: list[float], whole: list[float]) -> list[float]:
        return [(x / sum(part)) / (y / sum(whole)) for x, y in zip(part, whole, strict=True) if y >= 50 and x >= 1]

    upper, lower = max(relative(tables[1], tables[0])), min(relative(tables[3], tables[2]))
    return {
        "picks": count,
        "active": active,
        "relative": rho,
        "skew": max(rho),
        "easy_skew": 1 / min(rho) if min(rho) else math.inf,
        "wrong_skew": (wrong / count) / (wrong_share / count),
        "active_wrong_skew": (active_wrong / active) / (wrong_share / count),
        "positive_skew": upper,
        "negative_skew": lower,
        "gamma": min(1, lower / upper),
    }


def some_batches(count: int, *, sizes: Sequence[int], seed: int) -> list[dict[str, Any]]:
    """Batches on the unit sphere, with classes of unequal size, a few wrong labels, and equal points."""
    draw = random.Random(seed)
    batches = []
    for _ in range(count):
        truth = [c for c, size in enumerate(sizes) for _ in range(size)]
        raw = [[draw.gauss(0.6 * (c == k), 1) for k in range(len(sizes))] for c in truth]
        raw[1] = raw[-1]
        points = [[x / math.hypot(*row) for x in row] for row in raw]
        labels = [draw.randrange(len(sizes)) if draw.random() < 0.4 else c for c in truth]
        picks = []
        for a, own in enumerate(labels):
            positives = [k for k, label in enumerate(labels) if label == own and k != a]
            negatives = [k for k, label in enumerate(labels) if label != own]
            nearest = sorted(negatives, key=lambda k: math.dist(points[a], points[k]))
            picks += [(a, p, draw.choice(nearest[:12]), draw.random() < 0.6) for p in positives]
        batches.append({"points": points, "labels": labels, "truth": truth, "picks": picks})
    return batches


def counted(batch: dict[str, Any], **options: Any) -> PickCounts:
    columns = [torch.tensor(column) for column in zip(*batch["picks"], strict=True)]
    return count_picks(
        torch.tensor(batch["points"], dtype=torch.float64),
        torch.tensor(batch["labels"]),
        tuple(columns[:3]),
        active=columns[3],
        true_labels=torch.tensor(batch["truth"]),
        beta=BETA,
        margin=MARGIN,
        **options,
    )


def test_equals_the_definition() -> None:
    # 23 items: anchors have 14 to 20 negatives, which ten bins do not divide evenly.
    batches = some_batches(12, sizes=(9, 7, 5, 2), seed=3)
    expected, found = definition(batches), estimate_skew([counted(batch) for batch in batches])
    assert (found.picks, found.active) == (expected["picks"], expected["active"])
    assert found.relative == pytest.approx(expected["relative"], rel=1e-12)
    for name in ("skew", "easy_skew", "wrong_skew", "active_wrong_skew", "positive_skew", "negative_skew", "gamma"):
        assert getattr(found, name).value == pytest.approx(expected[name], rel=1e-9), name


def test_fewer_negatives_than_bins_leave_bins_without_meaning() -> None:
    batch = some_batches(1, sizes=(3, 3), seed=0)[0]
    batch |= {"labels": [0, 0, 0, 1, 1, 1], "picks": [(0, 1, 3, True)]}
    found = estimate_skew([counted(batch)])
    assert [math.isnan(one) for one in found.relative] == [b not in (0, 3, 6) for b in range(10)]
    assert found.skew is not None
    assert found.skew.value == pytest.approx(3)


class Elsewhere(torch.Tensor):
    """A tensor that meets no other, as one on a GPU, but where it was brought here."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all(isinstance(x, cls) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)):
            raise RuntimeError("tensors on two devices")
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result.as_subclass(torch.Tensor) if func is torch.Tensor.cpu else result


def test_tensors_on_a_device_are_brought_back() -> None:
    one = some_batches(1, sizes=(8, 12), seed=3)[0]
    anchor, positive, negative, active = (torch.tensor(column) for column in zip(*one["picks"], strict=True))
    given = [torch.tensor(one["points"], dtype=torch.float64), torch.tensor(one["labels"])]
    given += [anchor, positive, negative, active, torch.tensor(one["truth"])]

    def counts(points: torch.Tensor, labels: torch.Tensor, *rest: torch.Tensor) -> PickCounts:
        options = {"active": rest[3], "true_labels": rest[4], "beta": BETA, "margin": MARGIN}
        return count_picks(points, labels, rest[:3], **options)

    same(counts(*(x.as_subclass(Elsewhere) for x in given)), counts(*given))


def batch(seed: int = 0, *, count: int = 24) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.nn.functional.normalize(torch.randn(count, 4, dtype=torch.float64, generator=generator))
    labels = torch.arange(count) // 4
    return rows, labels, labels.roll(2)


def picked(loss: trivet.EmbeddingLoss, truth: torch.Tensor | None = None) -> PickCounts:
    """The picks of a loss in the batch."""
    rows, labels, _ = batch()
    loss(rows, labels)
    return loss_picks(loss, rows, labels, true_labels=truth)


@pytest.mark.parametrize("positives", ["easy", "hard", "random", "all"])
@pytest.mark.parametrize("negatives", ["hard", "random", "semihard", "violating", "semihard-hardest", "all-semihard"])
def test_a_loss_picks_what_it_was_evaluated_on(positives: Any, negatives: Any) -> None:
    rows, labels, truth = batch()
    loss = trivet.TripletLoss(
        positives=positives, negatives=negatives, margin=0.3, generator=torch.Generator().manual_seed(5)
    )
    value = loss(rows, labels)
    key = loss.key.clone()
    found = loss_picks(loss, rows, labels, true_labels=truth)
    assert torch.equal(loss.key, key)
    draws = torch.Generator().manual_seed(5)  # those of the first evaluation
    picks = mine(rows, labels, positives=positives, negatives=negatives, margin=0.3, generator=draws)
    far, near = ((rows[picks.anchor] - rows[other]).square().sum(dim=1) for other in (picks.positive, picks.negative))
    terms = torch.relu(far - near + 0.3)
    assert terms.mean().item() == pytest.approx(value.item(), rel=1e-9)
    expected = count_picks(rows, labels, picks, active=terms > 0, true_labels=truth)
    same(found, expected)


def same(found: PickCounts, expected: PickCounts) -> None:
    for name, value in vars(expected).items():
        got = getattr(found, name)
        assert (got is None) == (value is None), name
        assert got is None or got == pytest.approx(value), name


def test_of_all_negatives_the_open_hinges_are_picked() -> None:
    rows, labels, truth = batch()
    found = picked(trivet.TripletLoss(positives="all", negatives="all", margin=0.3), truth)
    picks = mine(rows, labels, positives="all", negatives="all")
    far, near = ((rows[picks.anchor] - rows[other]).square().sum(dim=1) for other in (picks.positive, picks.negative))
    used = far - near + 0.3 > 0
    assert 0 < used.sum() < len(used)
    expected = count_picks(rows, labels, tuple(column[used] for column in picks), true_labels=truth)
    same(found, expected)


def test_an_unhinged_loss_picks_all_alike() -> None:
    found = estimate_skew([picked(trivet.UnhingedTripletLoss())])
    assert found.picks == 24 * 3 * 20
    assert found.relative == pytest.approx([1] * RANK_BINS)


@pytest.mark.parametrize(
    ("positives", "negatives"),
    [("all", "hard"), ("random", "distance-weighted"), ("all", "all")],
)
def test_the_margin_loss_is_counted_by_distance(positives: Any, negatives: Any) -> None:
    rows, labels, _ = batch()
    options = {"positives": positives, "negatives": negatives, "margin": 0.2}
    found = picked(trivet.MarginLoss(beta=1.1, generator=torch.Generator().manual_seed(2), **options)).distances
    picks = mine(rows, labels, distance="euclidean", generator=torch.Generator().manual_seed(2), **options)
    assert found is not None
    pairs, others = (list(zip(picks.anchor.tolist(), x.tolist(), strict=True)) for x in picks[1:])
    if negatives == "all":  # each pair once
        pairs, others = [*set(pairs)], [*set(others)]
    far, near = ([float((rows[a] - rows[b]).norm()) for a, b in part] for part in (pairs, others))
    assert found[0] == pytest.approx(histogram(far))
    assert found[1] == pytest.approx(histogram([d for d in far if d > 1.1 - 0.2]))
    assert found[3] == pytest.approx(histogram([d for d in near if d < 1.1 + 0.2]))
    assert found[2].sum() == 24 * 20


def histogram(distances: list[float]) -> Array:
    return np.histogram(distances, bins=DISTANCE_BINS, range=(0, 2))[0].astype(float)


def test_what_trimming_or_the_maximum_leaves_out_is_no_pick() -> None:
    options: dict[str, Any] = {"positives": "all", "negatives": "hard", "margin": 0.3}
    losses = trivet.TripletLoss(trim=0.25, **options), trivet.TripletLoss(reduction="max", **options)
    assert [estimate_skew([picked(loss)]).picks for loss in losses] == [54, 1]


def test_disjoint_triplets_are_picked_once() -> None:
    loss = trivet.TripletLoss(positives="easy", negatives="hard", disjoint=True)
    found = estimate_skew([picked(loss)])
    assert loss.last is not None
    assert found.picks == loss.last.terms


@pytest.mark.parametrize(
    "loss",
    [
        trivet.ProxyNCALoss(6, 4),
        trivet.NPairLoss(),
        trivet.MultiSimilarityLoss(),
        trivet.TripletLoss(positives="all", negatives="all", soft=True),
        trivet.TripletLoss(positives="all", negatives="all", trim=0.1),
        trivet.MarginLoss(num_samples=24),
        trivet.ContrastiveLoss(margin=1.0, negatives="hard", trim=0.1),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_a_loss_that_picks_no_negatives_says_why(loss: trivet.EmbeddingLoss) -> None:
    rows, labels, _ = batch()
    reason = unpicked(loss)
    assert reason is not None
    with pytest.raises(ValueError, match="use another strategy") as error:
        loss_picks(loss, rows, labels)
    assert reason in str(error.value)


def test_counts_survive_json_and_the_interval_is_repeatable() -> None:
    batches = [counted(batch) for batch in some_batches(6, sizes=(9, 7, 5), seed=1)]
    again = [PickCounts.from_json(json.loads(json.dumps(as_json(one)))) for one in batches]
    found = estimate_skew(batches)
    assert estimate_skew(again) == found
    assert estimate_skew(batches, seed=1) != found
    assert found.skew is not None
    assert found.skew.interval[0] < found.skew.value < found.skew.interval[1]
    without = estimate_skew(
        [counted(batch | {"truth": batch["labels"]}) for batch in some_batches(1, sizes=(9, 7), seed=1)]
    )
    assert without.wrong_skew is without.active_wrong_skew is None
    json.dumps(as_json(found), allow_nan=False)


def test_what_cannot_be_counted_is_said() -> None:
    rows, labels, _ = batch()
    with pytest.raises(ValueError, match="at least one batch"):
        estimate_skew([])
    with pytest.raises(ValueError, match="another observed label"):
        count_picks(rows, labels, (torch.tensor([0]), torch.tensor([1]), torch.tensor([2])))
    with pytest.raises(ValueError, match="one entry per pick"):
        count_picks(rows, labels, (torch.tensor([0]), torch.tensor([1, 2]), torch.tensor([8])))
