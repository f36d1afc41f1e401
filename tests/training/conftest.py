"""Every run ends with an evaluation: here it is a rough one, as other tests look at it."""

from __future__ import annotations

import pytest
from tests.commands.conftest import run_command  # noqa: F401  # a fixture, for these tests too


@pytest.fixture(scope="module", autouse=True)
def _roughly(rough_evaluation: None) -> None:
    """Of what the runs of these files come to, no test reads an interval, a map or the batches of the strategy."""
