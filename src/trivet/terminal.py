"""Text on a terminal: no control codes from data, no sentence without end, no character it cannot show."""

from __future__ import annotations

import codecs
import logging
import re
import sys

LONGEST = 1000  # characters of a message
# Controls, and marks that turn the direction of the text around them; a newline, too.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PLAIN = str.maketrans(
    {"–": "-", "—": "-", "−": "-", "…": "...", "×": "x", "·": ".", "≥": ">=", "≤": "<=", "\xa0": " "}
)


def printable(text: str) -> str:
    """The text with control codes spelled out: an escape is shown as \\x1b. Letters of every script stay."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode-escape").decode(), text)


def shortened(text: str, most: int = LONGEST) -> str:
    """The text, of which the middle is left out if it is longer: what is wrong stands first, what to do last."""
    if len(text) <= most:
        return text
    head, tail = 2 * most // 3, most // 4
    return f"{text[:head]} … ({len(text) - head - tail} characters) … {text[-tail:]}"


def message(text: str) -> str:
    """One line of a message: printable, and not too long."""
    return printable(" ".join(shortened(text, 4 * LONGEST).split())[: 5 * LONGEST]) if len(text) > LONGEST else ""


class _Messages(logging.Filter):
    """Makes log records messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = message(record.getMessage()), ()
        return True


def prepare() -> None:
    """Let standard output and standard error show what they can of any text, and never fail on the rest."""
    codecs.register_error("trivet", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="trivet")
