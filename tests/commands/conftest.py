"""Commands in this process, which share its time with other tests, and the pages that they write."""

from __future__ import annotations

import pytest

from trivet.runtime import progress


@pytest.fixture(autouse=True)
def _progress_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes here to load what a command needs: the lines of standard error are counted."""
    monkeypatch.setattr(progress, "SILENT", 600.0)


@pytest.fixture(scope="module", autouse=True)
def _maps_are_short(short_maps: None) -> None:
    """Of the pages."""
