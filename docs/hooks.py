"""What mkdocs does not do by itself for the site: the reference, and the files of the repository that pages link to.

Links in the pages are those of the repository, where they must work, too. On the site a page of `docs` has its path in
`docs`, and any other file its path in the repository: what a page links to is brought along from there.
"""

from __future__ import annotations

import ast
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`(?!\])", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"\[([\w./-]+\.md)\]\(([\w./-]+\.md)((?:#[^)]*)?)\)")  # the text of the link is a file
TABLE_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
LANGUAGES = {".py": "python", ".toml": "toml", "": "text"}  # files that are shown on a page of their own


def in_site(path: str) -> str:
    """The path on the site of a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path + ".md" if Path(path).suffix in LANGUAGES else path


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
    """A row of a table whose code has bars: GitHub wants them escaped, and mkdocs not."""
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


def linked_files(pages: dict[str, str]) -> dict[str, str | Path]:
    """What the pages link to outside of docs, and what that links to: the path on the site -> a text, or a file.

    Args:
        pages: the path in the repository of each page -> its text.
    """
    result: dict[str, str | Path] = {}
    waiting = dict(pages)
    while waiting:
        page, text = waiting.popitem()
        for link in links(text):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
            file, target = ROOT / path, in_site(path)
            if path.startswith("docs/") or target in result or not file.is_file():
                continue  # a link that leads nowhere is left to mkdocs, which refuses it
            if file.suffix == ".md":
                waiting[path] = file.read_text()
                result[target] = as_on_site(waiting[path], path)
            elif file.suffix in LANGUAGES:
                result[target] = f"# `{path}`\n\n```{LANGUAGES[file.suffix]}\n{file.read_text()}```\n"
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
        "# Reference\n\nMade from the docstrings. Losses, selectors of positives and negatives, `mine`, `diagnose` and "
        "`CollapseMonitor` are names of `trivet` itself, too: `trivet.TripletLoss`.\n\n| module | |\n|---|---|\n"
    )
    return {"reference/index.md": head + "".join(rows), **pages}


def on_config(config: Any) -> Any:
    """Write the pages of the papers' experiments where they are missing or older than the runs."""
    runs, pages = "studies/results/reproduce", "docs/reproduce"
    front = ROOT / pages / "README.md"
    written = front.stat().st_mtime if front.is_file() else 0.0
    if any(file.stat().st_mtime > written for file in (ROOT / runs).glob("*.jsonl")):
        command = [sys.executable, "-m", "trivet", "reproduce", "all", "--as-is", "-o", runs, "--pages", pages]
        subprocess.run(command, cwd=ROOT, check=True)
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File, InclusionLevel

    modules = re.findall(r"'reference/([\w.]+)\.md'", str(config.nav))
    for target, text in reference([name for name in modules if name != "index"]).items():
        files.append(File.generated(config, target, content=text))
    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages() if file.abs_src_path}
    named = re.findall(r"'([A-Z]+\.md)'", str(config.nav))  # of the folder of the repository itself
    pages["docs/nav.md"] = "".join(f"[](../{name})" for name in named)
    for target, content in linked_files(pages).items():
        what = {"abs_src_path": str(content)} if isinstance(content, Path) else {"content": content}
        inclusion = InclusionLevel.INCLUDED if target in named else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, target, inclusion=inclusion, **what))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return markdown if page.file.generated_by else as_on_site(markdown, f"docs/{page.file.src_uri}")
