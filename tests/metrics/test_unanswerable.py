"""Why queries have no positive."""

from __future__ import annotations

import numpy as np
import pytest

from trivet.metrics import retrieve
from trivet.metrics.label_levels import unanswerable


@pytest.mark.parametrize("cameras", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_each_query_without_a_positive_has_one_cause(seed: int, cameras: bool) -> None:
    draw = np.random.default_rng(seed)
    labels, of_gallery = draw.integers(0, 9, 40), draw.integers(0, 7, 20)
    taken = (draw.integers(0, 2, 40), draw.integers(0, 2, 20)) if cameras else (None, None)
    self_rows = np.where(draw.random(40) < 0.5, draw.integers(0, 20, 40), -1)
    result = retrieve(
        draw.normal(size=(40, 3)), labels, gallery=draw.normal(size=(20, 3)), gallery_labels=of_gallery,
        self_rows=self_rows, cameras=taken[0], gallery_cameras=taken[1],
    )  # fmt: skip
    assert result.task is not None
    masks = [mask.numpy() for mask in result.task.unanswerable(0)]
    assert (sum(mask.astype(int) for mask in masks) == (result.positives == 0)).all()
    assert (masks[0] == ~np.isin(labels, of_gallery)).all()
    members = [np.flatnonzero(of_gallery == label) for label in labels]
    alone = [len(rows) > 0 and set(rows) <= {own} for rows, own in zip(members, self_rows.tolist(), strict=True)]
    assert (masks[1] == alone).all()
    assert cameras or not masks[2].any()
    (sentence,) = unanswerable("kind", result, "wear other cameras")
    assert sentence.startswith(f"kind: {result.without_positive} of 40 queries have nothing to find")
    assert ("wear other cameras" in sentence) == bool(masks[2].any())
