"""Write build/pages, from which zensical builds the site: the pages of docs, the files of the repository that they link
to, and a reference: .venv/bin/python docs/make_site.py

Links in the pages are those of the repository, where they must work, too. On the site a page of `docs` has its path in
`docs`, and any other file its path in the repository: what a page links to is brought along from there.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import trivet

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`(?!\])", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"\[([\w./-]+\.md)\]\(([\w./-]+\.md)((?:#[^)]*)?)\)")  # the text of the link is a file
TABLE_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
RESULT = "trivet.reports.result.Result"  # what the functions return
LANGUAGES = {".py": "python", ".toml": "toml", "": "text"}  # files that are shown on a page of their own


def in_site(path: str) -> str:
    """The path on the site of a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path + ".md" if Path(path).suffix in {*LANGUAGES, ".ipynb"} else path


def links(text: str) -> list[str]:
    """The links to files in a page, as written; what stands in code is none."""
    return [match[1] for match in _links(text)]


def as_on_site(text: str, path: str) -> str:
    """The text of the file at this path of the repository, as a page of the site."""
    return relinked(NAMED.sub(lambda match: _titled(match, path), TABLE_ROW.sub(_with_bars, text)), path)


def _titled(match: re.Match[str], path: str) -> str:
    """A link to a page that the text calls by its file, by its title instead."""
    file = ROOT / posixpath.dirname(path) / match[2]
    title = re.search(r"^# (.*)$", file.read_text(), re.MULTILINE) if file.is_file() else None
    return f"[{title[1]}]({match[2]}{match[3]})" if title and file.name == Path(match[1]).name else match[0]


def _with_bars(match: re.Match[str]) -> str:
    """A row of a table whose code has bars: GitHub wants them escaped, and the site not."""
    return re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), match[0])


def relinked(text: str, path: str) -> str:
    """The text of the file at this path of the repository, with its links as they are on the site."""
    start = posixpath.dirname(in_site(path)) or "."
    parts, end = [], 0
    for match in _links(text):
        target = in_site(posixpath.normpath(posixpath.join(posixpath.dirname(path), match[1])))
        parts += [text[end : match.start()], posixpath.relpath(target, start)]
        end = match.end()
    return "".join([*parts, text[end:]])


def _links(text: str) -> Iterator[re.Match[str]]:
    code = [range(*match.span()) for match in CODE.finditer(text)]
    return (match for match in LINK.finditer(text) if not any(match.start() in part for part in code))


def as_page(path: str) -> str:
    """The file at this path of the repository in Markdown: a page as it is, a notebook with its outputs, or code."""
    file = ROOT / path
    if file.suffix == ".md":
        return file.read_text()
    if file.suffix in LANGUAGES:
        return f"# `{path}`\n\n```{LANGUAGES[file.suffix]}\n{file.read_text()}```\n"
    return "\n".join(part for cell in json.loads(file.read_text())["cells"] for part in _of_cell(cell))


def _of_cell(cell: dict[str, Any]) -> Iterator[str]:
    """The text, or the code and the outputs, of a cell of a notebook."""
    source = "".join(cell["source"]) + "\n"
    if cell["cell_type"] == "markdown":
        yield source
    else:
        yield f"```python\n{source}```\n"
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text")})
            if "image/png" in data:
                yield f"![Figure](data:image/png;base64,{''.join(data['image/png'])})\n"
            else:
                text = "".join(data["text/plain"]).rstrip("\n")
                yield f"```text\n{text}\n```\n"


def site_files(pages: Iterable[str]) -> dict[str, str | Path]:
    """These pages and what they link to, and what that links to: the path on the site -> a text, or a file.

    Args:
        pages: paths in the repository.

    Raises:
        SystemExit: if a link leads to no file.
    """
    result: dict[str, str | Path] = {}
    waiting = dict.fromkeys(pages, "the navigation")
    while waiting:
        path, page = waiting.popitem()
        file, target = ROOT / path, in_site(path)
        if target in result:
            continue
        if not file.is_file():
            raise SystemExit(f"A link must lead to a file of the repository: {page} links to {path}; correct the link.")
        if target.endswith(".md"):
            text = as_page(path)
            result[target] = as_on_site(text, path)
            waiting |= {posixpath.normpath(posixpath.join(posixpath.dirname(path), link)): path for link in links(text)}
        else:
            result[target] = file
    return result


def reference(modules: list[str]) -> dict[str, str]:
    """The pages of the reference: one for each module of trivet, with what it offers, and a list of them."""
    pages, rows = {}, []
    for name in modules:
        path = ROOT / "src" / "trivet" / name.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        pages[f"reference/{name}.md"] = f"# trivet.{name}\n\n::: trivet.{name}\n"
        summary = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0]
        rows.append(f"| [`trivet.{name}`]({name}.md) | {' '.join(summary.split())} |\n")
    head = (
        "# Reference\n\nMade from the docstrings. Losses, selectors of positives and negatives, `mine` and "
        "`CollapseMonitor` are names of `trivet` itself, too: `trivet.TripletLoss`. So are the names below; `audit`, "
        "`compare`, `diagnose`, `evaluate`, `search` and `train` do what the command of their name does.\n\n"
        "| module | |\n|---|---|\n"
    )
    options = "{show_root_heading: true, show_root_full_path: false, show_root_toc_entry: true}"
    names = [f"\n::: {path}\n    options: {options}\n" for path in [*names_without_a_page(), RESULT]]
    return {"reference/index.md": "".join([head, *rows, *names]), **pages}


def names_without_a_page() -> list[str]:
    """The names of `trivet` that no package above them offers, and so no page of a module: where each is defined."""
    objects = {name: getattr(trivet, name) for name in trivet.__all__ if name != "__version__"}
    return [f"{each.__module__}.{name}" for name, each in objects.items() if not _is_offered(name, each.__module__)]


def _is_offered(name: str, module: str) -> bool:
    """Return whether the module or a package above it, below `trivet`, names it in its `__all__`."""
    above = [module.rsplit(".", count)[0] for count in range(module.count("."))]
    return any(name in getattr(import_module(each), "__all__", ()) for each in above)


def experiments() -> None:
    """Write the pages of the papers' experiments where they are missing or older than the runs."""
    runs, pages = "studies/results/reproduce", "docs/reproduce"
    front = ROOT / pages / "README.md"
    written = front.stat().st_mtime if front.is_file() else 0.0
    if any(file.stat().st_mtime > written for file in (ROOT / runs).glob("*.jsonl")):
        command = [sys.executable, "-m", "trivet", "reproduce", "all", "--as-is", "-o", runs, "--pages", pages]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def navigation(entries: Any) -> list[str]:
    """The pages of the navigation of zensical.toml, in its order: strings, in lists and tables of any depth."""
    if isinstance(entries, str):
        return [entries]
    return [
        page for entry in (entries.values() if isinstance(entries, dict) else entries) for page in navigation(entry)
    ]


def write_pages(folder: Path) -> None:
    """Write all that the site is built from into a folder, and nothing else.

    Raises:
        SystemExit: if a link leads to no file.
    """
    named = navigation(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    files = [file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.*") if not file.match("*.py*")]
    modules = [Path(page).stem for page in named if page.startswith("reference/") and page != "reference/index.md"]
    contents = site_files([*files, *(page for page in named if (ROOT / page).is_file())]) | reference(modules)
    shutil.rmtree(folder, ignore_errors=True)
    for path, content in contents.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.read_bytes() if isinstance(content, Path) else content.encode())


if __name__ == "__main__":
    experiments()
    write_pages(ROOT / "build" / "pages")
