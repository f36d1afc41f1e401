"""Did an embedding collapse, which way, on what evidence, why, and what to change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trivet.collapse.measures import Measures, measure
from trivet.collapse.strategy import Strategy
from trivet.evaluation.inputs import Metric
from trivet.geometry import Array

Kind = Literal["healthy", "network-collapse", "class-collapse", "dead-sampler", "exploding-norm", "noisy-labels"]
Severity = Literal["full", "partial"]


@dataclass(frozen=True)
class Threshold:
    """A number that a rule compares a measure with, and where it comes from."""

    value: float
    measure: str
    meaning: str
    origin: str


_KNOWN = "the embeddings of known fate, first half (benchmarks/diagnosis.py)"
_TRAINED = "all trained runs with and without easy positives, none held out (benchmarks/diagnosis.py)"
_RULE = "ratio of mean distances of the network collapse runs of Xu et al. on digits: 0.05 and 0.25"
THRESHOLDS: dict[str, Threshold] = {
    "point": Threshold(0.01, "relative_spread", "below: all items are one point", _KNOWN),
    "cone": Threshold(0.1, "relative_spread", "below: all items lie in a narrow cone", _KNOWN),
    "gone": Threshold(0.05, "reference_shrinkage", "below, with a reference: the embedding shrank to a point", _RULE),
    "shrunk": Threshold(0.25, "reference_shrinkage", "below, with a reference: the embedding shrank", _RULE),
    "line": Threshold(1.5, "effective_rank", "below, with four classes and three dimensions or more: a line", _KNOWN),
    "spots": Threshold(0.5, "occupied / effective_classes", "below: fewer spots than classes", _KNOWN),
    "blob": Threshold(0.1, "class_spread", "below: the classes are points", _TRAINED),
    "merged": Threshold(
        0.31, "mode_index, fine_coarse_index", "below: what lay apart inside the classes is on one spot", _TRAINED
    ),
    "tight": Threshold(0.33, "class_spread", "below, without fine labels or modes of a reference: a note", _TRAINED),
    "norm": Threshold(100.0, "norm_tail", "above: the norms of some rows exploded", _KNOWN),
    "scale": Threshold(1e4, "norm", "above: the norms of all rows exploded", _KNOWN),
    "strangers": Threshold(0.15, "strangers", "above: labels disagree with what surrounds them", _KNOWN),
    "dropped": Threshold(0.9, "sampling.dropped", "above: nearly no anchor finds its triplet", "by definition"),
    "active": Threshold(0.01, "sampling.active_fraction", "below: nearly no term has a gradient", "by definition"),
    "learned": Threshold(
        0.95, "recall", "from here on a sampler that finds nothing is at its end, not dead", "by definition"
    ),
}
"""Name -> threshold; every rule of `diagnose` compares with one of these."""


@dataclass(frozen=True)
class Verdict:
    """One finding.

    Attributes:
        kind: what was found.
        severity: "full" or "partial" for a collapse, else None.
        evidence: measure -> value, those the verdict rests on.
        rule: the comparison that decided, in words with its numbers.
        cause: the likely cause, a sentence.
        changes: one to three things to change, the most effective first; none for a healthy embedding.
    """

    kind: Kind
    severity: Severity | None
    evidence: dict[str, float]
    rule: str
    cause: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found, the gravest first, and all that was measured."""

    verdicts: tuple[Verdict, ...]
    measures: Measures
    notes: tuple[str, ...]

    @property
    def collapsed(self) -> bool:
        """Whether a verdict is a collapse of the network or of the classes."""
        return any(verdict.kind in ("network-collapse", "class-collapse") for verdict in self.verdicts)

    def as_json(self) -> dict[str, Any]:
        """The verdicts, the measures without those of each class, and the notes; None where a number is not finite."""
        measures = {
            field.name: getattr(self.measures, field.name)
            for field in dataclasses.fields(self.measures)
            if field.name not in ("per_class", "sampling", "fine")
        }
        measures["fine"] = {
            level: {"recall@1": recall, "fine_coarse_index": index}
            for level, (recall, index) in self.measures.fine.items()
        }
        found = self.measures.sampling
        measures["sampling"] = None if found is None else dataclasses.asdict(found)
        return {
            "verdicts": [_finite(dataclasses.asdict(verdict)) for verdict in self.verdicts],
            "measures": _finite(measures),
            "notes": list(self.notes),
        }


def diagnose(
    embeddings: Array,
    labels: Array,
    reference: Array | None = None,
    strategy: Strategy | None = None,
    *,
    fine: Mapping[str, Array] | None = None,
    distance: Metric = "euclidean",
    seed: int = 0,
) -> Diagnosis:
    """Say whether an embedding collapsed, from the embedding and its labels alone.

    Network collapse: all items, whatever their class, come to lie on one point, one line or a few spots. Class
    collapse: each class becomes a point, or what differs inside it, which finer labels or the modes of a reference
    show, comes to lie on one spot; without either, a tight class may be no loss, and is a note. The rules compare
    measures with the numbers of `THRESHOLDS`. A collapse of the network hides the other kinds, and exploding norms hide
    a collapse of the network, so those are not looked for then.

    Args:
        embeddings: `(N, d)` floating point, N >= 2.
        labels: `(N,)` of any integer dtype, two classes or more.
        reference: `(N, d')` the same items before training, such as those of the untrained network. Lengths are
            compared where it has the same width.
        strategy: how training chooses, to find a dead sampler and to name what to change.
        fine: level -> `(N,)` integers: classes inside the classes.
        distance: how the embedding is compared: "euclidean" or "cosine".
        seed: of the samples.

    Raises:
        ValueError: as `measure`.

    Example:
        >>> import numpy as np
        >>> points = np.random.default_rng(0).normal(size=(200, 8))
        >>> [verdict.kind for verdict in diagnose(points * 1e-6 + 1, np.arange(200) % 4).verdicts]
        ['network-collapse']
    """
    found = measure(embeddings, labels, reference=reference, strategy=strategy, fine=fine, distance=distance, seed=seed)
    same_width = reference is not None and reference.shape[1] == found.dimension
    verdicts = [verdict for rule in (_exploding, _network(same_width)) for verdict in rule(found, strategy)][:1]
    if not verdicts:
        verdicts = [*_class(found, strategy), *_noisy(found)]
    verdicts += _dead(found, strategy)
    return Diagnosis(
        verdicts=tuple(verdicts) or (_healthy(found),), measures=found, notes=tuple(_notes(found, strategy))
    )


def _exploding(found: Measures, strategy: Strategy | None) -> list[Verdict]:
    tail, scale = THRESHOLDS["norm"], THRESHOLDS["scale"]
    if found.norm_tail <= tail.value and found.norm <= scale.value:
        return []
    which = f"largest norm {found.norm_tail:.3g} x the median, over {tail.value:g}"
    if found.norm > scale.value:
        which = f"root mean square norm {found.norm:.3g}, over {scale.value:g}"
    return [
        Verdict(
            "exploding-norm",
            None,
            {"norm": found.norm, "norm_tail": found.norm_tail},
            which,
            "Nothing holds the norm: a loss of unnormalised embeddings can be lowered by making everything larger.",
            (
                "Normalise the embeddings (normalize = true).",
                "Lower the learning rate, or warm it up.",
                "Clip the norm of the gradient, or add weight decay to the last layer.",
            ),
        )
    ]


def _network(same_width: bool) -> Callable[[Measures, Strategy | None], list[Verdict]]:
    def rule(found: Measures, strategy: Strategy | None) -> list[Verdict]:
        t = {name: threshold.value for name, threshold in THRESHOLDS.items()}
        shrinkage = found.reference_shrinkage if same_width else None
        spots = found.occupied / found.effective_classes
        evidence = {
            "relative_spread": found.relative_spread,
            "effective_rank": found.effective_rank,
            "occupied": found.occupied,
            "mean_distance": found.mean_distance,
            "recall@1": found.recall,
        } | ({} if shrinkage is None else {"reference_shrinkage": shrinkage})
        rules: list[tuple[bool, Severity, str]] = [
            (
                found.relative_spread < t["point"],
                "full",
                f"relative spread {found.relative_spread:.2g}, under {t['point']:g}",
            ),
            (
                shrinkage is not None and shrinkage < t["gone"],
                "full",
                f"mean distance {shrinkage or 0:.2g} x that of the reference, under {t['gone']:g}",
            ),
            (
                found.relative_spread < t["cone"],
                "partial",
                f"relative spread {found.relative_spread:.2g}, under {t['cone']:g}",
            ),
            (
                shrinkage is not None and shrinkage < t["shrunk"],
                "partial",
                f"mean distance {shrinkage or 0:.2g} x that of the reference, under {t['shrunk']:g}",
            ),
            (
                found.effective_rank < t["line"] and found.dimension >= 3 and found.classes >= 4,
                "partial",
                f"effective rank {found.effective_rank:.2g} of {found.classes} classes, under {t['line']:g}",
            ),
            (
                spots < t["spots"],
                "partial",
                f"{found.occupied:.3g} spots for {found.effective_classes:.3g} classes, under {t['spots']:g} of them",
            ),
        ]
        for holds, severity, text in rules:
            if holds:
                return [Verdict("network-collapse", severity, evidence, text, *_network_advice(strategy))]
        return []

    return rule


def _network_advice(strategy: Strategy | None) -> tuple[str, tuple[str, ...]]:
    if strategy is not None and _name(strategy.loss.strategy.negatives) == "HardNegative":
        size = strategy.classes_per_batch * strategy.samples_per_class
        return (
            f"The hardest of {size} items in a batch are negatives that no small step can move past the positives; the "
            "loss falls faster by shrinking everything.",
            (
                'Take semi-hard negatives (negatives = "semihard-hardest"), or easy positives with them.',
                "Use the second-order or the selectively contrastive loss, which do not pull hard negatives closer.",
                "Make batches smaller, the embedding wider, or the learning rate lower.",
            ),
        )
    return (
        "The loss was lowered by drawing all items together: hard negatives in large batches, a narrow embedding, "
        "wrong labels or a learning rate that is too high do that.",
        (
            "Take semi-hard negatives or easy positives in place of the hardest.",
            "Lower the learning rate, or start from a pretrained backbone.",
            "Normalise the embeddings, make them wider, or make batches smaller.",
        ),
    )


def _class(found: Measures, strategy: Strategy | None) -> list[Verdict]:
    blob, merged = THRESHOLDS["blob"].value, THRESHOLDS["merged"].value
    indices = {f"{level}_fine_coarse_index": index for level, (_, index) in found.fine.items()}
    if found.mode_index is not None:
        indices["mode_index"] = found.mode_index
    least = min(indices, key=lambda name: indices[name], default=None)
    if found.class_spread < blob:
        rule = f"items of a class are {found.class_spread:.2g} x as far apart as items of two, under {blob:g}"
    elif least is not None and indices[least] < merged:
        what = "the reference's modes" if least == "mode_index" else "the fine classes"
        rule = f"{what} inside a class are {indices[least]:.2g} x as far apart as classes, under {merged:g}"
    else:
        return []
    severity: Severity = "full" if found.class_spread < blob else "partial"
    evidence = {"class_spread": found.class_spread, "recall@1": found.recall} | indices
    evidence |= {f"{level}_recall@1": recall for level, (recall, _) in found.fine.items()}
    if found.retention is not None:
        evidence["retention"] = found.retention
    easy = strategy is not None and _name(strategy.loss.strategy.positives) == "EasyPositive"
    few = strategy is not None and strategy.samples_per_class < 4
    first = (
        f"Put more items of each class in a batch (samples_per_class = {strategy.samples_per_class} now): easy "
        "positives need near ones to choose."
        if easy and strategy is not None
        else 'Take easy positives (positives = "easy"), with eight or more items of each class in a batch.'
    )
    return [
        Verdict(
            "class-collapse",
            severity,
            evidence,
            rule,
            "Positives are pulled together however different they are, so every mode of a class ends on one spot."
            + (" Few items of a class in a batch leave easy positives nothing to choose from." if easy and few else ""),
            (
                first,
                "Label finer classes, if there are any.",
                "Stop earlier: a class shrinks on after it is separated.",
            ),
        )
    ]


def _noisy(found: Measures) -> list[Verdict]:
    most = THRESHOLDS["strangers"].value
    if not found.strangers > most:
        return []
    return [
        Verdict(
            "noisy-labels",
            None,
            {"strangers": found.strangers, "recall@1": found.recall},
            f"{found.strangers:.1%} of the items lie among items that share one other label, over {most:.0%}",
            "So many labels disagree with their neighbours that they are likely wrong, or name what the inputs do not "
            "show.",
            (
                "Look at the items that lie among another class, and correct or drop their labels.",
                "Take easy positives or trim the largest losses, so that wrong pairs are seldom used.",
                'Do not take the hardest negatives (negatives = "hard"): wrong labels are among them.',
            ),
        )
    ]


def _dead(found: Measures, strategy: Strategy | None) -> list[Verdict]:
    sampled = found.sampling
    if sampled is None or strategy is None:
        return []
    dropped, active = THRESHOLDS["dropped"].value, THRESHOLDS["active"].value
    if sampled.dropped <= dropped and sampled.active_fraction >= active:
        return []
    if found.recall >= THRESHOLDS["learned"].value:
        return []  # nothing is left to learn; a note says so
    return [
        Verdict(
            "dead-sampler",
            None,
            {"dropped": sampled.dropped, "active_fraction": sampled.active_fraction, "recall@1": found.recall},
            f"{sampled.dropped:.1%} of the anchors dropped, over {dropped:.0%}"
            if sampled.dropped > dropped
            else f"{sampled.active_fraction:.2%} of the terms active, under {active:.0%}",
            "The batch holds nothing that the loss can still learn from, though the classes are not apart.",
            (
                'Choose harder negatives (negatives = "semihard-hardest" or "distance-weighted").',
                "Put more classes in a batch, or keep a memory of past batches.",
                "Make the margin larger.",
            ),
        )
    ]


def _healthy(found: Measures) -> Verdict:
    knows = found.recall - found.chance > 0.1 * (1 - found.chance)
    return Verdict(
        "healthy",
        None,
        {
            "relative_spread": found.relative_spread,
            "effective_rank": found.effective_rank,
            "class_spread": found.class_spread,
            "recall@1": found.recall,
        },
        "no rule fired",
        "Items and classes are spread out."
        if knows
        else "Items are spread out, but not by class: the embedding knows next to nothing of these labels.",
    )


def _notes(found: Measures, strategy: Strategy | None) -> list[str]:
    """What a reader must know beside the verdicts."""
    notes = []
    sampled = found.sampling
    if (
        sampled is not None
        and sampled.active_fraction < THRESHOLDS["active"].value
        and found.recall >= THRESHOLDS["learned"].value
    ):
        notes.append("The batches hold nothing that the loss can still learn from: the classes are apart.")
    if strategy is not None and _name(strategy.loss.strategy.positives) == "EasyPositive":
        assert sampled is not None
        if sampled.choices <= 1:
            notes.append(
                "With two items of a class in a batch there is one positive to choose: easy positives do nothing."
            )
    if found.class_spread < THRESHOLDS["tight"].value and not found.fine and found.mode_index is None:
        notes.append(
            f"Classes are tight (items of a class are {found.class_spread:.2g} x as far apart as items of two): "
            "whether anything inside them was lost can be told with finer labels, or with a reference that shows modes."
        )
    if found.per_class.items.max() == 1:
        notes.append("Every class has a single item: nothing can be said of the inside of classes.")
    return notes


def _name(selector: object) -> str:
    return type(selector).__name__


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
