from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trivet.datasets import DATA_SETS, DataConfig, DigitsConfig, load

ROOT = Path(__file__).resolve().parents[2]


def test_the_document_says_of_each_data_set_what_the_table_says() -> None:
    text = (ROOT / "docs" / "data.md").read_text()
    rows = {row.split("`")[1]: row for row in text.splitlines() if row.startswith("| `")}
    for name, entry in DATA_SETS.items():
        assert entry.published in rows[name]
        assert " > ".join(entry.levels) in rows[name]


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_table_says_of_a_data_set_what_its_settings_and_its_loader_say(name: str) -> None:
    entry = DATA_SETS[name]
    assert entry.config.model_fields["name"].default == name
    assert entry.description
    assert bool(entry.published) == bool(entry.levels)  # both are for one's own data to say
    if name == "digits":
        assert entry.levels == tuple(load(DigitsConfig(), None).train.labels)


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
        ({"folds": 4, "level": "digit"}, "got 4 for 6 classes at level 'digit'; use at most 3 folds"),
        ({"folds": 2, "fold": 2}, "fold must be below folds, 2: got 2"),
        ({"fold": 1}, "fold must be below folds, which is not set: got 1"),
    ],
)
def test_folds_that_cannot_be_are_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        load(DataConfig.parse({"name": "digits", **given}, source="test"), None)
