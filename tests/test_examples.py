"""Each command that the docstring of a monitor example gives, on fewer steps; `many_devices.py` has its own test.

The settings files are read.
"""

from __future__ import annotations

import ast
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from trivet.commands.sweep.search_space import Sweep
from trivet.training.config import RunConfig
from trivet.training.ladder_config import LadderSettings

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NAMES = ("monitor_plain.py", "monitor_lightning.py", "monitor_transformers.py")
STEPS = 100

pytestmark = [
    # Lightning 2.6 uses a name that torch 2.15 has deprecated.
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    # What the callbacks say of the event, which the examples print as well.
    pytest.mark.filterwarnings("ignore:network collapse suspected at step"),
]


def commands(name: str) -> list[list[str]]:
    """File and options of the commands in the docstring of an example; two blanks end a command."""
    lines = (ast.get_docstring(ast.parse((EXAMPLES / name).read_text())) or "").splitlines()
    return [shlex.split(line.partition("  ")[0])[1:] for line in lines if line.startswith("python ")]


@pytest.mark.parametrize("command", [command for name in NAMES for command in commands(name)], ids=shlex.join)
def test_a_monitor_example_reports_the_collapse(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, *options = command
    monkeypatch.setattr(sys, "argv", [path, *options, "--steps", str(STEPS)])
    runpy.run_path(str(EXAMPLES.parent / path), run_name="__main__")
    output = capsys.readouterr().out
    if "easy" in options:
        assert "no event" in output
        return
    assert "network collapse suspected at step" in output
    assert "told apart still" in output
    assert f"{STEPS} steps" in output  # a suspicion stops nothing


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_the_settings_of_an_example_are_read(path: Path) -> None:
    if "\n[sweep]\n" in path.read_text():
        assert Sweep.read(path).trials > 1
    elif "\n[ladder]" in path.read_text():
        assert "encoder" in LadderSettings.read(path).ladder.rungs
    else:
        assert RunConfig.read(path).training.steps > 1
