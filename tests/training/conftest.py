"""Every run ends with an evaluation: here it is a rough one, as other tests look at it."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _roughly(rough_evaluation: None) -> None:
    """Of what the runs of these files come to, no test reads an interval, a map or the batches of the strategy."""
