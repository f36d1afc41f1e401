"""Rules of collapse that every judge applies, the diagnosis and the monitor: was retrieval lost, and does shape explain
it?

A network collapse means that items can no longer be told apart: retrieval was lost, and the shape says how. A shape
alone is no collapse, and a scale or a shift alone explains no loss, as neither changes Euclidean ranks: rows must be
narrower beside their norms, and nearer to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trivet.collapse.significance import Comparison
from trivet.collapse.thresholds import THRESHOLDS
from trivet.collapse.verdict_type import Severity

ROUNDED = 1e-9  # by which a recall, the mean of many queries, may be above one that equals it


@dataclass(frozen=True, kw_only=True)
class EmbeddingShape:
    """Shape of an embedding, beside that of a reference; None for what was not measured.

    Attributes:
        relative_spread: see `Measures`, in [0, 1].
        precision: the relative rounding error of a coordinate: eps of the dtype that the embedding came in, > 0.
        shrinkage: mean distance over that of the reference, where lengths in both mean the same.
        narrowing: relative spread over that of the reference.
        first_axis: share of the variance along one line, in [0, 1]; None below three dimensions or classes.
        spots: occupied spots over the effective number of classes, counted widely.
    """

    relative_spread: float
    precision: float
    shrinkage: float | None = None
    narrowing: float | None = None
    first_axis: float | None = None
    spots: float | None = None


def above_chance(recall: float, chance_high: float | None) -> bool:
    """Return whether recall@1 is above what permuted labels give; None for a limit that was far off."""
    return chance_high is None or recall > chance_high + ROUNDED


def by_chance(recall: float, chance: float, chance_high: float | None) -> bool:
    """Return whether recall@1 is what chance gives, of so many items that more than chance would have shown."""
    if chance_high is None or above_chance(recall, chance_high) or not 0 < chance < 1:
        return False
    above = chance_high - chance  # as much may recall be above what was measured
    near = above / (1 - chance) <= THRESHOLDS["telling"].value
    return near and recall + above <= THRESHOLDS["multiple"].value * chance + THRESHOLDS["worse"].value


def retrieval_lost(
    recall: float,
    chance: float,
    *,
    chance_high: float | None,
    comparisons: Sequence[Comparison],
    centred_recall: float | None = None,
) -> str | None:
    """Judge whether items are no longer found: the comparison that says so, in words with its numbers, else None.

    Beside references, recall@1 must be lower than each of them beyond doubt, and nearer to chance than to it; one that
    is itself no better than chance is left out, and where all are, nothing was there to lose. Without any, recall@1
    must be what chance gives.

    Args:
        recall, chance: recall@1, and that of items that are all equal, in [0, 1].
        chance_high: up to where recall@1 comes by chance; None where `recall` is far above.
        comparisons: recall@1 beside each reference, at the level of the labels.
        centred_recall: of two sides, recall@1 with each less its mean row: what that brings back was lost to the gap
            between the sides, and the items can still be told apart.
    """
    most = 0.0 if centred_recall is None else centred_recall
    if not comparisons:
        if by_chance(max(recall, most), chance, chance_high):
            return f"recall@1 is {100 * recall:.1f} %, what chance gives"
        return None
    able = [item for item in comparisons if chance_high is None or item.reference_score > chance_high]
    share = THRESHOLDS["halfway"].value
    lost = [
        item for item in able if item.worse and max(item.score, most) - chance < share * (item.reference_score - chance)
    ]
    if not able or len(lost) < len(able):
        return None
    first = lost[0]
    return (
        f"recall@1 is {100 * first.score:.1f} %, nearer to chance ({100 * chance:.1f} %) than to "
        f"{100 * first.reference_score:.1f} %"
    )


def network_collapse(lost: str | None, shape: EmbeddingShape, *, above: bool) -> tuple[Severity, str] | None:
    """Judge whether items can no longer be told apart: severity and rule, in words with its numbers, else None.

    Args:
        lost: see `retrieval_lost`.
        shape: of the embedding.
        above: whether recall@1 is above chance. Where it is not, and all differences are rounding, there is nothing to
            tell items apart by, whatever the labels and the references.
    """
    if lost is not None:
        for name, severity, rule in _shapes(shape):
            if name not in ("line", "spots") and not _narrowed(shape):
                continue
            # Without a reference nobody knows whether a cone was one before, and it may hold any order of distances.
            if name != "cone" or shape.narrowing is not None:
                return severity, f"{lost}, and {rule}"
    limit = THRESHOLDS["rounding"].value * shape.precision
    if not above and shape.relative_spread <= limit and _narrowed(shape):
        return "full", f"items differ by rounding alone: relative spread {shape.relative_spread:.3g}, up to {limit:.2g}"
    return None


def shape_note(shape: EmbeddingShape) -> str | None:
    """The shape of an embedding whose retrieval was not lost, in words; None where there is nothing to note."""
    return next((rule for _, _, rule in _shapes(shape)), None)


def _narrowed(shape: EmbeddingShape) -> bool:
    """Return whether items came closer than in the reference, by lengths and beside their norms, where these are known.

    An origin far away, a smaller scale, or as narrow before, is no loss.
    """
    limit = THRESHOLDS["narrowed"].value
    return all(ratio is None or ratio < limit for ratio in (shape.shrinkage, shape.narrowing))


def _shapes(shape: EmbeddingShape) -> Iterator[tuple[str, Severity, str]]:
    """Shapes in which items are hard to tell apart, the most severe first: threshold, severity, words with numbers."""
    t = {name: threshold.value for name, threshold in THRESHOLDS.items()}
    spread, shrinkage = shape.relative_spread, shape.shrinkage
    if spread < t["point"]:
        yield "point", "full", f"relative spread {spread:.3g}, under {t['point']:g}"
    if shrinkage is not None and shrinkage < t["gone"]:
        yield "gone", "full", f"mean distance {shrinkage:.3g} times that of the reference, under {t['gone']:g}"
    if spread < t["cone"]:
        yield "cone", "partial", f"relative spread {spread:.3g}, under {t['cone']:g}"
    if shrinkage is not None and shrinkage < t["shrunk"]:
        yield "shrunk", "partial", f"mean distance {shrinkage:.3g} times that of the reference, under {t['shrunk']:g}"
    if shape.first_axis is not None and shape.first_axis > t["line"]:
        yield (
            "line",
            "partial",
            f"{100 * shape.first_axis:.1f} % of the variance along one line, over {100 * t['line']:.0f} %",
        )
    if shape.spots is not None and shape.spots < t["spots"]:
        yield "spots", "partial", f"{shape.spots:.2g} occupied spots per class, under {t['spots']:g}"
