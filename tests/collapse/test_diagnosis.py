"""Verdicts on embeddings of known fate, and the measures that they rest on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.nightly import sampled

from trivet.collapse import THRESHOLDS, SamplingStrategy, diagnose, diagnosis, mode_index
from trivet.collapse.distances import occupied_spots
from trivet.collapse.healthy import open_question
from trivet.collapse.measures import measure
from trivet.collapse.significance import FLOOR
from trivet.collapse.spread import strangers
from trivet.commands.diagnose.result import diagnosis_contents
from trivet.commands.printing import print_contents
from trivet.losses import TripletLoss
from trivet.metrics.points import Metric
from trivet.reports.diagnosis_record import DiagnosisSummary

pytestmark = pytest.mark.usefixtures("few_pairs")

LABELS = np.repeat(np.arange(10), 40)


def clusters(seed: int = 0, within: float = 0.5, labels: np.ndarray = LABELS, *, d: int = 16) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.standard_normal((labels.max() + 1, d))[labels] + within * random.standard_normal((len(labels), d))


RESULTS = ("no-better-than-chance", "worse-than-reference")


def found(points: np.ndarray, labels: np.ndarray = LABELS, *more: Any, **options: Any) -> list[tuple[str, str | None]]:
    """The verdicts on the shape."""
    verdicts = diagnose(points, labels, *more, **options).verdicts
    return [(verdict.kind, verdict.severity) for verdict in verdicts if verdict.kind not in RESULTS]


def test_clusters_are_spread_out_and_healthy_beside_a_reference() -> None:
    verdict = diagnose(clusters(), LABELS).verdicts[0]
    assert (verdict.kind, verdict.severity, verdict.changes) == ("spread-out", None, ())
    assert verdict.rule == "whether it is good was not asked"
    assert "by reference." in verdict.cause
    compared = diagnose(clusters(), LABELS, clusters(within=2.0))
    assert [one.kind for one in compared.verdicts] == ["healthy"]
    assert "at least as good as every reference: recall@1 100.0 %, against" in compared.verdicts[0].rule
    assert (compared.good, diagnose(clusters(), LABELS).good) == (True, None)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize("size", [0.0, 1e-18, 1e-7, 1e-3, 1.0])
def test_narrow_is_a_collapse_only_where_nothing_tells_items_apart(size: float, distance: Metric) -> None:
    result = diagnose(1 + size * clusters(), LABELS, distance=distance)
    assert result.verdicts[-1].kind == ("spread-out" if size > 1e-18 else "network-collapse")
    noted = [note for note in result.notes if note.startswith("Shape: relative spread")]
    assert len(noted) == (1e-18 < size < 1)
    assert all("cannot be told without a reference" in note for note in noted)


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
@pytest.mark.parametrize(
    ("shift", "scale"),
    sampled([pytest.param(*pair) for pair in [(0, 1e-3), (0, 0.2), (30, 1), (3000, 1), (300, 0.2), (300, 1e-3)]], 2),
)
def test_a_shift_and_a_scale_that_keep_the_ranks_are_no_collapse(shift: float, scale: float, distance: Metric) -> None:
    before = clusters(within=1.0, d=15)
    if distance == "cosine":  # which a new coordinate does not order anew if all rows are of one length
        before /= np.linalg.norm(before, axis=1, keepdims=True)
        after = np.concatenate([scale * before, np.full((400, 1), float(shift))], axis=1)
        before = np.pad(before, ((0, 0), (0, 1)))
    else:
        after = shift + scale * before
    result = diagnose(after, LABELS, before, distance=distance)
    assert [verdict.kind for verdict in result.verdicts] == ["healthy"]
    assert result.measures.retention == pytest.approx(1)
    shaped = result.measures.relative_spread < 0.1 or (result.measures.reference_shrinkage or 1) < 0.25
    assert [note.split(":")[0] for note in result.notes] == ["Shape"] * shaped
    assert "no loss here" in "".join(result.notes) or not shaped
    assert not diagnose(after, LABELS, distance=distance).collapsed


def test_vectors_with_a_common_part_are_no_collapse_beside_themselves() -> None:
    """As of E5 or an untuned BERT; a margin of 0.6 is far more than their distances, which is said of the loss."""
    random, labels = np.random.default_rng(0), np.repeat(np.arange(30), 20)
    points = 3 + 0.5 * random.standard_normal((30, 64))[labels] + random.standard_normal((600, 64))
    strategy = SamplingStrategy(TripletLoss(margin=0.6, positives="random", negatives="random", normalize=True), 8, 4)
    result = diagnose(points, labels, points.copy(), strategy, distance="cosine")
    assert [verdict.kind for verdict in result.verdicts] == ["healthy"]
    assert any(note.startswith("The loss of random batches") for note in result.notes)


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("fate", ["point", "rounding", "half precision", "line", "spots"])
def test_items_that_cannot_be_told_apart_are_a_network_collapse(fate: str, compared: bool) -> None:
    random, before = np.random.default_rng(0), clusters()
    after = {
        "point": np.full((400, 16), 0.37),
        "rounding": np.full((400, 16), 0.37) + 1e-7 * random.standard_normal((400, 16)),
        "half precision": (7 + 1e-4 * before).astype(np.float16),
        "line": random.standard_normal((400, 1)) * random.standard_normal(16)
        + 1e-3 * random.standard_normal((400, 16)),
        "spots": random.standard_normal((3, 16))[random.integers(0, 3, 400)] + 1e-3 * random.standard_normal((400, 16)),
    }[fate]
    result = diagnose(after, LABELS, before if compared else None)
    kinds = ["no-better-than-chance", *(["worse-than-reference"] if compared else []), "network-collapse"]
    assert [verdict.kind for verdict in result.verdicts] == kinds
    assert result.verdicts[-1].severity == ("partial" if fate in ("line", "spots") else "full")
    assert not any(note.startswith("Shape") for note in result.notes)


def test_shape_that_the_reference_has_or_without_a_great_loss_is_none() -> None:
    random, before = np.random.default_rng(0), clusters(within=0.8)
    noise = random.standard_normal((400, 16))
    # All is lost, but not by shrinking: an origin far away, a smaller scale, or nothing at all.
    assert found(noise, LABELS, before) == []
    assert found(3000 + noise, LABELS, before) == []
    assert found(1e-3 * noise, LABELS, before) == []
    assert found(3000 + 1e-3 * noise, LABELS, before) == [("network-collapse", "full")]
    # Shrunk a thousand times and worse beyond doubt, but nearer to the reference than to chance.
    result = diagnose(1e-3 * (before + 1.2 * noise), LABELS, before)
    assert [verdict.kind for verdict in result.verdicts] == ["worse-than-reference"]
    assert "that alone is no collapse" in result.notes[0]
    # Where no reference knows the labels, there was nothing to lose.
    assert not diagnose(1e-3 * noise, LABELS, random.standard_normal((400, 16))).collapsed


def test_a_constant_column_costs_digits_only() -> None:
    before = clusters()
    wide = np.concatenate([before, np.full((400, 1), 300.0)], axis=1)
    (verdict,) = diagnose(wide, LABELS, before).verdicts
    assert verdict.kind == "healthy"
    assert verdict.cause == "Items lie close together beside their distance from the origin, at no loss to retrieval."
    far = np.concatenate([before, np.full((400, 1), 3e4)], axis=1).astype(np.float32)
    result = diagnose(far, LABELS, before)
    (verdict,) = result.verdicts
    assert (verdict.kind, result.good) == ("spread-out", None)
    assert "computed by products in float32, recall@1 is" in verdict.rule
    assert any(note.startswith("Distances are near the rounding error") for note in result.notes)
    # As in the reference.
    assert [one.kind for one in diagnose(far, LABELS, far.copy()).verdicts] == ["healthy"]
    (verdict,) = diagnose(before, LABELS, before[:, :15]).verdicts
    assert (verdict.kind, verdict.cause) == ("healthy", "Items and classes are well spread.")


LARGE = np.repeat(np.arange(10), 60)


def parted() -> np.ndarray:
    """Classes of three clusters each."""
    fine = np.random.default_rng(0).standard_normal((10, 3, 16))[LARGE, np.arange(600) % 3]
    return clusters(within=0.3, labels=LARGE) + 0.5 * fine


def without(points: np.ndarray, classes: int) -> np.ndarray:
    """The first classes replaced by their mean and noise of half their spread."""
    random, after = np.random.default_rng(1), points.copy()
    for label in range(classes):
        rows = points[label == LARGE]
        after[label == LARGE] = rows.mean(0) + 0.5 * rows.std(0) * random.standard_normal(rows.shape)
    return after


@pytest.mark.parametrize("classes", [10, 3])
def test_what_is_inside_classes_is_lost_if_the_reference_shows_that_it_was_no_noise(classes: int) -> None:
    before = parted()
    result = diagnose(without(before, classes), LARGE, before)
    ((kind, severity),) = [(one.kind, one.severity) for one in result.verdicts]
    assert (kind, severity, result.good) == ("class-collapse", "partial", None)
    assert result.measures.lost_inside == tuple(range(classes))
    assert f"in {classes} of 10 classes the neighbours" in result.verdicts[0].rule
    for own, reference, lost in ((0.2, 0.5, True), (0.3, 0.5, False), (0.0, 0.2, False)):  # another structure; noise
        measures = replace(result.measures, structure=own, reference_structure=reference)
        assert bool(diagnosis._class(measures, None)) == lost
    noise = clusters(within=0.6, labels=LARGE)
    assert [one.kind for one in diagnose(without(noise, classes), LARGE, noise).verdicts] == ["spread-out"]


@pytest.mark.parametrize("size", sampled([6, 8, 20], 2))
@pytest.mark.parametrize("lost", [50, 17])
def test_class_means_with_noise_are_not_healthy_in_small_classes_either(size: int, lost: int) -> None:
    labels = np.repeat(np.arange(50), size)
    before = clusters(within=0.7, labels=labels)
    assert [one.kind for one in diagnose(1.1 * before, labels, before).verdicts] == ["healthy"]
    means = clusters(within=0.0, labels=labels)
    noisy = np.where((labels < lost)[:, None], means, before)
    noisy[labels < lost] += 0.3 * np.random.default_rng(1).standard_normal(means[labels < lost].shape)
    assert "healthy" not in [one.kind for one in diagnose(noisy, labels, before).verdicts]


def test_classes_of_items_that_were_moved_did_not_lose_their_inside() -> None:
    """Of eight items six: their classes keep as few neighbours as by chance, but not the others in them."""
    labels = np.repeat(np.arange(80), 8)
    before = clusters(within=0.7, labels=labels)
    after, moved = before.copy(), [8 * label + item for label in (3, 40, 41) for item in range(6)]
    after[moved] = before.mean(0) + 0.05 * np.random.default_rng(2).standard_normal((18, before.shape[1]))
    result = diagnose(after, labels, before)
    assert result.measures.displaced_rows == tuple(moved)
    assert result.measures.per_class is not None
    assert result.measures.per_class.retention is not None
    assert max(result.measures.per_class.retention[[3, 40, 41]]) < 0.3
    assert result.measures.lost_inside == ()


def test_single_items_that_were_moved_are_named() -> None:
    before = clusters(within=1.2)
    random, after, moved = np.random.default_rng(3), before.copy(), [5, 100, 101, 399]
    after[moved] = 9 + 0.1 * random.standard_normal((4, 16))
    result = diagnose(after, LABELS, before)
    (verdict,) = result.verdicts
    assert (verdict.kind, result.good, result.measures.displaced_rows) == ("displaced-items", None, tuple(moved))
    assert verdict.rule.startswith("4 items (1.0 %) are far from the ten nearest")
    assert verdict.rule.endswith("rows 5, 100, 101, 399")
    assert 1 <= len(verdict.changes) <= 3
    assert [verdict.kind for verdict in diagnose(after, LABELS, before, trained_items=True).verdicts] != [verdict.kind]
    one = before.copy()
    one[7] = 9
    assert found(one, LABELS, before) == [("healthy", None)]  # of so many
    everywhere = before + 0.5 * random.standard_normal(before.shape)
    assert "displaced-items" not in [kind for kind, _ in found(everywhere, LABELS, before)]
    shuffled = random.permutation(before)
    assert "displaced-items" not in [kind for kind, _ in found(shuffled, LABELS, before)]


def test_what_only_neighbours_show_leaves_open_whether_it_is_healthy() -> None:
    before = clusters(within=1.2)
    good = diagnose(1.1 * before, LABELS, before)
    assert [one.kind for one in good.verdicts] == ["healthy"]
    hidden = open_question(replace(good.measures, unfound=(good.measures.reference_unfound or 0) + 0.1))
    assert hidden is not None
    assert "are among the ten nearest of no other" in hidden.rule
    for lost in (1, 2):  # of ten classes, each so small that it may be chance
        values = np.where(np.arange(10) < lost, 0.0, 1.0)
        small = replace(good.measures, per_class=replace(good.measures.per_class, retention=values))
        few = open_question(small)
        assert (few is not None) == (lost == 2)
    assert few is not None
    assert "in 2 of 10 classes about as few of the neighbours" in few.rule


def test_classes_that_lost_are_told_though_all_items_gained() -> None:
    before, after = clusters(within=1.1), clusters(within=0.5)
    after[np.isin(LABELS, [3, 7])] = 3 * np.random.default_rng(0).standard_normal((80, 16))  # anywhere, both
    result = diagnose(after, LABELS, before)
    (verdict,) = result.verdicts
    assert (verdict.kind, result.good) == ("spread-out", None)
    lost = result.measures.lost
    assert [one.number for one in lost] == [3, 7]
    own, other = (measure(points, LABELS).per_class.recall for points in (after, before))
    for one in lost:
        assert (one.items, one.recall, one.reference_recall) == (40, own[one.number], other[one.number])
        assert one.recall < one.reference_recall - 0.2
    mean, mean_before = (np.mean([of[3], of[7]]) for of in (own, other))
    assert (
        f"2 classes of 10 lost: recall@1 of their items is {100 * mean:.1f} %, against {100 * mean_before:.1f} %"
        in (verdict.rule)
    )
    # A loss that may be chance, or of less than 20 points, is none.
    assert diagnose(clusters(within=0.5), LABELS, before).measures.lost == ()
    assert measure(after, LABELS, reference=after).lost == ()


def test_norms_do_nothing_by_cosine() -> None:
    points = clusters()
    long = points * np.where(np.arange(400) == 5, 150.0, 1.0)[:, None]
    assert [one.kind for one in diagnose(long, LABELS, points).verdicts][-1] == "exploding-norm"
    result = diagnose(long, LABELS, points, distance="cosine")
    assert [one.kind for one in result.verdicts] == ["healthy"]
    assert any(note.startswith("Norms differ much (largest norm 1") for note in result.notes)


@pytest.mark.parametrize("within", [0.0, 0.01, 0.05])
def test_classes_that_are_points(within: float) -> None:
    assert found(clusters(within=within)) == [("class-collapse", "full")]


def two_spots(apart: float, *, alike: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Classes of two halves `apart` from each other, in all alike or in each in its own direction; and the halves."""
    half = np.arange(400) % 2
    axes = np.eye(16)[0 * LABELS if alike else LABELS]
    return clusters(within=0.1) + apart * (half - 0.5)[:, None] * axes, 2 * LABELS + half


def test_halves_of_classes_that_came_together() -> None:
    before, halves = two_spots(9.0)
    apart, _ = two_spots(5.0)
    together, _ = two_spots(0.6)
    assert found(apart, LABELS, before) == [("healthy", None)]
    assert found(apart, fine={"half": halves}) == [("spread-out", None)]
    assert found(together, LABELS, before) == [("class-collapse", "partial")]
    assert found(together, fine={"half": halves}) == [("class-collapse", "partial")]
    (verdict,) = diagnose(together, LABELS, before, fine={"half": halves}).verdicts
    assert {"mode_index", "half_fine_coarse_index", "half_recall@1", "retention"} <= set(verdict.evidence)
    # Nothing tells what was inside.
    result = diagnose(together, LABELS)
    assert [verdict.kind for verdict in result.verdicts] == ["spread-out"]
    assert "Classes are tight" in result.notes[0]


def test_variants_of_a_class_that_came_together_are_left_open() -> None:
    """Modes no farther apart than the classes are: whether they should stay apart is for a finer label to say."""
    before, halves = two_spots(5.0)
    together, _ = two_spots(0.6)
    (verdict,) = diagnose(together, LABELS, before).verdicts
    assert (verdict.kind, verdict.evidence["reference_mode_index"]) == ("spread-out", pytest.approx(0.9, abs=0.05))
    assert "within a class came closer, from 0.93 to 0.11 times" in verdict.rule
    assert "recall@1 100.0 %, against 100.0 % of the reference" in verdict.rule
    assert "A finer label would show it." in verdict.cause
    assert found(together, LABELS, before, fine={"half": halves}) == [("class-collapse", "partial")]
    # Half as far apart as the classes is not together.
    assert found(two_spots(3.0)[0], LABELS, before) == [("healthy", None)]


def test_what_parts_all_classes_alike_is_no_thing_of_a_class() -> None:
    """Such as a second scanner: its merging may be what training is for, however far apart it put the halves."""
    before, halves = two_spots(9.0, alike=True)
    together, _ = two_spots(0.6, alike=True)
    measures = measure(together, LABELS, reference=before)
    assert measures.reference_mode_sharing == pytest.approx(1, abs=0.01)
    assert (measures.reference_mode_index or 0) > THRESHOLDS["union"].value
    (verdict,) = diagnose(together, LABELS, before).verdicts
    assert verdict.kind == "spread-out"
    assert "within a class came closer" in verdict.rule
    assert verdict.cause.startswith("The same thing parts every class there, such as a device")
    assert found(together, LABELS, before, fine={"half": halves}) == [("class-collapse", "partial")]
    assert (measure(together, LABELS, reference=two_spots(9.0)[0]).reference_mode_sharing or 0) < 0.1


def test_modes_of_the_reference_are_the_fine_classes() -> None:
    before, halves = two_spots(5.0)
    after, _ = two_spots(1.5)
    result = measure(after, LABELS, reference=before, fine={"half": halves})
    assert result.reference_modes == 2
    assert (result.reference_split, result.fine["half"].split) == (1, 1)
    assert result.mode_index == pytest.approx(result.fine["half"].index)
    assert result.fine["half"].reference_index == pytest.approx(mode_index(before, before, LABELS))
    assert result.reference_mode_index == pytest.approx(mode_index(before, before, LABELS))
    assert result.fine["half"].chance == pytest.approx(19 / 39)
    assert mode_index(after, before, LABELS) == result.mode_index
    assert measure(after, LABELS, reference=clusters(1)).mode_index is None
    assert mode_index(after, clusters(1), LABELS) is None
    assert measure(after, LABELS).reference_modes is None


def test_exploding_norms() -> None:
    points = clusters()
    assert found(1e5 * points) == [("exploding-norm", None)]
    points[7] *= 1e3
    assert found(points) == [("exploding-norm", None)]
    assert found(1e6 + clusters()) == [("exploding-norm", None)]
    assert found(np.full((400, 16), 1e6)) == [("exploding-norm", None), ("network-collapse", "full")]


def test_exchanged_labels() -> None:
    random = np.random.default_rng(0)
    wrong = random.permutation(400)[:100]
    labels = LABELS.copy()
    labels[wrong] = (labels[wrong] + random.integers(1, 10, 100)) % 10
    assert found(clusters(), labels) == [("noisy-labels", None)]


def test_an_embedding_that_lost_classes_accuses_no_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that lie among classes on points are surrounded by one other label, however right their own."""
    monkeypatch.setattr(diagnosis, "_noisy", lambda *_: [diagnosis.Verdict("noisy-labels", None, {}, "", "")])
    assert found(clusters()) == [("noisy-labels", None)]
    assert found(clusters(within=0.02)) == [("class-collapse", "full")]
    # Nor does one that does worse by a finer level.
    together, halves = two_spots(0.2)
    before, _ = two_spots(9.0)
    kinds = [kind for kind, _ in found(together, LABELS, before, fine={"half": halves})]
    assert kinds == ["class-collapse"]


def test_a_strategy_that_finds_nothing() -> None:
    strategy = SamplingStrategy(TripletLoss(positives="easy", negatives="easy"), 4, 8)
    assert found(clusters(within=3.0), strategy=strategy) == [("dead-sampler", None)]
    # Where the classes are apart there is nothing left to find.
    result = diagnose(clusters(), LABELS, strategy=SamplingStrategy(strategy.loss, 4, 2))
    assert [verdict.kind for verdict in result.verdicts] == ["spread-out"]
    assert result.notes == (
        "The batches contain nothing the loss can still learn from: the classes are already separated.",
        "With two items of a class in a batch there is only one positive: easy positives have no effect.",
    )
    wide = TripletLoss(positives="easy", margin=50.0)
    assert not diagnose(clusters(), LABELS, strategy=SamplingStrategy(wide, 4, 8)).notes


def test_advice_names_the_strategy() -> None:
    hard = SamplingStrategy(TripletLoss(positives="easy", negatives="hard", margin=1.0), 4, 8)
    *_, verdict = diagnose(0 * clusters(), LABELS, strategy=hard).verdicts
    assert "hardest of 32 items" in verdict.cause
    easy = SamplingStrategy(TripletLoss(positives="easy", negatives="hard", margin=50.0), 4, 2)
    (verdict,) = diagnose(clusters(within=0.01), LABELS, strategy=easy).verdicts
    assert "now samples_per_class = 2" in verdict.changes[0]


def test_every_verdict_says_what_to_do_and_is_json() -> None:
    points = clusters()
    for embedding in (points, 0 * points, 1e6 * points, clusters(within=0.0)):
        result = diagnose(embedding, LABELS, strategy=SamplingStrategy(TripletLoss(), 3, 4))
        text = json.loads(json.dumps(result.as_json(), allow_nan=False))
        assert set(text) == {"verdicts", "measures", "notes"}
        for verdict in text["verdicts"]:
            assert set(verdict) == {"kind", "severity", "evidence", "rule", "cause", "changes"}
            assert verdict["kind"] == "spread-out" or 1 <= len(verdict["changes"]) <= 3
            assert verdict["evidence"]
            assert verdict["cause"].endswith(".")
        assert result.collapsed == any("collapse" in verdict["kind"] for verdict in text["verdicts"])


def test_every_threshold_is_used() -> None:
    folder = Path(diagnosis.__file__).parent
    text = "".join(
        (folder / f"{name}.py").read_text(encoding="utf-8")
        for name in ("diagnosis", "measures", "class_loss", "healthy", "rules", "thresholds")
    )
    for name, threshold in THRESHOLDS.items():
        assert f'["{name}"]' in text, name
        assert threshold.meaning
        assert threshold.origin
    assert THRESHOLDS["worse"].value == 2 * THRESHOLDS["displaced"].value == FLOOR


def test_spots_are_counted() -> None:
    random = np.random.default_rng(0)
    for spots in (1, 2, 7):
        points = random.standard_normal((spots, 5))[np.arange(700) % spots]
        assert occupied_spots(points) == pytest.approx(spots, rel=0.02)
    assert occupied_spots(random.standard_normal((500, 8))) == 500


def test_strangers_are_those_among_one_other_class() -> None:
    points, labels = clusters(within=0.1), LABELS.copy()
    assert strangers(points, labels) == 0
    labels[[3, 50, 120]] = [5, 7, 0]
    assert strangers(points, labels) == pytest.approx(3 / 400)
    assert strangers(np.zeros((400, 3)), LABELS) <= 0.2
    assert strangers(points[:6], np.array([0, 0, 0, 1, 1, 1])) == 0  # nothing to be said


def test_samples_of_large_sets_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    points = clusters(within=1.2)
    whole = measure(points, LABELS)
    monkeypatch.setattr("trivet.collapse.measures.QUERIES", 200)
    monkeypatch.setattr("trivet.collapse.distances.PAIRED", 200)
    part = measure(points, LABELS)
    assert part.recall == pytest.approx(whole.recall, abs=0.1)
    assert part.strangers == pytest.approx(whole.strangers, abs=0.05)
    assert part.diameter == whole.diameter


def test_small_sets_have_a_verdict() -> None:
    assert found(np.array([[0.0], [1.0]]), np.array([0, 1])) == [("spread-out", None)]
    result = diagnose(clusters()[:10], np.arange(10))
    assert result.notes == ("Every class has a single item: nothing can be said about the inside of classes.",)
    assert math.isnan(result.measures.class_spread)


def test_bad_input() -> None:
    points = clusters()
    with pytest.raises(ValueError, match="at least two classes: got 1 in 400 items"):
        diagnose(points, 0 * LABELS)
    with pytest.raises(ValueError, match="got 399 rows for 400 items"):
        diagnose(points, LABELS, points[:399])
    points[[3, 9]] = np.nan
    with pytest.raises(ValueError, match="rows 3, 9 hold NaN"):
        diagnose(points, LABELS)
    with pytest.raises(ValueError, match="one class per embedding"):
        diagnose(clusters(), LABELS[:5])


def test_agreement_with_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure(clusters(within=0.01), LABELS)
    assert whole.nmi is not None
    assert whole.nmi > 0.9
    four = np.arange(400) % 4
    apart = measure(clusters(within=0.01) + 9 * np.eye(16)[four], LABELS)
    assert apart.nmi is not None
    assert apart.nmi_plus is not None
    assert apart.nmi_plus > apart.nmi  # each class is four blobs
    assert measure(clusters()[:60], np.arange(60) % 7).nmi_plus is None
    monkeypatch.setattr("trivet.collapse.measures.PRODUCTS", 10)
    assert measure(clusters(), LABELS).nmi is None


def test_a_loss_at_its_margin_is_noted_of_the_loss() -> None:
    strategy = SamplingStrategy(TripletLoss(positives="hard", negatives="hard", margin=0.2), 4, 4)
    result = diagnose(1e-4 * clusters(), LABELS, strategy=strategy)
    assert [one.kind for one in result.verdicts] == ["spread-out"]
    assert "is stuck at its margin of 0.2" in result.notes[0]
    assert not diagnose(clusters(), LABELS, strategy=strategy).notes
    soft = SamplingStrategy(TripletLoss(positives="hard", negatives="hard", soft=True), 4, 4)
    assert not diagnose(1e-4 * clusters(), LABELS, strategy=soft).notes


def test_a_reference_of_another_scale_does_not_say_that_it_shrank() -> None:
    before = 100 * clusters()
    units = before / np.linalg.norm(before, axis=1, keepdims=True)
    result = diagnose(units, LABELS, before)
    assert result.measures.reference_shrinkage is None
    assert result.verdicts[0].kind == "healthy"


def test_classes_as_tight_as_in_the_reference_lost_nothing() -> None:
    tight = clusters(within=0.02)
    assert found(tight) == [("class-collapse", "full")]
    assert found(tight, LABELS, tight.copy()) == [("healthy", None)]


def test_finer_labels_that_nothing_shows_are_no_evidence() -> None:
    points, random = clusters(within=0.4), np.random.default_rng(0)
    chance = 40 * LABELS + random.permutation(400) % 20
    assert found(points, fine={"session": chance}) == [("spread-out", None)]
    assert found(points, LABELS, points.copy(), fine={"session": chance}) == [("healthy", None)]
    # One class of ten is cut in two.
    one = LABELS.copy()
    one[:20] = 99
    together, _ = two_spots(0.2)
    assert found(together, fine={"one": one}) == [("spread-out", None)]


def test_spots_and_lines_with_jitter() -> None:
    random = np.random.default_rng(0)
    spots = random.standard_normal((3, 16))[random.integers(0, 3, 400)] + 0.03 * random.standard_normal((400, 16))
    assert found(spots) == [("network-collapse", "partial")]
    line = random.standard_normal((400, 1)) * random.standard_normal(32) + 0.05 * random.standard_normal((400, 32))
    assert found(line) == [("network-collapse", "partial")]
    three = np.repeat(np.arange(3), 40)
    assert found(clusters(d=1, within=0.01, labels=three), three) == [("class-collapse", "full")]  # all there is
    # A long axis along which the classes are told apart is none.
    assert found(clusters() + 5 * LABELS[:, None] * np.eye(16)[0]) == [("spread-out", None)]


def test_odd_input_is_said_or_measured() -> None:
    with pytest.raises(ValueError, match=r"must be a trivet\.collapse\.Strategy .* got 'easy'"):
        diagnose(clusters(), LABELS, strategy="easy")
    strategy = SamplingStrategy(TripletLoss(), 2, 2)
    single = diagnose(clusters()[:10], np.arange(10), strategy=strategy)
    assert "two classes of two items" in single.notes[0]
    assert measure(1e-200 * clusters(), LABELS).relative_spread == pytest.approx(
        measure(clusters(), LABELS).relative_spread
    )
    same = np.random.default_rng(0).standard_normal((400, 1)) * np.ones((1, 32))
    assert found(same, distance="cosine") == [("network-collapse", "partial")]


def test_print_shows_what_the_command_line_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    found = diagnose(np.ones((400, 16)), LABELS)
    about = {"name": "file", "split": None, "items": 400, "dimension": 16, "level": "labels", "distance": "euclidean"}
    print_contents(diagnosis_contents([DiagnosisSummary.read(found.as_json() | about | {"reference": None})]))
    shown = capsys.readouterr().out.splitlines()
    said = str(found).splitlines()
    assert said[0] == "no better than chance: " + found.verdicts[0].rule
    assert len(said) >= 4 + len(found.verdicts[0].changes) - 1
    assert "\n".join(said) == str(found)
    for line in said:
        assert f"file: {line}" in shown or (line if line.startswith("  ") else f"  {line}") in shown
    assert "array" not in str(found) + repr(found)
    assert repr(found) == f"Diagnosis({found.verdicts[0].title}; {found.verdicts[1].title})"
    assert repr(found.verdicts[1]).startswith("Verdict(network collapse, full: ")
    assert str(found.verdicts[0]) in str(found)


def test_the_learning_rate_is_the_first_change_where_nothing_is_known_of_the_training() -> None:
    found = diagnose(np.ones((400, 16)), LABELS)
    assert found.verdicts[1].changes[0].startswith("Lower the learning rate tenfold")
