"""Text on a terminal: without control codes or endless values from data, in characters that the terminal can show."""

from __future__ import annotations

import codecs
import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

LONGEST = 1500  # characters of a message
# Controls, newlines among them, marks that turn the direction of what stands beside them, and halves of characters.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_DATABASE = re.compile(r"(\b(?:postgres|mysql|mariadb|mssql|oracle)\w*(?:\+\w+)?):/+(?!USER@HOST).*", re.DOTALL | re.I)
_PLAIN = {"–": "-", "−": "-", "…": "...", "×": "x", "÷": "/", "±": "+-", "·": "-", "≥": ">=", "≤": "<=", "’": "'"}
_PLAIN |= {"→": "->"} | dict.fromkeys("\xa0\u202f", " ")


def printable(text: str) -> str:
    """The text with its control codes spelled out: an escape becomes the four characters \\x1b. Letters stay.

    Example:
        >>> printable("cat\\x1b[2J")
        'cat\\\\x1b[2J'
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode-escape").decode(), text)


def without_passwords(text: str) -> str:
    """The text without what follows the beginning of an address of a database: no rule finds all passwords in it.

    Example:
        >>> without_passwords("--join=postgresql://me:p/w@host/study")
        '--join=postgresql://...'
    """
    return _DATABASE.sub(r"\1://...", text)


def message(text: str) -> str:
    """The text as one line of about 1,500 characters: its beginning says what is wrong, its end what to do."""
    text = without_passwords(text)
    if len(text) > LONGEST:
        head, tail = 2 * LONGEST // 3, LONGEST // 4
        text = f"{text[:head]} … ({len(text) - head - tail} more characters) … {text[-tail:]}"
    return printable(" ".join(text.split()))


def json_text(value: Mapping[str, Any]) -> str:
    """One JSON object, with everything escaped that standard output cannot show or that controls a terminal."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


@contextmanager
def prepared() -> Iterator[None]:
    """Let both standard streams show what they can of any text and spell out the rest; keep log messages printable."""
    codecs.register_error("trivet", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="trivet")
    log, messages = logging.getLogger("trivet"), _Messages()
    log.addFilter(messages)
    try:
        yield
    finally:
        log.removeFilter(messages)


class _Messages(logging.Filter):
    """Messages in printable characters, each once, as a command may open a file twice."""

    def __init__(self) -> None:
        super().__init__()
        self._before = set[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = message(record.getMessage()), ()
        fresh = record.msg not in self._before
        self._before.add(record.msg)
        return fresh


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """Replacement of characters that a stream cannot show: marks by plain ones, others by their numbers."""
    assert isinstance(error, UnicodeEncodeError)
    there = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, character.encode("unicode-escape").decode()) for character in there), error.end
