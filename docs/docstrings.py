"""For the reference: docstrings as they are written here, in the sections that mkdocstrings knows.

- `Example:` holds doctests. `Shape:` and `Source:` are paragraphs with a heading.
- What a class overrides stands with the class that it has it from.
- A comment after an attribute, `values: Floats  # (Q, m) of each query`, is its description.
"""

from __future__ import annotations

import io
import re
import tokenize
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = sections(obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.lines and (text := comment(attr.lines[-1])):
            attr.docstring = griffe.Docstring(text, lineno=attr.lineno, endlineno=attr.endlineno, parent=attr)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        overrides = [
            (each, name)
            for each in classes(pkg)
            for name in each.members
            if name != "__init__" and any(name in base.members for base in each.mro())
        ]
        for each, name in overrides:
            del each.members[name]


def classes(module: griffe.Module) -> list[griffe.Class]:
    """All classes of a module and of those inside it."""
    here = [member for member in module.members.values() if isinstance(member, griffe.Class)]
    inside = [member for member in module.members.values() if isinstance(member, griffe.Module)]
    return here + [each for each_module in inside for each in classes(each_module)]


def sections(text: str) -> str:
    """A docstring with `Example:` as the section of doctests, and other sections than the usual as text."""
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
    text = re.sub(r"^( +[\w, ]+: |\A)(?=>(?!>>))", r"\1\\", text, flags=re.MULTILINE)  # ">= 0" is no quotation
    return re.sub(r"^(Shape|Source):\n((?: {4}.*\n?|\n)+)", _paragraphs, text, flags=re.MULTILINE)


def _paragraphs(match: re.Match[str]) -> str:
    body = re.sub(r"^ {4}", "", match[2], flags=re.MULTILINE)
    return f"**{match[1]}.** {body}"


def comment(line: str) -> str:
    """The comment at the end of a line of code, as a sentence; empty where there is none."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(line.strip() + "\n").readline))
    except (tokenize.TokenError, SyntaxError):  # the last line of several, with a bracket of an earlier one
        return ""
    text = " ".join(token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT)
    if not text or text.startswith(("noqa", "type:", "fmt:")):
        return ""
    text = "\\" * text.startswith(">") + text
    return text[0].upper() + text[1:] + ("" if text.endswith((".", ";", ":")) else ".")
