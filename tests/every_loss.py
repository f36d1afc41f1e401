"""The losses of the registry, made with the least that they need, and the definition of each in plain Python.

`EVERY_LOSS` is for batches of 4 classes in 3 dimensions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from tests import reference
from tests.reference import Problem, Rule, Term

import trivet
from trivet import EmbeddingLoss
from trivet.losses import LOSSES
from trivet.mining import negatives as negative_rules
from trivet.mining import positives as positive_rules

NEEDED = {"margin": 1.0, "num_classes": 4, "embedding_dim": 3}


def needed(name: str) -> dict[str, Any]:
    """The arguments without a default."""
    arguments = inspect.signature(LOSSES[name]).parameters.items()
    return {key: NEEDED[key] for key, argument in arguments if argument.default is argument.empty}


def make(name: str, **options: Any) -> EmbeddingLoss:
    """The loss of this name; with classes to know where it can know them."""
    if "num_classes" in inspect.signature(LOSSES[name]).parameters:
        options = {"num_classes": 4, **options}
    if "embedding_dim" in needed(name):
        options = {"generator": torch.Generator().manual_seed(0), **options}
    return LOSSES[name](**needed(name) | options)


EVERY_LOSS: dict[str, Callable[..., EmbeddingLoss]] = {name: partial(make, name) for name in LOSSES}
PROXIES = [name for name, loss in LOSSES.items() if loss.term == "proxy"]
DISTANCES = ["squared_euclidean", "euclidean", "cosine"]


def positive_selector(rule: Rule) -> trivet.mining.PositiveSelector:
    if rule.name == "multi-similarity":
        return trivet.MultiSimilarityPositives(epsilon=rule.epsilon)
    options = {} if rule.name in ("semihard", "all") else {"k": rule.k}
    return positive_rules.POSITIVES[rule.name](max_positive_similarity=rule.most_similar, **options)


def negative_selector(rule: Rule) -> trivet.mining.NegativeSelector:
    make = negative_rules.NEGATIVES[rule.name]
    if rule.name == "multi-similarity":
        return make(epsilon=rule.epsilon, reference="chosen" if rule.against_chosen else "least-similar")
    if rule.name == "all":
        return make()
    if rule.name == "semihard-hardest":
        return make(k=rule.k, otherwise=rule.otherwise)
    if reference.is_band(rule):
        return make(margin=rule.margin)
    if rule.name in ("semihard", "violating"):
        return make(k=rule.k, margin=rule.margin, otherwise=rule.otherwise)
    if rule.name == "distance-weighted":
        return make(k=rule.k, upper_cutoff=rule.upper, otherwise=rule.otherwise)
    return make(k=rule.k)


@dataclass(frozen=True)
class Setting:
    """The options of a loss, and the reference's names of its selectors."""

    positives: Rule
    negatives: Rule
    distance: trivet.distances.Distance
    margin: float
    reduction: str
    trim: float
    trim_positives_only: bool
    variant: str
    skip_if_any_empty: bool
    normalize: bool = True

    def of_anchors(self) -> dict[str, object]:
        """What the losses of one term for each anchor take."""
        return {
            "positives": positive_selector(self.positives),
            "negatives": negative_selector(self.negatives),
            "reduction": self.reduction,
            "trim": self.trim,
        }

    def common(self) -> dict[str, object]:
        """What the others take."""
        return {"trim_positives_only": self.trim_positives_only, **self.of_anchors()}

    def of_distances(self) -> dict[str, object]:
        """What the losses of any distance take."""
        return {"distance": self.distance, "margin": self.margin, "normalize": self.normalize, **self.common()}


Terms = Callable[[Setting, Problem, Any], list[Term]]  # of a batch with `labels` and `ids`
BETA = 1.25
CLASS_BETAS = [0.5, 1.0, 1.25, 1.5, 0.75]
SAMPLE_BETAS = [place / 8 for place in range(12)]


@dataclass(frozen=True)
class Defined:
    """A loss and its definition: `make(setting)` and `terms(setting, problem, sample)`."""

    make: Callable[[Setting], trivet.EmbeddingLoss]
    terms: Terms
    reductions: Sequence[str]
    distances: Sequence[str] = tuple(DISTANCES)
    unit: bool = False
    sets_only: bool = False
    numbered: bool = False
    ids: bool = False
    pairs: bool = False
    positives_only: bool = True
    graded: bool = False


def triplet_terms(value: Callable[[Setting, float, float], float]) -> Terms:
    """Terms of a formula on D(a, p) and D(a, n), or D(p, n); the objective's sum holds the anchor as a positive."""

    def terms(setting: Setting, problem: Problem, sample: Any) -> list[Term]:
        found = []
        for a in range(len(problem.anchors)):
            for p, n in reference.tuples_of(problem, a, setting.positives, setting.negatives):
                far = problem.d(a, n)
                if setting.variant == "pn":
                    far = reference.measure(problem.references[p], problem.references[n], problem.kind)
                found.append(Term(a, (value(setting, problem.d(a, p), far),), pull=problem.d(a, p)))
            if setting.reduction == "objective":
                _, negatives = reference.pairs_of(problem, a, setting.positives, setting.negatives)
                found += [Term(a, (value(setting, 0.0, problem.d(a, n)),), pull=0.0) for n in negatives]
        return found

    return terms


def contrastive_terms(setting: Setting, problem: Problem, sample: Any) -> list[Term]:
    return reference.pair_terms(
        problem, setting.positives, setting.negatives,
        lambda a, p: max(0.0, problem.d(a, p) - setting.margin / 2),
        lambda a, n: max(0.0, setting.margin - problem.d(a, n)), joined=False,
    )  # fmt: skip


def relevance_margin_terms(setting: Setting, problem: Problem, sample: Any) -> list[Term]:
    def margin(a: int, j: int) -> float:
        return setting.margin * (1 - problem.relevance(a, j))

    return reference.pair_terms(
        problem, setting.positives, setting.negatives,
        lambda a, p: max(0.0, problem.d(a, p) - (setting.margin / 2 + margin(a, p))),
        lambda a, n: max(0.0, margin(a, n) - problem.d(a, n)), joined=False,
    )  # fmt: skip


def margin_terms(betas: Sequence[float] | None, key: str = "") -> Terms:
    def terms(setting: Setting, problem: Problem, sample: Any) -> list[Term]:
        def beta(a: int) -> float:
            return BETA if betas is None else betas[getattr(sample, key)[a]]

        found = reference.pair_terms(
            problem, setting.positives, setting.negatives,
            lambda a, p: max(0.0, problem.d(a, p) - beta(a) + setting.margin),
            lambda a, n: max(0.0, beta(a) - problem.d(a, n) + setting.margin),
            joined=True,
        )  # fmt: skip
        if setting.reduction == "objective":
            found += [Term(a, (max(0.0, setting.margin - beta(a)),)) for a in range(len(problem.anchors))]
        return found

    return terms


def unhinged_margin_terms(setting: Setting, problem: Problem, sample: Any) -> list[Term]:
    return reference.pair_terms(
        problem, setting.positives, setting.negatives,
        lambda a, p: reference.unhinged_pair(problem.d(a, p), 1, BETA, setting.margin),
        lambda a, n: reference.unhinged_pair(problem.d(a, n), -1, BETA, setting.margin), joined=True,
    )  # fmt: skip


def with_betas(betas: list[float], **options: int) -> Callable[[Setting], trivet.EmbeddingLoss]:
    def make(setting: Setting) -> trivet.EmbeddingLoss:
        loss = trivet.MarginLoss(**options, **setting.of_distances())
        loss.beta.data = torch.tensor(betas, dtype=torch.float64)
        return loss

    return make


OF_MARGIN = {"terms": margin_terms(None), "reductions": trivet.MarginLoss.reductions, "pairs": True}
DEFINED = {
    "triplet": Defined(
        lambda s: trivet.TripletLoss(variant=s.variant, **s.of_distances()),
        triplet_terms(lambda s, near, far: max(0.0, near - far + s.margin)),
        trivet.TripletLoss.reductions,
    ),
    "soft triplet": Defined(
        lambda s: trivet.TripletLoss(variant=s.variant, soft=True, soft_margin=s.margin, **s.of_distances()),
        triplet_terms(lambda s, near, far: reference.log_one_plus_exp(near - far + s.margin)),
        ["mean", "sum"],
    ),
    "contrastive": Defined(
        lambda s: trivet.ContrastiveLoss(positive_margin=s.margin / 2, **s.of_distances()),
        contrastive_terms,
        trivet.ContrastiveLoss.reductions,
        pairs=True,
    ),
    "contrastive by relevance": Defined(
        lambda s: trivet.ContrastiveLoss(positive_margin=s.margin / 2, relevance_margin=True, **s.of_distances()),
        relevance_margin_terms,
        trivet.ContrastiveLoss.reductions,
        pairs=True,
        graded=True,
    ),
    "margin": Defined(lambda s: trivet.MarginLoss(beta=BETA, **s.of_distances()).double(), **OF_MARGIN),
    "margin, fixed beta": Defined(
        lambda s: trivet.MarginLoss(beta=BETA, learn_beta=False, **s.of_distances()).double(), **OF_MARGIN
    ),
    "margin, beta per class": Defined(
        with_betas(CLASS_BETAS, num_classes=5),
        **{**OF_MARGIN, "terms": margin_terms(CLASS_BETAS, "labels"), "numbered": True},
    ),
    "margin, beta per sample": Defined(
        with_betas(SAMPLE_BETAS, num_samples=12),
        **{**OF_MARGIN, "terms": margin_terms(SAMPLE_BETAS, "ids"), "ids": True},
    ),
    "multi-similarity": Defined(
        lambda s: trivet.MultiSimilarityLoss(threshold=s.margin, skip_if_any_empty=s.skip_if_any_empty, **s.common()),
        lambda s, problem, sample: reference.multi_similarity_terms(
            problem, s.positives, s.negatives, 2.0, 50.0, s.margin, s.skip_if_any_empty
        ),
        trivet.MultiSimilarityLoss.reductions,
        ["cosine"],
        unit=True,
        pairs=True,
    ),
    "multi-similarity by relevance": Defined(
        lambda s: trivet.MultiSimilarityLoss(threshold=s.margin, relevance_margin=True, **s.common()),
        lambda s, problem, sample: reference.multi_similarity_terms(
            problem, s.positives, s.negatives, 2.0, 50.0, s.margin, False, relevance_margin=True
        ),
        trivet.MultiSimilarityLoss.reductions,
        ["cosine"],
        unit=True,
        pairs=True,
        graded=True,
    ),
    "NCA": Defined(
        lambda s: trivet.NCATripletLoss(temperature=0.5, **s.common()),
        triplet_terms(lambda s, near, far: reference.nca(1 - near, 1 - far, 0.5)),
        trivet.NCATripletLoss.reductions,
        ["cosine"],
        unit=True,
    ),
    "second-order": Defined(
        lambda s: trivet.SecondOrderTripletLoss(**s.common()),
        triplet_terms(lambda s, near, far: reference.second_order(1 - near, 1 - far)),
        trivet.SecondOrderTripletLoss.reductions,
        ["cosine"],
        unit=True,
    ),
    "selectively contrastive": Defined(
        lambda s: trivet.SelectivelyContrastiveLoss(hard_weight=0.75, **s.common()),
        triplet_terms(lambda s, near, far: reference.selectively_contrastive(1 - near, 1 - far, 0.75)),
        trivet.SelectivelyContrastiveLoss.reductions,
        ["cosine"],
        unit=True,
    ),
    "n-pair": Defined(
        lambda s: trivet.NPairLoss(temperature=0.5, normalize=s.normalize, **s.common()),
        lambda s, problem, sample: reference.n_pair_terms(problem, s.positives, s.negatives, 0.5),
        trivet.NPairLoss.reductions,
        ["squared_euclidean"],
        sets_only=True,
        pairs=True,
    ),
    "supcon": Defined(
        lambda s: trivet.SupConLoss(temperature=0.5, **s.of_anchors()),
        lambda s, problem, sample: reference.set_terms(
            problem, s.positives, s.negatives, lambda *chosen: reference.supcon(problem, *chosen, 0.5), both=False
        ),
        trivet.SupConLoss.reductions,
        ["cosine"],
        unit=True,
        pairs=True,
        positives_only=False,
    ),
    "circle": Defined(
        lambda s: trivet.CircleLoss(margin=s.margin, scale=6.0, **s.of_anchors()),
        lambda s, problem, sample: reference.set_terms(
            problem, s.positives, s.negatives, lambda *chosen: reference.circle(problem, *chosen, s.margin, 6.0), True
        ),
        trivet.CircleLoss.reductions,
        ["cosine"],
        unit=True,
        pairs=True,
        positives_only=False,
    ),
    "approximate NDCG": Defined(
        lambda s: trivet.ApproxNDCGLoss(temperature=0.25, **s.of_anchors()),
        lambda s, problem, sample: reference.set_terms(
            problem, s.positives, s.negatives, lambda *chosen: reference.approx_ndcg(problem, *chosen, 0.25), both=False
        ),
        trivet.ApproxNDCGLoss.reductions,
        ["cosine"],
        unit=True,
        pairs=True,
        positives_only=False,
        graded=True,
    ),
    "unhinged triplet": Defined(
        lambda s: trivet.UnhingedTripletLoss(margin=s.margin, **s.common()),
        triplet_terms(lambda s, near, far: reference.unhinged_triplet(near, far, s.margin)),
        trivet.UnhingedTripletLoss.reductions,
        ["euclidean"],
        unit=True,
    ),
    "unhinged margin": Defined(
        lambda s: trivet.UnhingedMarginLoss(margin=s.margin, beta=BETA, **s.common()),
        unhinged_margin_terms,
        trivet.UnhingedMarginLoss.reductions,
        ["euclidean"],
        unit=True,
        pairs=True,
    ),
}


def proxy_nca_terms(rows: list[list[float]], labels: list[int], proxies: list[list[float]]) -> list[float]:
    return [reference.proxy_nca(row, label, proxies, 9.0) for row, label in zip(rows, labels, strict=True)]


def proxy_anchor_terms(rows: list[list[float]], labels: list[int], proxies: list[list[float]]) -> list[float]:
    return reference.proxy_anchor(rows, labels, proxies, 4.0, 0.25) if rows else []


def softmax_terms(sub_centers: int, margined: Callable[[float], float]) -> Callable[..., list[float]]:
    def terms(rows: list[list[float]], labels: list[int], proxies: list[list[float]]) -> list[float]:
        items = zip(rows, labels, strict=True)
        return [reference.margin_softmax(row, label, proxies, sub_centers, 4.0, margined) for row, label in items]

    return terms


OF_PROXIES: dict[str, tuple[Callable[..., trivet.EmbeddingLoss], Callable[..., list[float]]]] = {
    "proxy-NCA": (trivet.ProxyNCALoss, proxy_nca_terms),
    "proxy-anchor": (lambda *d, **o: trivet.ProxyAnchorLoss(*d, scale=4.0, margin=0.25, **o), proxy_anchor_terms),
    "arcface": (
        lambda *d, **o: trivet.ArcFaceLoss(*d, scale=4.0, margin=0.7, sub_centers=2, **o),
        softmax_terms(2, lambda s: reference.arcface_margin(s, 0.7)),
    ),
    "cosface": (lambda *d, **o: trivet.CosFaceLoss(*d, scale=4.0, **o), softmax_terms(1, lambda s: s - 0.35)),
}
