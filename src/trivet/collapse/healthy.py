"""The verdict on an embedding against which no rule speaks: healthy, or spread out, and what is open."""

from __future__ import annotations

import numpy as np

from trivet.collapse.measures import Measures
from trivet.collapse.rules import above_chance
from trivet.collapse.significance import OF_CLASSES, Comparison, in_words, rank_biased_words, signed_points
from trivet.collapse.thresholds import THRESHOLDS
from trivet.collapse.verdict_type import Verdict
from trivet.runtime.caller import for_caller
from trivet.runtime.text import counted

SPREAD = 0.25  # relative spread from which items are called well spread


def healthy_verdict(measures: Measures) -> Verdict:
    """An embedding against which no rule speaks: healthy, if it was shown to be good."""
    level = measures.comparisons[0].level if measures.comparisons else ""
    single = measures.chance == 0
    informed = measures.recall - measures.chance > 0.1 * (1 - measures.chance)
    open_ = doubts(measures)
    if single:
        which = "class has two items" if measures.per_class else "item belongs together with another"
        rule = f"no {which}, so recall@1 cannot be measured"
    elif not known(measures):
        rule = "there are too few items to tell whether recall@1 is above chance"
    elif not measures.comparisons:
        rule = "whether it is good was not asked"
    elif open_:
        rule = f"whether it is as good as its references is open: {comparison_text(open_[0], level)}"
    elif not informed:
        rule = "it is no worse than its references, but knows hardly more of the labels than chance"
    else:
        return open_question(measures) or Verdict(
            "healthy",
            None,
            _evidence(measures, level),
            f"spread out, and {_as_good_as(measures, level)}: {_against(measures, level)}",
            f"{_spread_in_words(measures)}{', at no loss to retrieval' if measures.relative_spread < SPREAD else ''}.",
        )
    cause = f"{_spread_in_words(measures)}. That says nothing of how good the embedding is."
    if not informed and not single and known(measures):
        cause = "Items are well spread, but hardly by class: the embedding carries little information on these labels."
    if not measures.comparisons and not single:
        cause += for_caller(
            " To ask, give the same items embedded before training, or their raw inputs, by --reference FILE."
        )
    return Verdict("spread-out", None, _evidence(measures), rule, cause)


def _spread_in_words(measures: Measures) -> str:
    if measures.relative_spread < SPREAD:
        return "Items lie close together beside their distance from the origin"
    if measures.first_axis is not None and measures.first_axis > THRESHOLDS["line"].value:
        return "Items lie apart, but not in all directions"
    if measures.class_spread < THRESHOLDS["tight"].value:
        return "Classes lie far apart beside their size"
    return "Items and classes are well spread"


def open_question(measures: Measures) -> Verdict | None:
    """The verdict on an embedding that is as good as its references by recall@1, but perhaps not in all; else None."""
    level = measures.comparisons[0].level if measures.comparisons else ""
    if measures.lost:
        return _lost_classes(measures, level)
    for name, comparisons in (("MAP@R", measures.rankings), ("nDCG@10", measures.gradings)):
        if lower := [comparison for comparison in comparisons if perhaps_worse(comparison)]:
            return _lower_ranks(lower, name, measures, level)
    if came_closer(measures):
        return _open_inside(measures, level)
    if (inside := _inside(measures)) is not None:
        return _open(
            measures,
            level,
            {"retention": measures.retention or 0.0},
            inside,
            "What told the items of a class apart there is gone, or was noise. A finer label would show it.",
        )
    if measures.unfound - (measures.reference_unfound or 0.0) >= THRESHOLDS["unfound"].value:
        return _open(
            measures,
            level,
            {"unfound": measures.unfound, "reference_unfound": measures.reference_unfound or 0.0},
            f"{100 * measures.unfound:.1f} % of the items are among the ten nearest of no other, against "
            f"{100 * (measures.reference_unfound or 0.0):.1f} % in the reference",
            "Such items are hardly ever found by a search: others are hubs, or their norms differ much.",
        )
    if measures.rounding_loss - (measures.reference_rounding_loss or 0.0) >= THRESHOLDS["worse"].value:
        return _open(
            measures,
            level,
            {"rounding_loss": measures.rounding_loss},
            f"computed by products in {precision_name(measures)}, recall@1 is {100 * measures.rounding_loss:.1f} "
            "points lower",
            "Distances are near the rounding error, so the result depends on how a search computes them.",
        )
    return None


def _inside(measures: Measures) -> str | None:
    """The share of neighbours within the classes that is left, in words, where that is as by chance; else None."""
    limit = THRESHOLDS["retained"].value
    if measures.retention is None or measures.per_class is None or measures.per_class.retention is None:
        return None
    if measures.retention < limit:
        return (
            "of the neighbours that items have within their class in the reference "
            f"{100 * max(0.0, measures.retention):.0f} % are left, about as many as by chance"
        )
    values = measures.per_class.retention[np.isfinite(measures.per_class.retention)]
    lost = max(int((values < limit).sum()), len(measures.lost_inside))
    if len(measures.lost_inside) or lost >= THRESHOLDS["hollow"].value * len(values):
        return (
            f"in {lost} of {counted(measures.classes, 'class')} about as few of the neighbours that items have there "
            "in the reference are left as by chance"
        )
    return None


def precision_name(measures: Measures) -> str:
    """The dtype in which `rounding_loss` was measured."""
    return "float64" if measures.precision < 1e-10 else "float32"


def _open(measures: Measures, level: str, evidence: dict[str, float], rule: str, cause: str) -> Verdict:
    rule = f"{_as_good_as(measures, level)}: {_against(measures, level)}; but {rule}"
    return Verdict("spread-out", None, _evidence(measures, level) | evidence, rule, cause)


def _evidence(measures: Measures, level: str | None = None) -> dict[str, float]:
    """The shape and recall@1; and recall@1 of the references at a level."""
    return {
        "relative_spread": measures.relative_spread,
        "effective_rank": measures.effective_rank,
        "class_spread": measures.class_spread,
        "recall@1": measures.recall,
    } | {
        f"recall@1 of {comparison.reference}": comparison.reference_score
        for comparison in measures.comparisons
        if comparison.level == level
    }


def _against(measures: Measures, level: str) -> str:
    """Recall@1 beside that of each reference, in words."""
    comparisons = [comparison for comparison in measures.comparisons if comparison.level == level]
    others = " and ".join(
        f"{100 * comparison.reference_score:.1f} % of {in_words(comparison.reference)}" for comparison in comparisons
    )
    return f"recall@1 {100 * comparisons[0].score:.1f} %, against {others}"


def _as_good_as(measures: Measures, level: str) -> str:
    """Text on whether a reference is above, by less than a point."""
    lower = any(comparison.difference < 0 for comparison in measures.comparisons if comparison.level == level)
    return "within a point of every reference or above" if lower else "at least as good as every reference"


def _lost_classes(measures: Measures, level: str) -> Verdict:
    """Verdict on an embedding that is as good as its references over all items, while some classes were lost."""
    lost, items = measures.lost, sum(loss.items for loss in measures.lost)
    recall = sum(loss.items * loss.recall for loss in lost) / items
    before = sum(loss.items * loss.reference_recall for loss in lost) / items
    count = f"{counted(len(lost), 'class')} of {measures.classes}"
    return Verdict(
        "spread-out",
        None,
        _evidence(measures, level) | {"recall_of_lost": recall, "reference_recall_of_lost": before},
        f"{_as_good_as(measures, level)} over all items, {_against(measures, level)}, but {count} lost: recall@1 "
        f"of {'its' if len(lost) == 1 else 'their'} items is {100 * recall:.1f} %, against {100 * before:.1f} %",
        "Whether the gain of the others is worth that is for you to decide.",
    )


def _lower_ranks(lower: list[Comparison], name: str, measures: Measures, level: str) -> Verdict:
    """Verdict on an embedding that finds the nearest item as often as its references, but less of the class.

    Args:
        lower: by the measure of that name; "perhaps" where none is beyond doubt.
    """
    key = name.lower().replace("@", "_at_")
    maps = {key: lower[0].score, f"reference_{key}": lower[0].reference_score}
    all_items = "all items of a class" if measures.per_class else "all items that belong together"
    text = "; ".join(
        f"{name}{'' if ranking.level == level else f' by {ranking.level}'} is {100 * ranking.score:.1f} %, against "
        f"{100 * ranking.reference_score:.1f} % of {in_words(ranking.reference)}"
        for ranking in lower
    )
    perhaps = "" if any(ranking.worse for ranking in lower) else "perhaps "
    return Verdict(
        "spread-out",
        None,
        _evidence(measures) | maps | _evidence(measures, level),
        f"{_as_good_as(measures, level)} by the nearest item, {_against(measures, level)}, but {perhaps}not by "
        f"{all_items}: {text}",
        f"The nearest item {'is of the same class' if measures.per_class else 'belongs to an item'} as often as in "
        f"every reference, but {perhaps}fewer of those after it are. Decide by the measure that your search needs."
        if name == "MAP@R"
        else f"The nearest item is right as often as in every reference, but the first ten are {perhaps}less relevant. "
        "Decide by the measure that your search needs.",
    )


def _open_inside(measures: Measures, level: str) -> Verdict:
    """Verdict on an embedding that is as good as its references by labels, while modes within classes came closer."""
    now, before = measures.mode_index or 0.0, measures.reference_mode_index or 0.0
    return Verdict(
        "spread-out",
        None,
        _evidence(measures, level) | {"mode_index": now, "reference_mode_index": before},
        f"{_as_good_as(measures, level)}: {_against(measures, level)}; but the modes that the reference shows "
        f"within a class came closer, from {before:.2g} to {now:.2g} times as far apart as the classes",
        "The same thing parts every class there, such as a device, a style or a colour. Whether its merging is a loss "
        "cannot be told: it is what training is for, unless you search by it."
        if parted_alike(measures)
        else "Whether that is a loss cannot be told: it is what training is for, unless something finer than the label "
        "matters. A finer label would show it.",
    )


def as_good(measures: Measures) -> bool:
    """Return whether recall@1 is above chance and, within a point, that of every reference or higher."""
    return bool(measures.comparisons) and not doubts(measures) and known(measures)


def known(measures: Measures) -> bool:
    """Return whether recall is above chance beyond doubt."""
    return above_chance(measures.recall, measures.chance_high)


def doubts(measures: Measures) -> list[Comparison]:
    return [comparison for comparison in measures.comparisons if perhaps_worse(comparison)]


def perhaps_worse(comparison: Comparison) -> bool:
    """Return whether a measure is below that of a reference by so much that it would count as a loss."""
    return comparison.difference <= -THRESHOLDS["worse"].value


def came_closer(measures: Measures) -> bool:
    """Return whether modes of the reference lie nearer to each other than classes: a loss, or the aim of training."""
    index = counted_index(measures)
    return index is not None and index < THRESHOLDS["closer"].value


def counted_index(measures: Measures) -> float | None:
    """The mode index, where the reference shows modes in so many classes that they are no accident."""
    return measures.mode_index if (measures.reference_split or 0) >= THRESHOLDS["seen"].value else None


def intact(measures: Measures) -> bool:
    """Return whether items have the neighbours within their class that they have in the reference, however tight."""
    return (measures.retention or 0) >= THRESHOLDS["intact"].value


def parted_alike(measures: Measures) -> bool:
    """Return whether the same thing parts every class of the reference, so that it is no thing of a class."""
    return (measures.reference_mode_sharing or 0) >= THRESHOLDS["sharing"].value


def comparison_text(comparison: Comparison, level: str) -> str:
    """A comparison in words, with its numbers."""
    by = "" if comparison.level == level else f" by {comparison.level}"
    change = f"{100 * abs(comparison.difference):.1f} points {'less' if comparison.difference < 0 else 'more'}"
    classes = OF_CLASSES if comparison.known_classes else ""
    return (
        f"recall@1{by} {100 * comparison.score:.1f} %, against {100 * comparison.reference_score:.1f} % of "
        f"{in_words(comparison.reference)}: {change} (interval {signed_points(comparison.low)} to "
        f"{signed_points(comparison.high)}{rank_biased_words(comparison.rank_biased)}{classes})"
    )
