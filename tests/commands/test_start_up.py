"""What a command loads before it says something: seconds are won by what is not imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.programs import Programs, forget

from trivet.commands.registry import COMMANDS

SLOW = {"torch", "numpy", "scipy", "rich", "lightning", "pyarrow", "faiss", "sklearn", "torchvision"}
NAMES = [name for names in COMMANDS.values() for name in names]
RUN = """
import contextlib, io, json, sys
from trivet.commands.main import main

for arguments in WANTED:
    sys.argv = ["trivet", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    modules = sorted({name.partition(".")[0] for name in sys.modules})
    print(json.dumps({"code": code, "out": out.getvalue(), "err": err.getvalue(), "modules": modules}))
"""
Ran = dict[str, Any]  # a command's exit code, what it wrote, and what was loaded once it had ended


def ran(commands: list[list[str]], folder: Path) -> list[Ran]:
    """The commands one after the other in one process, which keeps what each of them loads."""
    program = f"WANTED = {commands}\n{RUN}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=folder)
    assert run.stderr == ""
    return [json.loads(line) for line in run.stdout.splitlines()]


CODES = [
    (arguments, code)
    for arguments, code in (
        ([], 0),
        (["--help"], 0),
        (["--version"], 0),
        *(([name, "--help"], 0) for name in NAMES),
        (["simulate", "noise", "--help"], 0),
        (["reproduce", "list"], 0),
        (["trian"], 2),
        (["train"], 2),
        (["train", "--stpes", "3"], 2),
        (["train", "nowhere.toml"], 2),
        (["train", "--resume", "nowhere"], 2),
        (["train", "x.toml", "--resume", "."], 2),
        (["evaluate"], 2),
        (["evaluate", "x.npz", "--measures", "map", "--nmi-plus", "3"], 2),
        (["evaluate", "x.npz", "--report", "nowhere/page.html"], 2),
        (["diagnose", "nowhere.npz"], 2),
        (["init", "nowhere"], 2),
        (["init", "x.npz", "-o", "x.toml"], 2),
        (["settings", "guard", "--schema"], 2),
        (["audit", "x.npz", "--top", "3", "--json"], 2),
        (["forecast", "x.toml", "--grid", "clases=2"], 2),
        (["embed", ".", "digits", "-o", "."], 2),
        (["index", "nowhere.npz", "-o", "made"], 2),
        (["search", "."], 2),
        (["mine", "x.npz", "-o", "x.csv"], 2),
        (["simulate"], 2),
        (["simulate", "noise", "--check", "--grid", "11"], 2),
        (["data", "download"], 2),
        (["cache", "other"], 2),
    )
]


@pytest.fixture(scope="module")
def help_and_errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    folder = tmp_path_factory.mktemp("start")
    for name in ("x.npz", "x.toml"):
        (folder / name).touch()
    results = ran([arguments for arguments, _ in CODES], folder)
    return {" ".join(arguments): result for (arguments, _), result in zip(CODES, results, strict=True)}


@pytest.mark.parametrize(("arguments", "code"), [(" ".join(arguments), code) for arguments, code in CODES])
def test_help_and_usage_errors_load_nothing_slow(arguments: str, code: int, help_and_errors: dict[str, Ran]) -> None:
    run = help_and_errors[arguments]
    assert (run["code"], SLOW.intersection(run["modules"])) == (code, set()), run["err"]
    if code:
        assert run["out"] == ""
        assert run["err"].count("\n") == 1


def test_each_command_is_in_the_help_once(help_and_errors: dict[str, Ran]) -> None:
    out = help_and_errors["--help"]["out"]
    shown = [line.split()[0] for line in out.splitlines() if line.startswith("  ") and line[2].isalpha()]
    assert [name for name in shown if name in NAMES] == NAMES
    headings = [line[:-1] for line in out.splitlines() if line.endswith(":") and line[0].isalpha()]
    assert headings[1:] == list(COMMANDS)
    assert "..." not in out.replace("[ARGS]...", "")


ON_FILES = [
    ["data", "list"],
    ["audit", "file.npz"],
    ["diagnose", "file.npz"],
    ["evaluate", "file.npz", "--measures", "recall@1,nmi"],
    ["index", "file.npz", "-o", "made"],
    ["search", "made", "101", "--sheet", "sheet.html"],
    ["mine", "file.npz", "-o", "mined.parquet"],
]
MISTAKES = [["train", "x.toml"], ["forecast", "x.toml"]]


TRAINS = ("lightning", "torchvision", "timm", "transformers", "sentence_transformers", "accelerate", "torchmetrics")


def run_here(commands: list[list[str]], unloaded: list[str]) -> None:
    """The program, for which what takes long is loaded already, but for these packages."""
    forget("trivet", "trivet_papers", *unloaded)
    exec(RUN, {"WANTED": commands})


def run_where_torch_is(programs: Programs, commands: list[list[str]], folder: Path, *unloaded: str) -> list[Ran]:
    ended = programs.run("tests.commands.test_start_up:run_here", commands, [*TRAINS, *unloaded], folder=folder)
    assert ended.returncode == 0, ended.stderr.decode()
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_commands_on_files_do_without_what_trains(programs: Programs, tmp_path: Path) -> None:
    labels = np.arange(40) % 4
    rows = np.eye(4)[labels] + 0.1 * np.random.default_rng(0).normal(size=(40, 4))
    np.savez(tmp_path / "file.npz", embeddings=rows, label=labels, id=labels * 100 + np.arange(40))
    runs = run_where_torch_is(programs, ON_FILES, tmp_path)
    assert len(runs) == len(ON_FILES)
    for run in runs:
        assert run["code"] == 0, run["err"]
        assert {*TRAINS}.isdisjoint(run["modules"])


WATCH = """
import json, os, sys
import importlib.metadata, pydantic, tomllib, typer, trivet.commands.group  # once, not in each
from trivet.runtime import progress
from trivet.commands.main import main

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "numpy"):
            print(*sys.argv[1:], "silent" if progress._current.get() is None else "shown", flush=True)
            os._exit(0)

sys.meta_path.insert(0, Watch())
for arguments in json.load(sys.stdin):
    if os.fork() == 0:
        sys.argv = ["trivet", *arguments]
        main()
    os.wait()
"""
LOADING = [
    "demo",
    "data list",
    "data download digits",
    "forecast x.toml",
    "forecast folder",
    "train x.toml",
    "train x.npz",
    "train --resume folder",
    "sweep x.toml",
    "evaluate x.npz",
    "evaluate x.npz --folds 3",
    "compare x.npz x.npz",
    "diagnose x.npz",
    "audit x.npz",
    "embed folder x.npz -o made",
    "index x.npz -o made",
    "search folder --id 3",
    "export folder --to onnx -o made",
    "simulate noise -o made",
    "simulate risk --check",
    "reproduce list --size paper",
]


def test_progress_is_shown_before_what_is_slow_to_load(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "trivet-index.json").touch()
    for name in ("x.npz", "x.toml"):
        (tmp_path / name).touch()
    commands = json.dumps([command.split() for command in LOADING])
    run = subprocess.run([sys.executable, "-c", WATCH], input=commands, capture_output=True, text=True, cwd=tmp_path)
    assert run.stdout.splitlines() == [f"{command} shown" for command in LOADING], run.stderr


def test_a_mistake_in_the_settings_is_told_before_what_trains_is_loaded(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[data]\nname = "digits"\n[loss]\nname = "tirplet"\n')
    for run in run_where_torch_is(programs, MISTAKES, tmp_path, "faiss", "sklearn"):
        assert run["code"] == 2
        assert {*TRAINS, "faiss", "sklearn"}.isdisjoint(run["modules"])
        assert "tirplet" in run["err"]
