"""Expected triplet and margin losses when labels are drawn at random, and what minimises them: theorems 1 and 2.

The label model: t classes of s samples each, n = t s. Labels Y_1 .. Y_n are independent; a sample shows the label of
its own class with probability p and each of the others with probability q = (1 - p) / (t - 1). D is the squared
Euclidean distance. Probabilities are rows of an `(n, t)` tensor, so other models of independent labels work as well.
Numbers out of range are a ValueError; the shapes and values of tensors are not checked.

Source:
    Levi, Xiao, Wang, Darrell, "Rethinking preventing class-collapsing in metric learning with margin-based losses",
    2021, sections 4.1 and 4.2 and appendices A and B, with their slips mended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import relu

from trivet.runtime.arguments import check_count, check_name
from trivet.runtime.arrays import Floats

SelfTerms = Literal["exact", "excluded", "independent"]


def label_probabilities(num_classes: int, samples_per_class: int, p: float) -> Tensor:
    """P(Y_i = c) as `(n, t)` float64, samples sorted by class.

    Args:
        num_classes: t >= 2.
        samples_per_class: s >= 1.
        p: in [0, 1]; 1 gives the labels without noise. The paper takes 1/2 < p < 1.

    Source:
        Levi et al. 2021, section 4.2.

    Example:
        >>> label_probabilities(2, 2, 0.75)[:, 0].tolist()
        [0.75, 0.75, 0.25, 0.25]
    """
    num_classes, other = other_label(num_classes, p)
    classes = torch.arange(num_classes).repeat_interleave(check_count(samples_per_class, name="samples_per_class"))
    probabilities = torch.full((len(classes), num_classes), float(other), dtype=torch.float64)
    probabilities[torch.arange(len(classes)), classes] = p
    return probabilities


def match_probabilities(probabilities: Tensor) -> Tensor:
    """P(Y_i = Y_j) as `(n, n)`; 1 on the diagonal, where both are one and the same label.

    Between two samples of a class m_s = p^2 + (t - 1) q^2, of two classes m_d = 2 p q + (t - 2) q^2, and
    m_s - m_d = (p - q)^2.

    Source:
        Levi et al. 2021, section 4.2; the proof of theorem 2 has p and 1 - p in their place, which is wrong.
    """
    return (probabilities @ probabilities.T).fill_diagonal_(1)


def triplet_weights(probabilities: Tensor, *, self_terms: SelfTerms = "exact") -> Tensor:
    """W_ijk = P(Y_i = Y_j != Y_k) as `(n, n, n)`.

    For distinct i, j, k it is P(Y_i = Y_j) - P(Y_i = Y_j = Y_k), so W_ijk - W_ikj = P(Y_i = Y_j) - P(Y_i = Y_k).

    Args:
        probabilities: `(n, t)`.
        self_terms: what coinciding indices weigh: "exact", the true probabilities (j = i is sure to match, k = i and
            k = j weigh nothing); "excluded", nothing; "independent", as if the same sample came with a fresh label
            each time, which is how the proof of theorem 1 factorises.

    Source:
        Levi et al. 2021, section 4.2 and proof of theorem 1.
    """
    check_name(self_terms, get_args(SelfTerms), name="self_terms")
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

    Source:
        Levi et al. 2021, section 4.2, E O_trip.
    """
    check_positive(margin, name="margin")
    weights = triplet_weights(probabilities, self_terms=self_terms)
    return _weighted_triplets(distances, weights, margin)


def _weighted_triplets(distances: Tensor, weights: Tensor, margin: float) -> Tensor:
    hinge = relu(distances[..., :, None] - distances[..., None, :] + margin)
    return (weights * hinge).sum((-3, -2, -1)) / len(weights) ** 3


def expected_margin_loss(
    distances: Tensor, beta: Tensor | float, probabilities: Tensor, *, margin: float, self_terms: SelfTerms = "exact"
) -> Tensor:
    """`(1 / n^2) sum_ij P(Y_i = Y_j) (D_ij - b_i + margin)_+ + P(Y_i != Y_j) (b_i - D_ij + margin)_+`, differentiable.

    Args:
        distances: D, `(..., n, n)`; leading dimensions are kept.
        beta: b, one number or `(..., n)`, one per anchor.
        probabilities: `(n, t)`, of the labels.
        margin: alpha > 0, in the unit of D.
        self_terms: of the pairs i = j: "exact", sure to match, (margin - b_i)_+; "excluded"; "independent", as if the
            sample came with two labels.

    Returns:
        `(...)`.

    Source:
        Levi et al. 2021, section 4.2, E O_margin.
    """
    check_positive(margin, name="margin")
    bounds = torch.as_tensor(beta, dtype=torch.float64)
    return _weighted_pairs(distances, bounds, *_pair_weights(probabilities, self_terms), margin)


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


def opposed_hinges(differences: Floats, pull: float, push: float, *, margin: float) -> Floats:
    """`pull (u + margin)_+ + push (margin - u)_+` for each u; see `opposed_hinges_minimum`.

    Args:
        differences: u, any shape; the result has it too.
        pull, push: weights >= 0.
        margin: alpha > 0, in the unit of u.

    Source:
        Levi et al. 2021, proofs of theorems 1 and 2 and of claims 3 and 4.
    """
    return pull * np.maximum(0, differences + margin) + push * np.maximum(0, margin - differences)


class HingeMinimum(NamedTuple):
    """The least value of a sum of two opposed hinges, and the closed interval of u where it is attained."""

    value: float
    low: float
    high: float


def opposed_hinges_minimum(pull: float, push: float, *, margin: float) -> HingeMinimum:
    """Minimum over u of `pull (u + margin)_+ + push (margin - u)_+`, which is 2 margin min(pull, push).

    It lies at u = -margin if pull > push, at u = margin if pull < push, anywhere between if they are equal; a weight
    of 0 opens the interval on its side. Every per-pair statement about the two losses is a case of it: with
    u = D_ij - D_ik, pull W_ijk and push W_ikj for triplets; with u = D_ij - b_i, pull P(Y_i = Y_j) and push
    P(Y_i != Y_j) for pairs.

    Source:
        Levi et al. 2021, proofs of theorems 1 and 2 and of claims 3 and 4.

    Example:
        >>> opposed_hinges_minimum(0.5, 0.25, margin=1.0)
        HingeMinimum(value=0.5, low=-1.0, high=-1.0)
    """
    low = margin if pull < push else -margin
    high = -margin if pull > push else margin
    return HingeMinimum(2 * margin * min(pull, push), low if push else -math.inf, high if pull else math.inf)


def triplet_lower_bound(probabilities: Tensor, *, margin: float) -> float:
    """A lower bound of `expected_triplet_loss` without self terms: (1 / n^3) sum 2 margin min(W_ijk, W_ikj).

    The sum is over anchors i and unordered pairs j, k. It is attained iff for one c >= 0 all distances inside classes
    are c and all others c + margin.

    Source:
        Levi et al. 2021, theorem 1.
    """
    weights = triplet_weights(probabilities, self_terms="excluded")
    return margin * float(torch.minimum(weights, weights.transpose(1, 2)).sum()) / len(weights) ** 3


def margin_lower_bound(probabilities: Tensor, *, margin: float) -> float:
    """A lower bound of `expected_margin_loss`, for any beta: (1 / n^2) sum_{i != j} 2 margin min(P=, P!=).

    Source:
        Levi et al. 2021, theorem 2.
    """
    match = match_probabilities(probabilities)
    return 2 * margin * float(torch.minimum(match, 1 - match).sum()) / len(match) ** 2  # 0 on the diagonal


def class_distances(num_classes: int, samples_per_class: int, *, within: float, across: float) -> Tensor:
    """D `(n, n)` of samples sorted by class: `within` inside a class, `across` between classes, 0 on the diagonal.

    `within` = 0 is the collapsed map.
    """
    classes = torch.arange(num_classes).repeat_interleave(samples_per_class)
    distances = torch.full((len(classes),) * 2, float(across), dtype=torch.float64)
    return distances.masked_fill(classes[:, None] == classes, float(within)).fill_diagonal_(0)


def affine_dimension(distances: Tensor, *, tolerance: float = 1e-9) -> int:
    """The least m for which points in R^m have these squared distances `(n, n)`.

    Args:
        tolerance: eigenvalues of the centred Gram matrix up to this share of the largest count as 0.
    """
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

    Source:
        Levi et al. 2021, theorem 1, which has no such limit.

    Example:
        >>> round(collapse_turn_limit(2, 0.6), 9)
        12.0
    """
    num_classes, q = other_label(num_classes, p)
    if math.isclose(p, q):
        raise ValueError(
            f"p must differ from 1 / num_classes: got {p}; labels would carry no information about the classes."
        )
    return (1 - p * p - (num_classes - 1) * q * q) / ((num_classes - 1) * (p - q) ** 2)


def margin_noise_limit(num_classes: int) -> float:
    """The p at which P(Y_i = Y_j) inside a class is 1/2: theorem 2 needs more than this.

    (1 + sqrt(1 - t (3 - t) / 2)) / t: 1/2 for two classes, 2/3 for three, towards sqrt(1/2) for many. For two
    classes any p other than 1/2 will do.

    Source:
        Levi et al. 2021, theorem 2, which asks for p > 1/2 whatever t is.
    """
    num_classes, _ = other_label(num_classes, 0.5)
    return (1 + math.sqrt(1 - num_classes * (3 - num_classes) / 2)) / num_classes


@dataclass(frozen=True)
class RiskMinimum:
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
) -> RiskMinimum:
    """The lowest `expected_triplet_loss` that Adam finds from `starts` random embeddings in R^m."""
    weights = triplet_weights(probabilities, self_terms=self_terms)

    def objective(distances: Tensor, _: Tensor) -> Tensor:
        return _weighted_triplets(distances, weights, margin)

    best = _search(objective, len(probabilities), embedding_dim, margin, None, starts, steps, generator)
    return RiskMinimum(best.value, best.distances, None)


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
) -> RiskMinimum:
    """The lowest `expected_margin_loss` that Adam finds from `starts` random embeddings in R^m.

    Args:
        beta: one fixed number; None searches for one per anchor together with the embedding.
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
) -> RiskMinimum:
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
        least, index = values.detach().min(0)
        if float(least) < best:
            best = float(least)
            best_distances, best_bounds = distances[index].detach().clone(), bounds[index].detach().clone()
        optimizer.zero_grad()
        torch.autograd.backward(values.sum())
        optimizer.step()
        schedule.step()
    return RiskMinimum(best, best_distances, best_bounds)


def other_label(num_classes: int, p: float) -> tuple[int, float]:
    """t and q."""
    if check_count(num_classes, name="num_classes") < 2:
        raise ValueError(f"num_classes must be at least 2: got {num_classes}; with one class no label can be wrong.")
    if not 0 <= p <= 1:
        raise ValueError(f"p must lie in [0, 1]: got {p}; give the probability that a label is that of its class.")
    return num_classes, (1 - p) / (num_classes - 1)


def check_majority(p: float) -> None:
    if not 0.5 < p < 1:
        raise ValueError(
            f"p must lie in (1/2, 1): got {p}; the claims are about labels that are more right than wrong."
        )


def check_positive(value: float, *, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0: got {value}.")
