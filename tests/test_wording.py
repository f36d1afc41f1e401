"""Counts, ranges and signs in sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trivet.runtime.text import counted, noun, percents


@pytest.mark.parametrize(
    ("one", "many"),
    [("item", "items"), ("class", "classes"), ("query", "queries"), ("batch", "batches"), ("day", "days")],
)
def test_one_is_singular_and_all_else_plural(one: str, many: str) -> None:
    assert (noun(1, one), noun(0, one), noun(2, one), noun(1.5, one)) == (one, many, many, many)
    assert (counted(1, one), counted(12, one)) == (f"1 {one}", f"12 {many}")


def test_a_range_whose_ends_are_equal_is_one_number() -> None:
    assert percents(0.08, 0.0925) == "between 8.0 and 9.2 %"
    assert percents(0.0831, 0.0834) == "about 8.3 %"


def test_the_sign_of_a_number_is_a_hyphen_everywhere() -> None:
    """As in CSV, JSON and what programs print; a minus between two terms of a formula stands between spaces."""
    root = Path(__file__).resolve().parents[1]
    pages = [*root.glob("src/trivet/**/*.py"), *root.glob("src/trivet/reports/templates/*"), *root.glob("docs/**/*.md")]
    signs = [path.name for path in pages if re.search(r'\u2212[\d.{]|replace\("-", "\u2212"', path.read_text())]
    assert signs == [], "write -"
