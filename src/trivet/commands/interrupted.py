"""Message of a command that was stopped: what it had written."""

from __future__ import annotations

import os

MINED = "stopped; chunks that were mined are kept, and the same trivet mine goes on from them."
RUN = "stopped; a run folder keeps its checkpoints, and trivet train --resume continues from them."


class NamedPaths:
    """The files and folders that a command names, as they were when it began."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._before = self._states()

    def stopped(self) -> str:
        """A sentence on what was written."""
        if self._arguments[:1] == ["train"]:
            return RUN
        if self._arguments[:1] == ["mine"]:
            return MINED
        written = [name for name, state in self._states().items() if self._before.get(name) != state]
        if not written:
            return "stopped; nothing that the command names was written or changed."
        return f"stopped; written before that: {', '.join(written)}. Nothing else that the command names was changed."

    def _states(self) -> dict[str, tuple[int, int]]:
        """Inode and time of change of each that exists."""
        states = {}
        for text in (argument.rpartition("=")[2] for argument in self._arguments):
            try:
                state = os.stat(text)
            except (OSError, ValueError):  # no path at all, or nothing there
                continue
            states[text] = (state.st_ino, state.st_mtime_ns)
        return states
