"""`trivet cache` shows what is cached and removes what can be computed again, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIVET_CACHE", str(tmp_path / "cache"))
    for name in ("features/a/one.npy", "features/b/two.npy", "baselines/three.npz", "data/mnist/four.npy"):
        file = tmp_path / "cache" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file.with_suffix(".npy"), np.zeros(200))
        file.with_suffix(".npy").rename(file)
    (tmp_path / "cache" / "features" / "notes.txt").write_text("of the user")
    return tmp_path / "cache"


def left(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_it_shows_each_subject_and_empties_one_or_all_but_data(folder: Path, run_command: Call) -> None:
    code, out, _ = run_command("cache")
    assert code == 0
    assert out.splitlines()[0].startswith(f"{folder} (TRIVET_CACHE), at most 10 GB of each but data")
    assert "features    3.47 kB in 3 files: features of frozen encoders" in out.splitlines()
    before = left(folder)
    values = json.loads(run_command("cache", "baselines", "--json")[1])
    assert values["subjects"] == {"baselines": {"bytes": 1728, "files": 1}}
    assert left(folder) == before
    assert run_command("cache", "features", "--empty")[1].startswith("3.46 kB removed")
    assert "baselines/three.npz" in left(folder)
    assert json.loads(run_command("cache", "--empty", "--json")[1])["removed"] == 1728
    assert left(folder) == ["baselines", "data", "data/mnist", "data/mnist/four.npy", "features", "features/notes.txt"]


def test_what_it_does_not_empty_is_said(
    folder: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, _, err = run_command("cache", "data", "--empty")
    assert code == 2
    assert f"removed by hand: {folder / 'data'} stays" in err
    assert "did you mean 'features'?" in run_command("cache", "feature")[2]
    monkeypatch.setenv("TRIVET_CACHE", str(tmp_path / "nowhere"))
    assert "0 B removed" in run_command("cache", "--empty")[1]
    assert not (tmp_path / "nowhere").exists()
