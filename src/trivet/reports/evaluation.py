"""The page of `trivet evaluate --report`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_evaluation_report(record: Mapping[str, Any], path: Path) -> None:
    """Write the page of evaluated embeddings."""
