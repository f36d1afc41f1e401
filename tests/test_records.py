"""Records: what an older one lacks is filled in, and what is there stays."""

from __future__ import annotations

from typing import Any

import pytest

from trivet.reports.from_json import complete
from trivet.reports.run_record import RunRecord, read_run


def test_an_empty_record_is_complete() -> None:
    record = read_run({})
    assert set(record) == set(RunRecord.__annotations__)
    assert (record["run"], record["step"], record["maps"], record["warnings"]) == ("", None, {}, [])
    assert record["data"]["coverage"] is None
    assert record["label_noise"]["strategy"] == {
        "reason": None, "checks": None, "skew": None, "tolerance": None, "along": []
    }  # fmt: skip


def test_what_is_there_stays_and_is_completed_inside() -> None:
    given: dict[str, Any] = {
        "run": "old",
        "later": [1],
        "history": None,
        "diagnosis": {"train": {"scatter": {"s_ap": [0.5]}, "verdicts": [{"kind": "healthy"}]}},
        "monitor": {"events": [{"step": 3, "kind": "dead-sampler"}]},
    }
    record: Any = read_run(given)
    assert (record["run"], record["later"], record["history"]) == ("old", [1], None)
    section = record["diagnosis"]["train"]
    assert section.scatter.as_json() == {"s_ap": [0.5], "s_an": [], "ids": [], "labels": []}
    assert section.verdicts[0].as_json() == {
        "kind": "healthy", "severity": None, "evidence": {}, "rule": "", "cause": "", "changes": []
    }  # fmt: skip
    assert record["monitor"]["events"][0]["changes"] == []
    assert set(given["diagnosis"]["train"]) == {"scatter", "verdicts"}  # what was given is left alone
    assert read_run(record) == record


@pytest.mark.parametrize("kind", [RunRecord])
def test_a_complete_record_is_left_as_it_is(kind: Any) -> None:
    once = complete(kind, {})
    assert complete(kind, once) == once


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"monitor": {"events": [{"kind": "dead-sampler"}]}}, "an EventRecord in a record must have 'step'"),
        ({"data": [1]}, r"data must be an object: got \[1\]"),
    ],
)
def test_a_broken_record_is_refused_in_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_run(given)
