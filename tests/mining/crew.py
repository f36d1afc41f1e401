"""Processes that run the same checks side by side, and report which failed.

`crews.py` is the program: it runs once, and forks a process for each rank of each crew.
Where a check compares many choices, it takes some of them each time, and all of them nightly, when it runs again.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar, cast

import torch.distributed as dist
from tests.programs import Programs

T = TypeVar("T")
PATIENCE = timedelta(seconds=20)
THOROUGH = "TRIVET_TESTS_THOROUGH"  # in the environment of a program that takes all choices


@dataclass(frozen=True)
class Crew:
    """The processes of a check: the rank of this one, how many there are, and the group they share."""

    rank: int
    size: int
    group: dist.ProcessGroup | None

    def span(self, counts: list[int]) -> slice:
        """The rows of this process in the whole batch."""
        return slice(sum(counts[: self.rank]), sum(counts[: self.rank + 1]))

    def once(self, compute: Callable[[], T]) -> T:
        """What process 0 computes, for all."""
        result = [compute() if self.rank == 0 else None]
        dist.broadcast_object_list(result, group=self.group, group_src=0)
        return cast(T, result[0])


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


def thorough() -> bool:
    return THOROUGH in os.environ


def start(programs: Programs, folder: Path, *, nightly: bool = False) -> None:
    """Run the program; what it prints goes to `output.txt`."""
    environment = {THOROUGH: "1"} if nightly else {}
    ended = programs.run("tests.crews:main", str(folder), folder=folder, environment=environment, timeout=240)
    (folder / "output.txt").write_bytes(ended.stdout + ended.stderr)


def faults(folder: Path, name: str, processes: int) -> str:
    """What each process in which a check failed, or was never run, says of it: nothing where all passed."""
    lines = [json.loads(line) for file in folder.glob(f"{processes}/*.jsonl") for line in file.read_text().splitlines()]
    errors = {line["rank"]: line["error"] for line in lines if line["check"] == name}
    missing = f"no report; printed was: {(folder / 'output.txt').read_text()[-3000:]}"
    found = {rank: errors.get(rank, missing) for rank in range(processes)}
    return "\n".join(f"process {rank}: {error}" for rank, error in found.items() if error is not None)


def run(folder: Path, *sizes: int) -> None:
    """The program: crews of these sizes, one after the other, each with a folder of its own."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    fork = multiprocessing.get_context("fork")
    for size in sizes:
        own = folder / str(size)
        own.mkdir()
        crew = [fork.Process(target=run_checks, args=(own, rank, size)) for rank in range(size)]
        for process in crew:
            process.start()
        for process in crew:
            process.join()


def run_checks(folder: Path, rank: int, size: int) -> None:
    """Run all checks in this process, and write a line for each to the file of its rank."""
    warnings.simplefilter("error")
    faulthandler.dump_traceback_later(200, exit=True)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
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
