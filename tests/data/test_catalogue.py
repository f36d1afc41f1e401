from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from trivet.data import DataConfig, available, load


def test_every_name_that_can_be_set_is_listed_with_its_levels() -> None:
    listed = {entry.name: entry.levels for entry in available()}
    assert set(listed) == set(get_args(DataConfig.model_fields["name"].annotation))
    assert listed["digits"] == tuple(load(DataConfig(name="digits"), None).train.labels)


def test_each_training_class_is_validated_in_one_fold_and_trained_on_in_the_others() -> None:
    plain = load(DataConfig.parse({"name": "digits", "level": "digit"}, source="test"), None)
    seen: list[str] = []
    for fold in range(3):
        given = {"name": "digits", "level": "digit", "folds": 3, "fold": fold}
        splits = load(DataConfig.parse(given, source="test"), None)
        assert list(splits.evaluation) == ["validation", "seen", "unseen"]
        validated = splits.evaluation["validation"]
        assert not set(validated.labels["digit"]) & set(splits.train.labels["digit"])
        assert set(validated.ids) | set(splits.train.ids) == set(plain.train.ids)
        assert len(np.unique(validated.labels["digit"])) == 2
        seen += validated.ids
    assert sorted(seen) == sorted(plain.train.ids)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"folds": 7, "level": "digit"}, "at most the number of training classes at level 'digit': got 7"),
        ({"folds": 2, "fold": 2}, "fold must be below folds, 2: got 2"),
        ({"fold": 1}, "fold must be below folds, which is not set: got 1"),
    ],
)
def test_folds_that_cannot_be_are_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        load(DataConfig.parse({"name": "digits", **given}, source="test"), None)
