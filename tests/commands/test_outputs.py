"""No command replaces a file that it did not write, nor one that it reads: every output option of every command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tests.commands.conftest import Call

from trivet.commands.group import app
from trivet.io.overwrite_guard import (
    INIT_START,
    PER_CLASS,
    SUSPECTS,
    Output,
    OutputFolder,
    check_outputs,
    embeddings,
    page_start,
)
from trivet.io.parquet_files import write_embeddings

READ = {  # command -> what it must be given beside an output, and what of it it reads
    "compare": ("run", "run"),
    "diagnose": ("e.npz", "e.npz"),
    "evaluate": ("e.npz", "e.npz"),
    "audit": ("e.npz", "e.npz"),
    "audit --output": ("e.npz --apply d.csv", "e.npz"),
    "forecast": ("s.toml", "s.toml"),
    "leaks": ("e.npz", "e.npz"),
    "drift": ("e.npz e.npz", "e.npz"),
    "migrate": ("e.npz e.npz", "e.npz"),
    "init": ("e.npz", "e.npz"),
    "embed": ("run digits", "run"),
    "search": ("found q", "found"),
    "mine": ("e.npz", "e.npz"),
    "export": ("run --to safetensors", "run"),
    "pull": ("me/birds", None),
    "train": ("s.toml", "s.toml"),
    "sweep": ("s.toml", "s.toml"),
    "index": ("e.npz", "e.npz"),
    "data export-beir": ("p.csv", "p.csv"),
    "demo": ("", None),
    **{f"simulate {name}": ("", None) for name in ("isometry", "noise", "risk")},
    "simulate dynamics": ("--embeddings e.npz", "e.npz"),
    "reproduce": ("xuan2020 --models run", "run"),
}
FOLDERS = ("train", "sweep", "index", "export", "pull", "data", "demo", "simulate", "reproduce")
OWN = {  # how a file begins that the option wrote before
    "compare --report": page_start("compare"),
    "diagnose --report": page_start("diagnosis"),
    "evaluate --report": page_start("evaluation"),
    "evaluate --per-class": ",".join(PER_CLASS).encode() + b",recall@1\n",
    "audit --report": page_start("audit"),
    "audit --out": ",".join(SUSPECTS).encode() + b",more\n",
    "audit --decisions": b"id,decision,label\n",
    "forecast --report": page_start("forecast"),
    "leaks --report": page_start("leaks"),
    "drift --report": page_start("drift"),
    "migrate --report": page_start("migrate"),
    "search --sheet": page_start("sheet"),
    "init --output": INIT_START.encode(),
}


def commands(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield " ".join((*names, name)), command
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)


def paths() -> Iterator[tuple[str, str, bool]]:
    """Command, option and whether it is an input, of all that take a path."""
    for name, command in commands(typer.main.get_command(app)):
        for one in command.params:
            if "Path" in str(one.type_descriptor.annotation) and one.name != "data_root":
                checked = one.callback is not None and one.callback.__name__ == "exists"
                yield name, one.opts[0], checked or one.opts[0] == "--apply"  # a decision file says so itself


OUTPUTS = sorted((command, option) for command, option, given in paths() if not given)
FILES = [f"{command} {option}" for command, option in OUTPUTS if command.split()[0] not in FOLDERS]


def test_each_option_with_a_path_is_an_input_that_must_exist_or_an_output_that_is_checked() -> None:
    assert {option for _, option, given in paths() if given} >= {"--table", "--run", "--reference"}
    assert {command for command, _ in OUTPUTS} == {" ".join(w for w in name.split() if w[0] != "-") for name in READ}
    assert {*FILES} == {*OWN, "audit --output", "embed --output", "mine --output"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("e.npz", embeddings=np.eye(4, dtype=np.float32), kind=np.array(["a", "a", "b", "b"]))
    Path("d.csv").write_text("id,decision,label\n0,keep,\n")
    Path("p.csv").write_text("query,answer\na,b\n")
    Path("s.toml").write_text("[data]\nname = 'digits'\n[loss]\nname = 'triplet'\n")
    for name in ("run", "found"):
        Path(name).mkdir()
        (Path(name) / "config.toml").write_text("[data]\nname = 'digits'\n")
    return tmp_path


@pytest.fixture
def refused(run_command: Call) -> Callable[[str], str]:
    """Runs a command that is refused: what it says."""

    def said(line: str) -> str:
        code, out, err = run_command(*line.split())
        assert (code, out, err.count("\n")) == (2, "", 1), (line, err)
        return err

    return said


def arguments(command: str, option: str) -> tuple[str, str | None]:
    given, read = READ.get(f"{command} {option}", READ.get(command, ("", None)))
    return f"{command} {given}", read


@pytest.mark.parametrize(
    ("one", "force"),
    [(one, "") for one in FILES]
    + [
        (one, " --force")
        for one in FILES
        if one.split()[0] in ("audit", "embed", "init", "mine") and one != "audit --output"
    ],
)
def test_a_file_that_is_not_its_own_stays(one: str, force: str, folder: Path, refused: Callable[[str], str]) -> None:
    command, option = one.split()
    line, read = arguments(command, option)
    end = ".npz" if "--apply" in line else ".x"
    mine, link, twin, pipe = (folder / f"{name}{end}" for name in ("mine", "link", "twin", "pipe"))
    mine.write_bytes(b"my own")
    link.symlink_to("nowhere")
    os.mkfifo(pipe)
    said = {str(file): refused(f"{line} {option} {file}{force}") for file in (mine, link, pipe)}
    assert all(file in sentence for file, sentence in said.items())
    assert (mine.read_bytes(), os.readlink(link), pipe.is_fifo()) == (b"my own", "nowhere", True)
    assert read is not None
    if Path(read).is_dir():
        sentence = refused(f"{line} {option} {read}/new.x{force}")
        assert "must lie outside of what is read" in sentence
        assert not Path(read, "new.x").exists()
        return
    before = Path(read).read_bytes()
    os.link(read, twin)
    for name in (read, f"../{folder.name}/{read}", twin):
        sentence = refused(f"{line} {option} {name}{force}")
        assert "must not name what is read" in sentence or "must be a .npz file" in sentence
    assert Path(read).read_bytes() == twin.read_bytes() == before


@pytest.mark.parametrize(("command", "option"), [one for one in OUTPUTS if one[0].split()[0] in FOLDERS])
def test_a_folder_with_other_files_stays(
    command: str, option: str, folder: Path, refused: Callable[[str], str]
) -> None:
    line, read = arguments(command, option)
    for inside in ("figures", "model"):
        (folder / "old" / inside).mkdir(parents=True)
        (folder / "old" / inside / "thesis.tex").write_text("my own")
    force = "" if command in ("sweep", "reproduce") else " --force"  # which have none: they go on in their folder
    assert "old" in refused(f"{line} {option} old{force}")
    assert [file.read_text() for file in folder.rglob("thesis.tex")] == ["my own"] * 2
    if read is not None:
        reads = list(Path(read).iterdir()) if Path(read).is_dir() else [Path(read)]
        before = [file.read_bytes() for file in reads]
        assert "what is read" in (said := refused(f"{line} {option} {folder}{force}")) or read in said
        assert [file.read_bytes() for file in reads] == before


@pytest.mark.parametrize("one", OWN)
def test_a_file_of_its_own_is_known_by_its_beginning(
    one: str, refused: Callable[[str], str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, option = one.split()
    asked: list[Output] = []

    def stop(outputs: Iterable[Output], reads: Iterable[Path]) -> None:
        asked.extend(outputs)
        raise ValueError("stop")

    monkeypatch.setattr("trivet.commands.shared_options.check_outputs", stop)
    monkeypatch.setattr("trivet.commands.audit.run.check_outputs", stop)
    refused(f"{arguments(command, option)[0]} {option} new")
    for other, start in OWN.items():
        Path("new").write_bytes(start + b"more")
        assert asked[0].recognised is not None
        assert asked[0].recognised(Path("new")) == (other == one), other


def test_what_is_its_own_is_replaced_and_two_outputs_are_two_files(tmp_path: Path) -> None:
    made, other = tmp_path / "made.parquet", tmp_path / "other.parquet"
    write_embeddings(made, np.eye(2), ("a", "b"), {}, model="0" * 64)
    write_embeddings(other, np.eye(2), ("a", "b"), {})
    check_outputs([Output("--output", made, embeddings, True)], [other])
    for output, sentence in (
        (Output("--output", made, embeddings, False), "add --force"),
        (Output("--output", other, embeddings, True), "only a file that it wrote itself"),
        (Output("--output", made, None), "must name a new file"),
    ):
        with pytest.raises(ValueError, match=sentence):
            check_outputs([output], [])
    two = [Output("--out", tmp_path / "a.csv"), Output("--decisions", tmp_path / "A.csv")]
    with pytest.raises(ValueError, match="for --out and --decisions"):
        check_outputs(two, [])
    beside = tmp_path / "e.csv"
    beside.write_text("id\n")
    with pytest.raises(ValueError, match="must not name what is read"):
        check_outputs([Output("--out", beside, lambda path: True)], [tmp_path / "e.npy"])


def test_a_folder_may_hold_copies_that_the_new_one_has_too(tmp_path: Path) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text("")
    check_outputs([OutputFolder("--output", tmp_path, (), ("config.toml",))], [settings])
    with pytest.raises(ValueError, match="holds nothing that is read"):
        check_outputs([OutputFolder("--output", tmp_path, ())], [settings])
