"""Every case of core.py on an accelerator: time, operators, kernels and memory; in bfloat16, and compiled.

    PYTHONPATH=tests .venv/bin/python benchmarks/accelerator.py          # some minutes; needs no peer
    PYTHONPATH=tests .venv/bin/python benchmarks/accelerator.py --filter EPHN --sizes 1024 --output /tmp/page.md

CUDA or MPS where there is one: milliseconds of forward and backward, medians over rounds of as many steps as fill 20
ms, between two waits for the device. Elsewhere a device is pretended: its tensors have shapes and no numbers, so
that operators and memory can be counted, and there are no times. A step that reads a number back fails there, so the
larger batches, where distances within rounding are looked up, and those of the past are left out. Operators are
counted as they are dispatched, without views and bare allocations; kernels by torch's profiler, on CUDA. Memory is what
tensors take at the peak of a step beyond its input. Each row is written as soon as it is known; what fails says why.
"""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

from core import BANK, BANK_CASES, NAMED, SHORTEST, Case, Data, Shape, environment, seconds, short, step_of, table
from launches import Launches
from trivet.distances import device as device_rules

SIZES, PRETENDED_SIZES = (64, 512, 4096, 32_768), (64, 512, 1024)
PRETENDED = "pretended"
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Memory(Launches):
    """Counts operators, and the bytes that tensors made meanwhile on a device take at their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.peak = 0, 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {id_of(x) for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)}
        result = super().__torch_dispatch__(func, types, args, kwargs)
        for made in tree_leaves(result):
            if isinstance(made, Tensor) and not made.is_cpu and id_of(made) not in given | self._known:
                self._add(made)
        return result

    def _add(self, made: Tensor) -> None:
        storage, key = made.untyped_storage(), id_of(made)
        self._known.add(key)
        self.bytes += storage.nbytes()
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._remove, key, storage.nbytes())

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size


def id_of(tensor: Tensor) -> int:
    """What tells a storage from others that are alive."""
    return tensor.untyped_storage()._cdata


@dataclass(frozen=True)
class Accelerator:
    """A device and what can be measured there."""

    kind: str

    @classmethod
    def present(cls) -> Accelerator:
        """That of this machine, or a pretended one."""
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if found is not None:
            return cls(found.type)
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

        _setup_privateuseone_for_python_backend(PRETENDED)
        return cls(PRETENDED)

    @property
    def pretended(self) -> bool:
        """Whether nothing is computed."""
        return self.kind == PRETENDED

    @property
    def name(self) -> str:
        """The name of the card."""
        return torch.cuda.get_device_name() if self.kind == "cuda" else self.kind

    def move(self, data: Data, precision: str) -> Data:
        """The data on the device, embeddings in a precision."""

        def moved(x: Tensor) -> Tensor:
            return x.detach().to(self.kind, PRECISIONS[precision] if x.is_floating_point() else x.dtype)

        values = {name: None if x is None else moved(x) for name, x in vars(data).items()}
        values["embeddings"].requires_grad_()
        return Data(**values)


def measured(accelerator: Accelerator, case: Case, shape: Shape, precision: str, rounds: int) -> list[str]:
    """The entries of a row behind its name."""
    with ExitStack() as pretending:
        if accelerator.pretended:
            pretending.enter_context(FakeTensorMode())
        data = accelerator.move(Data.of(shape), precision)
        with torch.device(accelerator.kind):
            loss = case.build(shape)
        step = step_of(loss, data)
        if not accelerator.pretended:
            step()  # what is made once
        with Memory() as memory:
            step()
    found = [str(memory.total), f"{memory.peak / 2**20:.1f}"]
    if accelerator.pretended:
        return found
    if accelerator.kind == "cuda":
        found = [str(memory.total), str(kernels(step)), f"{peak(step) / 2**20:.1f}"]
    return [*found, short(milliseconds(step, rounds)), short(milliseconds(compiled(loss, data), rounds))]


def compiled(loss: nn.Module, data: Data) -> Callable[[], None]:
    """A step of the compiled loss."""
    torch._dynamo.reset()
    return step_of(torch.compile(loss), data)


def milliseconds(step: Callable[[], None], rounds: int) -> float:
    """The median time of a step."""
    step()

    def once(calls: int) -> float:
        def steps() -> None:
            for _ in range(calls):
                step()
            torch.accelerator.synchronize()

        torch.accelerator.synchronize()
        return seconds(steps, 1) / calls

    calls = max(1, math.ceil(SHORTEST / once(1)))
    return 1000 * statistics.median(once(calls) for _ in range(rounds))


def kernels(step: Callable[[], None]) -> int:
    """Kernels and copies that a step starts on CUDA."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        step()
        torch.cuda.synchronize()
    return sum(each.count for each in profiled.key_averages() if each.device_type == DeviceType.CUDA)


def peak(step: Callable[[], None]) -> int:
    """Bytes that torch allocates on CUDA at the peak of a step beyond what is there."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return torch.cuda.max_memory_allocated() - before


def rows_of(accelerator: Accelerator, options: argparse.Namespace) -> Iterator[list[str]]:
    """The rows of the table."""
    cases = [case for case in NAMED if options.filter.lower() in case.name.lower()]
    sizes = options.sizes or (PRETENDED_SIZES if accelerator.pretended else SIZES)
    for precision in PRECISIONS:
        shapes = [(case, Shape(size, 128, 4)) for size in sizes for case in cases]
        if not accelerator.pretended:
            shapes += [(case, BANK) for case in cases if case.name in BANK_CASES]
        for case, shape in shapes:
            try:
                entries = measured(accelerator, case, shape, precision, options.rounds)
            except (RuntimeError, TypeError, ValueError) as error:  # no memory; an operator or type the device has not
                entries = [f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200]]
            size = f"{shape.anchors} against {shape.references}" if shape.references else str(shape.anchors)
            print(case.name, size, precision, *entries, flush=True)
            yield [case.name, size, precision, *entries]


def pretend_reading() -> None:
    """The numbers that a step reads at its start, where there are none: norms of 1, classes of 4 rows."""

    def read(numbers: Tensor) -> list[float]:
        return [1.0 if numbers.is_floating_point() else 4.0] * len(numbers)

    device_rules.read = read


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="only cases whose name holds this text")
    parser.add_argument("--sizes", type=int, nargs="+", help=f"default: {SIZES}, {PRETENDED_SIZES} if pretended")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--output", type=Path, help="default: results/accelerator_DEVICE.md")
    options = parser.parse_args()
    accelerator = Accelerator.present()
    if accelerator.pretended:
        pretend_reading()
    output = options.output or Path(__file__).parent / "results" / f"accelerator_{accelerator.kind}.md"
    counted = ["operators", *(["kernels"] if accelerator.kind == "cuda" else []), "MiB"]
    head = ["case", "N", "precision", *counted, *([] if accelerator.pretended else ["ms", "ms, compiled"])]
    facts = {name: value for name, value in environment().items() if name in ("trivet", "torch", "python")}
    about = ", ".join(f"{name} {value}" for name, value in facts.items())
    how = f"Medians of {options.rounds} rounds."
    if accelerator.pretended:
        how = "Nothing is computed on a pretended device: operators and memory are counted."
    rows: list[list[str]] = []
    for row in rows_of(accelerator, options):
        rows.append(row)
        output.write_text(
            f"# Losses on an accelerator\n\nWritten by `benchmarks/accelerator.py`, {datetime.date.today()}; device: "
            f"{accelerator.name}; {about}.\n\nForward and backward, d = 128, 4 per class. "
            f"{how}\n\n{table(head, rows)}\n"
        )


if __name__ == "__main__":
    main()
