"""Write docs/llms.txt, an index of pages, names and commands for language models: .venv/bin/python docs/make_llms.py"""

from __future__ import annotations

import inspect
import re
import runpy
import tomllib
from pathlib import Path

import trivet
from trivet.commands.group import Commands
from trivet.commands.registry import COMMANDS

DOCS = Path(__file__).parent
INDEX = DOCS / "llms.txt"
navigation = runpy.run_path(str(DOCS / "make_site.py"))["navigation"]
ON_SITE_ALONE = ("reference/", "reproduce/")
NO_SENTENCE = re.compile(r"^```.*?^```$|^(?:[#|<!-]|\*\*).*?$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
ASIDE = re.compile(rf" \({LINK.pattern}\)")


def page() -> str:
    """The index: pages in the sections of the site, names of `trivet`, commands; each with its first sentence."""
    sections: dict[str, list[str]] = {}
    for entry in tomllib.loads((DOCS.parent / "zensical.toml").read_text())["project"]["nav"]:
        for title, pages in entry.items():
            files = [DOCS / name for name in navigation(pages) if not name.startswith(ON_SITE_ALONE)]
            sections[title] = [described(file) for file in files if file.is_file()]
    sections["Names of `trivet`"] = [
        f"- `trivet.{name}`: {first_sentence(inspect.getdoc(getattr(trivet, name)) or '')}"
        for name in trivet.__all__
        if name != "__version__"
    ]
    commands = Commands()
    sections["Command line"] = [
        f"- [trivet {name}](command_line.md#trivet-{name}): {first_sentence(str(commands[name].help))}"
        for names in COMMANDS.values()
        for name in names
    ]
    parts = [f"# Trivet\n\n> {paragraph((DOCS.parent / 'README.md').read_text())}\n"]
    parts += [f"## {title}\n\n" + "\n".join(rows) + "\n" for title, rows in sections.items() if rows]
    return "\n".join(parts)


def described(file: Path) -> str:
    """A link to a page, its first sentence, and the headings that it is divided by."""
    text = file.read_text()
    headings = re.findall(
        r"^##? (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    divided = f" Sections: {'; '.join(headings[1:])}." if headings[1:] else ""
    return f"- [{headings[0]}]({file.relative_to(DOCS).as_posix()}): {first_sentence(text)}{divided}"


def first_sentence(text: str) -> str:
    return re.split(r"[.:]$|[.?] (?=[A-Z`\"])", paragraph(text))[0] + "."


def paragraph(text: str) -> str:
    """The first paragraph of prose, in a line, without links and those in brackets."""
    text = LINK.sub(r"\1", ASIDE.sub("", NO_SENTENCE.sub("", text)))
    blocks = (" ".join(block.split()) for block in text.split("\n\n"))
    return next(block for block in blocks if block)


if __name__ == "__main__":
    INDEX.write_text(page())
