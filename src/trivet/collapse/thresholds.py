"""The numbers that the rules of a diagnosis compare measures with, and where each comes from."""

from __future__ import annotations

from dataclasses import dataclass

from trivet.collapse.significance import FLOOR


@dataclass(frozen=True)
class Threshold:
    """A number that a rule compares a measure with, and where it comes from."""

    value: float
    measure: str
    meaning: str
    origin: str


_KNOWN = "set in advance, kept after the first half of the benchmark cases (studies/diagnosis.py)"
_LATER = "set after both halves of the benchmark cases were measured, for cases that neither contains"
_TRAINED = "chosen on all trained runs, with and without easy positives; none held out (studies/diagnosis.py)"
_OURS = "our choice"
_RULE = "our rule for the shape of a network collapse in the sense of Xu et al., set in advance"
THRESHOLDS: dict[str, Threshold] = {
    "worse": Threshold(
        FLOOR,
        "recall@1 below that of a reference",
        "at least, with the whole interval below 0: worse; without: perhaps worse",
        "our choice, set in advance",
    ),
    "lost": Threshold(
        0.2,
        "recall@1 of a class below that of the first reference",
        "at least, by Student's t of each class and a false discovery rate of 1 %: the class was lost",
        _OURS,
    ),
    "telling": Threshold(
        0.25,
        "chance_high, rescaled so that chance is 0",
        "above: too few items to tell recall from chance",
        "our choice, set in advance",
    ),
    "halfway": Threshold(
        0.5,
        "recall, rescaled so that chance is 0 and that of a reference 1",
        "below, and worse beyond doubt: retrieval was lost",
        _OURS + ", set in advance",
    ),
    "rounding": Threshold(
        8.0, "relative_spread / precision", "up to: items differ by rounding alone", _OURS + ", set in advance"
    ),
    "point": Threshold(0.01, "relative_spread", "below: all items are at one point", _KNOWN),
    "cone": Threshold(0.1, "relative_spread", "below: all items lie in a narrow cone", _KNOWN),
    "narrowed": Threshold(
        0.5, "reference_spread and reference_shrinkage", "both below, where they are known: items came closer", _OURS
    ),
    "gone": Threshold(0.05, "reference_shrinkage", "below, and narrowed: the embedding shrank to a point", _RULE),
    "shrunk": Threshold(0.25, "reference_shrinkage", "below, and narrowed: the embedding shrank", _RULE),
    "line": Threshold(
        0.9, "first_axis", "above, with at least three classes and dimensions: all items lie on a line", _LATER
    ),
    "spots": Threshold(
        0.5, "occupied_widely / effective_classes", "below: fewer occupied spots than classes", "as for line"
    ),
    "margin": Threshold(
        0.1, "sampling.loss", "within this share of the margin: the loss is stuck at the margin; a note", _RULE
    ),
    "retained": Threshold(
        0.1,
        "retention",
        "below: whether what told the items of a class apart was lost is open",
        "between the 0.04 of class means with noise and the 0.41 of healthy heads on CUB and MiniLM features "
        "(studies/diagnosis.py)",
    ),
    "structured": Threshold(
        0.3,
        "reference_structure",
        "at least, with retention as by chance: what is inside the classes was lost",
        "between noise, 0.18 at most, and the 0.52 of the features of shape_fates.py; trained heads reach 0.29",
    ),
    "unstructured": Threshold(
        0.5, "structure / reference_structure", "up to: what is there instead is noise, no other structure", _OURS
    ),
    "hollow": Threshold(
        0.2, "share of the classes with retention below 0.1", "at least: whether these were lost is open", _OURS
    ),
    "displaced": Threshold(
        FLOOR / 2, "displaced", "at least: single items are not where they were", "half of what counts as a loss"
    ),
    "far": Threshold(
        0.2,
        "mean rank of neighbours, rescaled so that all kept is 0 and chance is 1",
        "above, and far out among all items: an item was moved",
        _OURS,
    ),
    "unmoved": Threshold(
        1.5,
        "ninth decile of the mean rank of neighbours of the other items / least",
        "up to: the others were not moved",
        "between the 1.2 of noise of 0.3 of the spread and the 2.3 of trained heads on the files of shape_fates.py",
    ),
    "unfound": Threshold(
        0.1,
        "unfound above that of the reference",
        "at least: whether items that nobody finds were lost is open",
        "heads trained on MiniLM features reach 0.03",
    ),
    "blob": Threshold(0.1, "class_spread", "below: each class is a point", _KNOWN),
    "merged": Threshold(
        0.31, "mode_index, fine_coarse_index", "below: what was separate within the classes has merged", _TRAINED
    ),
    "seen": Threshold(0.25, "reference_split", "share of the classes from which modes of a reference count", _LATER),
    "union": Threshold(
        1.4,
        "reference_mode_index",
        "at least: classes are made of unrelated things, whose merging is a loss",
        "the square root of 2, for two things in a class; 1.25 was tried first, and one of two good networks that an "
        "earlier rule accused had 1.28 (studies/diagnosis.py, reference-modes)",
    ),
    "sharing": Threshold(
        0.5,
        "reference_mode_sharing",
        "at least: the same thing parts every class, such as a device; its merging may be no loss",
        "between the 0.32 of 52 unions and the 0.88 of 84 sets of items as if from two devices "
        "(studies/diagnosis.py, reference-modes); " + _LATER,
    ),
    "closer": Threshold(
        0.5, "mode_index", "below: whether something was lost within the classes is open", "our choice, " + _LATER
    ),
    "split": Threshold(0.5, "fine split", "share of the classes from which a finer level counts", _LATER),
    "tight": Threshold(
        0.33, "class_spread", "below, without fine labels or modes of a reference: a note only", _TRAINED
    ),
    "norm": Threshold(100.0, "norm_tail", "above: the norms of some rows exploded", _KNOWN),
    "scale": Threshold(1e5, "norm", "above: the norms of all rows exploded", _LATER),
    "strangers": Threshold(
        0.15,
        "strangers",
        "above: labels disagree with their neighbours",
        "set above the 0.14 of networks trained on Omniglot alphabets; kept after the first half",
    ),
    "copies": Threshold(0.05, "copies", "at least: recall@1 finds copies; a note only", _OURS),
    "dropped": Threshold(0.9, "sampling.dropped", "above: almost no anchor finds a triplet", _OURS),
    "active": Threshold(0.01, "sampling.active_fraction", "below: almost no term has a gradient", _OURS),
    "learned": Threshold(0.95, "recall", "at least: a sampler that finds nothing has finished, not failed", _OURS),
}
"""Name -> threshold; every rule of `diagnose` compares with one of these."""


def exploding_norm(norm: float, norm_tail: float) -> str | None:
    """The rule by which norms exploded, in words with its numbers; None where they did not."""
    tail, scale = THRESHOLDS["norm"].value, THRESHOLDS["scale"].value
    if norm > scale:
        return f"root mean square norm {norm:.3g}, over {scale:g}"
    return f"largest norm {norm_tail:.3g} times the median, over {tail:g}" if norm_tail > tail else None
