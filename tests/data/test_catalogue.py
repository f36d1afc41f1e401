from __future__ import annotations

from typing import get_args

from trivet.data import DataConfig, available, load


def test_every_name_that_can_be_set_is_listed_with_its_levels() -> None:
    listed = {entry.name: entry.levels for entry in available()}
    assert set(listed) == set(get_args(DataConfig.model_fields["name"].annotation))
    assert listed["digits"] == tuple(load(DataConfig(name="digits"), None).train.labels)
