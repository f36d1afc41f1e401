"""Run the blocks of guides and notebooks in order, in a folder of their own, and print what each prints:

    .venv/bin/python docs/run_guides.py docs/guides/vectors.md examples/vectors.ipynb ...

A block with a title, as in ```python title="loop.py", is a file. A block `sh` holds commands, and a block `python`
without a title is code; those of a page share their names. A block `text` after one of these is what it prints, with
`...` for lines left out. A cell of a notebook is such a block, and so is its output, which is written into it anew.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

INSTALLING = ("pip", "make", "git", "python3")  # how one comes to have Trivet


class Block(NamedTuple):
    kind: str
    title: str | None
    text: str


class Outcome(NamedTuple):
    """A block that was run, what it printed and displays, and what the page shows of that, if anything."""

    block: Block
    printed: str
    displayed: dict[str, str]  # kind of text -> the value of the last line
    expected: str | None

    @property
    def text(self) -> str:
        return "\n".join(filter(None, [self.printed, self.displayed.get("text/plain")]))


def blocks(page: Path) -> list[Block]:
    if page.suffix == ".ipynb":
        return [block for cell in json.loads(page.read_text())["cells"] for block in _of_cell(cell)]
    found = re.findall(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(kind, title or None, text) for kind, title, text in found]


def _of_cell(cell: dict[str, Any]) -> Iterator[Block]:
    """The code of a cell, and the first line of its output, the answer: below it are times, too."""
    if cell["cell_type"] == "code":
        yield Block("python", None, "".join(cell["source"]))
        for output in cell["outputs"][:1]:
            yield Block("text", None, (output.get("text") or output["data"]["text/plain"])[0])


def commands(text: str) -> list[list[str]]:
    """The commands of a block `sh`, without comments."""
    return [words for line in text.replace("\\\n", " ").splitlines() if (words := shlex.split(line, comments=True))]


def run(page: Path) -> Iterator[Outcome]:
    """Run the page in the current folder.

    Raises:
        RuntimeError: if a command ends with another code than 0, or 1 where its line says "exit code 1".
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    all_blocks = blocks(page)
    for block, after in zip(all_blocks, [*all_blocks[1:], None], strict=True):
        if block.title:
            Path(block.title).write_text(block.text)
        elif block.kind in ("sh", "python"):
            printed = io.StringIO()
            displayed: dict[str, str] = {}
            with contextlib.redirect_stdout(printed):
                if block.kind == "sh":
                    _commands(block.text)
                else:
                    displayed = _python(block.text, page, names)
            expected = after.text if after and after.kind == "text" else None
            yield Outcome(block, printed.getvalue(), displayed, expected)


def _python(text: str, page: Path, names: dict[str, Any]) -> dict[str, str]:
    """Run code, and return the value of its last line as a notebook displays it, if it has one."""
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(page), "exec"), names)
    value = eval(compile(ast.Expression(last.value), str(page), "eval"), names) if last else None
    if value is None:
        return {}
    data = {"text/plain": repr(value)}
    if hasattr(value, "_repr_png_"):
        picture, _ = value._repr_png_()
        data["image/png"] = base64.b64encode(picture).decode()
    elif hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_()
    return data


def write_outputs(notebook: Path, outcomes: Iterable[Outcome]) -> None:
    """Write what the cells of a notebook printed and display into it."""
    content = json.loads(notebook.read_text())
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    for number, (cell, ran) in enumerate(zip(cells, outcomes, strict=True), 1):
        printed = {"output_type": "stream", "name": "stdout", "text": ran.printed.splitlines(keepends=True)}
        data = {kind: text.splitlines(keepends=True) for kind, text in ran.displayed.items()}
        metadata = {"image/png": {"width": 700}} if "image/png" in data else {}
        value = {"output_type": "execute_result", "execution_count": number, "metadata": metadata, "data": data}
        cell["execution_count"] = number
        cell["outputs"] = [printed] * bool(ran.printed) + [value] * bool(data)
    notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _commands(text: str) -> None:
    for words in commands(text):
        program, *arguments = words
        if program in INSTALLING:
            continue
        if program == "python":
            runpy.run_path(arguments[0], run_name="__main__")
        elif program == "trivet":
            from trivet.commands.main import main

            expected = 1 if "exit code 1" in text else 0
            with patch.object(sys, "argv", words):
                try:
                    main()
                except SystemExit as stop:
                    if stop.code != expected:
                        raise RuntimeError(f"{shlex.join(words)}: exit code {stop.code}, not {expected}") from None
        else:
            raise RuntimeError(f"{program}: a guide runs trivet and python only")


def words_of(text: str) -> list[str]:
    """The words and numbers, without the lines of tables and where they break, and how many minutes something took."""
    text = re.sub(r"[0-9.]+ minutes", "minutes", text)
    return re.sub(r"[│┃━─┏┓┗┛┡┩┢┪┳┻╇┴┬┼└┘├┤┌┐╭╮╰╯]", " ", text).split()


def alike(expected: str, printed: str) -> bool:
    """Whether a page shows what was printed: the same words, and numbers as near as another machine makes them."""
    rest = words_of(printed)
    for piece in re.split(r"^\.\.\.$", expected, flags=re.MULTILINE):
        words = words_of(piece)
        starts = range(len(rest) - len(words) + 1)
        start = next((i for i in starts if all(map(_close, words, rest[i : i + len(words)]))), None)
        if start is None:
            return False
        rest = rest[start + len(words) :]
    return True


def _close(one: str, other: str) -> bool:
    if one == other:
        return True
    number = r"[-+]?\d+(?:\.\d+)?"
    if re.sub(number, "0", one) != re.sub(number, "0", other):
        return False
    if re.search(r"[A-Za-z]", one):  # the id of an item: others may be as near on another machine
        return True
    return all(
        abs(float(a) - float(b)) <= 0.15 * abs(float(a)) + _tolerance(a)
        for a, b in zip(re.findall(number, one), re.findall(number, other), strict=True)
    )


def _tolerance(number: str) -> float:
    """Half a point for small numbers with one decimal, as per cent have."""
    return 2 if abs(float(number)) >= 10 else 0.5 if number[-2:-1] == "." else 0.05


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(f"{__doc__}\nThe arguments must be guides or notebooks: got none.")
    for name in sys.argv[1:]:
        guide = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ.pop("COLUMNS", None)
            outcomes = list(run(guide))
            for ran in outcomes:
                same = "" if ran.expected is None else f"  alike: {alike(ran.expected, ran.text)}"
                print(f"--- {ran.block.text.strip().splitlines()[-1]}{same}\n{ran.text}")
            if guide.suffix == ".ipynb":
                write_outputs(guide, outcomes)
