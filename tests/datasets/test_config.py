from __future__ import annotations

from typing import Any

import pytest

from trivet.datasets import DataConfig, DigitsConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "mnits"}, "did you mean 'mnist'"),
        ({"name": "folder"}, "the setting 'root' is missing"),
        ({"name": "folder", "root": "x", "holdot": 0.5}, "unknown setting 'holdot'; did you mean 'holdout'"),
        ({"name": "mnist", "holdot": 0.5}, "unknown setting 'holdot'; did you mean"),
        ({"name": "digits", "level": "digits"}, "level = 'digits' is not a label level of these data; did you mean"),
        ({"name": "digits", "noise": {"kind": "within-superclass", "rate": 0.1, "superclass": "digit"}}, "level above"),
        ({"name": "folder", "root": "x", "levels": ["a", "a"]}, "different, non-empty names"),
        ({"name": "folder", "root": "x", "levels": ["id", "a"]}, "must not be named id, split, embedding.*got 'id'"),
        ({"name": "folder", "root": "x", "levels": ["a", "split"]}, "got 'split'; rename it"),
        ({"name": "folder", "root": "x", "levels": ["embedding"]}, "got 'embedding'; rename it"),
        ({"name": "folder", "root": "x", "holdout": 0.5}, 'holdout is used by split = "in-class" only'),
        ({"name": "mnist", "root": "x"}, 'root is for name = "folder" or .*, for instance, only: remove'),
        ({"name": "digits", "split": "in-class"}, 'split is for name = "folder" or .*, for instance, only'),
        ({"name": "mnist", "image_size": 10}, "use one of 2, 4, 7, 14, 28"),
        ({"name": "digits", "image_size": 14}, "must divide 8"),
        ({"name": "digits", "channels": 2}, "channels"),
    ],
)
def test_settings_that_cannot_work_or_do_nothing_are_errors(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataConfig.parse(values, source="data")


def test_written_settings_read_back() -> None:
    config = DataConfig.parse({"name": "folder", "root": "x", "split": "in-class", "holdout": 0.3}, source="data")
    assert DataConfig.parse(config.model_dump(mode="json"), source="data") == config
    config = DigitsConfig()
    assert DataConfig.parse(config.model_dump(mode="json", exclude_none=True), source="data") == config
