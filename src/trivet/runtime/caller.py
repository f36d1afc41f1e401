"""Sentences with options, for their reader: named as on the command line, in Python as arguments of functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# A command is typed at a shell by either; it ends where its clause does.
_CHOICE = re.compile(r"\(--([a-z-]+) ([a-z]+)\)")
_OPTION = re.compile(r"(trivet [a-z]+ (?:[^\s;:,.()]|\.(?=\S)|\s(?!and |or ))*)|--([a-z][a-z-]*)(?: [A-Z]+\b)?")
_ARGUMENTS = {"query": "gallery_labels", "output": "out", "set": "settings"}  # of another name than the option
_typed: ContextVar[bool] = ContextVar("command_line", default=False)


@contextmanager
def command_line() -> Iterator[None]:
    """Inside, sentences are for whoever typed a command."""
    token = _typed.set(True)
    try:
        yield
    finally:
        _typed.reset(token)


def in_python(text: str) -> str:
    """A sentence with its options as arguments; those of a whole command, such as "trivet index --recall 0.9", stay.

    Example:
        >>> in_python("--fail-on needs --reference FILE; leave it out, or use trivet train --resume RUN.")
        'fail_on needs reference; leave it out, or use trivet train --resume RUN.'
        >>> in_python("leave these queries out (--without-positive drop)")
        'leave these queries out (without_positive="drop")'
    """
    text = _CHOICE.sub(lambda m: f'({m[1].replace("-", "_")}="{m[2]}")', text)
    return _OPTION.sub(lambda m: m[1] or _ARGUMENTS.get(m[2], m[2].replace("-", "_")), text)


def for_caller(text: str) -> str:
    """A sentence that names options, as its reader writes them."""
    return text if _typed.get() else in_python(text)
