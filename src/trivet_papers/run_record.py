"""A finished run, as a line of a file says it."""

from __future__ import annotations

from typing import Any

from trivet.runtime.record import Number, Record


class Hardware(Record):
    """The machine of a run."""

    device: str
    cores: int | None
    threads: int

    def as_text(self) -> str:
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.device}, {threads} of {self.cores} cores"


class Progress(Record):
    """Measured values of a run so far: step -> measure -> value, and the step and kind of each event."""

    values: dict[str, dict[str, Any]] = {}
    events: list[list[int | str]] = []
    failed: str = ""  # why it ended before its last step or without numbers
    seconds: Number = 0.0
    cpu_seconds: Number | None = None


class RunLine(Progress):
    """A finished run."""

    key: str
    factors: dict[str, str | Number] = {}
    seed: int = 0
    settings: dict[str, Any] = {}
    changes: list[str] = []
    date: str
    versions: dict[str, str]
    hardware: Hardware = Hardware(device="", cores=None, threads=1)
    experiment: str = ""

    @property
    def processor_seconds(self) -> float:
        """Those that went by for a run that did not note them."""
        return self.seconds if self.cpu_seconds is None else self.cpu_seconds
