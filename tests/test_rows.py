"""The engine: any block size, references, item ids, precision, degenerate batches, repeatability."""

from __future__ import annotations

import math

import pytest
import torch
from tests import reference
from torch import Tensor

import trivet
from trivet.losses.engine import formula_block
from trivet.mining import distance_block

POSITIVES = ["easy", "hard", "all"]
NEGATIVES = ["hard", "semihard-hardest", "all"]
UNIT = torch.tensor(reference.V8)


def tensors(rows: list[list[float]], labels: list[int]) -> tuple[Tensor, Tensor]:
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, 2), torch.tensor(labels, dtype=torch.int64)


@pytest.mark.parametrize("block_size", [None, 4])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("learned", [False, True])
def test_the_batch_stands_before_the_references(learned: bool, named: bool, block_size: int | None) -> None:
    """As the two joined by hand, where rows of one item carry one id."""
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(9, 3, dtype=torch.float64, generator=generator).requires_grad_()
    past = torch.randn(7, 3, dtype=torch.float64, generator=generator).requires_grad_(learned)
    labels, past_labels = torch.arange(9) % 3, torch.arange(7) % 3
    ids, past_ids = torch.arange(9), torch.tensor([3, 12, 13, 14, 8, 8, 15]) if named else torch.arange(9, 16)
    inputs = (rows, past) if learned else (rows,)
    for loss in (
        trivet.TripletLoss(positives="easy", negatives="hard", block_size=block_size),
        trivet.TripletLoss(positives="all", negatives="all", variant="pn", margin=5.0, block_size=block_size),
        trivet.NPairLoss(positives="all", block_size=block_size),
        trivet.MarginLoss(positives="all", negatives="all", normalize=True, block_size=block_size).double(),
    ):
        joined = {"references": torch.cat([rows, past]), "reference_labels": torch.cat([labels, past_labels])}
        expected = loss(rows, labels, ids=ids, reference_ids=torch.cat([ids, past_ids]), **joined)
        both = {"ids": ids, "reference_ids": past_ids} if named else {}
        found = loss(rows, labels, references=past, reference_labels=past_labels, with_batch=True, **both)
        assert found.item() == pytest.approx(expected.item(), rel=1e-12)
        slopes = torch.autograd.grad(expected, inputs)
        torch.testing.assert_close(
            torch.autograd.grad(found, inputs, retain_graph=True), slopes, rtol=1e-10, atol=1e-12
        )
        assert all(slope.any() for slope in slopes)
        if block_size is None:
            twice = torch.autograd.grad(found, inputs, create_graph=True)
            torch.testing.assert_close(twice, slopes, rtol=1e-10, atol=1e-12)
            assert all(slope.requires_grad for slope in twice)


@pytest.mark.parametrize(("per_class", "spread"), [(4, 1e-3), (4, 1e-4), (80, 1e-4)])
def test_choices_and_gradients_survive_class_collapse(per_class: int, spread: float) -> None:
    """Classes far apart, each collapsed to a blob: what matters inside a blob is far below the matrix's precision."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(4, 64, generator=generator), dim=1)
    embeddings = centres.repeat(per_class, 1) + spread * torch.randn(4 * per_class, 64, generator=generator) / 8
    labels = torch.arange(4).repeat(per_class)
    exact = torch.cdist(embeddings.double(), embeddings.double(), compute_mode="donot_use_mm_for_euclid_dist")
    others = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool)
    mined = trivet.mine(embeddings, labels, positives="easy", negatives="random")
    assert mined.positive.tolist() == exact.masked_fill(~others, torch.inf).argmin(dim=1).tolist()

    for loss in (
        trivet.ContrastiveLoss(margin=0.01, distance="euclidean"),
        trivet.TripletLoss(positives="all", negatives="hard", distance="euclidean", margin=2.0, reduction="sum"),
    ):
        found, expected = (
            torch.autograd.grad(loss(leaf := embeddings.to(dtype).requires_grad_(), labels), leaf)[0].double()
            for dtype in (torch.float32, torch.float64)
        )
        assert (found - expected).norm() / expected.norm() < 1e-3


@pytest.mark.parametrize("others", [6, 120])  # by products with all references; by differences taken again
@pytest.mark.parametrize("against", ["itself", "past", "both"])
@pytest.mark.parametrize("distance", ["squared_euclidean", "euclidean"])
def test_long_lists_have_the_gradient_of_differences(
    others: int, against: str, distance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In many dimensions and far from the origin; some rows are equal, and some nearly."""
    for module in (distance_block, formula_block):
        monkeypatch.setattr(module, "DIFFERENCES_AT_ONCE", 10_000)  # those of two anchors
    generator = torch.Generator().manual_seed(0)
    rows = 50 + torch.randn(9 + others, 2100, dtype=torch.float64, generator=generator)
    labels = torch.tensor([0] * 3 + [1] * 3 + [2] * 3 + list(range(3, 3 + others)))
    rows[1] = rows[0] + 1e-7
    rows[4] = rows[3]
    rows[9] = rows[8] + 1e-7
    anchors, past = (rows[:9] if against != "itself" else rows).clone().requires_grad_(), {}
    if against == "past":
        past = {"references": rows, "reference_labels": labels}
    if against == "both":
        past = {"references": rows[9:], "reference_labels": labels[9:], "with_batch": True}
    loss = trivet.TripletLoss(margin=80.0, distance=distance, positives="all", negatives="hard", reduction="sum")
    own = labels[: len(anchors)]
    (gradient,) = torch.autograd.grad(loss(anchors, own, **past), anchors)

    leaf = anchors.detach().clone().requires_grad_()
    columns = rows if against == "past" else torch.cat([leaf, rows[len(leaf) :]])
    terms = []
    for a, label in enumerate(own.tolist()):
        squared = (columns - leaf[a]).square().sum(dim=1)
        apart = squared if distance == "squared_euclidean" else squared.clamp_min(1e-300).sqrt()
        nearest = squared.masked_fill(labels == label, torch.inf).argmin()
        for p in (labels == label).nonzero().flatten().tolist():
            if p != a or against == "past":
                terms.append((apart[p] - apart[nearest] + 80).relu())
    (expected,) = torch.autograd.grad(torch.stack(terms).sum(), leaf)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)


def test_a_row_of_zeros_has_no_gradient_when_normalized() -> None:
    embeddings = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    trivet.TripletLoss(positives="easy", negatives="hard", normalize=True)(
        embeddings, torch.tensor([0, 0, 1])
    ).backward()
    assert embeddings.grad.abs().max() < 10
    assert embeddings.grad[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: trivet.TripletLoss(negatives="seminard"), "did you mean 'semihard'?"),
        (lambda: trivet.TripletLoss(positives="eazy"), "did you mean 'easy'?"),
        (lambda: trivet.TripletLoss(distance="euclid"), "did you mean 'euclidean'?"),
        (lambda: trivet.TripletLoss(reduction="none"), "Allowed: max, mean, mean-active, objective, sum"),
        (lambda: trivet.TripletLoss(margin=5.0, normalize=True), "no embedding can satisfy"),
        (lambda: trivet.TripletLoss(reduction="objective"), "positives='all' and negatives='all'"),
        (lambda: trivet.TripletLoss(trim=1.0), r"trim must lie in \[0, 1\)"),
        (lambda: trivet.TripletLoss(block_size=0), "block_size must be at least 1"),
        (lambda: trivet.TripletLoss(margin=4.5, negatives="distance-weighted"), "no embedding can satisfy"),
        (lambda: trivet.ContrastiveLoss(margin=9.0, normalize=True), "no embedding can satisfy"),
        (lambda: trivet.MarginLoss(margin=2.5), "margin must not exceed 2"),
        (lambda: trivet.MarginLoss(beta=2.5), "beta must not exceed 2"),
        (lambda: trivet.MultiSimilarityLoss(threshold=math.nan), "threshold must be finite"),
        (lambda: trivet.SemihardNegative(margin=-1.0), "margin must be a finite number of at least 0"),
        (lambda: trivet.SemihardNegative(otherwise="drp"), "did you mean 'drop'?"),
        (lambda: trivet.DistanceWeighted(cap=0.0), "cap must be above 0"),
        (lambda: trivet.DistanceWeighted(cutoff=0.0), r"cutoff must lie in \(0, 2\]"),
        (lambda: trivet.DistanceWeighted(upper_cutoff=-1.0), "upper_cutoff must be above 0"),
        (lambda: trivet.MultiSimilarityPositives(epsilon=-0.1), "epsilon must be a finite number"),
        (lambda: trivet.MultiSimilarityNegatives(reference="chosn"), "did you mean 'chosen'?"),
        (lambda: trivet.mine(UNIT, torch.arange(8), distance="euclid"), "did you mean 'euclidean'?"),
        (lambda: trivet.mine(UNIT, torch.arange(8), margin=-1.0), "margin must be a finite number"),
        (lambda: trivet.MarginLoss(reduction="objective"), "positives='all' and negatives='all'"),
        (lambda: trivet.NPairLoss(negatives="hard"), "negatives must be a set for each anchor"),
        (lambda: trivet.NCATripletLoss(reduction="max"), r"reduction = 'max' is not known; .* Allowed: mean, sum"),
        (lambda: trivet.TripletLoss(soft=True, reduction="mean-active"), "'mean', 'max' or 'sum' with soft = True"),
        (lambda: trivet.TripletLoss(soft_margin=0.7), r"soft_margin needs soft = True: got 0\.7 without"),
        (lambda: trivet.UnhingedMarginLoss(beta=2.5), "beta must not exceed 2"),
        (lambda: trivet.ArcFaceLoss(3, 2, margin=28.6), r"margin must lie in \[0, pi / 2\], an angle in radians"),
        (lambda: trivet.ArcFaceLoss(3, 2, sub_centers=0), "sub_centers must be a whole number of at least 1"),
        (lambda: trivet.ProxyNCALoss(1, 2), "num_classes must be at least 2: got 1"),
        (lambda: trivet.ProxyNCALoss(2, 0), "embedding_dim must be at least 1"),
    ],
)
def test_an_option_that_cannot_be_used(make: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_inputs_that_do_not_fit_together() -> None:
    loss, embeddings, labels = trivet.TripletLoss(), torch.ones(2, 2), torch.tensor([0, 1])
    for arguments, said in [
        ({"references": embeddings}, "got no reference_labels"),
        ({"references": torch.ones(2, 3), "reference_labels": labels}, "got 3 and 2"),
        ({"references": embeddings, "reference_labels": labels, "ids": labels}, "got no reference_ids"),
        ({"reference_ids": labels}, "reference_ids need references"),
    ]:
        with pytest.raises(ValueError, match=said):
            loss(embeddings, labels, **arguments)
    with pytest.raises(ValueError, match=r"got norms from 1.41 to 1.41"):
        trivet.TripletLoss(negatives="distance-weighted")(embeddings, labels)
    with pytest.raises(ValueError, match=r"labels must lie in \[0, 2\)"):
        trivet.MarginLoss(num_classes=2)(embeddings, torch.tensor([0, 2]))


def test_sums_over_all_triplets_keep_their_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(600, 4, generator=generator) * 30
    labels = torch.arange(600) % 20
    loss = trivet.TripletLoss(positives="all", negatives="all", distance="euclidean", margin=0.01)
    found, expected = loss(embeddings, labels).item(), loss(embeddings.double(), labels).item()
    assert found == pytest.approx(expected, rel=2e-6)


def test_step_record() -> None:
    embeddings = torch.tensor([[0.0], [1.0], [3.0], [10.0], [20.0]])
    labels = torch.tensor([0, 0, 1, 1, 2])
    loss = trivet.TripletLoss(positives="easy", negatives="hard", distance="euclidean", margin=0.5)
    loss(embeddings, labels)
    # (0, 1, 2): 1 - 3, (1, 0, 2): 1 - 2, (2, 3, 1): 7 - 2, (3, 2, 1): 7 - 9; item 4 has no positive
    assert loss.last.anchors == 5
    assert loss.last.dropped == {"no positive": 1, "no negative": 0, "no match": 0}
    assert loss.last.terms == 4
    assert loss.last.active_fraction == 1 / 4
    assert loss.last.hard_fraction == 1 / 4
    pairs = trivet.MarginLoss(
        distance="euclidean", normalize=False, positives="easy", negatives="hard", beta=4.0, margin=2.0
    )
    pairs(embeddings, labels)
    # beta 4, margin 2: pulls above 2 are active (7, 7), pushes below 6 (3, 2, 2); two parts for each of four tuples
    assert pairs.last.active_fraction == 5 / 8
    listed = trivet.TripletLoss(positives="easy", negatives="all")
    listed(embeddings, torch.tensor([0, 0, 1, 2, 3]))
    assert listed.last.dropped == {"no positive": 3, "no negative": 0, "no match": 0}
    assert loss.last.mean_to_positive == pytest.approx((1 + 1 + 7 + 7) / 4)
    assert loss.last.mean_to_negative == pytest.approx((3 + 2 + 2 + 9) / 4)
    dropping = trivet.TripletLoss(
        positives="easy", negatives=trivet.SemihardNegative(otherwise="drop"), distance="euclidean", margin=0.5
    )
    dropping(embeddings, labels)
    assert dropping.last.dropped == {"no positive": 1, "no negative": 0, "no match": 4}
    assert dropping.last.terms == 0
    assert math.isnan(dropping.last.mean_to_positive)


def test_beta_has_its_own_learning_rate() -> None:
    loss = trivet.MarginLoss(num_classes=3, beta_learning_rate=0.5)
    (group,) = loss.optimizer_groups()
    assert group["params"][0] is loss.beta
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.0)
    fixed = trivet.MarginLoss(learn_beta=False)
    assert fixed.optimizer_groups() == []
    assert fixed.state_dict()["beta"].item() == pytest.approx(1.2)


@pytest.mark.parametrize("per", ["num_classes", "num_samples"])
def test_the_penalty_on_beta_is_of_the_classes_or_samples_of_the_batch(per: str) -> None:
    """Nothing else holds the beta of a class that is not there against a penalty."""
    labels, ids = torch.tensor([3, 3, 1, 1]), torch.tensor([1, 3, 1, 3])
    found = []
    for penalty in (0.0, 0.5):
        loss = trivet.MarginLoss(beta_penalty=penalty, positives="easy", negatives="hard", **{per: 5})
        loss.beta.data = torch.tensor([0.5, 0.75, 1.0, 1.25, 1.5])
        value = loss(UNIT[:4], labels, ids=ids)
        found.append((value.detach(), *torch.autograd.grad(value, [loss.beta])))
    (plain, slope), (penalised, other) = found
    assert (penalised - plain).item() == pytest.approx(0.5 * (0.75 + 1.25))
    assert (other - slope).tolist() == pytest.approx([0.0, 0.5, 0.0, 0.5, 0.0])
