"""The record of a push: what `--json` prints."""

from __future__ import annotations

from trivet.runtime.record import Record


class PushedModel(Record):
    """Files that a commit of a repository holds, with their bytes; `revision` is its hash."""

    source: str
    repository: str
    revision: str
    url: str
    private: bool
    files: dict[str, int]
