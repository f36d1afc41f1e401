"""Commands in this process, which share its time with other tests, and the pages that they write."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from trivet.commands.main import main
from trivet.runtime import progress

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _progress_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes here to load what a command needs: the lines of standard error are counted."""
    monkeypatch.setattr(progress, "SILENT", 600.0)


@pytest.fixture(scope="module", autouse=True)
def _maps_are_short(short_maps: None) -> None:
    """Of the pages."""


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `trivet ARGUMENTS`: its exit code, and what it wrote to standard output and error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["trivet", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(str(ended.value.code)), out, err

    return run
