"""The diagnosis of an embedding: decides on every verdict (worse, chance, collapsed, healthy), by `THRESHOLDS`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trivet.collapse.advice import chance_advice, class_advice, network_advice, noise_advice
from trivet.collapse.healthy import (
    as_good,
    came_closer,
    comparison_text,
    counted_index,
    healthy_verdict,
    intact,
    known,
    open_question,
    parted_alike,
    precision_name,
)
from trivet.collapse.measures import Measures, measure
from trivet.collapse.rules import EmbeddingShape, by_chance, network_collapse, retrieval_lost, shape_note
from trivet.collapse.significance import comparison_json, in_words
from trivet.collapse.strategy import SamplingStrategy
from trivet.collapse.thresholds import THRESHOLDS, exploding_norm
from trivet.collapse.verdict_type import Severity, Verdict
from trivet.distances import Array
from trivet.losses import TripletLoss
from trivet.metrics.points import Metric
from trivet.metrics.protocols import Labels
from trivet.mining import EasyPositive
from trivet.runtime.extras import installed
from trivet.runtime.json_numbers import json_section
from trivet.runtime.text import BELOW, abbreviated, counted, noun

NAMED = 8  # rows in a rule


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """Verdicts, results and measures of one embedding.

    `print` shows the verdicts and the notes as `trivet diagnose` does; the numbers are in `measures`.
    """

    verdicts: tuple[Verdict, ...]
    measures: Measures
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*map(str, self.verdicts), *(f"Note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"Diagnosis({'; '.join(verdict.title for verdict in self.verdicts)})"

    @property
    def collapsed(self) -> bool:
        """Return whether a verdict is a collapse of the network or of the classes."""
        return any(verdict.kind in ("network-collapse", "class-collapse") for verdict in self.verdicts)

    @property
    def good(self) -> bool | None:
        """Return whether it beats chance and is at least as good as its references; None where not asked, or open."""
        kinds = {verdict.kind for verdict in self.verdicts}
        if kinds & {"no-better-than-chance", "worse-than-reference"}:
            return False
        sound = as_good(self.measures) and open_question(self.measures) is None
        return True if sound and "displaced-items" not in kinds else None

    def as_json(self) -> dict[str, Any]:
        """The verdicts, the measures without those of each class, and the notes; None where a number is not finite."""
        measures = {name: value for name, value in vars(self.measures).items() if name != "per_class"}
        measures["comparisons"] = [comparison_json(comparison) for comparison in self.measures.comparisons]
        measures["rankings"] = [comparison_json(ranking, "map_at_r") for ranking in self.measures.rankings]
        measures["gradings"] = [comparison_json(grading, "ndcg_at_10") for grading in self.measures.gradings]
        measures["fine"] = {
            level: {
                "recall@1": finer.recall,
                "chance": finer.chance,
                "split": finer.split,
                "fine_coarse_index": finer.index,
                "reference_index": finer.reference_index,
            }
            for level, finer in self.measures.fine.items()
        }
        return json_section(verdicts=self.verdicts, measures=measures, notes=self.notes)


def diagnose(
    embeddings: Array,
    labels: Labels,
    reference: Array | Mapping[str, Array] | None = None,
    strategy: SamplingStrategy | None = None,
    *,
    fine: Mapping[str, Array] | None = None,
    level: str = "labels",
    distance: Metric = "euclidean",
    trained_levels: Collection[str] = (),
    trained_items: bool = False,
    seed: int = 0,
) -> Diagnosis:
    """Say whether an embedding is any good, and whether and how it collapsed, from it and its labels.

    The result comes first: recall@1 that labels permuted at random reach as well, and recall@1 below that of a
    reference. Without either, an embedding whose shape is sound is healthy if it was compared, else only spread out.

    Network collapse: items can no longer be told apart. Recall@1 was lost, and the shape says how: all items, whatever
    their class, lie on one point, one line or a few spots. Such a shape alone is a note. Class
    collapse: each class becomes a point, or what differs inside it, which finer labels or the modes of a reference
    show, comes to lie on one spot; without either, a tight class may be no loss, and is a note. Of a relation, what
    belongs together lies on one point, and the first ten are less relevant than in a reference. The rules compare
    measures with the numbers of `THRESHOLDS`. A collapse of the network and exploding norms hide the other kinds, which
    are not looked for then.

    Args:
        embeddings: `(N, d)` floating point, N >= 2.
        labels: `(N,)` of any integer dtype, two classes or more; or a relation of N items, such as tags, or pairs, of
            both sides one after the other.
        reference: `(N, d')` the same items in another embedding, such as that of the network before training; or
            several by name. Recall@1 is compared with each, the shape with the first: lengths where it has the same
            width, and both are unit rows or neither.
        strategy: how training chooses, to find a dead sampler and to name what to change.
        fine: level -> `(N,)` integers: classes inside the classes, or inside the sets of items with equal tags.
        level: what `labels` are called.
        distance: how the embedding is compared: "euclidean" or "cosine".
        trained_levels: the levels whose classes the embedding was trained on: it is judged over other items of these
            classes, not over other classes.
        trained_items: whether it was trained on these very items: single ones may then lie elsewhere.
        seed: of the samples.

    Example:
        >>> import numpy as np
        >>> points = np.random.default_rng(0).normal(size=(200, 8))
        >>> [verdict.kind for verdict in diagnose(0 * points, np.arange(200) % 4).verdicts]
        ['no-better-than-chance', 'network-collapse']
    """
    if strategy is not None and not isinstance(strategy, SamplingStrategy):
        raise ValueError(
            f"strategy must be a trivet.collapse.Strategy of a loss and the shape of a batch: got {strategy!r}."
        )
    measures = measure(
        embeddings,
        labels,
        reference=reference,
        strategy=strategy,
        fine=fine,
        level=level,
        distance=distance,
        trained_levels=trained_levels,
        seed=seed,
    )
    verdicts = list(_exploding(measures)) if distance == "euclidean" else []  # by cosine, norms do nothing
    shape = _shape(measures, full=not verdicts)
    verdicts += _network(measures, strategy, shape, level)
    if not verdicts:
        verdicts = _class(measures, strategy)
        if not (verdicts or _by_chance(measures) or any(item.worse for item in measures.comparisons)):
            verdicts += _noisy(measures, strategy)  # an embedding that knows less than another accuses no label
        if known(measures) and not trained_items:
            verdicts += _displaced(measures)
    verdicts += _dead(measures)
    collapsed = any(verdict.kind == "network-collapse" for verdict in verdicts)
    notes = [] if collapsed else _shape_notes(measures, strategy, shape)
    notes += _notes(measures, strategy, accused=bool(verdicts))
    if distance == "cosine":
        notes += [f"Norms differ much ({item.rule}); by cosine that changes nothing." for item in _exploding(measures)]
    result = _result(measures, level, collapsed=bool(verdicts), trained=strategy is not None)
    gap = _gap(measures, distance)
    if gap is not None and result and not verdicts:
        result = [replace(verdict, cause=gap[0], changes=(gap[1], *verdict.changes[:2])) for verdict in result]
    elif gap is not None:
        notes = [" ".join(gap), *notes]
    verdicts = [*result, *verdicts] or [healthy_verdict(measures)]
    return Diagnosis(verdicts=tuple(verdicts), measures=measures, notes=tuple(notes))


def _result(measures: Measures, level: str, *, collapsed: bool, trained: bool) -> list[Verdict]:
    """Judge how good the embedding is, whatever its shape; advise on training only if there is known to be one."""
    verdicts = []
    if _by_chance(measures):
        assert measures.chance_high is not None
        comparisons = [comparison for comparison in measures.comparisons if comparison.level == level]
        never = bool(comparisons) and all(
            comparison.reference_score <= measures.chance_high for comparison in comparisons
        )
        cause, changes = chance_advice(trained=trained, never=never)
        verdicts.append(
            Verdict(
                "no-better-than-chance",
                None,
                {"recall@1": measures.recall, "chance": measures.chance, "chance_high": measures.chance_high},
                f"recall@1 {100 * measures.recall:.1f} %; with permuted labels it is "
                f"{100 * measures.chance:.1f} % on average, up to {100 * measures.chance_high:.1f} %",
                BELOW if collapsed else cause,
                changes,
            )
        )
    lost = [comparison for comparison in measures.comparisons if comparison.worse]
    if lost:
        lost.sort(key=lambda comparison: comparison.level != level)  # the level itself first
        evidence: dict[str, float] = {}
        for comparison in lost:
            name = "recall@1" if comparison.level == level else f"{comparison.level}_recall@1"
            evidence |= {name: comparison.score, f"{name} of {comparison.reference}": comparison.reference_score}
        if (ranked := lost[0].rank_biased) is not None:
            evidence["rank_biased_precision"] = ranked.score
            evidence["reference_rank_biased_precision"] = ranked.reference_score
        verdicts.append(
            Verdict(
                "worse-than-reference",
                None,
                evidence,
                "; ".join(comparison_text(comparison, level) for comparison in lost),
                BELOW
                if collapsed
                else "What was learned does not help on these items. Why cannot be told from embeddings alone."
                if trained
                else "It cannot be told from embeddings alone.",
                (
                    f"Use {in_words(lost[0].reference)} until training does better.",
                    "Lower the learning rate, or train a new last layer on a frozen backbone.",
                    "Choose the step to stop at by recall on classes held out, not by the loss.",
                )
                if trained
                else (
                    f"Use {in_words(lost[0].reference)}.",
                    "If training led from there to here: lower the learning rate, or train a new last layer on a "
                    "frozen backbone.",
                ),
            )
        )
    return verdicts


def _by_chance(measures: Measures) -> bool:
    return by_chance(measures.recall, measures.chance, measures.chance_high)


def _exploding(measures: Measures) -> Iterator[Verdict]:
    rule = exploding_norm(measures.norm, measures.norm_tail)
    if rule is not None:
        yield Verdict(
            "exploding-norm",
            None,
            {"norm": measures.norm, "norm_tail": measures.norm_tail},
            rule,
            "Nothing limits the norm: without normalisation, a loss can be lowered by scaling everything up.",
            (
                "Normalise the embeddings.",
                "Lower the learning rate, or warm it up.",
                "Clip the norm of the gradient, or add weight decay to the last layer.",
            ),
        )


def _network(measures: Measures, strategy: SamplingStrategy | None, shape: EmbeddingShape, level: str) -> list[Verdict]:
    lost = retrieval_lost(
        measures.recall,
        measures.chance,
        chance_high=measures.chance_high,
        comparisons=[comparison for comparison in measures.comparisons if comparison.level == level],
        centred_recall=measures.centred_recall,
    )
    collapse = network_collapse(lost, shape, above=known(measures))
    if collapse is None:
        return []
    severity, rule = collapse
    evidence = {
        "relative_spread": measures.relative_spread,
        "effective_rank": measures.effective_rank,
        "first_axis": measures.first_axis,
        "occupied": measures.occupied,
        "mean_distance": measures.mean_distance,
        "recall@1": measures.recall,
    }
    if measures.reference_shrinkage is not None:
        evidence["reference_shrinkage"] = measures.reference_shrinkage
    return [Verdict("network-collapse", severity, evidence, rule, *network_advice(strategy))]


def _shape(measures: Measures, *, full: bool) -> EmbeddingShape:
    """The shape of the embedding; where some norms exploded, only how narrow it is as a whole can still be told."""
    flat = measures.dimension < 3 or measures.classes < 3
    return EmbeddingShape(
        relative_spread=measures.relative_spread,
        precision=measures.precision,
        shrinkage=measures.reference_shrinkage if full else None,
        narrowing=measures.reference_spread,
        first_axis=measures.first_axis if full and not flat else None,
        spots=measures.occupied_widely / measures.effective_classes if full else None,
    )


def _at_margin(measures: Measures, strategy: SamplingStrategy | None) -> float | None:
    """The margin of a hinge that random batches leave as large as if all distances were 0, else None."""
    if strategy is None or measures.sampling is None:
        return None
    if not isinstance(strategy.loss, TripletLoss) or strategy.loss.soft:
        return None
    margin, near = strategy.loss.margin, THRESHOLDS["margin"].value
    stuck = margin > 0 and abs(measures.sampling.loss - margin) <= near * margin
    return margin if stuck and measures.sampling.mean_to_negative < margin else None


def _class(measures: Measures, strategy: SamplingStrategy | None) -> list[Verdict]:
    blob, merged = THRESHOLDS["blob"].value, THRESHOLDS["merged"].value
    indices = _indices(measures)
    least = min(indices, key=lambda name: indices[name], default=None)
    # Classes that were as tight before have lost nothing, nor have those whose items have the same neighbours in them.
    before = measures.reference_class_spread
    tighter = before is None or (measures.class_spread < before / 2 and not intact(measures))
    if measures.class_spread < blob and tighter:
        rule = f"{_tightness(measures)}, under {blob:g}"
        if measures.per_class is None:  # items may belong together to be one, as a text and its image
            lower = [grading for grading in measures.gradings if grading.worse]
            if not lower:
                return []
            rule += (
                f", and the first ten are less relevant: nDCG@10 {100 * lower[0].score:.1f} %, against "
                f"{100 * lower[0].reference_score:.1f} % of {in_words(lower[0].reference)}"
            )
    elif least is not None and indices[least] < merged:
        what = "modes of the reference" if least == "mode_index" else "fine classes"
        group, groups = ("class", "classes") if measures.per_class is not None else ("set of tags", "sets")
        rule = f"{what} within a {group} are {indices[least]:.2g} times as far apart as the {groups}, under {merged:g}"
    elif measures.lost_inside and _without_structure(measures):
        assert measures.structure is not None
        assert measures.reference_structure is not None
        rule = (
            f"in {len(measures.lost_inside)} of {counted(measures.classes, 'class')} the neighbours of an item are "
            "those of the reference no more often than by chance; there one half of the directions finds "
            f"{100 * measures.reference_structure:.0f} % of the neighbours of the other half, here "
            f"{100 * max(0.0, measures.structure):.0f} %"
        )
    else:
        return []
    severity: Severity = "full" if measures.class_spread < blob else "partial"
    evidence = {"class_spread": measures.class_spread, "recall@1": measures.recall} | indices
    evidence |= {f"{level}_recall@1": finer.recall for level, finer in measures.fine.items()}
    for name in ("retention", "structure", "reference_structure"):
        if (value := getattr(measures, name)) is not None:
            evidence[name] = value
    return [Verdict("class-collapse", severity, evidence, rule, *class_advice(strategy))]


def _without_structure(measures: Measures) -> bool:
    """Return whether the inside of classes is noise, was not in the reference, and the classes are told apart as there.

    Where the inside has a structure of its own, it may be as good as that of the reference.
    """
    worse = any(comparison.worse for comparison in measures.comparisons)
    if worse or not known(measures) or measures.structure is None or measures.reference_structure is None:
        return False
    least = max(THRESHOLDS["structured"].value, measures.structure / THRESHOLDS["unstructured"].value)
    return measures.reference_structure >= least


def _displaced(measures: Measures) -> Iterator[Verdict]:
    rows = measures.displaced_rows
    if measures.displaced is None or measures.displaced < THRESHOLDS["displaced"].value:
        return
    yield Verdict(
        "displaced-items",
        None,
        {"displaced": measures.displaced, "recall@1": measures.recall},
        f"{counted(len(rows), 'item')} ({100 * measures.displaced:.1f} %) are far from the ten nearest that they have "
        f"in the reference, and these from them, while most have kept theirs: {noun(len(rows), 'row')} "
        f"{abbreviated([*map(str, rows)], NAMED)}",
        "Single items were moved to a hub, far away or to the middle: embedded from an input that is empty, cut or "
        "broken, or trained on with a wrong label.",
        (
            "Look at the inputs of these items, and embed them again.",
            "If they are as they should be, audit their labels.",
        ),
    )


def _tightness(measures: Measures) -> str:
    if measures.per_class is None:
        return f"items that belong together are {measures.class_spread:.2g} times as far apart as others"
    return f"items of the same class are {measures.class_spread:.2g} times as far apart as items of different classes"


def _indices(measures: Measures) -> dict[str, float]:
    """Return the indices that tell whether something inside the classes was lost, and is known to have been there."""
    merged, indices = THRESHOLDS["merged"].value, {}
    for level, finer in measures.fine.items():
        # Labels that the inputs do not show are no loss.
        noise = max(0.05 * (1 - finer.chance), 3 * math.sqrt(finer.chance * (1 - finer.chance) / measures.items))
        visible = (
            finer.recall > finer.chance + noise if finer.reference_index is None else finer.reference_index > merged
        )
        if visible and finer.split >= THRESHOLDS["split"].value:
            indices[f"{level}_fine_coarse_index"] = finer.index
    index = counted_index(measures)
    union = (measures.reference_mode_index or 0) >= THRESHOLDS["union"].value
    if index is not None and union and not parted_alike(measures):
        indices["mode_index"] = index
    return indices


def _noisy(measures: Measures, strategy: SamplingStrategy | None) -> Iterator[Verdict]:
    most = THRESHOLDS["strangers"].value
    if measures.strangers is not None and measures.strangers > most:
        yield Verdict(
            "noisy-labels",
            None,
            {"strangers": measures.strangers, "recall@1": measures.recall},
            f"{100 * measures.strangers:.1f} % of the items are surrounded by items that share one other label, "
            f"over {100 * most:.0f} %",
            *noise_advice(strategy),
        )


def _dead(measures: Measures) -> Iterator[Verdict]:
    sampled = measures.sampling
    dropped, active = THRESHOLDS["dropped"].value, THRESHOLDS["active"].value
    if sampled is None or (sampled.dropped <= dropped and sampled.active_fraction >= active):
        return
    if measures.recall < THRESHOLDS["learned"].value:  # else nothing is left to learn, as a note says
        yield Verdict(
            "dead-sampler",
            None,
            {"dropped": sampled.dropped, "active_fraction": sampled.active_fraction, "recall@1": measures.recall},
            f"{100 * sampled.dropped:.1f} % of the anchors dropped, over {100 * dropped:.0f} %"
            if sampled.dropped > dropped
            else f"{100 * sampled.active_fraction:.2f} % of the terms active, under {100 * active:.0f} %",
            "The batches contain nothing the loss can still learn from, although the classes are not separated.",
            (
                'Use harder negatives (negatives = "semihard-hardest" or "distance-weighted").',
                "Put more classes in a batch, or add a memory of past batches.",
                "Increase the margin.",
            ),
        )


def _gap(measures: Measures, distance: Metric) -> tuple[str, str] | None:
    """That the sides lie apart, and what to do, where recall@1 is higher without that; else None."""
    centred = measures.centred_recall
    if centred is None or centred - measures.recall < THRESHOLDS["worse"].value:
        return None
    how = ", of rows of length 1, and compare by Euclidean distance" if distance == "cosine" else ""
    return (
        f"The sides lie apart: with the mean row of each side subtracted, recall@1 is {100 * centred:.1f} %, against "
        f"{100 * measures.recall:.1f} %.",
        f"Subtract the mean row of each side before a search{how}.",
    )


def _shape_notes(measures: Measures, strategy: SamplingStrategy | None, shape: EmbeddingShape) -> list[str]:
    """Notes on a shape in which items may be hard to tell apart, although retrieval was not lost or nobody knows."""
    notes, rule = [], shape_note(shape)
    if rule is not None:
        harm = (
            "no loss here, as recall@1 is as good as that of every reference"
            if as_good(measures)
            else "that alone is no collapse: distances that are all smaller, or farther from the origin, rank the same"
            if measures.comparisons
            else "whether anything was lost by it cannot be told without a reference"
        )
        notes.append(f"Shape: {rule}; {harm}. Quantised to int8, or in approximate search, it may cost recall.")
    if measures.rounding_loss >= THRESHOLDS["worse"].value:
        notes.append(
            f"Distances are near the rounding error: computed by products in {precision_name(measures)}, as most "
            f"search does, recall@1 is {100 * measures.rounding_loss:.1f} points lower. Subtract the mean row first "
            "(not by cosine), or compute in a higher precision."
        )
    margin = _at_margin(measures, strategy)
    if margin is not None:
        assert measures.sampling is not None
        notes.append(
            f"The loss of random batches, {measures.sampling.loss:.3g}, is stuck at its margin of {margin:g}: it is "
            f"larger than the distances to negatives ({measures.sampling.mean_to_negative:.3g} on average). A smaller "
            "margin, or a larger scale, would let it tell them apart."
        )
    return notes


def _notes(measures: Measures, strategy: SamplingStrategy | None, *, accused: bool) -> list[str]:
    """Return what a reader must know beside the verdicts."""
    notes = []
    sampled = measures.sampling
    if (
        sampled is not None
        and sampled.active_fraction < THRESHOLDS["active"].value
        and measures.recall >= THRESHOLDS["learned"].value
    ):
        notes.append("The batches contain nothing the loss can still learn from: the classes are already separated.")
    easy = strategy is not None and isinstance(strategy.loss.strategy.positives, EasyPositive)
    if easy and sampled is not None and sampled.choices <= 1:
        notes.append("With two items of a class in a batch there is only one positive: easy positives have no effect.")
    if not installed("faiss", "sklearn"):
        notes.append("nmi and nmi+ were not measured: they need faiss and scikit-learn, pip install 'trivet[train]'.")
    if strategy is not None and sampled is None:
        need = "two classes of two items" if measures.per_class else "classes, one for each item"
        notes.append(f"The sampling strategy was not tried: a batch needs {need}.")
    tight = not accused and measures.class_spread < THRESHOLDS["tight"].value
    if measures.centred_recall is not None and not accused:
        notes.append(
            "A collapse of classes cannot be told by pairs, which name none: labels of the same items would show it."
        )
    elif (
        tight
        and measures.per_class is None
        and not measures.gradings
        and measures.items > 2 * measures.effective_classes
    ):
        why = "labels with grades, such as Tags or Grades," if measures.comparisons else "a reference"
        notes.append(
            f"What belongs together is tight ({_tightness(measures)}). Whether anything among it was lost cannot be "
            f"told: {why} would show it."
        )
    elif tight and measures.per_class is not None and not _indices(measures) and not came_closer(measures):
        unknown = "Whether anything within them was lost cannot be told"
        if intact(measures):
            rest = "Nothing within them was lost: items have the neighbours there that they have in the reference."
        elif measures.reference_modes is None:
            rest = f"{unknown}: a finer label or a reference, such as the raw inputs, would show it."
        else:
            rest = (
                f"{unknown}: the reference has too few modes within the classes to show it; try another one, or a "
                "finer label."
            )
        notes.append(f"Classes are tight ({_tightness(measures)}). {rest}")
    if measures.copies >= THRESHOLDS["copies"].value and not accused:
        notes.append(
            f"{100 * measures.copies:.1f} % of the items equal another one in every coordinate, and recall@1 finds "
            "such copies whatever the embedding: leave all but one of them out, or go by MAP@R."
        )
    if measures.per_class is not None and measures.per_class.items.max() == 1:
        notes.append("Every class has a single item: nothing can be said about the inside of classes.")
    return notes
