"""What a command loads before it says something: seconds are won by what is not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trivet.cli import COMMANDS

SLOW = {"torch", "numpy", "scipy", "rich", "lightning", "pyarrow", "faiss", "sklearn", "torchvision"}
NAMES = [name for names in COMMANDS.values() for name in names]
RUN = """
import sys
from trivet.cli import main
try:
    main()
finally:
    print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def loaded(*arguments: str, folder: Path) -> tuple[int, set[str], subprocess.CompletedProcess[str]]:
    run = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, cwd=folder)
    return run.returncode, set(run.stderr.splitlines()[-1].split()), run


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["--help"], 0),
        (["--version"], 0),
        *(([name, "--help"], 0) for name in NAMES),
        (["simulate", "noise", "--help"], 0),
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
        (["audit", "x.npz", "--top", "3", "--json"], 2),
        (["forecast", "x.toml", "--grid", "clases=2"], 2),
        (["embed", ".", "digits", "-o", "."], 2),
        (["index", "nowhere.npz", "-o", "made"], 2),
        (["search", "."], 2),
        (["simulate"], 2),
        (["simulate", "noise", "--check", "--grid", "11"], 2),
        (["data", "download"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_help_and_usage_errors_load_nothing_slow(arguments: list[str], code: int, tmp_path: Path) -> None:
    for name in ("x.npz", "x.toml"):
        (tmp_path / name).touch()
    found, modules, run = loaded(*arguments, folder=tmp_path)
    assert (found, modules & SLOW) == (code, set()), run.stderr
    if code:
        assert run.stdout == ""
        assert run.stderr.count("\n") == 2  # a sentence, and the modules


def test_each_command_is_in_the_help_once(tmp_path: Path) -> None:
    _, _, run = loaded("--help", folder=tmp_path)
    shown = [line.split()[0] for line in run.stdout.splitlines() if line.startswith("  ") and line[2].isalpha()]
    assert [name for name in shown if name in NAMES] == NAMES
    headings = [line[:-1] for line in run.stdout.splitlines() if line.endswith(":") and line[0].isalpha()]
    assert headings[1:] == list(COMMANDS)
    assert "..." not in run.stdout.replace("[ARGS]...", "")


def test_the_module_is_the_program() -> None:
    run = subprocess.run([sys.executable, "-m", "trivet", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == "trivet 0.1.0\n"


def test_commands_on_files_do_without_what_trains(tmp_path: Path) -> None:
    labels = np.arange(40) % 4
    rows = np.eye(4)[labels] + 0.1 * np.random.default_rng(0).normal(size=(40, 4))
    np.savez(tmp_path / "file.npz", embeddings=rows, label=labels, id=labels * 100 + np.arange(40))
    for arguments in (
        ["audit", "file.npz"],
        ["diagnose", "file.npz"],
        ["evaluate", "file.npz", "--measures", "recall@1,nmi"],
        ["index", "file.npz", "-o", "made"],
        ["search", "made", "101", "--sheet", "sheet.html"],
        ["data", "list"],
    ):
        code, modules, run = loaded(*arguments, folder=tmp_path)
        assert (code, modules & {"lightning", "torchvision", "timm", "transformers"}) == (0, set()), run.stderr


def test_a_mistake_in_the_settings_is_told_before_what_trains_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[data]\nname = "digits"\n[loss]\nname = "tirplet"\n')
    for command in ("train", "forecast"):
        code, modules, run = loaded(command, "x.toml", folder=tmp_path)
        assert (code, modules & {"lightning", "torchvision", "timm", "faiss", "sklearn"}) == (2, set())
        assert "tirplet" in run.stderr
