"""Write the shapes in docs/json.md from the records: .venv/bin/python docs/make_json.py"""

from __future__ import annotations

import re
from collections.abc import Container
from importlib import import_module
from pathlib import Path
from textwrap import indent
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from trivet.runtime.record import Record

PAGE = Path(__file__).with_name("json.md")
WORDS = {int: "n", float: "x", str: "text", bool: "bool", NoneType: "null", Any: "..."}
WIDTH = 118


def page() -> str:
    """The page, with the block after each comment `record: MODULE.CLASS without KEYS` written from that class."""
    return re.sub(
        r"<!-- record: (\S+)\.(\w+)(?: without ([\w, ]+))? -->\n```\n.*?```", block, PAGE.read_text(), flags=re.DOTALL
    )


def block(match: re.Match[str]) -> str:
    """The comment and the JSON of one record."""
    comment = match[0].partition("\n")[0]
    record = getattr(import_module(match[1]), match[2])
    return f"{comment}\n```\n{shape(record, without=(match[3] or '').split(', '))}\n```"


def shape(kind: Any, without: Container[str] = ()) -> str:
    """The JSON of a type: x is a number, n a whole number, and NAME any name."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Record):
        rows = [
            f'"{field.alias or name}": {shape(field.annotation)}'
            for name, field in kind.model_fields.items()
            if name not in without
        ]
        return braces("{", rows, "}")
    if origin is Annotated:
        return shape(inner[0])
    if origin is Literal:
        return " | ".join(f'"{value}"' if isinstance(value, str) else str(value).lower() for value in inner)
    if origin is list or (origin is tuple and inner[-1] is Ellipsis):
        return braces("[", [shape(inner[0]), "..."], "]")
    if origin is tuple:
        return braces("[", [shape(each) for each in inner], "]")
    if origin is dict:
        return braces("{", [f"NAME: {shape(inner[1])}", "..."], "}")
    if inner:  # a union
        kinds = list(dict.fromkeys(map(shape, inner)))
        return " | ".join(each for each in kinds if not (each == "n" and "x" in kinds))
    return WORDS[kind]


def braces(first: str, rows: list[str], last: str) -> str:
    """Values in braces, on one line where they fit."""
    line = f"{first}{', '.join(rows)}{last}"
    if len(line) <= WIDTH - 20 and "\n" not in line:
        return line
    lines: list[str] = [""]
    for row in rows:
        if lines[-1] and ("\n" in row or "\n" in lines[-1] or len(lines[-1]) + len(row) > WIDTH - 20):
            lines.append("")
        lines[-1] += f"{', ' if lines[-1] else ''}{row}"
    return first + indent(",\n".join(lines), " ").removeprefix(" ") + last


if __name__ == "__main__":
    PAGE.write_text(page())
