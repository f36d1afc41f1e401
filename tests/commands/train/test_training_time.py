"""Whether a training of a ladder fits in the time that is left, before it is prepared and by its first steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from trivet.commands.train import training_time
from trivet.commands.train.candidates import Candidate
from trivet.commands.train.training_time import EndedEarlyError, TrainingTime
from trivet.datasets import Splits
from trivet.training.config import RunConfig

FINE_TUNING = Candidate("tuned", "fine-tuning", {}, "base")
TIMED_RUN = RunConfig.parse(
    {"data": {"name": "digits"}, "loss": {"name": "triplet"}, "training": {"steps": 10}}
    | {"batch": {"num_classes": 4, "samples_per_class": 2}},
    source="test",
)


@pytest.mark.parametrize(
    ("left", "known", "reason"),
    [
        (-1.0, {}, "the 2 minutes are over; minutes gives more."),
        (1.0, {}, ""),
        (1.0, {"features": {"other": 9.0}, "steps": {("base", "head"): 9.0}}, ""),
        (59.0, {"features": {"base": 1.0}}, "it takes about 5.0 minutes, and of 2 minutes 1.0 are left; minutes 8 "),
        (61.0, {"features": {"base": 1.0}}, ""),  # 6 items, 10 steps, once: what the forward pass alone takes
        (59.0, {"steps": {("base", "fine-tuning"): 30.0}}, "it takes about 5.0 minutes, and of 2 minutes 1.0 are"),
        (61.0, {"steps": {("base", "fine-tuning"): 30.0}}, ""),
    ],
)
def test_a_candidate_is_refused_before_it_is_prepared(
    left: float, known: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.perf_counter", lambda: 100.0)
    limit = TrainingTime(minutes=2, seconds=90, end=100.0 + left, **known)
    with pytest.raises(EndedEarlyError, match=f"Not tried: {reason}") if reason else nullcontext():
        limit.check(FINE_TUNING, TIMED_RUN, trainings=1, items=6)


@pytest.mark.parametrize(("left", "steps"), [(4.0, 1), (30.0, 2), (1000.0, 5)])
def test_no_more_steps_are_timed_than_tell_that_the_time_is_short(
    left: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    learner, seconds = SimpleNamespace(should_stop=False), [5.0, *[1.0] * 4]  # the first step is slow

    def first_task(*_: Any, after_step: Callable[[], None], steps: int, **others: Any) -> tuple[SimpleNamespace, Any]:
        learner.after_step = after_step
        return learner, range(steps)

    def fit(learner: SimpleNamespace, batches: Sequence[int]) -> bool:
        for batch in batches:
            if not learner.should_stop:
                now[0] += seconds[batch]
                learner.after_step()
        return True

    monkeypatch.setattr(training_time, "first_task", first_task)
    monkeypatch.setattr(training_time, "fit", fit)
    limit = TrainingTime(minutes=2, end=left)
    with pytest.raises(EndedEarlyError) if steps < 5 else nullcontext():
        limit.check_steps(FINE_TUNING, TIMED_RUN, Splits(None, {}, "class"), trainings=20)  # type: ignore[arg-type]  # no data is read
    assert now[0] == sum(seconds[:steps])
    assert limit.steps["base", "fine-tuning"] == (5.0 if steps == 1 else 1.0)
