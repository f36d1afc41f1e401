"""A command that is asked to end while it writes says so, and leaves nothing half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.commands.main import main


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The handlers of the tests come back; signals arrive also where a shell has background processes ignore them."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    labels = np.arange(90) % 3
    points = np.eye(3)[labels] + 0.3 * np.random.default_rng(0).normal(size=(90, 3))
    np.savez("x.npz", embeddings=points, label=labels)
    return tmp_path


def ended(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(sys, "argv", ["trivet", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (("evaluate", "x.npz", "--report", "new.html"), signal.SIGTERM),
        (("diagnose", "x.npz", "--report", "new.html"), signal.SIGTERM),
        (("audit", "x.npz", "--out", "new.csv"), signal.SIGTERM),
        (("index", "x.npz", "-o", "new"), signal.SIGTERM),
        (("index", "x.npz", "-o", "new"), signal.SIGHUP),
        (("index", "x.npz", "-o", "new"), signal.SIGINT),
    ],
    ids=["evaluate", "diagnose", "audit", "index", "hang-up", "Ctrl-C"],
)
def test_a_signal_while_a_file_is_written(
    arguments: tuple[str, ...],
    number: signal.Signals,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), number))
    assert ended(*arguments, monkeypatch=monkeypatch) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("trivet: stopped")
    assert [item.name for item in folder.iterdir()] == ["x.npz"]


@pytest.mark.parametrize("made_of_it", [RuntimeError("computation interrupted"), ImportError("numpy"), SystemExit(1)])
def test_what_a_library_makes_of_a_signal_is_no_fault(
    made_of_it: BaseException, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        except KeyboardInterrupt:
            raise made_of_it from None

    monkeypatch.setattr("trivet.commands.index.run.build_index", interrupted)
    assert ended("index", "x.npz", "-o", "new", monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("trivet: stopped")
    assert [item.name for item in folder.iterdir()] == ["x.npz"]


def test_a_signal_that_is_ignored_stays_ignored(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` has it
    monkeypatch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), signal.SIGHUP))
    assert ended("index", "x.npz", "-o", "new", monkeypatch=monkeypatch) == 0
    assert (folder / "new" / "index.json").is_file()


def test_a_signal_waits_while_compiled_code_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of it, such as torch's, aborts the process where Python raises an error meanwhile."""
    steps = []

    class Loader(ExtensionFileLoader):
        def exec_module(self, module: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("loaded")

    def run(arguments: list[str], came: list[int]) -> int:
        try:
            Loader("name", "path").exec_module(None)
            steps.append("went on")
            while True:
                signal.pause()
        except KeyboardInterrupt:
            steps.append("stopped")
            return 1

    monkeypatch.setattr("trivet.commands.main._run", run)
    assert ended(monkeypatch=monkeypatch) == 1
    assert steps == ["loaded", "went on", "stopped"]


def test_a_signal_before_anything_is_done_is_answered_and_the_next_one_ends_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trivet.commands.main.prepared", lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert ended("index", "x.npz", "-o", "new", monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err.startswith("trivet: stopped, at the very beginning or end")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_after_a_command_the_handlers_are_those_before_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended("nothing", monkeypatch=monkeypatch) == 2
    assert signal.getsignal(signal.SIGTERM) == signal.default_int_handler


def test_the_exit_code_is_1_also_where_a_library_was_running_a_text(tmp_path: Path) -> None:
    """As `dataclass` and `namedtuple` do when a module is imported: Python would then end by SIGINT."""
    program = """
import trivet.commands.main as program
def interrupted(*_):
    try:
        exec("import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)")
    except KeyboardInterrupt:
        return 1
program._run = interrupted
program.main()
"""
    (tmp_path / "stopped.py").write_text(program)
    command = [sys.executable, "-m", "stopped"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
