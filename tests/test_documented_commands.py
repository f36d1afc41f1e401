"""Every command in the documents exists, with its options, their values and the settings that it sets."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pyarrow.parquet
import pytest
import typer
from pydantic import TypeAdapter, ValidationError

from trivet.commands.group import Commands
from trivet.commands.main import main
from trivet.commands.settings.run import settings_schema

pytestmark = pytest.mark.usefixtures("short_maps")

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What may stand before the name of the program: variables, its folder, and what starts several processes.
PROGRAM = re.compile(r"(?:[A-Z_]+=\S+ |torchrun .*--no-python )*(?:\S*/)?trivet (?=\S)")
CODE = ("python", "text", "toml", "csv")  # blocks that hold no commands
COMMANDS = Commands()


def documented(page: Path) -> list[str]:
    """The command lines of a page, in blocks and within sentences, without what precedes the command."""
    text = page.read_text()
    lines = [
        line.strip()
        for kind, block in FENCE.findall(text)
        if kind not in CODE
        for line in block.replace("\\\n", " ").splitlines()
    ]
    lines += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", FENCE.sub("", text))]
    return [line[match.end() :] for line in lines if (match := PROGRAM.match(line))]


def words_of(line: str) -> list[str]:
    """The words of a command line; of a usage line those of its first form, with all that is optional."""
    line = re.sub(r"(\S+?)(?:\\?\|\S+?)+(?=[\s\]]|$)", r"\1", line)  # one of several
    line = re.sub(r"(?<=\s)\[(?=\S)|(?<=\S)\](?=\s|$)|\.\.\.(?=[\s\]]|$)", "", line)
    return [word for word in shlex.split(line, comments=True) if word not in ("&", "]")]


def checked(words: list[str]) -> list[str]:
    """The settings that a command line sets.

    Raises:
        TyperException: if there is no such option.
        ValidationError: if it does not take that value.
        AssertionError: if there are more arguments than the command has.
    """
    command: Any = COMMANDS[words[0]]
    rest = words[1:]
    if ">" in rest:
        rest = rest[: rest.index(">")]
    parts = getattr(command, "commands", {})
    if rest and (rest[0] in parts or (rest[0].isupper() and parts)):  # SUBJECT is any of them
        command, rest = parts.get(rest[0], next(iter(parts.values()))), rest[1:]
    context = command.context_class(command, info_name=words[0])
    # Of a command that is only named, options may come without a value.
    mention = [*rest, "X"] if rest and rest[-1].startswith("--") and _takes_value(command, rest[-1]) else rest
    given, over, _ = command.make_parser(context).parse_args(list(mention))
    assert not over, over
    types = get_type_hints(inspect.unwrap(command.callback)) if command.callback else {}  # none: `trivet data`
    for name, value in given.items():
        if value in (None, ()):  # left out in a sentence that only names the command
            continue
        values = value if isinstance(value, list) else [value]
        if not any(isinstance(one, str) and re.fullmatch(r"[A-Z/]+", one) for one in values):  # NAME stands for some
            TypeAdapter(types[name]).validate_python(value)
    return list(given.get("set") or [])


def _takes_value(command: Any, name: str) -> bool:
    return any(name in option.opts and not getattr(option, "is_flag", False) for option in command.params)


@cache
def known_settings() -> tuple[set[str], set[str]]:
    """The sections of settings files, and all keys at any depth."""
    schema = settings_schema()
    keys: set[str] = set()

    def gather(part: Any) -> None:
        if isinstance(part, dict):
            keys.update(part.get("properties", {}))
            for inner in part.values():
                gather(inner)
        elif isinstance(part, list):
            for inner in part:
                gather(inner)

    gather(schema)
    return set(schema["properties"]), keys


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_commands_of_a_page_exist(page: Path) -> None:
    sections, keys = known_settings()
    for line in documented(page):
        words = words_of(line)
        if words[0] in ("--version", "--help"):
            continue
        assert words[0] in COMMANDS, line
        for change in checked(words):
            section, *path = change.partition("=")[0].split(".")
            if section != "section":
                assert section in sections, line
                assert set(path) <= keys, line


def test_what_does_not_exist_is_found() -> None:
    assert "evaluate" in {words_of(line)[0] for line in documented(ROOT / "docs" / "evaluation.md")}
    assert len([line for page in PAGES for line in documented(page)]) > 240
    assert words_of("evaluate FILE\\|RUN ... [--labels COLUMN] [--query Q --gallery G]") == [
        *("evaluate", "FILE", "--labels", "COLUMN", "--query", "Q", "--gallery", "G")
    ]
    assert checked(words_of("train a.toml --set loss.margin=1 # so")) == ["loss.margin=1"]
    for wrong in ("train a.toml --sett loss.margin=1", "diagnose a.npz --distance far", "mine a.npz --k many"):
        with pytest.raises((typer.TyperException, ValidationError)):
            checked(words_of(wrong))
    with pytest.raises(AssertionError):
        checked(words_of("search index query another"))


def write_files() -> None:
    """The files that the commands below name, small."""
    draw = np.random.default_rng(0)
    classes = np.repeat(np.arange(6), 10)
    points = draw.normal(size=(6, 8))[classes] + draw.normal(size=(60, 8))
    names = {"class": classes, "intent": classes, "id": np.arange(60).astype(str), "camera": np.arange(60) % 3}
    texts = np.array([f"text {number}" for number in range(60)])
    splits = np.array(["test", "train"])[np.arange(60) % 2]
    for name in ("embeddings", "before", "after", "vectors"):
        np.savez(f"{name}.npz", embeddings=points + draw.normal(size=(60, 8)), text=texts, **names)
    for name, rows in (("query", slice(0, None, 2)), ("gallery", slice(1, None, 2))):
        labels = {**names, "class": np.where(np.arange(60) == 1, -1, classes)}  # one of the gallery is junk
        np.savez(f"{name}.npz", embeddings=points[rows], **{key: values[rows] for key, values in labels.items()})
    for name in ("questions", "answers"):
        np.savez(f"{name}.npz", embeddings=points, id=np.array([f"{name[0]}{number}" for number in range(60)]))
    Path("pairs.csv").write_text("anchor,positive\n" + "".join(f"q{number},a{number}\n" for number in range(60)))
    table = {"embedding": points.tolist(), "class": classes.tolist(), "split": splits.tolist()}
    pyarrow.parquet.write_table(pyarrow.table(table), "embeddings.parquet")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("page", "number"), [("collapse.md", 3), ("evaluation.md", 4), ("hard_negatives.md", 3)])
def test_commands_on_files_run(page: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_files()
    text = next(block for kind, block in FENCE.findall((ROOT / "docs" / page).read_text()) if kind == "sh")
    lines = [line for line in text.splitlines() if line.startswith("trivet ") and "runs/" not in line]
    assert len(lines) == number
    for line in lines:
        monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
        Path("triplets.parquet").unlink(missing_ok=True)
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0, line
