"""Processes that run the same checks side by side, and report which failed."""

from __future__ import annotations

import faulthandler
import json
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

PATIENCE = timedelta(seconds=20)


@dataclass(frozen=True)
class Crew:
    """The processes of a check: the rank of this one, how many there are, and the group they share."""

    rank: int
    size: int
    group: dist.ProcessGroup | None

    def span(self, counts: list[int]) -> slice:
        """The rows of this process in the whole batch."""
        return slice(sum(counts[: self.rank]), sum(counts[: self.rank + 1]))


CHECKS: dict[str, Callable[[Crew], None]] = {}
ONLY_TWO: set[str] = set()  # checks that four processes leave out: they take long to start and to wait for each other


def check(function: Callable[[Crew], None]) -> Callable[[Crew], None]:
    CHECKS[function.__name__] = function
    return function


def check_of_two(function: Callable[[Crew], None]) -> Callable[[Crew], None]:
    ONLY_TWO.add(function.__name__)
    return check(function)


def checks(processes: int, *, package: str = "") -> list[str]:
    """The names of the checks that so many processes run, of one package of tests if several were imported."""
    return [
        name
        for name, function in CHECKS.items()
        if function.__module__.startswith(package) and (processes == 2 or name not in ONLY_TWO)
    ]


def message(call: Callable[[], object], kind: type[Exception] = ValueError) -> str:
    """The text of the error that a call must raise, of exactly this kind."""
    caught: Exception | None = None
    try:
        call()
    except Exception as error:  # the kind is what is checked below
        caught = error
    assert type(caught) is kind, repr(caught)
    return str(caught)


def run(folder: Path) -> None:
    """Run all checks in this process, and write a line for each to the file of its rank."""
    warnings.simplefilter("error")
    faulthandler.dump_traceback_later(200, exit=True)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    with (folder / f"{rank}.jsonl").open("w") as file:
        for name in checks(size):
            dist.barrier()
            group = dist.new_group(timeout=PATIENCE)
            error = None
            try:
                CHECKS[name](Crew(rank, size, group))
            except Exception:  # any fault of a check is its result, written down and read by the test
                error = traceback.format_exc()
            print(json.dumps({"check": name, "rank": rank, "error": error}), file=file, flush=True)
    dist.destroy_process_group()
