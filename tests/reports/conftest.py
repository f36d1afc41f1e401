"""The pages."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _maps_are_short(short_maps: None) -> None:
    """Nearly every page has one."""
