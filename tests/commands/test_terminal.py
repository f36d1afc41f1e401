"""What reaches a terminal: no control codes of names, no message without end, no error of the terminal's alphabet."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest

import trivet
from trivet.commands.main import main
from trivet.reports.page import number
from trivet.runtime.terminal import LONGEST, json_text, message, prepared, printable

SOURCE = Path(trivet.__file__).parent
EVIL = "cat\x1b[2J\x1b]0;title\x07\u202egnp\x9b31m\nnext"
CODES = ("\x1b", "\x07", "\u202e", "\x9b")


def test_only_these_files_print() -> None:
    """All that is printed goes through them, and through `printable` there."""
    printing = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        named = any(name in text for name in ("print", "echo", "Console", "stdout", "stderr"))
        for node in ast.walk(ast.parse(text)) if named else ():  # to parse all takes seconds
            name = getattr(node, "func", None)
            if getattr(name, "attr", getattr(name, "id", "")) in ("print", "echo", "secho", "Console", "write"):
                ends = (".print", "typer.echo", ".secho", "Console", "stdout.write", "stderr.write")
                if f".{ast.unparse(name)}".endswith(ends):
                    printing.add(path.relative_to(SOURCE).as_posix())
    assert printing == {"commands/main.py", "commands/printing.py", "runtime/progress.py"}


def test_controls_are_spelled_out_and_letters_stay() -> None:
    assert printable(EVIL) == r"cat\x1b[2J\x1b]0;title\x07\u202egnp\x9b31m\nnext"
    assert printable("Ünïcode שלום مرحبا 猫 👩‍🔬 é") == "Ünïcode שלום مرحبا 猫 👩‍🔬 é"
    assert printable("\udcff") == r"\udcff"


def test_a_message_is_one_line_with_its_beginning_and_end() -> None:
    said = message(f"a class must be short: got {'x y' * 10**6}; rename it.")
    assert len(said) < LONGEST + 50
    assert (said[:23], said[-10:]) == ("a class must be short: ", "rename it.")
    assert message("one\n  two") == "one two"


def write(folder: Path, name: str) -> None:
    embeddings = np.random.default_rng(0).normal(size=(12, 3))
    kinds = np.array([name, "dog"]).repeat(6)
    np.savez(
        folder / "e.npz",
        **{"embeddings": embeddings, "kind\x1b[2J": kinds},
        id=np.array([f"{name} {i}" for i in range(12)]),
    )


def call(line: list[str], monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8") -> tuple[int, str]:
    """Exit code, and what a command writes to its two streams."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    monkeypatch.setattr(sys, "argv", ["trivet", *line])
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with pytest.raises(SystemExit) as stop:
        main()
    out.flush(), err.flush()
    written = out.buffer.getvalue() + err.buffer.getvalue()
    return int(stop.value.code or 0), written.decode(encoding)


COMMANDS = (
    ["evaluate", "e.npz", "--nmi-plus", "1"],
    ["diagnose", "e.npz"],
    ["audit", "e.npz"],
    ["audit", "e.npz", "--json"],
    ["mine", "e.npz", "-o", f"{EVIL}.parquet"],
    ["index", "e.npz", "-o", f"{EVIL}i"],
    ["evaluate", "e.npz", "--labels", EVIL],
    ["diagnose", EVIL],
    [EVIL],
    ["init", "e.npz", "--labels", EVIL],
    ["mine", "e.npz", "-o", "new.parquet", "--labels", EVIL],
    ["compare", EVIL, EVIL],
    ["export", EVIL, "--to", "onnx", "-o", "new"],
    ["embed", EVIL, EVIL, "-o", "new"],
    ["sweep", EVIL],
    ["sweep", "--join", EVIL],
    ["settings", EVIL],
    ["simulate", EVIL],
    ["reproduce", EVIL],
    ["train", "--set", EVIL],
)
MISTAKES = 6  # from here on


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: repr(" ".join(line)[:24]))
def test_no_command_prints_the_codes_of_a_name_or_fails_on_an_ascii_terminal(
    line: list[str], encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, EVIL + "é")
    code, said = call(line, monkeypatch, encoding)
    assert code == (2 if line in COMMANDS[MISTAKES:] else 0), said
    assert not any(sign in said for sign in CODES)
    assert "Error" not in said
    if "--json" in line:
        assert {one["label"] for one in json.loads(said.partition("\n")[0])["suspects"]} <= {EVIL + "é", "dog"}


def test_json_is_escaped_where_a_terminal_would_obey_or_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    said = json_text({"name": EVIL + "é"})
    assert not any(sign in said for sign in CODES)
    assert json.loads(said) == {"name": EVIL + "é"}
    assert "é" in said
    assert json.loads(json_text({"name": "\udcff"})) == {"name": "\udcff"}


def test_marks_have_plain_forms_and_log_messages_are_printable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    log = logging.getLogger("trivet")
    with prepared():
        stream.write(f"1 … 2 – é, {number(1797)} → 5 ± 1")
        stream.flush()
        log.warning("%s", EVIL)
        log.warning("%s", EVIL)
    assert stream.buffer.getvalue() == b"1 ... 2 - \\xe9, 1 797 -> 5 +- 1"
    assert caplog.messages == [message(EVIL)]
    log.warning("%s", EVIL)
    assert caplog.messages == [message(EVIL), EVIL]
