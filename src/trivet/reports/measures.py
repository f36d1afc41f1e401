"""Names, explanations and order of the evaluation measures on the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from trivet.reports.items import is_number
from trivet.reports.page import MISSING, percent

NAMES = {
    "r-precision": "R-precision",
    "map@r": "MAP@R",
    "map": "mAP",
    "mrr": "MRR",
    "ndcg": "nDCG",
    "nmi": "NMI",
    "nmi-geometric": "NMI, geometric",
    "ami": "AMI",
    "nmi+": "NMI+",
    "roc-auc": "ROC AUC",
    "tar@far": "TAR@FAR",
    "verification-accuracy": "accuracy",
}

AT_K = {"map": "MAP", "ndcg": "nDCG"}  # before their @K

CLUSTERING = ("nmi", "nmi-geometric", "ami", "nmi+")

VERIFICATION = r"roc-auc|tar@far(=[^_]*)?|verification-accuracy"

# Without knowledge of the classes; the chance of a retrieval measure depends on the data and is in the record.
CHANCE = {"ami": 0.0, "roc-auc": 0.5, "verification-accuracy": 0.5}

GLOSSARY = (
    (r"recall@\d+", "recall@K", "Share of the queries with an item of their class among their K nearest (CMC)."),
    (r"precision@\d+", "precision@K", "Share of items of the query's class among its K nearest, averaged."),
    (r"found@\d+", "found@K", "Share of all items of the query's class that are among its K nearest, averaged."),
    (
        r"map@\d+",
        "MAP@K",
        "Precision at each correct item among the K nearest, summed and divided by R or, if it is smaller, K.",
    ),
    (
        r"ndcg(@\d+)?",
        "nDCG",
        "Correct items among the K nearest, or among all, one at rank i counting 1 / log2(i + 1), over the best "
        "order's.",
    ),
    (
        "r-precision",
        "R-precision",
        "Precision among the R nearest, where R items of the gallery have the query's class.",
    ),
    (
        "map@r",
        "MAP@R",
        "Precision at each correct item among the R nearest, summed and divided by R; it takes order into account.",
    ),
    ("map", "mAP", "Mean over all items of the query's class, however far, of the precision up to each."),
    ("mrr", "MRR", "Mean of 1 / rank of the first item of the query's class."),
    (
        "nmi",
        "NMI",
        "Normalized mutual information of the classes with as many k-means clusters, over the mean entropy.",
    ),
    ("nmi-geometric", "NMI, geometric", "The same, over the geometric mean of the two entropies."),
    ("ami", "AMI", "Mutual information adjusted for chance: 0 for clusters unrelated to the classes."),
    (
        r"nmi\+",
        "NMI+",
        "NMI with several times more clusters than classes: does not penalise classes with several modes.",
    ),
    ("roc-auc", "ROC AUC", "Probability that a same-class pair is closer than a different-class pair."),
    (
        "tar@far.*",
        "TAR@FAR",
        "Share of same-class pairs accepted at the distance that accepts the given share of different-class pairs.",
    ),
    (
        "verification-accuracy",
        "accuracy",
        "Mean accuracy on same-class and different-class pairs, the threshold chosen on the other half of the classes.",
    ),
)


OVERS: tuple[Literal["queries"], Literal["classes"]] = ("queries", "classes")


def finite(value: object) -> float | None:
    """The number, or None for what is not one."""
    return value if is_number(value) else None


def interval(ends: Sequence[Any] | None) -> Sequence[float] | None:
    """The ends, or None where one of them is no number."""
    return ends if ends and all(map(is_number, ends)) else None


def together(lists: Iterable[Sequence[str]]) -> list[str]:
    """Names of all lists, each once, in their order."""
    return list(dict.fromkeys(name for names in lists for name in names))


def named(measure: str | None) -> str:
    """A measure as people write it."""
    if measure and measure.startswith("tar@far="):
        return f"TAR@FAR {100 * float(measure.removeprefix('tar@far=')):g}\u00a0%"
    word, _, k = (measure or "").partition("@")
    if word in AT_K and k.isdigit():
        return f"{AT_K[word]}@{k}"
    return NAMES.get(measure or "", measure or "")


def between(ends: Sequence[Any] | None, render: Callable[[float | None], str] = percent) -> str:
    """An interval in words."""
    known = interval(ends)
    return MISSING if known is None else f"{render(known[0])} to {render(known[1])}"


def by_chance(measure: str, share: float | None) -> str:
    """A share that is a small power of ten keeps its digits."""
    return f"{100 * share:g}" if share is not None and measure.startswith("tar@far=") else percent(share)
