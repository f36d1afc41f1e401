"""What can be made again lies in one folder of the user, and not among the data."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import trivet
from trivet.datasets.download import find_root
from trivet.runtime.cache import cache_folder

SOURCE = Path(str(trivet.__file__)).parent


@pytest.mark.parametrize(
    ("variables", "platform", "folder"),
    [
        ({}, "linux", "/home/of/.cache/trivet"),
        ({}, "darwin", "/home/of/Library/Caches/trivet"),
        ({}, "win32", "/home/of/AppData/Local/trivet"),
        ({"XDG_CACHE_HOME": "/shared"}, "linux", "/shared/trivet"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", "/home/of/.cache/trivet"),
        ({"XDG_CACHE_HOME": "/shared", "TRIVET_CACHE": "/mine"}, "linux", "/mine"),
        ({"TRIVET_CACHE": "~/mine"}, "linux", "/home/of/mine"),
    ],
)
def test_one_variable_then_the_folder_of_the_platform(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], platform: str, folder: str
) -> None:
    for name in ("TRIVET_CACHE", "XDG_CACHE_HOME", "TRIVET_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in {"HOME": "/home/of", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder("features") == Path(folder) / "features"
    assert find_root(None) == Path(folder) / "data"


def test_without_a_home_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TRIVET_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ValueError, match=r"this user has no home folder; set TRIVET_CACHE\.$"):
        cache_folder("data")
    monkeypatch.setenv("TRIVET_CACHE", "/mine")
    assert cache_folder("data") == Path("/mine/data")


def test_no_other_file_finds_a_folder_of_the_user() -> None:
    """What is cached is never found beside the data: one module says where it lies.

    A run that no folder was named for has one that goes with its result.
    """
    finding = re.compile(r"Path\.home\(\)|XDG_CACHE_HOME|gettempdir|mkdtemp|user_cache_dir")
    files = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if finding.search(path.read_text())}
    assert files == {"runtime/cache.py", "commands/train/items.py"}
