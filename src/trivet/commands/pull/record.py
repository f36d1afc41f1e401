"""The record of a pull: what `--json` prints."""

from __future__ import annotations

from trivet.runtime.record import Record


class PulledModel(Record):
    """Files that were downloaded, with their bytes; `left_out` names those of the repository that were not."""

    repository: str
    revision: str
    output: str
    files: dict[str, int]
    left_out: list[str]
