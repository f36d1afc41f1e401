"""Starts the processes of a run on this machine, and ends them together, whatever becomes of one of them."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

from trivet.config.plugins import trusted
from trivet.runtime.signals import LostError, ProcessRank, ending_signals, handled_signals, member_of
from trivet.runtime.terminal import prepared
from trivet.runtime.text import typed
from trivet.training.config import TrainingConfig
from trivet.training.distributed.process_group import ProcessGroup, join, noted
from trivet.training.precision import device_of
from trivet.training.run_folder import CONFIG, RunFolder

ADDRESS = "127.0.0.1"
GRACE = 8  # seconds until processes that another has left are asked to end, and as many until they are made to
FIRST = 3.0  # seconds without a sign of life, where it is known that some process is gone, or has failed
log = logging.getLogger("trivet")
_parents: list[TCPStore] = []  # where a process that was started here leaves a note for the one that started it


def processes_to_start(training: TrainingConfig, batch_size: int) -> int:
    """The number of processes this one is to start; 1 where it trains itself, alone or with those of torchrun.

    Raises:
        ValueError: if there are not as many devices, or the processes that were started are not those of the settings.
    """
    member = member_of(os.environ)
    device = device_of(training.accelerator)
    gpus = 0 if device.type == "cpu" else torch.accelerator.device_count()
    sessions = hasattr(os, "setsid")
    devices = (max(1, gpus) if sessions else 1) if training.devices == "auto" else training.devices
    here = devices if member is None else member.local_size
    if gpus and here > gpus:
        raise ValueError(
            f"each process needs a GPU of its own: got {here} processes and {gpus} GPU{'s' * (gpus > 1)} here; set "
            f'training.devices = {gpus} or less, or training.accelerator = "cpu".'
        )
    size = devices if member is None else member.size
    if member is not None and training.devices not in (1, "auto") and devices != here:
        raise ValueError(
            f"torchrun must start as many processes on each machine as the settings name: it started {here}, and "
            f"training.devices = {devices}; remove this setting, or start as many."
        )
    if size > 1 and not sessions:
        raise ValueError(
            f"several processes need Linux or macOS, where they can be ended together: got {size} on Windows; set "
            "training.devices = 1."
        )
    if size > 1 and device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"several processes need CUDA, or the CPU: this is {device.type}; set training.devices = 1, or "
            'training.accelerator = "cpu".'
        )
    if batch_size < size:
        raise ValueError(
            f"a batch must have an item for each process: got {batch_size} items for {size} processes; "
            "use fewer, or a larger batch."
        )
    return devices if member is None else 1


def launch(action: Callable[..., object], size: int, path: Path) -> None:
    """Let `size` processes call `action`, and return once all have ended.

    A signal that comes here goes to all of them. They are in a session of their own, so that Ctrl-C comes once.

    Args:
        path: the run folder, which says so if a process was lost.

    Raises:
        LostError: if one was killed, or has lost another.
        ValueError, OSError, KeyboardInterrupt: as the main process, or else another, raised it.
    """
    store = TCPStore(ADDRESS, 0, is_master=True, wait_for_workers=False)
    threads = max(1, (os.cpu_count() or 1) // size)
    variables = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": _loopback()}
    with _environment(variables | {"PYTHONSAFEPATH": "1"}):  # no module of the current folder hides one of Python's
        begun = start_processes(  # type: ignore[no-untyped-call]
            _process, (size, store.port, action), nprocs=size, join=False, start_method="spawn"
        )
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # that it ends processes is said here
    first: int | None = None  # the first that did not end well
    pids: list[int] = begun.pids()
    came: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        came.append(number)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    with handled_signals(forward):
        try:
            while not begun.join(grace_period=GRACE):
                pass
        except (ProcessExitedException, ProcessRaisedException) as error:
            first = error.error_index
    notes = {rank: json.loads(store.get(f"{rank}")) for rank in range(size) if store.check([f"{rank}"])}
    if first is None and not notes:
        return
    note_failed(path)
    for note in notes.values():
        if note["kind"] != LostError.__name__:
            _raise(note)
    code = 0 if first is None else begun.processes[first].exitcode
    if -code in came:  # before it could heed a signal
        raise KeyboardInterrupt
    if code < 0:
        raise LostError(_sentence(f"process {first} of {size} was ended by {signal.Signals(-code).name}", path))
    for note in notes.values():
        _raise(note)
    raise LostError(_sentence(f"process {first} of {size} ended with exit code {code}", path))


def _process(rank: int, size: int, port: int, action: Callable[..., object]) -> None:
    """Run the action in a process that was started here."""
    if sys.platform != "win32":  # for the types: processes_to_start refuses it there
        os.setsid()
    trusted.set(True)  # the process that started this one has read the same settings
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in variables.items()}
    # The store is that of the process which started this one.
    os.environ |= {"MASTER_ADDR": ADDRESS, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    for number in ending_signals():
        signal.signal(number, _interrupt)
    _parents.append(TCPStore(ADDRESS, port, is_master=False))
    try:
        with prepared():
            action()
    except SystemExit:
        raise
    except BaseException as error:
        _leave_note(rank, error)
        sys.exit(1)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _leave_note(rank: int, error: BaseException) -> None:
    """Leave a note for the process that started this one."""
    with suppress(RuntimeError):
        _parents[0].set(f"{rank}", json.dumps(noted(error)))


def _raise(note: Mapping[str, Any]) -> NoReturn:
    """The error that a process noted."""
    kind, text = note["kind"], note["text"]
    if kind == KeyboardInterrupt.__name__:
        raise KeyboardInterrupt
    if kind == LostError.__name__:
        raise LostError(text)
    if "file" in note:
        raise OSError(note["number"], note["why"], note["file"])
    if note["user"]:
        raise ValueError(text)
    raise RuntimeError(f"{kind}: {text}")


@contextmanager
def together(training: TrainingConfig, path: Path) -> Iterator[ProcessGroup | None]:
    """Meet the other processes for the block, if there are any; whatever ends the block before its end, ends them all.

    The block ends with `ProcessGroup.leave`, or `leave_for_good`. One of the processes says what went wrong: the main
    one if it is there. The others end with SystemExit.

    Args:
        path: the run folder.

    Raises:
        LostError: if another process is gone, with a sentence on which, why and how to go on.
    """
    member = member_of(os.environ)
    if member is None:
        yield None
        return
    if member.rank:  # the main process warns of what all see
        log.setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
    world = join(member, device_of(training.accelerator), partial(_end_at_once, member, path))
    try:
        yield world
    except BaseException as error:
        _end(world, error, path)


def _end(world: ProcessGroup, error: BaseException, path: Path) -> NoReturn:
    """End this process for an error, its own or that of another."""
    for number in ending_signals() if threading.current_thread() is threading.main_thread() else ():
        signal.signal(number, signal.SIG_IGN)  # it ends already
    assert world.watch is not None
    world.watch.stop()
    lost = isinstance(error, LostError)
    if not lost:
        world.fail(error)
    # A launcher asks all to end where one is gone, which may come first.
    reason = world.watch.why(FIRST) if lost or isinstance(error, KeyboardInterrupt) else None
    if lost or reason is not None:
        error = LostError(_sentence(reason or f"another process is gone ({error})", path))
        note_failed(path)
    elif not world.main and isinstance(error, ValueError):
        error = ValueError(_sentence(f"process {world.rank} of {world.size} failed: {error}", path))
    if _parents:
        _leave_note(world.rank, error)
        raise SystemExit(1)
    if world.main_failed(FIRST) or not world.first("said"):
        raise SystemExit(1)
    raise error


def _end_at_once(member: ProcessRank, path: Path, reason: str) -> None:
    """End a process that waits for one that is gone, and does not see it."""
    error = LostError(_sentence(reason, path))
    if member.rank == 0:
        with suppress(ValueError, OSError):
            _write_failed(RunFolder(path))
    if _parents:
        _leave_note(member.rank, error)
    elif member.rank == 0:
        log.error(f"trivet: {error}")
    os._exit(1)


def _sentence(reason: str, path: Path) -> str:
    go_on = f"continue with trivet train --resume {typed(path)}" if (path / CONFIG).is_file() else "start it again"
    return f"the training ended, as {reason.rstrip('.')}; {go_on}."


def note_failed(path: Path) -> None:
    """Let the record of a run that nobody writes any more say that it failed, if it says that it goes on."""
    run = RunFolder(path)
    if (path / CONFIG).is_file():
        with suppress(ValueError, OSError), run.locked():
            _write_failed(run)


def _write_failed(run: RunFolder) -> None:
    record = run.record()
    if record is not None and record.status == "running":
        record.status = "failed"
        run.write_record(record)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for processes that the block starts, but for those that are set."""
    new = {name: value for name, value in values.items() if value and name not in os.environ}
    os.environ |= new
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]


def _loopback() -> str:
    """The name of the network interface by which a machine talks to itself; empty if it has another."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "")
