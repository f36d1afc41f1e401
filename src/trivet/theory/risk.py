"""Expected triplet and margin losses when labels are drawn at random, and the embeddings that minimise them.

The label model: t classes of s samples each, n = t s. Labels Y_1 .. Y_n are independent; a sample shows the label of
its own class with probability p and each of the others with probability q = (1 - p) / (t - 1). D is the squared
Euclidean distance. Probabilities are rows of an `(n, t)` tensor, so other models of independent labels work as well.

Source:
    Levi, Xiao, Wang, Darrell, "Rethinking preventing class-collapsing in metric learning with margin-based losses",
    2021, sections 4.1 and 4.2 and appendices A and B, with their slips mended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import relu

from trivet.arguments import check_at_least, check_count, check_name

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SelfTerms = Literal["exact", "excluded", "independent"]
NearerOrder = Literal["worst", "same-class"]
TheoryPositives = Literal["easy", "all"]


# The label model


def label_probabilities(num_classes: int, samples_per_class: int, p: float) -> Tensor:
    """P(Y_i = c) as `(n, t)` float64, samples sorted by class.

    Args:
        num_classes: t >= 2.
        samples_per_class: s >= 1.
        p: in [0, 1]; 1 gives the labels without noise. The paper takes 1/2 < p < 1.

    Raises:
        ValueError: if one of them is out of range.

    Source:
        Levi et al. 2021, section 4.2.

    Example:
        >>> label_probabilities(2, 2, 0.75)[:, 0].tolist()
        [0.75, 0.75, 0.25, 0.25]
    """
    num_classes, other = _other_label(num_classes, p)
    own = torch.arange(num_classes).repeat_interleave(check_count(samples_per_class, name="samples_per_class"))
    probabilities = torch.full((len(own), num_classes), float(other), dtype=torch.float64)
    probabilities[torch.arange(len(own)), own] = p
    return probabilities


def match_probabilities(probabilities: Tensor) -> Tensor:
    """P(Y_i = Y_j) as `(n, n)`; 1 on the diagonal, where both are one and the same label.

    Between two samples of a class m_s = p^2 + (t - 1) q^2, of two classes m_d = 2 p q + (t - 2) q^2, and
    m_s - m_d = (p - q)^2.

    Raises:
        ValueError: if `probabilities` is not `(n, t)` with rows of sum 1.

    Source:
        Levi et al. 2021, section 4.2; the proof of theorem 2 has p and 1 - p in their place, which is wrong.
    """
    _check_probabilities(probabilities)
    return (probabilities @ probabilities.T).fill_diagonal_(1)


def triplet_weights(probabilities: Tensor, *, self_terms: SelfTerms = "exact") -> Tensor:
    """W_ijk = P(Y_i = Y_j != Y_k) as `(n, n, n)`.

    For distinct i, j, k it is P(Y_i = Y_j) - P(Y_i = Y_j = Y_k), so W_ijk - W_ikj = P(Y_i = Y_j) - P(Y_i = Y_k).

    Args:
        probabilities: `(n, t)`.
        self_terms: what coinciding indices weigh: "exact", the true probabilities (j = i is sure to match, k = i and
            k = j weigh nothing); "excluded", nothing; "independent", as if the same sample came with a fresh label
            each time, which is how the proof of theorem 1 factorises.

    Raises:
        ValueError: if `probabilities` is not `(n, t)` with rows of sum 1, or `self_terms` is unknown.

    Source:
        Levi et al. 2021, section 4.2 and proof of theorem 1.
    """
    check_name(self_terms, get_args(SelfTerms), name="self_terms")
    _check_probabilities(probabilities)
    pair = probabilities @ probabilities.T
    triple = torch.einsum("ic,jc,kc->ijk", probabilities, probabilities, probabilities)
    weights = pair[:, :, None] - triple
    if self_terms == "independent":
        return weights
    same = torch.eye(len(probabilities), dtype=torch.bool)
    weights = weights.masked_fill(same[:, :, None] | same[:, None, :] | same[None], 0)
    if self_terms == "exact":
        weights[same] = 1 - match_probabilities(probabilities)
    return weights


def expected_triplet_loss(
    distances: Tensor, probabilities: Tensor, *, margin: float, self_terms: SelfTerms = "exact"
) -> Tensor:
    """(1 / n^3) sum_ijk W_ijk max(0, D_ij - D_ik + margin), differentiable.

    Args:
        distances: D, `(..., n, n)`; leading dimensions are kept.
        probabilities: `(n, t)`, of the labels.
        margin: alpha > 0, in the unit of D.
        self_terms: see `triplet_weights`.

    Returns:
        `(...)`. Holds n^3 numbers for each.

    Raises:
        ValueError: if shapes disagree, the margin is not positive, or `self_terms` is unknown.

    Source:
        Levi et al. 2021, section 4.2, E O_trip.
    """
    weights = triplet_weights(probabilities, self_terms=self_terms)
    _check_distances(distances, len(probabilities))
    _check_positive(margin, name="margin")
    return _weighted_triplets(distances, weights, margin)


def _weighted_triplets(distances: Tensor, weights: Tensor, margin: float) -> Tensor:
    hinge = relu(distances[..., :, None] - distances[..., None, :] + margin)
    return (weights * hinge).sum((-3, -2, -1)) / len(weights) ** 3


def expected_margin_loss(
    distances: Tensor,
    beta: Tensor | float,
    probabilities: Tensor,
    *,
    margin: float,
    self_terms: SelfTerms = "exact",
) -> Tensor:
    """(1 / n^2) sum_ij P(Y_i = Y_j) (D_ij - b_i + margin)_+ + P(Y_i != Y_j) (b_i - D_ij + margin)_+, differentiable.

    Args:
        distances: D, `(..., n, n)`; leading dimensions are kept.
        beta: b, one number or `(..., n)`, one per anchor.
        probabilities: `(n, t)`, of the labels.
        margin: alpha > 0, in the unit of D.
        self_terms: of the pairs i = j: "exact", sure to match, (margin - b_i)_+; "excluded"; "independent", as if the
            sample came with two labels.

    Returns:
        `(...)`.

    Raises:
        ValueError: if shapes disagree, the margin is not positive, or `self_terms` is unknown.

    Source:
        Levi et al. 2021, section 4.2, E O_margin.
    """
    match, differ = _pair_weights(probabilities, self_terms)
    _check_distances(distances, len(probabilities))
    _check_positive(margin, name="margin")
    bounds = torch.as_tensor(beta, dtype=torch.float64)
    if bounds.ndim and bounds.shape[-1] != len(probabilities):
        raise ValueError(
            f"beta must be one number or one per sample: got shape {tuple(bounds.shape)} for "
            f"{len(probabilities)} samples; give (..., n)."
        )
    return _weighted_pairs(distances, bounds, match, differ, margin)


def _pair_weights(probabilities: Tensor, self_terms: SelfTerms) -> tuple[Tensor, Tensor]:
    """Weights of a positive and of a negative pair, `(n, n)` each."""
    check_name(self_terms, get_args(SelfTerms), name="self_terms")
    match = match_probabilities(probabilities)
    if self_terms == "independent":
        match = probabilities @ probabilities.T
    differ = 1 - match
    return (match.fill_diagonal_(0) if self_terms == "excluded" else match), differ


def _weighted_pairs(distances: Tensor, bounds: Tensor, match: Tensor, differ: Tensor, margin: float) -> Tensor:
    gap = distances - bounds[..., None]
    return (match * relu(gap + margin) + differ * relu(margin - gap)).sum((-2, -1)) / len(match) ** 2


# What minimises them


def opposed_hinges(differences: Floats, pull: float, push: float, *, margin: float) -> Floats:
    """pull (u + margin)_+ + push (margin - u)_+ for each u; see `opposed_hinges_minimum`.

    Args:
        differences: u, any shape; the result has it too.
        pull, push: weights >= 0.
        margin: alpha > 0, in the unit of u.

    Raises:
        ValueError: if a weight is negative or the margin is not positive.

    Source:
        Levi et al. 2021, proofs of theorems 1 and 2 and of claims 3 and 4.
    """
    check_at_least(0, pull, name="pull")
    check_at_least(0, push, name="push")
    _check_positive(margin, name="margin")
    return pull * np.maximum(0, differences + margin) + push * np.maximum(0, margin - differences)


class HingeMinimum(NamedTuple):
    """The least value of a sum of two opposed hinges, and the closed interval of u where it is attained."""

    value: float
    low: float
    high: float


def opposed_hinges_minimum(pull: float, push: float, *, margin: float) -> HingeMinimum:
    """Minimum over u of pull (u + margin)_+ + push (margin - u)_+, which is 2 margin min(pull, push).

    It lies at u = -margin if pull > push, at u = margin if pull < push, anywhere between if they are equal; a weight
    of 0 opens the interval on its side. Every per-pair statement about the two losses is a case of it: with
    u = D_ij - D_ik, pull W_ijk and push W_ikj for triplets; with u = D_ij - b_i, pull P(Y_i = Y_j) and push
    P(Y_i != Y_j) for pairs.

    Raises:
        ValueError: if a weight is negative or the margin is not positive.

    Source:
        Levi et al. 2021, proofs of theorems 1 and 2 and of claims 3 and 4.

    Example:
        >>> opposed_hinges_minimum(0.5, 0.25, margin=1.0)
        HingeMinimum(value=0.5, low=-1.0, high=-1.0)
    """
    check_at_least(0, pull, name="pull")
    check_at_least(0, push, name="push")
    _check_positive(margin, name="margin")
    low = margin if pull < push else -margin
    high = -margin if pull > push else margin
    return HingeMinimum(2 * margin * min(pull, push), low if push else -math.inf, high if pull else math.inf)


def triplet_lower_bound(probabilities: Tensor, *, margin: float) -> float:
    """What `expected_triplet_loss` without self terms cannot fall below: (1 / n^3) sum 2 margin min(W_ijk, W_ikj).

    The sum is over anchors i and unordered pairs j, k. It is attained iff for one c >= 0 all distances inside classes
    are c and all others c + margin.

    Raises:
        ValueError: if `probabilities` is not `(n, t)` with rows of sum 1, or the margin is not positive.

    Source:
        Levi et al. 2021, theorem 1.
    """
    weights = triplet_weights(probabilities, self_terms="excluded")
    _check_positive(margin, name="margin")
    return margin * float(torch.minimum(weights, weights.transpose(1, 2)).sum()) / len(weights) ** 3


def margin_lower_bound(probabilities: Tensor, *, margin: float) -> float:
    """What `expected_margin_loss` cannot fall below, for any beta: (1 / n^2) sum_{i != j} 2 margin min(P=, P!=).

    Raises:
        ValueError: if `probabilities` is not `(n, t)` with rows of sum 1, or the margin is not positive.

    Source:
        Levi et al. 2021, theorem 2.
    """
    match = match_probabilities(probabilities)
    _check_positive(margin, name="margin")
    return 2 * margin * float(torch.minimum(match, 1 - match).sum()) / len(match) ** 2  # 0 on the diagonal


def class_distances(num_classes: int, samples_per_class: int, *, within: float, across: float) -> Tensor:
    """D `(n, n)` of samples sorted by class: `within` inside a class, `across` between classes, 0 on the diagonal.

    `within` = 0 is the collapsed map.

    Raises:
        ValueError: if a count is below 1, or a distance is negative or not finite.
    """
    check_count(num_classes, name="num_classes")
    check_count(samples_per_class, name="samples_per_class")
    check_at_least(0, within, name="within")
    check_at_least(0, across, name="across")
    classes = torch.arange(num_classes).repeat_interleave(samples_per_class)
    distances = torch.full((len(classes),) * 2, float(across), dtype=torch.float64)
    return distances.masked_fill(classes[:, None] == classes, float(within)).fill_diagonal_(0)


def affine_dimension(distances: Tensor, *, tolerance: float = 1e-9) -> int:
    """The least m for which points in R^m have these squared distances `(n, n)`.

    Args:
        tolerance: eigenvalues of the centred Gram matrix up to this share of the largest count as 0.

    Raises:
        ValueError: if the shape is not square, or no points have these squared distances.
    """
    if distances.ndim != 2:
        raise ValueError(f"distances must have shape (n, n): got {tuple(distances.shape)}; give one matrix.")
    _check_distances(distances, len(distances))
    centring = torch.eye(len(distances), dtype=torch.float64) - 1 / max(1, len(distances))
    values = torch.linalg.eigvalsh(-0.5 * centring @ distances @ centring)
    limit = tolerance * float(values.abs().max()) if len(values) else 0.0
    if (values < -limit).any():
        raise ValueError(
            f"distances must be squared distances of points: got a Gram matrix with eigenvalue {values.min():.3g}; "
            "square them, or change one."
        )
    return int((values > limit).sum())


def collapse_turn_limit(num_classes: int, p: float) -> float:
    """The class size from which on turning one sample no longer lowers the expected triplet loss of the collapsed map.

    (1 - m_s) / ((t - 1) (p - q)^2). A sample that leaves its class by D = e, at the same distance as before from the
    other classes, changes n^3 times the loss by 2 (s - 1) e ((n - s) (p - q)^2 - (1 - m_s)), with the exact self
    terms. It needs t dimensions. In t to n - 2 of them the collapsed map of smaller classes is not even a local
    minimum.

    Args:
        num_classes: t >= 2.
        p: in [0, 1], other than 1 / t.

    Raises:
        ValueError: if an argument is out of range.

    Source:
        Levi et al. 2021, theorem 1, which has no such limit.

    Example:
        >>> round(collapse_turn_limit(2, 0.6), 9)
        12.0
    """
    num_classes, q = _other_label(num_classes, p)
    if math.isclose(p, q):
        raise ValueError(f"p must differ from 1 / num_classes: got {p}; with it labels say nothing of the classes.")
    return (1 - p * p - (num_classes - 1) * q * q) / ((num_classes - 1) * (p - q) ** 2)


def margin_noise_limit(num_classes: int) -> float:
    """The p at which P(Y_i = Y_j) inside a class is 1/2: theorem 2 needs more than this.

    (1 + sqrt(1 - t (3 - t) / 2)) / t: 1/2 for two classes, 2/3 for three, towards sqrt(1/2) for many. For two
    classes any p other than 1/2 will do.

    Raises:
        ValueError: if there are fewer than two classes.

    Source:
        Levi et al. 2021, theorem 2, which asks for p > 1/2 whatever t is.
    """
    num_classes, _ = _other_label(num_classes, 0.5)
    return (1 + math.sqrt(1 - num_classes * (3 - num_classes) / 2)) / num_classes


@dataclass(frozen=True)
class Found:
    """The best embedding that a search met.

    Attributes:
        value: its expected loss.
        distances: its D, `(n, n)`.
        beta: `(n,)`, for the margin loss; None for the triplet loss.
    """

    value: float
    distances: Tensor
    beta: Tensor | None


def search_triplet_minimum(
    probabilities: Tensor,
    *,
    embedding_dim: int,
    margin: float,
    self_terms: SelfTerms = "exact",
    starts: int = 4,
    steps: int = 1000,
    generator: torch.Generator | None = None,
) -> Found:
    """The lowest `expected_triplet_loss` that Adam finds from `starts` random embeddings in R^m.

    Raises:
        ValueError: as `expected_triplet_loss`, or if a count is below 1.
    """
    weights = triplet_weights(probabilities, self_terms=self_terms)

    def objective(distances: Tensor, _: Tensor) -> Tensor:
        return _weighted_triplets(distances, weights, margin)

    found = _search(objective, len(probabilities), embedding_dim, margin, None, starts, steps, generator)
    return Found(found.value, found.distances, None)


def search_margin_minimum(
    probabilities: Tensor,
    *,
    embedding_dim: int,
    margin: float,
    beta: float | None = None,
    self_terms: SelfTerms = "exact",
    starts: int = 4,
    steps: int = 1000,
    generator: torch.Generator | None = None,
) -> Found:
    """The lowest `expected_margin_loss` that Adam finds from `starts` random embeddings in R^m.

    Args:
        beta: one fixed number; None searches for one per anchor together with the embedding.

    Raises:
        ValueError: as `expected_margin_loss`, or if a count is below 1.
    """
    match, differ = _pair_weights(probabilities, self_terms)

    def objective(distances: Tensor, bounds: Tensor) -> Tensor:
        return _weighted_pairs(distances, bounds, match, differ, margin)

    return _search(objective, len(probabilities), embedding_dim, margin, beta, starts, steps, generator)


def _search(
    objective: Callable[[Tensor, Tensor], Tensor],
    samples: int,
    embedding_dim: int,
    margin: float,
    beta: float | None,
    starts: int,
    steps: int,
    generator: torch.Generator | None,
) -> Found:
    if beta is not None and not math.isfinite(beta):
        raise ValueError(f"beta must be finite: got {beta}; give a number in the unit of D, or None to search for it.")
    for name, count in (("embedding_dim", embedding_dim), ("starts", starts), ("steps", steps)):
        check_count(count, name=name)
    _check_positive(margin, name="margin")
    unit = math.sqrt(margin)
    shape = (starts, samples, embedding_dim)
    embeddings = (unit * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
    bounds = torch.full(shape[:2], margin if beta is None else float(beta), dtype=torch.float64)
    learned = [{"params": [embeddings], "lr": 0.1 * unit}]
    if beta is None:
        learned.append({"params": [bounds.requires_grad_()], "lr": 0.1 * margin})
    optimizer = torch.optim.Adam(learned)
    # The hinges have corners: the step must shrink for the end to lie in one.
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1e-4 ** (step / steps))
    best, best_distances, best_bounds = math.inf, torch.empty(0), torch.empty(0)
    for _ in range(steps):
        distances = (embeddings[:, :, None] - embeddings[:, None]).square().sum(-1)
        values = objective(distances, bounds)  # (starts,)
        least, place = values.detach().min(0)
        if float(least) < best:
            best = float(least)
            best_distances, best_bounds = distances[place].detach().clone(), bounds[place].detach().clone()
        optimizer.zero_grad()
        torch.autograd.backward(values.sum())
        optimizer.step()
        schedule.step()
    return Found(best, best_distances, best_bounds)


# Easy positive sampling


def easy_positive_probabilities(anchor: Tensor, others: Tensor) -> Tensor:
    """Phi_j: that the j-th nearest of the others is the nearest one with the anchor's label, `(..., M)`.

    sum_c pi_i(c) pi_j(c) prod_{l < j} (1 - pi_l(c)), in a strict order by distance.

    Args:
        anchor: `(..., t)`, probabilities of the anchor's label.
        others: `(..., M, t)`, of the others', nearest first; the anchor is not among them.

    Raises:
        ValueError: if shapes disagree or a row does not sum to 1.

    Source:
        Levi et al. 2021, appendix B; there the minimum includes the anchor itself, which must be removed.

    Example:
        >>> certain = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
        >>> easy_positive_probabilities(torch.tensor([1.0, 0.0]), certain)
        tensor([0., 1., 0.])
    """
    return _first_matches(anchor, others).sum(-1)


def easy_triplet_weights(anchor: Tensor, others: Tensor) -> Tensor:
    """W_jk: that the j-th nearest is the easy positive and the k-th nearest a negative, `(..., M, M)`.

    Phi_j if k is nearer than j (a nearer one of the anchor's label would itself be the positive); otherwise the terms
    of Phi_j times 1 - pi_k(c). 0 for j = k.

    Args, raises and source: see `easy_positive_probabilities`.
    """
    first = _first_matches(anchor, others)
    farther = first @ (1 - others).transpose(-1, -2)
    nearer = first.sum(-1, keepdim=True).expand_as(farther)
    return farther.triu(1) + nearer.tril(-1)


def expected_easy_triplet_losses(distances: Tensor, probabilities: Tensor, *, margin: float) -> Tensor:
    """sum_{j != k} W_jk max(0, D_ij - D_ik + margin) for each anchor i, `(n,)`; their mean is the objective.

    The loss with the nearest positive and every negative. The order is by distance, ties by lowest index, and where
    distances tie the value depends on it.

    Args:
        distances: D, `(n, n)`; the diagonal is not read.
        probabilities: `(n, t)`, of the labels; n >= 2.
        margin: alpha > 0, in the unit of D.

    Raises:
        ValueError: if shapes disagree, a row does not sum to 1, or the margin is not positive.

    Source:
        Levi et al. 2021, appendix B.
    """
    _check_positive(margin, name="margin")
    sorted_distances, order = _by_distance(distances, probabilities)
    weights = easy_triplet_weights(probabilities, probabilities[order])  # (n, M, M)
    hinge = relu(sorted_distances[:, :, None] - sorted_distances[:, None] + margin)
    return (weights * hinge).sum((1, 2))


def expected_easy_margin_losses(
    distances: Tensor, beta: Tensor | float, probabilities: Tensor, *, margin: float
) -> Tensor:
    """sum_j Phi_j (D_ij - b_i + margin)_+ + P(Y_i != Y_j) (b_i - D_ij + margin)_+ for each anchor i, `(n,)`.

    The nearest positive and every negative, in the form of appendix B; the mean over anchors is the objective.

    Args:
        distances: D, `(n, n)`; the diagonal is not read.
        beta: b, one number or `(n,)`, one per anchor.
        probabilities: `(n, t)`, of the labels; n >= 2.
        margin: alpha > 0, in the unit of D.

    Raises:
        ValueError: if shapes disagree, a row does not sum to 1, or the margin is not positive.

    Source:
        Levi et al. 2021, appendix B; the proof of claim 2 leaves the positive parts out.
    """
    _check_positive(margin, name="margin")
    sorted_distances, order = _by_distance(distances, probabilities)
    bounds = torch.as_tensor(beta, dtype=torch.float64)
    if bounds.shape not in {(), (len(probabilities),)}:
        raise ValueError(
            f"beta must be one number or one per sample: got shape {tuple(bounds.shape)} for "
            f"{len(probabilities)} samples; give (n,)."
        )
    easy = easy_positive_probabilities(probabilities, probabilities[order])
    differ = (1 - match_probabilities(probabilities)).gather(1, order)
    gap = sorted_distances - (bounds[:, None] if bounds.ndim else bounds)
    return (easy * relu(gap + margin) + differ * relu(margin - gap)).sum(1)


def _first_matches(anchor: Tensor, others: Tensor) -> Tensor:
    """P(Y_i = c, j is the first with Y_j = c) as `(..., M, t)`."""
    if others.ndim < 2 or anchor.shape != (*others.shape[:-2], others.shape[-1]):
        raise ValueError(
            "anchor must have shape (..., t) and others (..., M, t): "
            f"got {tuple(anchor.shape)} and {tuple(others.shape)}; give both for the same classes."
        )
    for name, rows in (("anchor", anchor), ("others", others)):
        _check_rows(rows, name=name)
    nearer = torch.cat([torch.ones_like(others[..., :1, :]), 1 - others[..., :-1, :]], dim=-2)
    return anchor[..., None, :] * others * nearer[..., : others.shape[-2], :].cumprod(-2)


def _by_distance(distances: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Distances from each anchor to the others, nearest first, and who they are, both `(n, n - 1)`."""
    _check_probabilities(probabilities)
    _check_distances(distances, len(probabilities))
    if distances.ndim != 2 or len(distances) < 2:
        raise ValueError(
            f"distances must have shape (n, n) with n >= 2: got {tuple(distances.shape)}; "
            "give one matrix of at least two samples."
        )
    own = torch.eye(len(distances), dtype=torch.bool)
    ordered = distances.masked_fill(own, -torch.inf).sort(dim=1, stable=True)
    return ordered.values[:, 1:], ordered.indices[:, 1:]


# Claims 1 and 2: one class in two halves against the collapsed map


def collapsed_and_split_triplet_losses(
    num_classes: int,
    class_sizes: Sequence[int] | Integers,
    p: float,
    *,
    margin: float = 1.0,
    positives: TheoryPositives = "easy",
) -> tuple[Floats, Floats]:
    """The expected triplet loss of an anchor, collapsed (f1) and with its class in two halves (f2), `(S,)` each.

    f1 puts every class on a point and D = margin between classes; f2 puts the two halves of one class D = margin
    apart as well. The anchor belongs to that class: the loss of every other anchor is the same. Order: own half,
    other half, other classes; inside a group any order gives the same. See `expected_easy_triplet_losses`, which this
    is in closed form; with all positives it is the anchor's part of n^3 `expected_triplet_loss` without self terms.

    Args:
        num_classes: t >= 2.
        class_sizes: S values of s, even, >= 2.
        p: in [0, 1].
        margin: alpha > 0; the losses are proportional to it.
        positives: "easy", the nearest; "all", every one. The anchor itself is none.

    Raises:
        ValueError: if one of them is out of range.

    Source:
        Levi et al. 2021, claim 1; the index t / (2n) printed there is n / (2t).
    """
    _check_positive(margin, name="margin")
    loss = _TRIPLET_LOSSES[_check_positives(positives)]
    sizes = _check_sizes(class_sizes)
    collapsed, split = np.zeros(len(sizes)), np.zeros(len(sizes))
    for weight, match, rest in _given_anchor_label(num_classes, sizes, p):
        halves = [_Group.of(0.0, sizes / 2 - 1, match), _Group.of(margin, sizes / 2, match)]
        collapsed += weight * loss([_Group.of(0.0, sizes - 1, match), rest.at(margin)], margin)
        split += weight * loss([*halves, rest.at(margin)], margin)
    return collapsed, split


def collapsed_and_split_margin_losses(
    num_classes: int,
    class_sizes: Sequence[int] | Integers,
    p: float,
    *,
    beta: float,
    margin: float = 1.0,
    positives: TheoryPositives = "easy",
) -> tuple[Floats, Floats]:
    """The expected margin loss of an anchor under f1 and f2, `(S,)` each; see the triplet losses above.

    f1 - f2 = sum_{j in the other half} (1 - m_s) margin - Phi_j ((2 margin - beta)_+ - (margin - beta)_+); with all
    positives Phi_j is m_s.

    Args:
        beta: b >= 0 of the anchor; the others as for `collapsed_and_split_triplet_losses`.

    Raises:
        ValueError: if one of them is out of range.

    Source:
        Levi et al. 2021, claim 2.
    """
    _check_positive(margin, name="margin")
    check_at_least(0, beta, name="beta")
    _check_positives(positives)
    sizes = _check_sizes(class_sizes)
    collapsed, split = np.zeros(len(sizes)), np.zeros(len(sizes))
    for weight, match, rest in _given_anchor_label(num_classes, sizes, p):
        halves = [_Group.of(0.0, sizes / 2 - 1, match), _Group.of(margin, sizes / 2, match)]
        collapsed += weight * _margin_loss([_Group.of(0.0, sizes - 1, match), rest.at(margin)], beta, margin, positives)
        split += weight * _margin_loss([*halves, rest.at(margin)], beta, margin, positives)
    return collapsed, split


def triplet_split_threshold(num_classes: int, p: float, *, largest: int = 4000) -> int | None:
    """The smallest even class size from which on f2 beats f1 under the triplet loss, up to `largest`; None if none.

    Claim 1 says that there is one. For t >= 5 f2 may also win for a few small sizes and then lose again.

    Raises:
        ValueError: if an argument is out of range; `largest` must be at least 2.

    Source:
        Levi et al. 2021, claim 1, in numbers.
    """
    sizes = _even_sizes(largest)
    collapsed, split = collapsed_and_split_triplet_losses(num_classes, sizes, p)
    return _holds_from(sizes, split < collapsed)


def margin_split_threshold(
    num_classes: int, p: float, *, beta: float, margin: float = 1.0, largest: int = 4000
) -> int | None:
    """The smallest even class size from which on f2 beats f1 under the margin loss, up to `largest`; None if none.

    Raises:
        ValueError: if an argument is out of range; `largest` must be at least 2.

    Source:
        Levi et al. 2021, claim 2, in numbers.
    """
    sizes = _even_sizes(largest)
    collapsed, split = collapsed_and_split_margin_losses(num_classes, sizes, p, beta=beta, margin=margin)
    return _holds_from(sizes, split < collapsed)


class _Group(NamedTuple):
    """Samples at one distance from the anchor, given the anchor's label."""

    distance: float
    size: Floats
    no_match: Floats  # probability that none has the anchor's label
    misses: Floats  # expected number without it
    variance: Floats  # of that number

    @classmethod
    def of(cls, distance: float, size: Floats, match: float) -> _Group:
        return cls(distance, size, (1 - match) ** size, size * (1 - match), size * match * (1 - match))

    @property
    def matches(self) -> Floats:
        return self.size - self.misses

    def at(self, distance: float) -> _Group:
        return self._replace(distance=distance)


def _given_anchor_label(num_classes: int, sizes: Floats, p: float) -> Iterator[tuple[float, float, _Group]]:
    """Weight, match probability of a sample of the anchor's class, and all other classes, for each kind of label."""
    num_classes, q = _other_label(num_classes, p)
    others = num_classes - 1
    yield p, p, _Group.of(0.0, others * sizes, q)
    rest = _Group.of(0.0, (others - 1) * sizes, q)
    one = _Group.of(0.0, sizes, p)
    yield (
        others * q,
        q,
        _Group(
            0.0,
            others * sizes,
            one.no_match * rest.no_match,
            one.misses + rest.misses,
            one.variance + rest.variance,
        ),
    )


def _easy_triplet_loss(groups: Sequence[_Group], margin: float) -> Floats:
    """Expected sum over the negatives, the positive being the first match in the order of the groups."""
    total = np.zeros_like(groups[0].size)
    reached = np.ones_like(total)  # probability that no nearer group has a match
    for place, group in enumerate(groups):
        for other_place, other in enumerate(groups):
            if other_place < place:
                negatives = (1 - group.no_match) * other.size
            elif other_place == place:
                negatives = group.misses - group.no_match * group.size
            else:
                negatives = (1 - group.no_match) * other.misses
            total += reached * negatives * max(0.0, group.distance - other.distance + margin)
        reached = reached * group.no_match
    return total


def _all_triplet_loss(groups: Sequence[_Group], margin: float) -> Floats:
    """Expected sum over all pairs of a positive and a negative."""
    total = np.zeros_like(groups[0].size)
    for group in groups:
        for other in groups:
            pairs = group.matches * other.misses - (group.variance if other is group else 0)
            total += pairs * max(0.0, group.distance - other.distance + margin)
    return total


_TRIPLET_LOSSES: dict[TheoryPositives, Callable[[Sequence[_Group], float], Floats]] = {
    "easy": _easy_triplet_loss,
    "all": _all_triplet_loss,
}


def _margin_loss(groups: Sequence[_Group], beta: float, margin: float, positives: TheoryPositives) -> Floats:
    total = np.zeros_like(groups[0].size)
    reached = np.ones_like(total)
    for group in groups:
        chosen = group.matches if positives == "all" else reached * (1 - group.no_match)
        total += chosen * max(0.0, group.distance - beta + margin)
        total += group.misses * max(0.0, beta - group.distance + margin)
        reached = reached * group.no_match
    return total


# Claims 3 and 4: far samples are pushed away


def pull_push_ratio(p: float, count: int, *, nearer: NearerOrder = "worst") -> float:
    """The largest Phi_j / P(Y_i != Y_j) of a sample with `count` nearer ones, the order held fixed, for two classes.

    Below 1 the two hinges of the pair have their minimum at D_ij - b_i = margin, above at -margin, see
    `opposed_hinges_minimum`.

    Args:
        p: in (1/2, 1).
        count: of the nearer samples, >= 0.
        nearer: "worst", whatever classes the nearer ones have; "same-class", all of the anchor's class. The sample
            itself may have either class.

    Raises:
        ValueError: if an argument is out of range.

    Source:
        Levi et al. 2021, claim 3.

    Example:
        >>> round(pull_push_ratio(0.8, 1, nearer="same-class"), 9)
        0.5
    """
    _check_majority(p)
    check_name(nearer, get_args(NearerOrder), name="nearer")
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"count must be a whole number of at least 0: got {count}.")
    q, worst = 1 - p, 0.0
    # Phi is convex in how many of the nearer ones share the anchor's class: the ends decide.
    for same in {count} if nearer == "same-class" else {0, count}:
        own, other = p * q**same * p ** (count - same), q * p**same * q ** (count - same)
        worst = max(worst, (own * p + other * q) / (2 * p * q), (own * q + other * p) / (p * p + q * q))
    return worst


def push_threshold(p: float, *, nearer: NearerOrder = "worst") -> int:
    """The number L of nearer samples from which on a sample is pushed to D = b + margin, for two classes.

    That is Phi_j < P(Y_i != Y_j), the order held fixed; see `pull_push_ratio`, also for the arguments.

    Raises:
        ValueError: if `p` or `nearer` is out of range.

    Source:
        Levi et al. 2021, claim 3, in numbers; M there depends on p (and on t).

    Example:
        >>> push_threshold(0.8), push_threshold(0.8, nearer="same-class")
        (4, 1)
    """
    return _first_true(lambda count: pull_push_ratio(p, count, nearer=nearer) < 1)


def pair_pull_push_ratio(p: float, rank: int, steps: int, *, nearer: NearerOrder = "worst") -> float:
    """The largest W_{t+j, t} / W_{t, t+j} of the t-th and (t + j)-th nearest, the order held fixed, for two classes.

    Below 1 the two triplets have their minimum at D_{t+j} = D_t + margin, see `easy_triplet_weights` and
    `opposed_hinges_minimum`.

    Args:
        p: in (1/2, 1).
        rank: t >= 1, of the nearer of the two; the nearest sample that is not the anchor has rank 1.
        steps: j >= 1.
        nearer: "worst", whatever classes all of them have; "same-class", all of the anchor's class.

    Raises:
        ValueError: if an argument is out of range.

    Source:
        Levi et al. 2021, claim 4.
    """
    _check_majority(p)
    check_count(rank, name="rank")
    check_count(steps, name="steps")
    check_name(nearer, get_args(NearerOrder), name="nearer")
    # How many before the pair share the anchor's class, and whether each of the pair does.
    before = {rank - 1} if nearer == "same-class" else range(rank)
    shares = (True,) if nearer == "same-class" else (True, False)
    # W_{t+j, t} is convex in how many between the pair share the anchor's class: the ends decide.
    between = {steps - 1} if nearer == "same-class" else {0, steps - 1}
    labels = (p, 1 - p)  # the anchor shows the label of its class, or the other
    worst = 0.0
    for same, near, far, inside in product(before, shares, shares, between):
        # In logarithms, and relative to the larger: far down the order both are below the least number.
        logs = [math.log(own) + same * math.log(1 - own) + (rank - 1 - same) * math.log(own) for own in labels]
        near_first = far_first = 0.0
        for match, log in zip(labels, logs, strict=True):
            unmatched = math.exp(log - max(logs))
            near_match, far_match = (match if share else 1 - match for share in (near, far))
            passed = (1 - match) ** inside * match ** (steps - 1 - inside)
            near_first += unmatched * near_match * (1 - far_match)
            far_first += unmatched * (1 - near_match) * passed * far_match
        worst = max(worst, far_first / near_first)
    return worst


def pair_push_threshold(p: float, rank: int, *, nearer: NearerOrder = "worst") -> int:
    """The smallest j from which on the (t + j)-th nearest is pushed margin beyond the t-th nearest, for two classes.

    That is W_{t, t+j} > W_{t+j, t}, the order held fixed; see `pair_pull_push_ratio`, also for the arguments.

    Raises:
        ValueError: if an argument is out of range.

    Source:
        Levi et al. 2021, claim 4, in numbers; M there depends on p and on the rank.
    """
    return _first_true(lambda steps: pair_pull_push_ratio(p, rank, steps, nearer=nearer) * (1 + ROUNDING) < 1, start=1)


ROUNDING = 1e-12  # two probabilities this close are equal: for j = 1 and one class they are


def _first_true(holds: Callable[[int], bool], *, start: int = 0) -> int:
    """The smallest count >= start from which on `holds`, which never turns false again."""
    low, high = start - 1, start
    while not holds(high):
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _holds_from(sizes: Integers, holds: npt.NDArray[np.bool_]) -> int | None:
    failures = np.flatnonzero(~holds)
    start = int(failures[-1]) + 1 if len(failures) else 0
    return int(sizes[start]) if start < len(sizes) else None


# What may be given


def _other_label(num_classes: int, p: float) -> tuple[int, float]:
    """t and q."""
    if check_count(num_classes, name="num_classes") < 2:
        raise ValueError(
            f"num_classes must be at least 2: got {num_classes}; a label needs another to be mistaken for."
        )
    if not 0 <= p <= 1:
        raise ValueError(f"p must lie in [0, 1]: got {p}; give the probability that a label is that of its class.")
    return num_classes, (1 - p) / (num_classes - 1)


def _check_positives(positives: TheoryPositives) -> TheoryPositives:
    check_name(positives, get_args(TheoryPositives), name="positives")
    return positives


def _check_majority(p: float) -> None:
    if not 0.5 < p < 1:
        raise ValueError(
            f"p must lie in (1/2, 1): got {p}; the claims are about labels that are more right than wrong."
        )


def _check_positive(value: float, *, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0: got {value}.")


def _check_rows(probabilities: Tensor, *, name: str) -> None:
    good = probabilities.is_floating_point() and bool(
        ((probabilities >= 0) & (probabilities <= 1)).all() and ((probabilities.sum(-1) - 1).abs() < 1e-6).all()
    )
    if not good:
        raise ValueError(
            f"{name} must hold floating-point probabilities with sum 1 in each row: "
            "a row does not; divide each by its sum."
        )


def _check_probabilities(probabilities: Tensor) -> None:
    if probabilities.ndim != 2 or 0 in probabilities.shape:
        raise ValueError(
            f"probabilities must have shape (n, t) with n, t >= 1: got {tuple(probabilities.shape)}; "
            "give one row per sample, as label_probabilities does."
        )
    _check_rows(probabilities, name="probabilities")


def _check_distances(distances: Tensor, samples: int) -> None:
    if distances.ndim < 2 or distances.shape[-2:] != (samples, samples):
        raise ValueError(
            f"distances must have shape (..., n, n) with n = {samples}: got {tuple(distances.shape)}; "
            "give the squared distance of every pair of samples."
        )
    if not (distances.is_floating_point() and bool(distances.isfinite().all())):
        raise ValueError("distances must be finite floating-point numbers: got others; convert them with .double().")


def _check_sizes(class_sizes: Sequence[int] | Integers) -> Floats:
    sizes = np.asarray(class_sizes)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 2).any() or (sizes % 2).any():
        raise ValueError(
            f"class_sizes must be a list of even whole numbers of at least 2: got {class_sizes!r}; "
            "the class is cut in two halves."
        )
    return sizes.astype(np.float64)


def _even_sizes(largest: int) -> Integers:
    if check_count(largest, name="largest") < 2:
        raise ValueError(f"largest must be at least 2: got {largest}; the class is cut in two halves.")
    return np.arange(2, largest + 1, 2, dtype=np.int64)
