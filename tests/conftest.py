"""For all tests: what commands print does not depend on the terminal that the tests are run in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_terminal() -> Iterator[None]:
    """Parallel test processes pass on a width, at which printed sentences would break."""
    with pytest.MonkeyPatch.context() as patch:  # of its own: the fixture's order of undoing is that of the tests
        patch.delenv("COLUMNS", raising=False)
        yield
