"""The monitor: what it sees, what it says, and that it never brings a training down."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trivet
from trivet.collapse import CollapseMonitor, SamplingStrategy
from trivet.collapse.alarms import ALARMS
from trivet.collapse.batch_measures import SUM_MEASURES, PairDistances, batch_sums
from trivet.collapse.monitor import SERIES
from trivet.collapse.monitor_buffer import MonitorBuffer

LABELS = torch.arange(32) % 4


def points(seed: int = 0, d: int = 8) -> Tensor:
    return torch.randn(32, d, generator=torch.Generator().manual_seed(seed))


def running(embeddings: Tensor, labels: Tensor) -> list[float]:
    """The running measures of a batch alone."""
    kept = MonitorBuffer()
    kept.add_batch([embeddings, labels])
    return kept.read([embeddings, labels]).running


def shrinking(steps: int = 60, rate: float = 0.9) -> Iterator[Tensor]:
    """Batches without any order by class that shrink around a point."""
    for step in range(steps):
        yield points(step) * rate**step + 1


def spreading(steps: int = 60) -> Iterator[Tensor]:
    """Batches whose classes move apart."""
    for step in range(steps):
        yield points(step) + step / 10 * torch.eye(8)[LABELS]


def fed(batches: Iterable[Tensor], monitor: CollapseMonitor | None = None, **options: Any) -> CollapseMonitor:
    """A monitor that has seen these batches."""
    monitor = monitor or CollapseMonitor()
    for batch in batches:
        monitor.update(batch, LABELS, 0.1, **options)
    return monitor


def test_a_shrinking_embedding_is_called_once_with_its_evidence() -> None:
    monitor = CollapseMonitor()
    brought = [monitor.update(batch, LABELS, 0.2) for batch in shrinking(rate=0.8)]
    (event,) = monitor.events
    assert [found for found in brought if found] == [[event]]
    assert event.kind == "network-collapse"
    assert 4 <= event.step < 40
    assert event.healthy < event.step
    assert event.forecast is not None
    assert monitor.series["risk"][-1] >= 0.85
    assert event.evidence["within_between"] == pytest.approx(1, abs=0.1)
    assert event.changes


def test_a_spreading_embedding_brings_nothing() -> None:
    monitor = fed(spreading())
    assert monitor.events == []
    ahead = monitor.forecast()
    assert ahead is not None
    assert ahead.probability < 0.2


def test_series_hold_the_measures_of_each_look() -> None:
    monitor = CollapseMonitor(every=3)
    batches = list(spreading(7))
    fed(batches, monitor, active=0.5)
    assert monitor.series["step"] == [0, 1, 2, 5]  # the first three updates, then each third
    assert set(monitor.series) == set(SERIES)
    assert {len(values) for values in monitor.series.values()} == {4}
    assert monitor.series["loss"] == [0.1] * 4
    assert monitor.series["active"] == [0.5] * 4
    for at, name in enumerate(SUM_MEASURES):
        if name != "fine_index":
            between = [running(batch, LABELS)[at] for batch in batches[3:6]]
            assert monitor.series[name][-1] == pytest.approx(sorted(between)[1], rel=1e-6)


def test_the_loss_of_a_look_is_the_median_of_the_updates_since_the_last() -> None:
    monitor = CollapseMonitor(every=3)
    for loss in (7.0, 8.0, 9.0, 5.0, 100.0, 4.0):
        monitor.update(points(), LABELS, loss)
    assert monitor.series["loss"] == [7, 8, 9, 5]


def test_looks_grow_rarer_by_the_updates_alone() -> None:
    monitor = fed([points()] * 1000)
    checks = [*range(10), *range(19, 300, 10), *range(319, 600, 20), *range(629, 1000, 30)]
    assert monitor.series["step"] == checks


def test_one_odd_batch_is_no_explosion() -> None:
    monitor = CollapseMonitor(every=5)
    for step in range(40):
        batch = points(step)
        batch[3] *= 1e4 if step == 3 else 1
        monitor.update(batch, LABELS, 0.2)
    assert max(monitor.series["norm_tail"]) > 100
    assert monitor.events == []


@pytest.mark.parametrize(
    ("width", "apart", "rate", "seen"),
    [
        (0.5, 3.0, 0.93, True),
        (4.0, 8.0, 0.93, False),  # classes are not tight
        (0.5, 3.0, 1.0, False),  # nothing is lost
    ],
    ids=["tight", "wide", "kept"],
)
def test_only_tight_classes_that_lose_what_is_inside_collapse(
    width: float, apart: float, rate: float, seen: bool
) -> None:
    monitor = CollapseMonitor()
    fine = torch.arange(32) // 8
    coarse = fine // 2
    for step in range(120):
        inside = apart * rate**step * torch.eye(8)[4 + fine]
        monitor.update(points(step) * width + 6 * torch.eye(8)[coarse] + inside, coarse, 0.1, fine=fine)
    assert [event.kind for event in monitor.events] == (["class-collapse"] if seen else [])
    if seen:
        evidence = monitor.events[0].evidence
        assert evidence["best_fine_recall"] - evidence["fine_recall"] > 0.12


def test_terms_without_a_gradient_are_a_dead_sampler_unless_all_is_learned() -> None:
    dead = fed((points(step) for step in range(40)), active=0.0)
    assert [event.kind for event in dead.events] == ["dead-sampler"]
    assert fed((points(step) * 0.01 + torch.eye(8)[LABELS] for step in range(40)), active=0.0).events == []


def test_exploding_norms_are_called() -> None:
    monitor = fed(points(step) * 3.0**step for step in range(30))
    assert "exploding-norm" in [event.kind for event in monitor.events]


@pytest.mark.parametrize(("where", "at", "told"), [("loss", 11, 14), ("embeddings", 11, 14), ("embeddings", 9, 9)])
def test_a_number_that_is_not_finite_is_an_event_even_between_two_looks(where: str, at: int, told: int) -> None:
    monitor = CollapseMonitor(every=5)
    for step in range(20):
        batch, loss = points(step), 0.5
        if step == at:
            loss = math.nan if where == "loss" else loss
            batch[3, 2] = math.inf if where == "embeddings" else batch[3, 2]
        monitor.update(batch, LABELS, loss)
    assert [(event.kind, event.step) for event in monitor.events] == [("not-finite", told)]
    json.dumps(monitor.as_json(), allow_nan=False)


BAD: list[tuple[str, Any, Any, str]] = [
    ("a batch of one", torch.ones(1, 4), torch.zeros(1, dtype=torch.int64), "at least two items: got 1"),
    ("no matrix", torch.ones(4), torch.zeros(4, dtype=torch.int64), r"shape \(N, d\): got \(4,\)"),
    ("integers", torch.ones(4, 2, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), "floating point"),
    ("other labels", torch.ones(4, 2), torch.zeros(3, dtype=torch.int64), r"got \(3,\) for 4 embeddings"),
    ("another relation", torch.ones(4, 2), trivet.Pairs(3, 3), "got 6 for 4 embeddings"),
    ("no tensor", None, None, "got NoneType"),
]


@pytest.mark.parametrize(("embeddings", "labels", "said"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_cannot_be_watched_is_said_once_and_passed_over(embeddings: Any, labels: Any, said: str) -> None:
    monitor = CollapseMonitor()
    with pytest.warns(UserWarning, match=said) as caught:
        assert [monitor.update(embeddings, labels, 0.1) for _ in range(3)] == [[], [], []]
    assert len(caught) == 1
    assert monitor.series["step"] == []


def test_without_labels_spread_norm_and_loss_are_watched() -> None:
    monitor = CollapseMonitor()
    with pytest.warns(UserWarning, match="needs labels to suspect") as caught:
        brought = [monitor.update(points(step) * 3.0**step) for step in range(30)]
    assert len(caught) == 1
    assert [event.kind for found in brought for event in found] == ["exploding-norm"]
    assert monitor.forecast() is not None  # which needs distances alone


def test_another_embedding_size_begins_anew() -> None:
    monitor = fed(shrinking(5))
    with pytest.warns(UserWarning, match="got 6 numbers each at step 5 after 8"):
        monitor.update(points(d=6), LABELS, 0.1)
    assert monitor.series["step"] == [5]


@pytest.mark.parametrize("large", [False, True])
def test_a_look_is_the_median_of_five_updates_as_they_were(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another size each, and though the tensors are filled anew afterwards; small ones are measured at once."""
    seen: list[int] = []

    def counted(points: Tensor, *levels: Tensor, pairs: PairDistances | None) -> list[Tensor]:
        seen.append(len(points))
        return batch_sums(points, *levels, pairs=pairs)

    if large:
        monkeypatch.setattr("trivet.collapse.monitor_buffer.SMALL", 0)
    monkeypatch.setattr("trivet.collapse.monitor_buffer.batch_sums", counted)
    monitor = CollapseMonitor()
    for step in range(20):
        batch, labels = points(seed=step), LABELS.clone()
        monitor.update(batch, labels, 0.1)
        batch.fill_(7)
        labels.fill_(0)
    assert seen == ([1] * 15 if large else [1] * 10 + [5])
    each = [running(points(seed=step), LABELS) for step in range(15, 20)]
    expected = dict(zip(SUM_MEASURES, torch.tensor(each).nanmedian(dim=0).values.tolist(), strict=True))
    for name in ("relative_spread", "within", "between", "norm"):
        assert monitor.series[name][-1] == pytest.approx(expected[name], rel=1e-5)
    for step in range(20, 30):
        monitor.update(points(seed=step)[: 30 - step % 2], LABELS[: 30 - step % 2], 0.1)
    each = [running(points(seed=step)[: 30 - step % 2], LABELS[: 30 - step % 2]) for step in range(25, 30)]
    assert monitor.series["within"][-1] == pytest.approx(float(torch.tensor(each)[:, 2].median()), rel=1e-5)


def test_a_fault_of_the_monitor_is_no_fault_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr("trivet.collapse.monitor_buffer.sum_measures", broken)
    monitor = CollapseMonitor()
    with pytest.warns(UserWarning, match="could not use a batch: RuntimeError at step 0: out of luck") as caught:
        assert [monitor.update(points(), LABELS, 0.1) for _ in range(3)] == [[], [], []]
    assert len(caught) == 1


def test_every_must_be_one_or_more() -> None:
    with pytest.raises(ValueError, match="every must be at least 1"):
        CollapseMonitor(every=0)


@pytest.mark.parametrize("stop", [3, 17, 24])
def test_a_resumed_monitor_goes_on_exactly(stop: int) -> None:
    batches = list(shrinking(50))
    whole, first = fed(batches, CollapseMonitor(every=4)), fed(batches[:stop], CollapseMonitor(every=4))
    second = CollapseMonitor(every=4)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    fed(batches[stop:], second)
    assert second.as_json() == whole.as_json()
    assert second.events == whole.events


def test_callbacks_get_looks_and_events() -> None:
    events, logged = [], []
    monitor = CollapseMonitor(
        every=5, on_event=events.append, log=lambda measures, step: logged.append((step, measures["relative_spread"]))
    )
    fed(shrinking(40), monitor)
    assert events == monitor.events
    assert [step for step, _ in logged] == monitor.series["step"]
    assert [value for _, value in logged] == monitor.series["relative_spread"]


@pytest.mark.parametrize("own", [True, False], ids=["a loss of Trivet", "another loss"])
def test_a_watched_loss_updates_by_itself_in_training_only(own: bool) -> None:
    class Other(nn.Module):
        def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
            return (embeddings[labels == labels[0]].square()).sum()

    loss: nn.Module = trivet.TripletLoss() if own else Other()
    monitor = CollapseMonitor()
    handle = monitor.watch(loss)
    embeddings = points().requires_grad_()
    loss(embeddings, LABELS).backward()
    with torch.no_grad():
        loss(embeddings, LABELS)
    loss.eval()
    loss(embeddings, LABELS)
    loss.train()
    loss(embeddings, labels=LABELS)
    assert monitor.series["step"] == [0, 1]
    assert math.isnan(monitor.series["active"][0]) == (not own)
    handle.remove()
    loss(embeddings, LABELS)
    assert monitor.series["step"] == [0, 1]


def test_no_gradient_is_kept() -> None:
    monitor = CollapseMonitor(every=10)
    weight = torch.ones(8, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(17):  # each of the first ten is a look, and the last two are kept for the next
            monitor.update(points(step) * weight, LABELS, (weight * 2).sum())
    kept = list(tensors(list(vars(monitor._buffer).values())))
    assert len(kept) == 4
    assert not any(one.requires_grad for one in kept)


def tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors(part)


def test_a_batch_like_the_last_is_checked_no_less() -> None:
    monitor = CollapseMonitor()
    batch = points()
    monitor.update(batch, LABELS, 0.1)
    with pytest.warns(UserWarning, match=r"labels must be a tensor of one class per embedding: got ndarray"):
        monitor.update(batch, LABELS.numpy(), 0.1)
    with pytest.warns(UserWarning, match="floating point"):
        monitor.update(batch.long(), LABELS, 0.1)
    assert monitor.series["step"] == [0]


@pytest.mark.parametrize(
    ("options", "second"),
    [
        (None, "Check the margin or the temperature of the loss"),
        ({"positives": "easy", "negatives": "semihard"}, "Make the embeddings wider"),
        ({"positives": "random", "negatives": "semihard"}, 'Use easy positives (positives = "easy").'),
        ({"positives": "hard", "negatives": "hard"}, "Use the second-order"),
    ],
)
def test_advice_leaves_out_what_is_so_already(options: dict[str, Any] | None, second: str) -> None:
    strategy = None if options is None else SamplingStrategy(trivet.TripletLoss(**options), 4, 8)
    monitor = CollapseMonitor(strategy=strategy)
    for step in range(60):
        points = torch.randn(32, 8, generator=torch.Generator().manual_seed(step)) * 0.8**step + 1
        monitor.update(points, torch.arange(32) % 4, 0.2, step=step)
    (event,) = monitor.events
    add_probe, *changes = event.changes
    assert "probe" in add_probe
    assert changes[1].startswith(second)


def of_tags(seed: int) -> trivet.Tags:
    """32 items with one or two of eight tags."""
    draws = torch.randint(8, (32, 2), generator=torch.Generator().manual_seed(seed))
    return trivet.Tags(torch.zeros(32, 8, dtype=torch.int64).scatter(1, draws, 1))


@pytest.mark.parametrize("relation", [of_tags(0), trivet.Pairs(16, 16), trivet.Guided(of_tags(0), points())])
def test_batches_of_a_relation_are_watched_without_a_word(relation: trivet.Relation) -> None:
    """Healthy ones bring nothing; those that shrink an event in the words of a relation."""
    together = (relation.positive(relation.items, relation.items) | torch.eye(32, dtype=torch.bool)).double()
    middle = points(1, 8).double()
    healthy, monitor = CollapseMonitor(), CollapseMonitor()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(60):
            drawn = points(step).double()
            healthy.update((drawn + step / 20 * (together @ middle)).float(), relation, 0.1)
            monitor.update(drawn * 0.8**step + 1, relation, 0.1)
    assert healthy.events == []
    assert all(
        math.isfinite(value) for name in ("within", "between", "recall", "hard") for value in healthy.series[name]
    )
    assert healthy.series["recall"][-1] > 0.9
    (event,) = monitor.events
    assert event.kind == "network-collapse"
    assert "positives" in event.rule
    assert "class" not in event.rule


def test_a_resumed_monitor_of_a_relation_goes_on_exactly() -> None:
    def made(monitor: CollapseMonitor, steps: range) -> CollapseMonitor:
        for step in steps:
            monitor.update(points(step) * 0.8**step + 1, of_tags(step), 0.1)
        return monitor

    whole = made(CollapseMonitor(), range(40))
    first = made(CollapseMonitor(), range(17))
    resumed = CollapseMonitor()
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert made(resumed, range(17, 40)).as_json() == whole.as_json()


def test_a_loss_by_tags_is_watched() -> None:
    monitor, loss = CollapseMonitor(), trivet.ContrastiveLoss(margin=1.0)
    monitor.watch(loss)
    for step in range(12):
        loss(points(step).requires_grad_(), of_tags(step))
    assert len(monitor.series["step"]) == 10
    assert math.isfinite(monitor.series["within"][-1])


def test_a_large_batch_of_a_relation_is_finite_or_not_as_a_whole() -> None:
    pairs, monitor = trivet.Pairs(400, 400), CollapseMonitor()
    rows = torch.randn(800, 4, generator=torch.Generator().manual_seed(0))
    monitor.update(rows, pairs, 0.1)
    assert monitor.events == []
    rows[1] = math.nan  # none of those that are measured
    monitor.update(rows, pairs, 0.1)
    assert [event.kind for event in monitor.events] == ["not-finite"]


def paired_batch(step: int, *, gap: float, rate: float) -> Tensor:
    """64 items and their partners, which lie apart; those of the right side shrink to a point."""
    generator = torch.Generator().manual_seed(step)
    common = torch.randn(64, 16, generator=generator)
    left, right = (common + 0.3 * torch.randn(64, 16, generator=generator) for _ in range(2))
    axis = torch.eye(16)[0]
    return torch.cat([left + gap * axis, rate**step * right - gap * axis])


def test_a_side_of_pairs_that_collapses_is_seen_and_a_gap_is_none() -> None:
    pairs = trivet.Pairs(64, 64)
    for gap in (1.0, 3.0):
        monitor = CollapseMonitor()
        for step in range(60):
            monitor.update(paired_batch(step, gap=gap, rate=0.85), pairs, loss=0.2)
        (event,) = monitor.events
        assert event.kind == "network-collapse"
        assert event.suspected
        assert "items of the narrower side are" in event.rule
    monitor = CollapseMonitor()
    for step in range(90):  # the gap opens, and stays
        monitor.update(paired_batch(step, gap=min(1.5, step / 20), rate=1), pairs, loss=0.2)
    assert monitor.events == []
    assert monitor.series["recall"][-1] > 0.9
    assert 0.8 < monitor.series["relative_spread"][-1] < 0.97  # not of both: the gap would bring it to 1


def test_two_networks_that_have_not_met_are_no_collapse_at_the_first_steps() -> None:
    monitor = CollapseMonitor()
    for step in range(60):
        generator = torch.Generator().manual_seed(step)
        narrow = 0.5 * 0.6**step if step < 9 else 1.0
        sides = [torch.randn(64, 16, generator=generator) * narrow + 3 * torch.eye(16)[side] for side in (0, 1)]
        monitor.update(torch.cat(sides), trivet.Pairs(64, 64), loss=0.2)
    assert monitor.events == []
    assert max(monitor.series["risk"][2:8]) > ALARMS["risk"].value
