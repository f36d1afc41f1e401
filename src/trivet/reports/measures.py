"""The measures as pages show them: names, meanings, units, and values by chance."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trivet.reports.items import is_number
from trivet.reports.page import MISSING, number, percent


@dataclass(frozen=True)
class Measure:
    """A measure as pages show it.

    Attributes:
        name: as people write it.
        meaning: in words; empty where the name says it.
        unit: a "share" is shown in percent, a "number" as it is.
        better: the good end of its scale, if there is one.
        chance: its value without knowledge of the classes; None where that depends on the data, and is in the record.
    """

    name: str
    meaning: str = ""
    unit: Literal["share", "number"] = "share"
    better: Literal["more", "less"] | None = None
    chance: float | None = None

    def show(self, value: Any) -> str:
        """A value with its unit."""
        if self.unit == "number":
            return plain(value)
        return f"{percent(value)}\u00a0%" if is_number(value) else MISSING


def plain(value: Any) -> str:
    """A number to three digits, a count whole."""
    if not is_number(value):
        return MISSING
    return number(round(value)) if isinstance(value, int) or abs(value) >= 1000 else f"{value:.3g}".replace("-", "−")


EVALUATION = {
    "recall@K": Measure("recall@K", "Share of the queries with an item of their class among their K nearest (CMC)."),
    "precision@K": Measure("precision@K", "Share of items of the query's class among its K nearest, averaged."),
    "found@K": Measure("found@K", "Share of all items of the query's class that are among its K nearest, averaged."),
    "map@K": Measure(
        "MAP@K", "Precision at each correct item among the K nearest, summed and divided by R or, if it is smaller, K."
    ),
    "r-precision": Measure(
        "R-precision", "Precision among the R nearest, where R items of the gallery have the query's class."
    ),
    "map@r": Measure(
        "MAP@R",
        "Precision at each correct item among the R nearest, summed and divided by R; it takes order into account.",
    ),
    "map": Measure("mAP", "Mean over all items of the query's class, however far, of the precision up to each."),
    "mrr": Measure("MRR", "Mean of 1 / rank of the first item of the query's class."),
    "ndcg": Measure(
        "nDCG",
        "Correct items among the K nearest, or among all, one at rank i counting 1 / log2(i + 1), over the best "
        "order's.",
    ),
    "nmi": Measure(
        "NMI", "Normalized mutual information of the classes with as many k-means clusters, over the mean entropy."
    ),
    "nmi-geometric": Measure("NMI, geometric", "The same, over the geometric mean of the two entropies."),
    "ami": Measure(
        "AMI", "Mutual information adjusted for chance: 0 for clusters unrelated to the classes.", chance=0.0
    ),
    "nmi+": Measure(
        "NMI+", "NMI with several times more clusters than classes: does not penalise classes with several modes."
    ),
    "roc-auc": Measure(
        "ROC AUC", "Probability that a same-class pair is closer than a different-class pair.", chance=0.5
    ),
    "tar@far": Measure(
        "TAR@FAR",
        "Share of same-class pairs accepted at the distance that accepts the given share of different-class pairs.",
    ),
    "verification-accuracy": Measure(
        "accuracy",
        "Mean accuracy on same-class and different-class pairs, the threshold chosen on the other half of the classes.",
        chance=0.5,
    ),
}
"""Measures of an evaluation, in their order on a page; see `measure_key`."""

CLUSTERING = ("nmi", "nmi-geometric", "ami", "nmi+")
VERIFICATION = ("roc-auc", "tar@far", "verification-accuracy")

DIAGNOSIS = {
    "items": Measure("items", unit="number"),
    "dimension": Measure("dimension", "numbers per item", "number"),
    "classes": Measure("classes", unit="number"),
    "recall": Measure("recall@1", "items whose nearest other item is of their class", better="more"),
    "chance": Measure("recall@1 by chance", "if all items were at one point"),
    "chance_high": Measure("the same at most", "in 99 % of the permutations of the labels"),
    "centred_recall": Measure("recall@1, sides centred", "with the mean row of each side subtracted"),
    "map_at_r": Measure("MAP@R", "how far the items of a class stand before all others, of 1,000 items"),
    "reference_map_at_r": Measure("MAP@R of the reference", "the same there"),
    "recall_of_lost": Measure("recall@1 of the classes that lost"),
    "reference_recall_of_lost": Measure("the same in the reference"),
    "relative_spread": Measure("relative spread", "0: all items equal; 1: spread around the origin", "number"),
    "effective_rank": Measure("effective rank", "number of directions in use", "number"),
    "first_axis": Measure("first axis", "share of the variance along one line"),
    "occupied": Measure("spots", "effective number of distinct places", "number"),
    "occupied_widely": Measure("spots, widely", "the same at a coarser scale", "number"),
    "effective_classes": Measure("effective classes", "effective number of classes", "number"),
    "class_spread": Measure("class spread", "distances within a class over those to others; 0: a point", "number"),
    "modes": Measure("modes of a class", "separate blobs that its items form, mean over the classes", "number"),
    "nmi": Measure("NMI", "agreement with as many clusters as classes"),
    "nmi_plus": Measure("NMI+", "agreement with ten times as many clusters"),
    "reference_class_spread": Measure("class spread of the reference", "the same of the reference", "number"),
    "reference_split": Measure("classes split in the reference", "share of classes with at least two modes there"),
    "reference_modes": Measure("modes in the reference", "mean over classes, by a stricter count", "number"),
    "mode_index": Measure(
        "mode index", "distances between modes of the reference over those between classes; 0: merged", "number"
    ),
    "reference_mode_index": Measure(
        "mode index of the reference", "the same there; far above 1: classes of unrelated things", "number"
    ),
    "reference_mode_sharing": Measure(
        "mode sharing of the reference", "how far the same thing parts every class there"
    ),
    "retention": Measure(
        "neighbours kept", "share of neighbours within classes kept from the reference; 0: as by chance"
    ),
    "hubness": Measure("hubness", "0: all items are as often among the ten nearest of others", "number"),
    "unfound": Measure("unfound", "share of items among nobody's ten nearest", better="less"),
    "reference_hubness": Measure("hubness of the reference", "the same there", "number"),
    "reference_unfound": Measure("unfound in the reference", "the same there"),
    "displaced": Measure("displaced", "items far from where the reference has them, unlike others", better="less"),
    "structure": Measure("structure in these classes", "0: no more than noise"),
    "reference_structure": Measure("the same in the reference"),
    "rounding_loss": Measure("lost to rounding", "recall@1 lost where distances are computed by products"),
    "reference_rounding_loss": Measure("lost to rounding in the reference", "the same there"),
    "precision": Measure("precision", "relative rounding error of a coordinate", "number"),
    "strangers": Measure("strangers", "share of items surrounded by items of one other label", better="less"),
    "reference_shrinkage": Measure("mean distance ÷ reference", "below 1: the embedding shrank", "number"),
    "reference_spread": Measure("relative spread ÷ reference", "below 1: spread was lost", "number"),
    "norm": Measure("norm", "root mean square length of the rows", "number"),
    "norm_tail": Measure("norm tail", "largest length over the median", "number"),
    "diameter": Measure("diameter", "largest distance of two items", "number"),
    "mean_distance": Measure("mean distance", "of all pairs", "number"),
    "median_distance": Measure("median distance", "of all pairs", "number"),
    "uniformity": Measure("uniformity", "0: one point; lower: more uniform on the sphere", "number"),
    "alignment": Measure("alignment", "mean squared distance between items of a class on the sphere", "number"),
    "copies": Measure("copies", "share of items that equal another one", better="less"),
    "dropped": Measure("dropped anchors", "share of anchors without a triplet"),
    "active_fraction": Measure("active terms", "share of triplets with a gradient"),
    # What an event of the monitor rests on.
    "contraction": Measure("contraction", "relative spread, as a power of 2", "number"),
    "trend": Measure("trend", "the same over that at half of the steps; below 0 it falls", "number"),
    "within_between": Measure(
        "within ÷ between", "distances within classes over those between them; 1: no separation", "number"
    ),
    "hard": Measure("hard", "items whose farthest positive is farther than their nearest negative"),
    "negatives_approach": Measure("negatives approach", "growth of the similarity to the nearest negative", "number"),
    "fine_recall": Measure(
        "fine recall", "items whose nearest other item, in batches nearest positive, is of their finer class"
    ),
    "best_fine_recall": Measure("best fine recall", "of the attempt so far"),
    "shrinkage": Measure("shrinkage", "mean distance of a batch over that of the first", "number"),
    "shrinkage_change": Measure("change of the shrinkage", "the same over that after half as many steps", "number"),
    "forecast_of_a_point": Measure("forecast", "probability that the embedding shrinks to a point"),
}
"""Measures of a diagnosis, in their order on a page, and then those of the monitor."""

OVERS: tuple[Literal["queries"], Literal["classes"]] = ("queries", "classes")
SAMPLED = {"queries": "other items", "classes": "other classes"}
"""What an interval is about: other items of these classes, as queries and in the gallery, or other classes."""
SAMPLED_PAIRS = {**SAMPLED, "classes": "other groups"}
"""The same of pairs."""


def finite(value: object) -> float | None:
    """The number, or None for what is not one."""
    return value if is_number(value) else None


def interval(ends: Sequence[Any] | None) -> Sequence[float] | None:
    """The ends, or None where one of them is no number."""
    return ends if ends and all(map(is_number, ends)) else None


def together(lists: Iterable[Sequence[str]]) -> list[str]:
    """Names of all lists, each once, in their order."""
    return list(dict.fromkeys(name for names in lists for name in names))


def in_order(measured: Iterable[str]) -> list[str]:
    """Recalls by their K, then the measures of `EVALUATION`, of those that were measured."""
    known = set(measured)
    recalls = sorted((name for name in known if re.fullmatch(r"recall@\d+", name)), key=lambda name: int(name[7:]))
    return [*recalls, *(name for name in EVALUATION if name in known)]


def best_text(texts: Iterable[str]) -> str | None:
    """The largest number as shown; None where all are equal, or there is one."""
    numbers = {text for text in texts if text != MISSING}
    return max(numbers, key=float) if len(numbers) > 1 else None


def measure_key(name: str) -> str:
    """The key in `EVALUATION` of a measure of a record, which has a number for K, or a rate."""
    key = re.sub(r"@\d+$", "@K", re.sub(r"=[^_]*$", "", name))
    return "ndcg" if key == "ndcg@K" else key


def named(measure: str | None) -> str:
    """A measure of an evaluation as people write it."""
    name = measure or ""
    if name.startswith("tar@far="):
        return f"TAR@FAR {100 * float(name.removeprefix('tar@far=')):g}\u00a0%"
    known, (_, at, k) = EVALUATION.get(measure_key(name)), name.partition("@")
    if known is None:
        return name
    return known.name.removesuffix("@K") + at + k if k.isdigit() else known.name


def short_name(measure: str) -> str:
    """The same in the head of a column."""
    return named(measure).replace("recall@", "R@")


def between(ends: Sequence[Any] | None, render: Callable[[float | None], str] = percent) -> str:
    """An interval in words."""
    known = interval(ends)
    return MISSING if known is None else f"{render(known[0])} to {render(known[1])}"


def by_chance(measure: str, share: float | None) -> str:
    """A share that is a small power of ten keeps its digits."""
    return f"{100 * share:g}" if share is not None and measure.startswith("tar@far=") else percent(share)
