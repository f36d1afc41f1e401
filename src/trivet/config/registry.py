"""Tables that modules fill and settings read, so that a base class never imports its children."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trivet.config.plugins import is_reference
from trivet.runtime.arguments import nearest

Entry = TypeVar("Entry")


class Registry(dict[str, Entry]):
    """Entries by name, in the order of their table.

    A name that ends in a colon, such as "timm:", stands for all that begin with it.

    Args:
        kind: of what is registered, for errors.

    Attributes:
        outside: the entry of a reference to code outside Trivet; ValueError if there is none.
    """

    outside: Callable[[str], Entry]

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def find(self, name: str) -> Entry | None:
        """The entry of a name, or of a reference to code outside Trivet; None if there is none."""
        if is_reference(name):
            return self.outside(name)
        return self.get(f"{name.partition(':')[0]}:" if ":" in name else name)

    def entry(self, name: str) -> Entry:
        """The entry of a name or a reference; ValueError, with the nearest name, if there is none."""
        entry = self.find(name)
        if entry is None:
            raise ValueError(f"there is no {self.kind} {name!r}; {nearest(name, self)}")
        return entry
