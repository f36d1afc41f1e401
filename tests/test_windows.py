"""The commands on Windows, as `pretended_windows/sitecustomize.py` pretends it: its files, locks and processes."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import small_sweep
from tests.programs import Programs, forget

HERE = Path(__file__).resolve().parent
PRETENDED = HERE / "pretended_windows"
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join([str(PRETENDED), *sys.path]), "PYTHONIOENCODING": "cp1252"}
"""For a program on the pretended system; its streams are in Windows-1252, as in a pipe there."""


def run_commands(*lines: str) -> None:
    """The program: each command, one after another, by a library that is loaded there; their exit codes."""
    forget("trivet", "trivet_papers")
    runpy.run_path(str(PRETENDED / "sitecustomize.py"))
    from trivet.commands.main import main

    for line in lines:
        sys.argv = ["trivet", *line.split()]
        code: Any = None
        try:
            main()
        except SystemExit as end:
            code = end.code
        print(json.dumps([line, code]), file=sys.stderr)


def commands(programs: Programs, folder: Path, *lines: str) -> dict[str, tuple[int, str]]:
    """The exit code of each command, run one after another in one process, and what it wrote to standard error."""
    cache = {"TRIVET_CACHE": str(folder / "cache")}
    done = programs.run("tests.test_windows:run_commands", *lines, folder=folder, environment=ENVIRONMENT | cache)
    written = done.stderr.decode("cp1252")
    assert done.returncode == 0, written
    results: dict[str, tuple[int, str]] = {}
    said = ""
    for text in written.splitlines():
        if text.startswith('["'):
            line, code = json.loads(text)
            results[line] = (code, said)
            said = ""
        else:
            said += f"{text}\n"
    return results


def failed(results: dict[str, tuple[int, str]]) -> dict[str, str]:
    """What the commands that failed wrote, by command."""
    return {line: said for line, (code, said) in results.items() if code}


def write_settings(folder: Path, *, sweep: bool = False) -> None:
    import tomli_w

    settings = small_sweep.settings(folder, trials=2)
    settings["data"]["path"] = "x.npz"
    if not sweep:
        del settings["sweep"]
    (folder / ("sweep.toml" if sweep else "run.toml")).write_text(tomli_w.dumps(settings))


RUNS = [
    "init x.npz --labels kind -o made.toml",
    "train run.toml -o run",
    "train --resume run --set training.steps=30",
    "train run.toml -o run --force --set training.workers=1",
    "evaluate run --report e.html --per-class c.csv",
    "evaluate run --per-class c.csv --report e.html",
    "embed run x.npz -o e.parquet",
    "embed run x.npz -o e.parquet --force",
    "export run --to safetensors -o model",
    "export run --to safetensors -o model --force",
    "train run.toml -o other --set seed=1",
    "compare run other --report compared.html",
    "index run -o items",
]
FILES = [
    "evaluate x.npz --labels kind --report e.html",
    "diagnose x.npz --labels kind --report d.html",
    "audit x.npz --labels kind --out s.csv --decisions d.csv --report a.html",
    "drift x.npz ids.npz --report drift.html",
    "index ids.npz -o index",
    "index ids.npz -o index --force",
    "index more.npz -o index --add",
    "index gone.csv -o index --remove",
    "search index x.npz --sheet s.html",
    "index ids.npz -o codes --kind int8",
    "index more.npz -o codes --add",
    "index gone.csv -o codes --remove",
    "search codes x.npz --sheet s.html",
    "mine x.npz --labels kind -o mined.parquet",
    "mine x.npz --labels kind -o mined.parquet --force",
    "export ids.npz --to pgvector -o rows",
    "migrate x.npz ids.npz --report m.html",
]
SEVERAL = "train run.toml -o several --set training.devices=2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("windows")
    small_sweep.write_vectors(folder / "x.npz")
    arrays = dict(np.load(folder / "x.npz"))
    ids = np.array([f"item {number}" for number in range(len(arrays["kind"]))])
    np.savez(folder / "ids.npz", id=ids, **arrays)
    np.savez(folder / "more.npz", id=ids[:9], **{name: array[:9] for name, array in arrays.items()})
    (folder / "gone.csv").write_text("id\nitem 3\n")
    return folder


@pytest.fixture(scope="module")
def results(programs: Programs, folder: Path) -> dict[str, tuple[int, str]]:
    """Of all commands, in one process: the library is loaded once."""
    write_settings(folder)
    return commands(programs, folder, *RUNS, *FILES, SEVERAL)


@pytest.mark.parametrize("lines", [RUNS, FILES], ids=["runs", "files"])
def test_what_is_written_is_replaced_continued_and_used(results: dict[str, tuple[int, str]], lines: list[str]) -> None:
    assert failed({line: results[line] for line in lines}) == {}


def test_several_processes_are_refused_in_a_sentence(results: dict[str, tuple[int, str]], folder: Path) -> None:
    code, said = results[SEVERAL]
    assert code == 2
    assert said.splitlines()[-1] == (
        "trivet: several processes need Linux or macOS, where they can be ended together: got 2 on Windows; set "
        "training.devices = 1."
    )
    assert not (folder / "several").exists()


@pytest.mark.nightly
def test_a_sweep(programs: Programs, folder: Path) -> None:
    write_settings(folder, sweep=True)
    assert failed(commands(programs, folder, "sweep sweep.toml -o sweep", "sweep --join sweep")) == {}


LOCKS = """
import subprocess, sys
from pathlib import Path
from trivet.io.atomic_files import InUseError, claimed, locked_folder, partial_folder, shared_folder, write_atomic
from trivet.io import file_locks

assert hasattr(file_locks, "Overlapped")  # of Windows
here, prepared = Path("shared"), []
if len(sys.argv) > 1:
    with claimed(Path("f")) as free:
        assert not free
    try:
        with locked_folder(Path("run"), frozenset(), what="a run", ended=bool):
            raise AssertionError("two had the lock")
    except InUseError:
        pass
    with shared_folder(here, prepared.append):
        (here / "other").touch()
    print(prepared)
    sys.exit()
Path("run").mkdir()
with claimed(Path("f")) as free, locked_folder(Path("run"), frozenset(), what="a run", ended=bool):
    with shared_folder(here, prepared.append):
        other = subprocess.run([sys.executable, "-c", CODE, "other"], capture_output=True, text=True)
        print(free, prepared, other.stdout, other.stderr)
        (here / "other").unlink()
assert not here.exists() and [item.name for item in Path("run").iterdir()] == [".lock"]
with partial_folder(Path("whole")) as parts:
    (parts / "a").touch()
write_atomic(Path("whole"), b"1")
write_atomic(Path("whole"), b"2")
print(sorted(item.name for item in Path().iterdir()))
"""


def test_locks_hold_between_processes_and_leave_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOCKS.replace("CODE", f"{LOCKS!r}")],
        cwd=tmp_path,
        env=os.environ | ENVIRONMENT,
        encoding="cp1252",
        capture_output=True,
        check=False,
        timeout=250,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["True [True, False] [False]", " ", "['run', 'whole']"]
