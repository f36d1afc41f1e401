from __future__ import annotations

from pathlib import Path

import pytest

from trivet.datasets import DataConfig, find_root, load


def test_the_argument_then_the_variable_then_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIVET_DATA", "/from/variable")
    monkeypatch.setenv("HOME", "/from/home")
    assert find_root(Path("given")) == Path("given")
    assert find_root(None) == Path("/from/variable")
    monkeypatch.delenv("TRIVET_DATA")
    assert find_root(None) == Path("/from/home/.cache/trivet")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "omniglot"])
def test_missing_files_say_what_where_and_how(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"not found in .*{name} or .*trivet data download {name}.*--data-root"):
        load(DataConfig.parse({"name": name}, source="data"), tmp_path)
