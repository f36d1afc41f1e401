"""Commands in this process, which share its time with other tests."""

from __future__ import annotations

import pytest

from trivet import progress


@pytest.fixture(autouse=True)
def _progress_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes here to load what a command needs: the lines of standard error are counted."""
    monkeypatch.setattr(progress, "SILENT", 600.0)
