"""Queries, gallery, junk and cameras of an evaluation split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trivet.data import Dataset, QueryGallery, in_memory


def mask(*values: int) -> np.ndarray:
    return np.array(values, bool)


def four_items(protocol: QueryGallery | None) -> Dataset:
    return Dataset(
        name="four",
        inputs=in_memory(np.zeros((4, 1, 2, 2), np.uint8)),
        labels={"class": np.array([0, 0, 1, 1])},
        names={"class": ("a", "b")},
        ids=("p", "q", "r", "s"),
        protocol=protocol,
        columns={"place": ("1", "2", "3", "4")},
    )


def test_a_subset_keeps_what_is_asked_and_retrieved_of_its_items() -> None:
    protocol = QueryGallery(mask(1, 0, 1, 0), mask(0, 1, 0, 1), mask(0, 0, 0, 1), cameras=np.array([1, 2, 1, 2]))
    part = four_items(protocol).subset(np.array([1, 0]))
    assert part.columns == {"place": ("2", "1")}
    assert part.protocol is not None
    assert part.protocol.cameras is not None
    assert [part.protocol.query.tolist(), part.protocol.gallery.tolist()] == [[False, True], [True, False]]
    assert part.protocol.cameras.tolist() == [2, 1]
    assert four_items(protocol).subset(np.array([0, 2, 3])).protocol is None  # only junk to retrieve


def test_a_protocol_must_fit_its_items() -> None:
    protocol = QueryGallery(mask(1, 0, 1), mask(0, 1, 0), mask(0, 0, 0))
    with pytest.raises(ValueError, match="protocol must have a value for each of the 4 items: got 3"):
        four_items(protocol)
    with pytest.raises(ValueError, match="place must have a value for each of the 4 items: got 1"):
        replace(four_items(None), columns={"place": ("1",)})


@pytest.mark.parametrize(
    ("query", "gallery", "junk", "cameras", "message"),
    [
        (mask(0, 0), mask(1, 1), mask(0, 0), None, "got 0 queries and 2 such items"),
        (mask(1, 0), mask(1, 1), mask(1, 1), None, "got 1 queries and 0 such items"),
        (mask(1, 0), mask(1), mask(0, 0), None, "bools of one shape"),
        (mask(1, 0), mask(1, 1), mask(0, 0), np.array([1.0, 2.0]), "cameras must be int64"),
    ],
)
def test_a_protocol_without_sense_is_refused(
    query: np.ndarray, gallery: np.ndarray, junk: np.ndarray, cameras: np.ndarray | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        QueryGallery(query, gallery, junk, cameras)
