"""Records: what an older one lacks is filled in, and what is there stays."""

from __future__ import annotations

from typing import Any

import pytest

from trivet.reports.label_noise_record import Picks
from trivet.reports.run_record import RunRecord


def test_an_empty_record_is_complete() -> None:
    record = RunRecord.read({})
    assert (record.run, record.step, record.maps, record.warnings, record.data.coverage) == ("", None, {}, [], None)
    assert record.label_noise.strategy == Picks(reason=None, checks=None, skew=None, tolerance=None, along=[])
    record.warnings.append("of this one alone")
    assert RunRecord.read({}).warnings == []
    assert record.as_json()["validation"] == {"split": "", "items": None, "step": [], "recall@1": {}}
    assert RunRecord.read(record.as_json()) == record


def test_what_is_there_stays_and_is_completed_inside() -> None:
    given: dict[str, Any] = {
        "run": "old",
        "history": None,
        "diagnosis": {"train": {"scatter": {"s_ap": [0.5]}, "verdicts": [{"kind": "healthy"}]}},
        "monitor": {"events": [{"step": 3, "kind": "dead-sampler"}]},
    }
    record = RunRecord.read(given)
    assert (record.run, record.history) == ("old", None)
    section = record.diagnosis["train"]
    assert section.scatter is not None
    assert section.scatter.as_json() == {"s_ap": [0.5], "s_an": [], "ids": [], "labels": []}
    assert section.verdicts[0].as_json() == {
        "kind": "healthy", "severity": None, "evidence": {}, "rule": "", "cause": "", "changes": []
    }  # fmt: skip
    assert record.monitor.events[0].changes == []
    assert record.as_json(unset=False) == given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"monitor": {"events": [{"kind": "dead-sampler"}]}}, r"monitor.events.0.step must be there, and is missing"),
        ({"data": [1]}, r"data must be an object: got \[1\]"),
        ({"step": "6"}, "step must be a whole number: got '6'"),
        ({"curves": {"loss": [1, True]}}, "curves.loss.1 must be a number: got True"),
        ({"evaluation": {"seen": [{"name": 3}]}}, "evaluation.seen.0.name must be a text: got 3"),
        ({"seconds": []}, r"seconds must be an object: got \[\]"),
        ({"run": ["x" * 10**6]}, "run must be a text: got .{80}…$"),
    ],
)
def test_a_broken_record_is_refused_in_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RunRecord.read(given)
