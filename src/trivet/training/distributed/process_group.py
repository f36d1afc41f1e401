"""The processes that train one network: how they meet, what they exchange, and how one learns of another's end.

Each process embeds its part of every batch; all see the embeddings of the whole of it. The main process, of rank 0,
decides and writes. torch.distributed carries what they exchange: between GPUs by NCCL, all else by Gloo.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor

from trivet.datasets import Inputs
from trivet.mining.gather import gather_rows
from trivet.models import Embedder
from trivet.runtime.arrays import Floats
from trivet.runtime.signals import LostError, ProcessRank
from trivet.training.embed_dataset import embed

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store  # torch.distributed has it, but does not export it to type checkers

BEAT = 1.0  # seconds between two signs of life
PATIENCE = 20.0  # seconds without one after which a process is lost
GRACE = 5.0  # seconds in which a process that has lost another may end by itself
MEETING = timedelta(minutes=5)  # until all processes must have met
ENDLESS = timedelta(days=7)  # what the main process does alone, others wait for: only signs of life tell of an end
OF_A_PEER = re.compile("gloo|nccl|connection|peer|socket|broken pipe|store", re.IGNORECASE)


class ProcessGroup:
    """This process among those that train a network together.

    Args:
        rank: which of them it is; 0 is the main one.
        size: how many there are.
        store: where they leave notes.
    """

    def __init__(self, rank: int, size: int, store: Store) -> None:
        self.rank, self.size = rank, size
        self._store = store
        self.watch: PeerWatch | None = None

    @property
    def main(self) -> bool:
        """True if this process decides and writes."""
        return self.rank == 0

    def full_batch(self, local: Tensor, count: int) -> Tensor:
        """The embeddings `(count, d)` of a batch, of which `local` are this process's; only these have a graph.

        In float32, where they are in half precision.

        The loss is computed from all of them by every process. So the gradient of `local` is that of one process with
        the whole batch, and those of the parameters add up to its gradient: they are multiplied by the number of
        processes here, as DistributedDataParallel takes their mean.
        """
        chunks = process_slices(count, self.size)
        local = local if local.dtype == torch.float64 else local.float()
        all_rows = gather_rows(local.detach(), [span.stop - span.start for span in chunks])
        if local.requires_grad:
            local.register_hook(lambda gradient: gradient * self.size)  # type: ignore[no-untyped-call]  # of torch
        mine = chunks[self.rank]
        return torch.cat([all_rows[: mine.start], local, all_rows[mine.stop :]])

    def embed(self, model: Embedder, inputs: Inputs, progress: Callable[[int, int], None] | None = None) -> Floats:
        """Embeddings `(N, d)` as `training.embedding.embed` gives them, of which each process makes its part.

        Every process must call it, with the same network and inputs.
        """
        if len(inputs) < self.size:
            return embed(model, inputs, progress)
        chunks = process_slices(len(inputs), self.size)
        local = embed(model, inputs.subset(np.arange(len(inputs))[chunks[self.rank]]), progress)
        with lost_peers():
            rows: Floats = gather_rows(torch.from_numpy(local), [chunk.stop - chunk.start for chunk in chunks]).numpy()
        return rows

    def agree(self, *flags: bool) -> list[bool]:
        """The flags that any process has set; every process must call it."""
        values = torch.tensor(flags, dtype=torch.uint8)
        with lost_peers():
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return [bool(value) for value in values.tolist()]

    def broadcast(self, value: Any = None) -> Any:
        """The value that the main process sends, as JSON; every process must call it, the others without a value."""
        return json.loads(self._send(json.dumps(value).encode() if self.main else b""))

    def share(self, tensors: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Tensors on the CPU that the main process has; every process must call it, the others without any."""
        return load(self._send(save(dict(tensors or {})) if self.main else b""))

    def same(self, text: str, *, what: str) -> None:
        """Check that every process has the same text.

        Raises:
            ValueError: on every process, if not.
        """
        main = self.broadcast(text)
        (differ,) = self.agree(main != text)
        if differ:
            raise ValueError(
                f"every process must have the same {what}: those of the {self.size} processes differ; start all with "
                "the same command, settings file and data."
            )

    def leave(self) -> None:
        """Part from the others, once all have come so far."""
        self._disconnect()
        dist.destroy_process_group()

    def leave_for_good(self) -> NoReturn:
        """Part from the others as `leave` does, and end this process.

        At once: connections that another closes meanwhile may make Gloo abort what Python does at its end.
        """
        self._disconnect()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def fail(self, error: BaseException) -> None:
        """Leave a note of why this process ends, for the others."""
        with suppress(RuntimeError):
            self._store.set(f"failed/{self.rank}", json.dumps(noted(error)))

    def first(self, what: str) -> bool:
        """True if this is the first process to do something that is to be done once."""
        try:
            return self._store.add(what, 1) == 1
        except RuntimeError:
            return True

    def main_failed(self, patience: float) -> bool:
        """True if the main process is another, and has said why it ends, or does within some seconds."""
        until = time.monotonic() + patience
        with suppress(RuntimeError):
            while not self.main and time.monotonic() < until:
                if self._store.check(["failed/0"]):
                    return True
                time.sleep(BEAT / 4)
        return False

    def _disconnect(self) -> None:
        self.agree(False)
        if self.watch is not None:
            self.watch.end()
        self.agree(False)  # nobody watches any more

    def _send(self, data: bytes) -> bytes:
        with lost_peers():
            length = torch.tensor([len(data)])
            dist.broadcast(length, src=0)
            values = torch.frombuffer(bytearray(data or int(length)), dtype=torch.uint8)
            dist.broadcast(values, src=0)
        return values.numpy().tobytes()


def process_slices(count: int, size: int) -> list[slice]:
    """The rows of each of `size` processes among `count`: consecutive ones, of one the most one more than of others.

    Raises:
        ValueError: if one would have none.
    """
    if count < size:
        raise ValueError(
            f"a batch must have an item for each process: got {count} items for {size} processes; use fewer processes, "
            "or a larger batch."
        )
    bounds = [rank * count // size for rank in range(size + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


def noted(error: BaseException) -> dict[str, str | int | None]:
    """An error as other processes get it: {"user": whether a user can mend it, "kind", "text"}, and of a file more."""
    note: dict[str, str | int | None] = {
        "user": isinstance(error, ValueError | OSError),
        "kind": type(error).__name__,
        "text": str(error),
    }
    if isinstance(error, OSError) and error.filename is not None:
        note |= {"number": error.errno, "why": error.strerror, "file": str(error.filename)}
    return note


@contextmanager
def lost_peers() -> Iterator[None]:
    """Makes a LostError of what torch.distributed raises where another process has gone."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, LostError) or not OF_A_PEER.search(str(error)):
            raise
        raise LostError(str(error)) from error


class PeerWatch:
    """A thread that gives signs of life to the other processes, and looks for theirs.

    Args:
        store: a connection of its own.
        act: called with a sentence where another is lost and this process has not ended by itself.
    """

    def __init__(self, rank: int, size: int, store: Store, act: Callable[[str], None]) -> None:
        self._rank, self._store, self._act = rank, store, act
        self._others = [other for other in range(size) if other != rank]
        self._heartbeats: dict[int, tuple[bytes, float]] = {}
        self._stopped: set[int] = set()  # those that were asked to end, as this one probably is
        self._over = threading.Event()
        self._beats = 0
        self._beat()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def end(self) -> None:
        """Look no more, from when this returns."""
        self.stop()
        self._thread.join()

    def why(self, patience: float) -> str | None:
        """The fate of a process that is not there any more; None if all are, after waiting for a while."""
        until = time.monotonic() + patience + 2 * BEAT
        while time.monotonic() < until and len(self._stopped) < len(self._others):
            if (reason := self._lost(patience)) is not None:
                return reason
            time.sleep(BEAT / 4)
        return None

    def _run(self) -> None:
        while not self._over.wait(BEAT):
            reason = self._lost(PATIENCE)
            if reason is not None and not self._over.wait(GRACE):
                self._act(reason)
                return

    def _beat(self) -> None:
        self._beats += 1
        self._store.set(f"alive/{self._rank}", str(self._beats))

    def _lost(self, patience: float) -> str | None:
        """The reason why one of the others is lost; None where none is."""
        try:
            self._beat()
            for other in self._others:
                if self._store.check([f"failed/{other}"]):
                    note = json.loads(self._store.get(f"failed/{other}"))
                    if note["kind"] == KeyboardInterrupt.__name__:
                        self._stopped.add(other)
                        continue
                    message = note["text"] if note["user"] else f"{note['kind']} {note['text']}".strip()
                    return f"process {other} failed: {message.rstrip('.')}"
                now = time.monotonic()
                beat = self._store.get(f"alive/{other}") if self._store.check([f"alive/{other}"]) else b""
                last, since = self._heartbeats.get(other, (None, now))
                if beat != last:
                    self._heartbeats[other] = (beat, now)
                elif now - since > patience:
                    return f"process {other} is gone: it was killed, or is out of reach"
        except RuntimeError:
            return "the others are gone: the process where they met was killed, or is out of reach"
        return None


def join(member: ProcessRank, device: torch.device, act: Callable[[str], None]) -> ProcessGroup:
    """Meet the other processes, at the address that the environment names.

    Args:
        act: see `PeerWatch`.

    Raises:
        ValueError: if they do not come.
    """
    if device.type == "cuda":
        torch.cuda.set_device(member.local_rank)
    try:
        met = dist.rendezvous("env://", timeout=MEETING)  # type: ignore[attr-defined]
        store, rank, size = next(iter(met))
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        group = dist.PrefixStore("group", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=group, rank=rank, world_size=size, timeout=ENDLESS)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"all {member.size} processes must meet at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: "
            f"{' '.join(str(error).split())[:300].rstrip('.')}; start all of them by one torchrun."
        ) from None
    connections = store, store.clone()
    prefixed = dist.PrefixStore  # type: ignore[attr-defined]  # torch has it, but does not export it to type checkers
    notes, watch_notes = (prefixed("trivet", connection) for connection in connections)
    world = ProcessGroup(rank, size, notes)
    world.watch = PeerWatch(rank, size, watch_notes, act)
    world.agree(False)
    return world
