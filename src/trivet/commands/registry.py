"""The table of commands; other packages add theirs by an entry point of the group `trivet.commands`."""

from __future__ import annotations

from importlib.metadata import entry_points


def _modules(*names: str) -> dict[str, str]:
    """Each command of Trivet's own with its module."""
    return {name: f"trivet.commands.{name}.options" for name in names}


# In the order in which a user meets them: heading of `trivet --help` -> command -> the module that has a function of
# that name. An entry point names such a table.
COMMANDS: dict[str, dict[str, str]] = {
    "Start": _modules("demo", "data", "init", "settings"),
    "Train": _modules("forecast", "train", "sweep"),
    "Judge an embedding": _modules("evaluate", "compare", "diagnose", "audit"),
    "Use an embedding": _modules("embed", "index", "search", "mine", "export"),
} | {heading: names for entry in entry_points(group="trivet.commands") for heading, names in entry.load().items()}
