"""Names of the signals that ask a command to end, and of how many processes it is one; a run handles them in `fit`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, TypeVar

# How launchers tell each process how many there are, and which of them it is. SLURM_NTASKS is no such number: it is
# set for a script that starts one process as well.
COUNTS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
MEETING = ("RANK", "MASTER_ADDR", "MASTER_PORT")


Begun = TypeVar("Begun")


class LostError(RuntimeError):
    """Another process, with which this one worked together, is gone."""


class ProcessRank(NamedTuple):
    """A process among several that torchrun, or Trivet, has started.

    Attributes:
        rank: which of all of them it is, from 0.
        size: how many there are.
        local_rank, local_size: the same, of those on this machine.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int


def ending_signals() -> list[signal.Signals]:
    """Ctrl-C, a termination, a terminal that closes; without those that are ignored, as by `nohup`, or not Python's."""
    known = (getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
    return [number for number in known if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def send_to_itself(number: int) -> None:
    """Send a signal to the main thread, from any other."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:  # Windows, where `os.kill` ends a process
        signal.raise_signal(number)


@contextmanager
def handled_signals(
    handle: Callable[[int, FrameType | None], object],
) -> Iterator[dict[signal.Signals, Any]]:
    """Calls a function at each ending signal in the block; in a thread, to which none comes, it changes nothing.

    Yields the handlers that it replaces.
    """
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handle) for number in ending_signals()} if main else {}
    try:
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed(begin: Callable[[], Begun], end: Callable[[Begun], None]) -> Iterator[Begun]:
    """Begin something for the block, and end it after the block; ending signals come in the block alone.

    So nothing is begun that is not ended, whenever Ctrl-C is pressed.
    """
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        received.append(number)

    try:
        with handled_signals(receive) as handlers:
            begun = begin()
            try:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
                while received:
                    signal.raise_signal(received.pop())
                yield begun
                for number in handlers:
                    signal.signal(number, receive)
            finally:
                for number in handlers:  # of a second signal, if the block ended by one
                    signal.signal(number, receive)
                end(begun)
    finally:
        while received:
            signal.raise_signal(received.pop())


def member_of(environment: Mapping[str, str]) -> ProcessRank | None:
    """Rank of this process among several; None if it is alone.

    Raises:
        ValueError: if they were started so that they cannot meet.
    """
    size = _number(environment, "WORLD_SIZE")
    if size >= 2:
        for name in MEETING:
            if not environment.get(name):
                raise ValueError(
                    f"processes that train together must know where to meet: WORLD_SIZE={size} says that several were "
                    f"started, but {name} is not set; start them with torchrun, or set training.devices."
                )
        rank = _number(environment, "RANK")
        return ProcessRank(
            rank, size, _number(environment, "LOCAL_RANK", rank), _number(environment, "LOCAL_WORLD_SIZE", size)
        )
    for names, least in ((COUNTS, 2), (RANKS, 1)):
        for name in names:
            if _number(environment, name) >= least:
                raise ValueError(
                    "processes that train together must be started by torchrun, or by training.devices: "
                    f"{name}={environment[name]} says that something else has started several; use one of these, or "
                    f"unset {name}."
                )
    return None


def _number(environment: Mapping[str, str], name: str, missing: int = 0) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdecimal() else missing
