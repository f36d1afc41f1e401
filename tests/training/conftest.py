"""Every run ends with an evaluation: here it is a rough one, as other tests look at it."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _roughly(rough_evaluation: None) -> None:
    """Of what the runs of these files come to, no test reads an interval, a map or the batches of the strategy."""


@pytest.fixture
def unevaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end with their model: their evaluation takes most of the time."""
    monkeypatch.setattr(
        "trivet.commands.train.run.write_evaluation", lambda run, record, *_, **__: run.write_record(record) or record
    )
