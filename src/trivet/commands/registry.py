"""The table of commands; other packages add theirs by an entry point of the group `trivet.commands`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from glob import escape, iglob
from importlib import import_module
from pathlib import Path

Table = dict[str, dict[str, str]]
_GROUP = "[trivet.commands]"


def _modules(*names: str) -> dict[str, str]:
    """Each command of Trivet's own with its module."""
    return {name: f"trivet.commands.{name}.command" for name in names}


def _added() -> Iterator[Table]:
    """The tables that entry points name, as MODULE:TABLE.

    They are read here, because `importlib.metadata` takes longer to import than all that `trivet --help` needs.
    """
    for folder in sys.path:
        for file in iglob(f"{escape(folder)}/*.dist-info/entry_points.txt"):
            group = Path(file).read_text(encoding="utf-8").partition(_GROUP)[2].partition("\n[")[0]
            for target in (line.partition("=")[2].strip() for line in group.splitlines() if "=" in line):
                module, _, table = target.partition(":")
                yield getattr(import_module(module), table)


# In the order in which a user meets them: heading of `trivet --help` -> command -> the module that has a function of
# that name.
COMMANDS: Table = {
    "Start": _modules("demo", "data", "encoders", "init", "settings", "cache"),
    "Train": _modules("forecast", "train", "sweep"),
    "Judge an embedding": _modules("evaluate", "compare", "migrate", "diagnose", "audit", "leaks", "drift"),
    "Use an embedding": _modules("embed", "index", "search", "mine", "export", "push", "pull"),
}
for _table in _added():
    COMMANDS |= _table
