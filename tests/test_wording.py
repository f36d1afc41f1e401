"""Counts in sentences."""

from __future__ import annotations

import pytest

from trivet.runtime.text import counted, noun


@pytest.mark.parametrize(
    ("one", "many"),
    [("item", "items"), ("class", "classes"), ("query", "queries"), ("batch", "batches"), ("day", "days")],
)
def test_one_is_singular_and_all_else_plural(one: str, many: str) -> None:
    assert (noun(1, one), noun(0, one), noun(2, one), noun(1.5, one)) == (one, many, many, many)
    assert (counted(1, one), counted(12, one)) == (f"1 {one}", f"12 {many}")
