"""For all tests: what commands print does not depend on the terminal that the tests are run in."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parallel test processes pass on a width, at which printed sentences would break."""
    monkeypatch.delenv("COLUMNS", raising=False)
