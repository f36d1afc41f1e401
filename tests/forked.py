"""Programs in processes that are forked from this one, which has loaded what takes seconds to load."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch


def forked(works: Sequence[Callable[[], object]], folder: Path) -> list[tuple[int, str, str]]:
    """Each of them in a process of its own, at once: exit code, and what it wrote to standard output and error.

    Args:
        folder: is entered.
    """
    fork = multiprocessing.get_context("fork")
    files = [[folder / f".{name}-{number}" for name in ("out", "err")] for number in range(len(works))]

    def run(work: Callable[[], object], written: list[Path]) -> None:
        torch.set_num_threads(1)  # threads of the other process are not here
        os.chdir(folder)
        for stream, file in zip((1, 2), written, strict=True):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream)
        sys.stdout, sys.stderr = (open(stream, "w", buffering=1) for stream in (1, 2))  # noqa: SIM115  (to the end)
        code = 1
        try:
            work()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        os._exit(code)  # none of what the other process does at its end

    processes = [fork.Process(target=run, args=each) for each in zip(works, files, strict=True)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*multi-threaded, use of fork", DeprecationWarning)
        for process in processes:
            process.start()
    for process in processes:
        process.join()
    texts = [[file.read_text(encoding="utf-8") for file in written] for written in files]
    for file in [file for written in files for file in written]:
        file.unlink()
    return [(process.exitcode or 0, *text) for process, text in zip(processes, texts, strict=True)]


def forget(*packages: str) -> None:
    """Have this process import these anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
