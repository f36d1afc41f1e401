"""Names and options of other libraries, and what stands for them here: the tables of docs/coming_from.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import NamedTuple, NoReturn

CODE = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"\b(\w+)=")
CLASS = re.compile(r"(?<![\w.])(?=[A-Z]\w*\()")  # where its name begins, without its module


class Counterpart(NamedTuple):
    """A row of a table; texts in Markdown."""

    library: str
    there: list[str]  # the pieces of code in its first cell
    here: str
    value: str = ""


@cache
def tables() -> dict[str, list[str]]:
    """Title, which begins with the library, -> lines in Markdown."""
    text = files("trivet.runtime").joinpath("counterparts.md").read_text(encoding="utf-8")
    sections = (section.split("\n") for section in text.removeprefix("# ").split("\n# "))
    return {title: [line for line in lines if line.startswith("|")] for title, *lines in sections}


@cache
def counterparts() -> list[Counterpart]:
    """The rows of all tables."""
    rows = []
    for title, (_, _, *lines) in tables().items():
        for line in lines:
            there, *others = (cell.strip() for cell in line.strip("|").split(" | "))
            rows.append(Counterpart(title.partition(":")[0], CODE.findall(there), *others))
    return rows


@cache
def foreign_names() -> frozenset[str]:
    """The classes, functions and options of other libraries that have a row."""
    return frozenset(name for row in counterparts() for span in row.there for name in _names(span))


def advice(word: str, *, callee: str = "", options: Iterable[str] = (), value: object = None) -> str:
    """Advice on what stands here for a name or an option of another library; "" where no row has it.

    Args:
        callee: the function or class of this library that got it as an option; "" if it is no option, or for any.
        options: of the callee; rows of others, and calls of others, are not for it.
        value: of the option, an object of another library or a class of it, of which the rows are then.
    """
    value_name = value.__name__ if isinstance(value, type) else type(value).__name__
    allowed = {*options}
    matches = []
    for row in counterparts():
        options_of_callee = callee and f"{callee}(" in row.here
        if callee and not options_of_callee and (_is_call(row.here) or not _options(row.here) <= allowed):
            continue
        for span in row.there:
            if word in (re.findall(r"\w+", span) if options_of_callee else _names(span)):
                matches.append((0 if re.match(rf"(\w+=)?{word}\b", span) else len(span), span, row))
    if value_name in foreign_names():
        matches = [match for match in matches if f"{value_name}(" in match[1]]
        if not matches and value_name != word:
            return advice(value_name, callee=callee, options=options)
    if not matches:
        return ""
    least = min(length for length, *_ in matches)
    best = [(span, row) for length, span, row in matches if length == least]
    if _is_call(best[0][1].here):  # the first row of a class is that of its defaults
        best = best[:1]
    sentences = [_sentence(span, row) for span, row in best if row is best[0][1] or not _is_call(row.here)]
    return f"a name of {best[0][1].library}: {'; '.join(sentences)}."


def _names(span: str) -> list[str]:
    """The names that a piece of code is about: the word that it begins with, and whatever it calls."""
    return re.findall(r"^\w+(?=$|[(=])|(?<![.\w])\w+(?=\()", span)


def call_advice(by_position: Iterable[str], by_name: Iterable[str]) -> str:
    """Advice on a call with one argument more by position than ours, which has it by name; "" where no row has it."""
    start, names = ", ".join(by_position), {*by_name}
    for row in counterparts():
        for span in row.there:
            if start and re.fullmatch(rf"\w+\({start}, \w+\)", span) and names & {*OPTION.findall(row.here)}:
                return _sentence(span, row)
    return ""


def _options(here: str) -> set[str]:
    """The options that a text names, as `margin=1` or alone in its first code; none of a call with its own."""
    if _is_call(here):
        return set()
    return {*OPTION.findall(re.sub(r"\([^()]*\)", "", here))} or {*re.findall(r"^`(\w+)`", here)}


def _is_call(here: str) -> bool:
    return re.match(r"`[\w.]+\(", here) is not None


def _sentence(span: str, row: Counterpart) -> str:
    """Advice on a piece of code of another library, with what stands for it."""
    here = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", row.here.partition(". ")[0])
    here = CODE.sub(lambda code: code[1] if "..." in code[1] else CLASS.sub("trivet.", code[1]), here)
    verb = "there is" if here.startswith("none") else "use" if re.match(r"`\w+[.(]", row.here) else "pass"
    equal = re.split(r"[:;.]", row.value)[0]
    return f"for {span} {verb} {here}{equal and f' ({equal})'}"


def explain_missing(module: str, known: Iterable[str]) -> None:
    """Let a module, by its name, raise the error of `missing_attribute` for names that it does not have."""

    def attribute(name: str) -> NoReturn:
        raise missing_attribute(module, name, known)

    vars(sys.modules[module])["__getattr__"] = attribute


def missing_attribute(module: str, name: str, known: Iterable[str]) -> Exception:
    """The error for a name that a module does not have: what stands for it, or the nearest that there is.

    It is an ImportError where an import statement wants the name, which would drop the words of an AttributeError; one
    that wants a module that is not loaded yet goes on after an AttributeError.
    """
    known = {*known}
    text = advice(name)
    if not text and (close := get_close_matches(name, {*known, *foreign_names()}, n=1, cutoff=0.75)):
        text = f"did you mean {close[0]!r}?" if close[0] in known else f"{close[0]} is {advice(close[0])}"
    imported = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"
    error = ImportError if imported and find_spec(f"{module}.{name}") is None else AttributeError
    return error(f"module {module!r} has no attribute {name!r}{text and f'; {text}'}", name=name)
