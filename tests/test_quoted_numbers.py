"""The numbers in the documents are those of the committed results.

A source yields passages, sentences or lines of tables, made from a file of results: each must stand on its page, but
for bold type and line breaks. In the pages that are swept, a measured number that no passage covers is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import pytest
from tests import passages_of_pages, passages_of_results
from tests.committed import ROOT, flat

SOURCES = {"docs/results.md": passages_of_results.SOURCES, **passages_of_pages.SOURCES}


@pytest.mark.parametrize(("page", "source"), [(page, source) for page, some in SOURCES.items() for source in some])
def test_numbers_of_a_page_are_those_of_the_results(page: str, source: Callable[[], Iterator[str]]) -> None:
    text = flat((ROOT / page).read_text())
    assert [passage for passage in source() if flat(passage) not in text] == []


FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
MEASURED = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?![\w.]*\.\d)|\d[\d,.]* ?(?:%|points|MiB|GiB|ms|s|x floor)(?!\w)")
# Phrases of the swept pages whose numbers were set, or are another's.
SET = (
    *("Adam 0.001", "Adam at 0.001", "A margin of 0.01", "β = 0.9", "threshold 0.7", "MAP@R | |", "Python 3.11"),
    *("whose numbers are 42.0 to 65.8 and 35.2 to 42.3", "recall@1, % | collapse", "Apache-2.0"),
)


def uncovered(text: str, passages: Iterable[str]) -> list[str]:
    """The measured numbers of a text that no passage covers, with the words around them."""
    for passage in passages:
        text = text.replace(passage, " ")
    return [text[max(found.start() - 30, 0) : found.end() + 10] for found in MEASURED.finditer(text)]


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_every_measured_number_of_a_page_has_a_source(page: str) -> None:
    passages = [flat(passage) for source in SOURCES[page] for passage in source()]
    assert uncovered(flat(FENCE.sub("", (ROOT / page).read_text())), [*passages, *SET]) == []


def test_a_number_without_a_source_is_found() -> None:
    text = "Torch 2.15.0, 128 images: it takes 12 s and gains 1.5 points, 3 % more"
    assert len(uncovered(text, [])) == 3
    assert len(uncovered(text, ["takes 12 s and gains 1.5 points"])) == 1
