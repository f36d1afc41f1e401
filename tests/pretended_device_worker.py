"""Steps of every loss and of the monitor on a device that is not there, for `test_launches.py`: what they read back.

Tensors have shapes and a device, but no numbers (fake tensors): what asks for one, or for a size that depends on one,
fails. What is copied to the CPU is written down. In a process of its own, as a device cannot be taken back.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch
from tests import test_launches
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as pretend

from trivet.collapse import CollapseMonitor
from trivet.distances import device
from trivet.label_noise import picks


class Watched(TorchDispatchMode):
    """Lists the operations that bring numbers of the device to the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.brought: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        given, found = ({x.device.type for x in tree_leaves(part) if isinstance(x, Tensor)} for part in (args, result))
        if "pretended" in given and "cpu" in found:
            self.brought.append(func.overloadpacket.__name__)
        return result


def main(each: int) -> None:
    """Print `{loss or monitor: [how many numbers were read at once, what brought others back or went wrong]}`.

    Of one of each so many losses.
    """
    pretend("pretended")
    reads: list[int] = []

    def read(numbers: Tensor) -> list[float]:  # norms, sizes of classes, labels of proxies
        reads.append(len(numbers))
        return [1.0, 1.0] if numbers.is_floating_point() else [4.0, 4.0]

    device.read = read
    picks.counted = lambda *args, **options: None  # reads the counts
    report = {}
    cases = [(name, make, "pretended") for name, make in test_launches.LOSSES.items()]
    cases += [(f"{name}, not moved", test_launches.LOSSES[name], "cpu") for name in test_launches.UNMOVED]
    for name, make, place in cases[::each]:
        reads.clear()
        with FakeTensorMode(), torch.device("pretended"):
            with torch.device(place):
                loss = make()
            embeddings = torch.empty(64, 128, requires_grad=True)
            labels = torch.empty(64, dtype=torch.int64)
            with Watched() as mode:
                try:
                    test_launches.step(loss, embeddings, labels)
                    if place == "cpu":
                        picks.loss_picks(loss, embeddings, labels)
                except Exception as error:  # of many kinds: whatever needs a number
                    mode.brought.append(f"{type(error).__name__}: {error}"[:300])
        report[name] = (list(reads), mode.brought)
    for name, size in test_launches.WATCHED.items():
        reads.clear()
        with FakeTensorMode(), torch.device("pretended"), warnings.catch_warnings(), Watched() as mode:
            warnings.simplefilter("error")
            try:
                watch(torch.empty(*size, requires_grad=True), torch.empty(size[0], dtype=torch.int64))
            except Exception as error:  # as above
                mode.brought.append(f"{type(error).__name__}: {error}"[:300])
        report[name] = (list(reads), mode.brought)
    print(json.dumps(report))


def watch(embeddings: Tensor, labels: Tensor) -> None:
    """Update a monitor up to the last batch before a look."""
    monitor = CollapseMonitor(every=10)
    monitor._judge.updates = 10
    monitor.series["step"] += range(10)
    for _ in range(9):
        monitor.update(embeddings, labels, embeddings.sum(), fine=labels)
