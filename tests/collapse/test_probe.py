"""The probe: what it measures, when it is asked, and that it decides what batches only suggest."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import trivet
from trivet.collapse.monitor import CollapseMonitor
from trivet.collapse.probe import GAIN, SERIES, SHARE, ProbeTracker, measure_probe
from trivet.collapse.relation_chance import recall_by_permutations
from trivet.collapse.significance import compare_values, recall_by_chance

pytestmark = pytest.mark.usefixtures("few_permutations")

LABELS = torch.arange(32) % 4
ITEMS = 240
UPDATES = 8000
CLASSES, FINE = torch.arange(ITEMS) % 4, torch.arange(ITEMS) % 8
NOISE = torch.randn(ITEMS, 8, generator=torch.Generator().manual_seed(9))


def batch(step: int, spread: float = 1.0) -> Tensor:
    return torch.randn(32, 8, generator=torch.Generator().manual_seed(step)) * spread + 1


def shrinking(step: int) -> Tensor:
    """A batch of an embedding that collapses, as far as batches tell."""
    return batch(step, 0.8**step)


def held_out(*, apart: float, spread: float = 1.0, inside: float = 0.0) -> Tensor:
    """Held-out items: `apart` moves the classes from each other, `inside` the two halves of each."""
    eye = torch.eye(8)
    return (NOISE + apart * eye[CLASSES] + inside * eye[4 + FINE // 4]) * spread + 1


def watched(
    batches: Callable[[int], Tensor],
    probes: Callable[[int], Tensor],
    *,
    steps: int = 200,
    start: int = 0,
    levels: tuple[Tensor, ...] = (CLASSES,),
    monitor: CollapseMonitor | None = None,
    **options: Any,
) -> CollapseMonitor:
    monitor = monitor or CollapseMonitor()
    for step in range(start, steps):
        probe = partial(lambda step: (probes(step), *levels), step)
        monitor.update(batches(step), LABELS, 0.2, step=step, probe=probe, **options)
    return monitor


def halved(inside: Callable[[int], float]) -> Callable[[int], Tensor]:
    """Batches of tight classes, of which each has two halves so far apart."""
    fine = torch.arange(32) % 8
    return lambda step: batch(step, 0.5) + 6 * torch.eye(8)[fine % 4] + inside(step) * torch.eye(8)[4 + fine // 4]


FINER: dict[str, Any] = {"levels": (CLASSES, FINE), "fine": torch.arange(32) % 8}


def definition(points: list[list[float]], labels: list[int]) -> dict[str, Any]:
    """In plain Python, sharing nothing with the library."""
    count = len(points)
    middle = [fmean(column) for column in zip(*points, strict=True)]
    own, other, recalls, ranked, strangers = [], [], [], [], 0
    for i in range(count):
        distances = [math.dist(points[i], points[j]) for j in range(count)]
        others = [j for j in range(count) if j != i]
        least = min(distances[j] for j in others)
        nearest = [j for j in others if distances[j] == least]
        recalls.append(fmean(labels[j] == labels[i] for j in nearest))
        for j in others:
            (own if labels[j] == labels[i] else other).append(distances[j])
        ranked.append(0.0)
        for distance in {distances[j] for j in others}:
            tied = [labels[j] == labels[i] for j in others if distances[j] == distance]
            none_nearer = 0.5 ** sum(distances[j] < distance for j in others)
            ranked[-1] += none_nearer * (1 - 0.5 ** len(tied)) * fmean(tied)
        ten = [labels[j] for j in sorted(others, key=lambda j: distances[j])[:10]]
        most = max((ten.count(one) for one in set(ten) - {labels[i]}), default=0)
        strangers += ten.count(labels[i]) <= 1 and most >= 6
    total, around = sum(math.hypot(*point) ** 2 for point in points), sum(math.dist(p, middle) ** 2 for p in points)
    return {
        "recall": fmean(recalls),
        "relative_spread": math.sqrt(around / total),
        "within_between": fmean(own) / fmean(other),
        "strangers": strangers / count,
        "rank_biased": ranked,
    }


@pytest.mark.parametrize("apart", [0.0, 0.7, 3.0])
def test_a_look_equals_the_definition(apart: float) -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(40) % 3
    points = torch.randn(40, 4, dtype=torch.float64, generator=generator) + apart * torch.eye(4)[labels] + 2
    points[:6] = points[6:12]  # equally near
    labels[20:30] = (labels[20:30] + 1) % 3
    labels[39] = 3  # alone
    found = measure_probe(3, points, [labels.numpy()])
    wanted = definition(points.tolist(), labels.tolist())
    assert found.scores[0].rank_biased == pytest.approx(wanted.pop("rank_biased"), rel=1e-9)
    for name, value in wanted.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9), name
    assert math.isnan(found.fine_recall)


def test_items_at_one_point_are_found_by_chance_and_what_is_not_finite_has_no_spread() -> None:
    labels = np.arange(40) % 4
    found = measure_probe(0, torch.ones(40, 3), [labels, labels])
    assert (found.recall, found.relative_spread, found.within_between) == (pytest.approx(9 / 39), 0, 1)
    some = torch.ones(40, 3)
    some[:7, 2] = math.nan
    assert (measure_probe(0, some, [labels]).recall, measure_probe(0, some, [labels]).not_finite) == (found.recall, 7)
    assert found.not_finite == 0


@pytest.mark.parametrize("at", [40, 97])
def test_held_out_items_that_are_not_finite_are_an_event_at_one_call(at: int) -> None:
    def probes(step: int) -> Tensor:
        return held_out(apart=4) * (math.nan if step >= at else 1)

    monitor = watched(batch, probes, steps=100)
    if at == 97:  # after the last call that is due
        assert monitor.events == []
    closing = monitor.close(lambda: (probes(100), CLASSES))
    (event,) = monitor.events
    assert (event.kind, event.rule) == ("not-finite", "of 240 held-out items 240 have embeddings that are not finite")
    assert any("learning rate" in change for change in event.changes)
    assert closing is not None
    assert closing.endswith("It ends with embeddings that are not finite.")
    assert "below its start" in closing
    resumed = CollapseMonitor()
    resumed.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    assert resumed.closing() == closing


@pytest.mark.parametrize(
    ("embeddings", "labels", "sentence"),
    [
        (
            NOISE,
            torch.zeros(ITEMS, dtype=torch.int64),
            "two classes at least, and two items of one: got 240 items of 1",
        ),
        (NOISE, torch.arange(ITEMS), "two classes at least, and two items of one: got 240 items of 240 classes; hold"),
        (NOISE.tolist(), CLASSES, "an array or tensor (M, d) of two items or more: got list."),
        (NOISE[:, None], CLASSES, "an array or tensor (M, d) of two items or more: got shape (240, 1, 8)."),
        (NOISE * math.inf, CLASSES, "finite before training: those of 240 of 240 items are not; look at"),
    ],
)
def test_a_probe_that_tells_nothing_is_refused_at_once(embeddings: Any, labels: Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ProbeTracker().measure(lambda: (embeddings, labels), 0)


@pytest.mark.parametrize("suspicious", [True, False])
def test_calls_are_dense_at_first_and_cost_two_percent_at_most_in_the_end(suspicious: bool) -> None:
    items, size = 30, 8
    probing, asked, probe = ProbeTracker(), [], (NOISE[:items], CLASSES[:items])
    for update in range(1, UPDATES + 1):
        probing.count(size)
        if (update <= 20 or update % 10 == 0) and probing.due(suspicious=suspicious):
            probing.measure(lambda: probe, update)
            asked.append(update)
    assert asked[:4] == ([1, 6, 12, 30] if suspicious else [1, 6, 30, 120])
    share = SHARE if suspicious else SHARE / 2
    assert 0.95 * share < probing.cost <= share
    assert probing.cost == len(asked) * items / (3 * UPDATES * size)
    assert max(b - a for a, b in zip(asked[-9:], asked[-8:], strict=False)) < UPDATES / 20


@pytest.mark.parametrize("steps", [1, 5, 6, 7, 8, 12, 24, 30, 400])
def test_the_calls_of_a_short_run_are_known_before_it_begins(steps: int) -> None:
    monitor = CollapseMonitor(steps=steps)
    monitor.begin(lambda: (NOISE, CLASSES))
    calls, cost = monitor.probing.least_cost(steps, 32)
    for step in range(1, steps + 1):
        monitor.update(None, items=32, step=step, probe=lambda: (NOISE, CLASSES))
    monitor.close(lambda: (NOISE, CLASSES), step=steps)
    made = len(monitor.probing.series["step"])
    assert calls == made if steps < 40 else 5 <= calls <= made
    assert cost == pytest.approx(monitor.probing.cost * calls / made)
    assert monitor.probing.least_cost(0, 32)[1] == monitor.probing.least_cost(steps, 0)[1] == 0


def test_a_run_of_known_length_is_asked_at_each_quarter_at_least() -> None:
    def longest_gap(steps: int | None) -> float:
        monitor = watched(batch, lambda step: held_out(apart=3), steps=400, monitor=CollapseMonitor(steps=steps))
        calls = [*monitor.probing.series["step"], 400]
        return max(after - before for before, after in pairwise(calls))

    assert longest_gap(400) <= 400 / 4 + 20  # and the updates between two checks
    assert longest_gap(None) > 400 / 4 + 20


def test_a_monitor_of_no_steps_is_refused() -> None:
    with pytest.raises(ValueError, match=r"steps must be at least 1, the updates of the whole run, or None: got 0\."):
        CollapseMonitor(steps=0)


@pytest.mark.parametrize(("classes", "kinds"), [(6, ["harm"]), (24, [])])
def test_a_loss_in_two_classes_is_told_where_there_are_few(classes: int, kinds: list[str]) -> None:
    """Four of five items of one class move to items of another one, and no other item loses anything."""
    own = torch.arange(ITEMS) % classes
    noise = torch.randn(ITEMS, classes, generator=torch.Generator().manual_seed(9))
    kept = 0.1 * noise + 3 * torch.eye(classes)[own]
    moved = torch.nonzero((own == 0) & (torch.arange(ITEMS) % 5 > 0)).squeeze(1)
    lost = kept.clone()
    lost[moved] = kept[moved + 1] + 1e-4

    def probes(step: int) -> Tensor:
        return lost if step else kept

    assert [event.kind for event in watched(batch, probes, levels=(own,)).events] == kinds


def test_batches_that_shrink_convict_nothing_that_held_out_items_do_not_show() -> None:
    (event,) = asking(lambda _: None).events
    assert (event.kind, event.suspected, event.title) == (
        "network-collapse",
        True,
        "network collapse suspected at step 8",
    )
    assert "probe of held-out items" in event.changes[0]
    assert watched(shrinking, lambda step: held_out(apart=1 + step / 20, spread=max(0.05, 0.9**step))).events == []
    assert watched(shrinking, lambda step: held_out(apart=3.0)).events == []


def asking(probes: Callable[[int], Any]) -> CollapseMonitor:
    """Collapsing batches beside what is given as a probe at each step."""
    monitor = CollapseMonitor()
    for step in range(60):
        monitor.update(shrinking(step), LABELS, 0.2, step=step, probe=probes(step))
    return monitor


def test_held_out_items_that_are_no_longer_found_and_narrow_have_collapsed() -> None:
    """Not by one call: at that of step 19 most are found still, by those of 39 and 79 none."""
    monitor = watched(shrinking, lambda step: held_out(apart=max(0.0, 2 - step / 20), spread=0.8**step))
    harm, event = monitor.events
    assert (harm.kind, harm.step) == ("harm", 19)
    assert (event.kind, event.step, event.healthy, event.suspected) == ("network-collapse", 39, 0, False)
    assert event.evidence["relative_spread"] < 0.1 < event.evidence["relative_spread_at_step_0"]
    assert "nearer to chance" in event.rule
    assert "relative spread" in event.rule
    assert str(monitor.closing()).endswith("It ends as a network collapse.")


@pytest.mark.parametrize(
    ("apart", "spread"),
    [
        (lambda step: 4.0 if step else 0.0, lambda step: 0.001 if step else 1.0),  # at one point
        (lambda step: 0.8 if step else 0.0, lambda step: 0.05 if step else 1.0),  # narrow, and hardly told apart
        (lambda step: 2.0, lambda step: 0.8**step if step else 1.0),  # as well as before
        (lambda step: 1.0 if step == 0 else 5.0 if step < 19 else 1.6, lambda step: 0.04 if step else 1.0),
    ],
    ids=["point", "plateau", "scale", "worse than the best"],
)
def test_a_shape_in_which_as_many_are_found_as_at_the_start_is_no_collapse(
    apart: Callable[[int], float], spread: Callable[[int], float]
) -> None:
    """All items at one point are a suspicion, which the loss may be stuck by."""
    monitor = watched(shrinking, lambda step: held_out(apart=apart(step), spread=spread(step)), steps=80)
    assert monitor.probing.last is not None
    assert monitor.probing.last.relative_spread < 0.1
    suspected = [(event.kind, event.suspected) for event in monitor.events]
    assert suspected == ([("network-collapse", True)] if monitor.probing.last.relative_spread < 0.01 else [])
    assert all("told apart still" in event.rule for event in monitor.events)


def test_harm_takes_the_place_of_a_collapse_that_came_back() -> None:
    def probes(step: int) -> Tensor:
        return (
            held_out(apart=4.0) if step < 3 else held_out(apart=0.0, spread=1e-3) if step < 30 else held_out(apart=1.0)
        )

    monitor = watched(steady, probes)
    assert [(event.kind, event.step) for event in monitor.events] == [("network-collapse", 19), ("harm", 79)]
    assert "below its start" in str(monitor.closing())
    assert "collapse" not in str(monitor.closing())


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (1.5, "points (99 % interval {low} to {high}) below its start: "),
        (4.0, "ends as it began, as far as can be told (+0.0 points, 99 % interval "),
    ],
)
def test_the_last_call_says_how_held_out_items_end_though_they_recovered(end: float, words: str) -> None:
    def probes(step: int) -> Tensor:
        return held_out(apart=2.5 if step < 3 else 0.5 if step < 60 else end)

    before = 2.5 if end == 1.5 else 4.0
    monitor = watched(steady, lambda step: held_out(apart=before) if step < 3 else probes(step), steps=90)
    sentence = monitor.close(lambda: (probes(90), CLASSES), step=90)
    assert monitor.probing.series["step"][-1] == 90
    assert sentence == monitor.probing.closing()
    pair = [result.scores[0].hits for result in (monitor.probing.last, monitor.probing.reference)]
    found = compare_values(*pair, CLASSES.numpy(), reference="", level="")
    assert words.format(low=f"{-100 * found.high:.1f}", high=f"{-100 * found.low:.1f}") in sentence
    assert [monitor.probing.series[name][-1] for name in GAIN] == [found.low, found.high]
    assert f"{100 * monitor.probing.reference.recall:.1f} % at step 0" in sentence
    assert "it was best" not in sentence  # it never was above its start


def test_a_run_that_was_better_before_its_end_is_closed_with_its_best() -> None:
    apart = {0: 1.0, 5: 4.0}
    monitor = watched(steady, lambda step: held_out(apart=apart.get(step, 1.0)), steps=90)
    assert "it was best at step 5, " in monitor.close(lambda: (held_out(apart=1.0), CLASSES), step=90)
    assert CollapseMonitor().close() is None


@pytest.mark.parametrize(("end", "kinds"), [(1.6, ["harm"]), (4.0, [])])
def test_what_rises_is_waited_for_until_the_end(end: float, kinds: list[str]) -> None:
    monitor = watched(steady, lambda step: held_out(apart=4.0 if step < 3 else 0.1 + step / 60), steps=90)
    assert monitor.events == []
    monitor.close(lambda: (held_out(apart=end), CLASSES), step=90)
    assert [event.kind for event in monitor.events] == kinds


def steady(step: int) -> Tensor:
    """A batch that suggests nothing."""
    return batch(step) + step / 10 * torch.eye(8)[LABELS]


@pytest.mark.parametrize("without_fine", [True, False])
def test_held_out_items_that_stay_worse_than_at_the_start_are_harmed(without_fine: bool) -> None:
    levels = (CLASSES,) if without_fine else (CLASSES, FINE)
    monitor = watched(steady, lambda step: held_out(apart=4.0 if step < 3 else 1.0), levels=levels)
    (event,) = monitor.events
    assert (event.kind, event.step, event.healthy) == ("harm", 19, 0)  # asked at 5 and 19
    assert event.evidence["recall"] < 0.6 < event.evidence["recall_at_step_0"]
    assert "two calls of the probe in a row" in event.rule


@pytest.mark.parametrize(
    "apart",
    [
        lambda step: 4.0 - 0.1 * (step > 3),  # lost, within chance
        lambda step: 1.0 if step == 19 else 4.0,  # at one call alone
        lambda step: min(3.0, 1.0 + step / 40) if step else 4.0,  # lost for certain, and coming back
    ],
    ids=["chance", "once", "coming back"],
)
def test_what_may_be_chance_or_comes_back_is_no_harm(apart: Callable[[int], float]) -> None:
    assert watched(steady, lambda step: held_out(apart=apart(step)), steps=100).events == []


@pytest.mark.parametrize(("before", "after", "called"), [(2.8, 2.6, True), (2.8, 2.7, False)])
def test_rank_biased_precision_tells_harm_that_recall_leaves_open(before: float, after: float, called: bool) -> None:
    monitor = watched(steady, lambda step: held_out(apart=after if step else before))
    closing = monitor.closing()
    assert closing is not None
    assert [event.kind for event in monitor.events] == (["harm"] if called else [])
    assert ("below its start" in closing) is called
    if called:
        assert re.search(r"points; of rank-biased precision -\d+\.\d to -\d+\.\d\)", monitor.events[0].rule)
        assert re.search(r"to \d+\.\d; of rank-biased precision \d+\.\d to \d+\.\d\) below its start", closing)
    start, end = monitor.probing.reference, monitor.probing.last
    assert start is not None
    assert end is not None
    assert monitor.probing._compared_with(end, start).high >= 0


def test_rank_biased_precision_alone_does_not_tell_that_a_run_ends_above_its_start() -> None:
    monitor = watched(steady, lambda step: held_out(apart=2.8 if step else 2.6))
    start, end, closing = monitor.probing.reference, monitor.probing.last, monitor.closing()
    assert start is not None
    assert end is not None
    assert closing is not None
    ranked = [result.scores[0].rank_biased for result in (end, start)]
    assert compare_values(*ranked, CLASSES.numpy(), reference="", level="").better
    assert "ends as it began, as far as can be told (+" in closing


def test_what_the_repair_returns_to_is_the_best_step() -> None:
    apart = {0: 3.0, 19: 5.0}
    monitor = watched(steady, lambda step: held_out(apart=apart.get(step, 1.0)))
    (event,) = monitor.events
    assert (event.kind, event.healthy) == ("harm", 19)


@pytest.mark.parametrize(("rate", "seen"), [(0.93, True), (1.0, False)], ids=["lost", "kept"])
def test_classes_collapse_where_held_out_items_lose_what_is_inside_them(rate: float, seen: bool) -> None:
    batches = halved(lambda step: 3 * 0.93**step)
    monitor = watched(batches, lambda step: held_out(apart=12.0, inside=6 * rate**step), **FINER)
    assert [event.kind for event in monitor.events] == (["class-collapse"] if seen else [])
    assert str(monitor.closing()).endswith("It ends as a class collapse.") is seen
    if seen:
        assert monitor.events[0].evidence["fine_recall"] < monitor.events[0].evidence["fine_recall_at_step_0"]


def test_two_calls_tell_what_classes_lost_inside_since_the_best_where_one_leaves_it_open() -> None:
    def inside(step: int) -> Tensor:
        return held_out(apart=12.0, inside=0.0 if step == 0 else 2.5 if step < 50 else 2.1)

    monitor = watched(halved(lambda step: 3 * 0.93**step), inside, steps=300, **FINER)
    (event,) = monitor.events
    asked = [step for step in monitor.probing.series["step"] if step >= 50]
    assert (event.kind, event.step) == ("class-collapse", asked[1])


def test_held_out_items_that_lose_what_is_inside_are_no_class_collapse_while_batches_keep_it() -> None:
    """Nor harm, as they keep more than they began with."""

    def inside(step: int) -> Tensor:
        return held_out(apart=12.0, inside=0.0 if step == 0 else 6.0 if step < 30 else 1.5)

    monitor = watched(halved(lambda _: 3.0), inside, **FINER)
    seen = monitor.probing.series["fine_recall"]
    assert max(seen) - seen[-1] > 0.2
    assert monitor.events == []


def test_what_never_was_better_than_chance_is_no_harm_but_noted_at_the_end() -> None:
    monitor = watched(lambda step: batch(step) + 1, lambda step: torch.roll(held_out(apart=0.0), step, 0), steps=400)
    assert monitor.events == []
    assert "By the labels it never was better than chance" in str(monitor.close())
    assert "chance" not in str(watched(steady, lambda _: held_out(apart=4.0)).close())


@pytest.mark.parametrize("stop", [3, 21, 33])
def test_a_resumed_monitor_asks_and_says_the_same(stop: int) -> None:
    def probes(step: int) -> Tensor:
        return held_out(apart=4.0 if step < 3 else 1.0)

    whole = watched(steady, probes, levels=(CLASSES, FINE))
    first = watched(steady, probes, levels=(CLASSES, FINE), steps=stop)
    second = CollapseMonitor()
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    watched(steady, probes, levels=(CLASSES, FINE), start=stop, monitor=second)
    assert second.as_json() == whole.as_json()
    assert second.state_dict() == whole.state_dict()
    assert set(whole.as_json()["probe"]["series"]) == {*SERIES, *GAIN}


BAD: list[tuple[str, Any, str]] = [
    ("nothing", lambda: (), r"must give \(embeddings, labels\) or"),
    ("one item", lambda: (NOISE[:1], CLASSES[:1]), r"two items or more: got shape \(1, 8\)"),
    ("other labels", lambda: (NOISE, CLASSES[:5]), r"one class per embedding: got shape \(5,\) for 240"),
    ("a fault", lambda: 1 / 0, "ZeroDivisionError at step 0: division by zero"),
]


@pytest.mark.parametrize(("probe", "said"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_probe_that_fails_is_said_once_and_batches_judge_alone(probe: Any, said: str) -> None:
    with pytest.warns(UserWarning, match=said) as caught:
        monitor = asking(lambda _: probe)
    assert len(caught) == 1
    assert [event.kind for event in monitor.events] == ["network-collapse"]


def test_other_items_than_before_are_refused() -> None:
    with pytest.warns(UserWarning, match="the same items in the same order each time"):
        monitor = asking(lambda step: lambda: (NOISE, CLASSES.flip(0) if step else CLASSES))
    assert [event.kind for event in monitor.events] == ["network-collapse"]


LISTS = [
    [tag for tag, share in zip("abcdefgh", row, strict=True) if share < 0.2]
    for row in np.random.default_rng(3).random((40, 8)).tolist()
]
GRADES = (lambda matrix: matrix + matrix.T)(np.random.default_rng(4).integers(0, 3, (40, 40)))


def by_tags(least: float) -> Callable[[int, int], int]:
    def code(a: int, b: int) -> int:
        shared = len({*LISTS[a]} & {*LISTS[b]})
        return 0 if not shared else 1 if shared >= least * len({*LISTS[a], *LISTS[b]}) else -1

    return code


RELATED: dict[str, tuple[trivet.Relation, Callable[[int, int], int]]] = {
    "tags, any": (trivet.Tags(LISTS), by_tags(0)),
    "tags, Jaccard": (trivet.Tags(LISTS, 0.5), by_tags(0.5)),
    "pairs": (trivet.Pairs(20, 20), lambda a, b: -1 if (a < 20) == (b < 20) else int(abs(a - b) == 20)),
    "grades": (
        trivet.Grades(GRADES, positive=4, negative=2),
        lambda a, b: 1 if GRADES[a, b] >= 4 else -1 if GRADES[a, b] >= 2 else 0,
    ),
}


@pytest.mark.parametrize("name", RELATED)
def test_a_call_by_a_relation_equals_the_definition(name: str) -> None:
    """A rule gives 1 for positives, 0 for negatives and -1 for neither; items without a positive are left out."""
    relation, rule = RELATED[name]
    rows = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 2
    rows[20:] = rows[:20] + 0.3 * rows[20:]
    rows[:6] = rows[6:12]  # equally near
    points = rows.tolist()
    recalls, ranked, chances, own, other = [], [], [], [], []
    for i in range(40):
        compared = [j for j in range(40) if j != i and rule(i, j) >= 0]
        distances = {j: math.dist(points[i], points[j]) for j in compared}
        own += [distances[j] for j in compared if rule(i, j)]
        other += [distances[j] for j in compared if not rule(i, j)]
        if not any(rule(i, j) for j in compared):
            continue
        least = min(distances.values())
        recalls.append(fmean(rule(i, j) for j in compared if distances[j] == least))
        chances.append(fmean(rule(i, j) for j in compared))
        ranked.append(0.0)
        for distance in {*distances.values()}:
            tied = [rule(i, j) for j in compared if distances[j] == distance]
            none_nearer = 0.5 ** sum(distances[j] < distance for j in compared)
            ranked[-1] += none_nearer * (1 - 0.5 ** len(tied)) * fmean(tied)
    assert 0 < fmean(recalls) < 1
    result = measure_probe(0, rows, [relation])
    assert result.recall == pytest.approx(fmean(recalls), rel=1e-9)
    assert result.scores[0].rank_biased == pytest.approx(ranked, rel=1e-9)
    assert result.within_between == pytest.approx(fmean(own) / fmean(other), rel=1e-9)
    assert result.by_chance is not None
    assert result.by_chance[0] == pytest.approx(fmean(chances), rel=1e-9)
    assert math.isnan(result.strangers)
    means = [[fmean(column) for column in zip(*side, strict=True)] for side in (points[:20], points[20:])]
    sides = [[x - m for x, m in zip(row, means[i >= 20], strict=True)] for i, row in enumerate(points)]
    about = sides if name == "pairs" else points
    apart = [math.dist(about[i], about[j]) for i in range(40) for j in range(i)]
    near = fmean(distance <= 0.1 * fmean(apart) for distance in apart)
    together = 1 + fmean(sum(rule(i, j) == 1 for j in range(40) if j != i) for i in range(40))
    assert result.mean_distance == pytest.approx(fmean(apart), rel=1e-9)
    assert result.spots == pytest.approx(min(40, 1 / near) * together / 40, rel=1e-9)


def test_the_nearest_of_a_side_are_of_the_other_however_far_it_lies() -> None:
    rows = NOISE[:40] + 50.0 * (torch.arange(40) < 20)[:, None]
    nearest = measure_probe(0, rows, [trivet.Pairs(20, 20)]).nearest
    apart = torch.cdist(rows[:20], rows[20:])
    assert nearest[:20].tolist() == (20 + apart.argmin(dim=1)).tolist()
    assert nearest[20:].tolist() == apart.argmin(dim=0).tolist()


def test_classes_as_a_relation_are_the_labels() -> None:
    points = held_out(apart=0.3)
    labels, relation = (measure_probe(0, points, [level]) for level in (CLASSES, trivet.Classes(CLASSES)))
    assert labels.values() == pytest.approx(relation.values(), nan_ok=True)
    # The same by another rule: all but what needs a number of classes.
    grades = trivet.Grades(lambda a, b: (a[:, None] == b).double(), positive=1.0, items=CLASSES)
    other = measure_probe(0, points, [grades])
    assert other.recall == pytest.approx(labels.recall)
    assert other.within_between == pytest.approx(labels.within_between)
    tracker, classes = ProbeTracker(), ProbeTracker()
    tracker.measure(lambda: (points, grades), 0)
    classes.measure(lambda: (points, CLASSES), 0)
    assert tracker.levels[0].tolist() == classes.levels[0].tolist()
    assert tracker.chance == pytest.approx(classes.chance)


def test_chance_by_permuted_items_is_that_of_permuted_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.arange(60) % 3
    nearest = np.random.default_rng(0).permutation(60)
    codes = np.where(np.eye(60), -1, labels[:, None] == labels).astype(np.int8)
    nearest = np.where(nearest == np.arange(60), (nearest + 1) % 60, nearest)
    every = np.arange(60)
    high = recall_by_permutations(nearest[:, None], every, codes, [every], answerable=True)[1]
    assert high == pytest.approx(recall_by_chance(nearest, np.arange(60), labels)[1], abs=0.04)
    # Where half of all pairs are ignored, the nearest that is not decides.
    sides = np.arange(60) < 30
    pairs = np.where(sides[:, None] == sides, -1, np.abs(np.subtract.outer(np.arange(60), np.arange(60))) == 30)
    orders = np.random.default_rng(1).random((60, 60)).argsort(axis=1)
    around = np.array([[j for j in order if j != i][:10] for i, order in enumerate(orders.tolist())])
    monkeypatch.setattr("trivet.collapse.relation_chance.PERMUTATIONS", 30)
    high = recall_by_permutations(around, every, pairs.astype(np.int8), [every], answerable=True)[1]
    recalls, generator = [], np.random.default_rng(0)
    for _ in range(30):
        items = generator.permutation(60)
        codes = [[pairs[items[i], items[j]] for j in around[i] if pairs[items[i], items[j]] >= 0] for i in range(60)]
        recalls.append(fmean(of_item[0] for of_item in codes if of_item))
    assert high == pytest.approx(np.quantile(recalls, 0.995), abs=0.01)


TAGS = trivet.Tags([[f"class {number}"] + ["even"] * (item % 8 == 0) for item, number in enumerate(CLASSES.tolist())])
PAIRS = trivet.Pairs(ITEMS // 2, ITEMS // 2)


def paired(*, noise: float, spread: float = 1.0) -> Tensor:
    """Two sides, of which each row of one is beside its partner."""
    side = torch.randn(ITEMS // 2, 8, generator=torch.Generator().manual_seed(5))
    return (torch.cat([side, side]) + noise * NOISE) * spread + 1


def by(relation: Any, points: Callable[[int], Tensor], **options: Any) -> CollapseMonitor:
    return watched(lambda step: batch(step) + 1, points, levels=(relation,), **options)


def test_held_out_pairs_and_tags_are_judged_and_closed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        better = by(PAIRS, lambda step: paired(noise=0.5 if step < 3 else 0.1))
        assert better.events == []
        assert "held-out items ends" in str(better.close())
        assert "above its start" in str(better.close())
        harmed = by(PAIRS, lambda step: paired(noise=0.1 if step < 3 else 0.5))
        assert [event.kind for event in harmed.events] == ["harm"]
        assert "240 held-out items fewer find a positive than at the start" in harmed.events[0].rule
        assert "below its start" in str(harmed.close())
        lost = by(PAIRS, lambda step: paired(noise=0.1) if step < 3 else paired(noise=30.0, spread=1e-4))
        assert [event.kind for event in lost.events] == ["network-collapse"]
        of_tags = by(TAGS, lambda step: held_out(apart=4.0 if step < 3 else 0.0, spread=1.0 if step < 3 else 1e-3))
        assert [event.kind for event in of_tags.events] == ["network-collapse"]
        never = by(PAIRS, lambda step: torch.roll(NOISE, step, 0) + 1)
        assert never.events == []
        assert "By the labels it never was better than chance" in str(never.close())
    json.dumps(lost.as_json(), allow_nan=False)


@pytest.mark.parametrize(("rate", "seen"), [(0.93, True), (1.0, False)], ids=["lost", "kept"])
def test_finer_classes_inside_tags_are_judged(rate: float, seen: bool) -> None:
    tags = trivet.Tags([[f"class {number}", f"group {number}"] for number in CLASSES.tolist()])
    batches, levels = halved(lambda step: 3 * 0.93**step), (tags, FINE)
    monitor = watched(batches, lambda step: held_out(apart=12.0, inside=6 * rate**step), levels=levels)
    assert [event.kind for event in monitor.events] == (["class-collapse"] if seen else [])
    if seen:
        assert re.search(
            r"by the finer classes is .*, and positives are 0\.\d+ times as far apart as negatives",
            monitor.events[0].rule,
        )


@pytest.mark.parametrize("stop", [3, 21, 33])
def test_a_resumed_monitor_of_a_relation_asks_and_says_the_same(stop: int) -> None:
    def probes(step: int) -> Tensor:
        return paired(noise=0.1 if step < 3 else 0.5)

    whole, first, second = by(PAIRS, probes), by(PAIRS, probes, steps=stop), CollapseMonitor()
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    by(PAIRS, probes, start=stop, monitor=second)
    assert second.as_json() == whole.as_json()
    assert second.state_dict() == whole.state_dict()


def test_relations_that_a_probe_cannot_use_are_refused() -> None:
    tracker = ProbeTracker()
    tracker.measure(lambda: (NOISE, PAIRS), 0)
    other = trivet.Pairs(ITEMS // 2, ITEMS // 2, listed=[(0, 1)])
    with pytest.raises(ValueError, match="the same items in the same order each time"):
        tracker.measure(lambda: (NOISE, other), 1)
    tracker = ProbeTracker()
    tracker.measure(lambda: (NOISE[:40], trivet.Grades(GRADES, positive=3)), 0)
    tracker.measure(lambda: (NOISE[:40], trivet.Grades(GRADES, positive=3)), 1)
    with pytest.raises(ValueError, match="the same items in the same order each time"):
        tracker.measure(lambda: (NOISE[:40], trivet.Grades(GRADES, positive=2)), 1)
    with pytest.raises(ValueError, match="got 239 for 240; take relation"):
        ProbeTracker().measure(lambda: (NOISE, PAIRS[:239]), 0)
    with pytest.raises(ValueError, match="none of 240 has a positive in this Pairs; hold out others"):
        ProbeTracker().measure(lambda: (NOISE, PAIRS.left[[0] * 240]), 0)
