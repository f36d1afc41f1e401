"""Where the time of a step goes: the fixed cost of small batches, and the longest operators of large ones.

    PYTHONPATH=tests .venv/bin/python benchmarks/core_profile.py     # some minutes; needs pytorch-metric-learning

The cases are those that miss a goal in core.md. Small batches: a batch of 8 has nearly nothing to compute, so its time
is the fixed cost of a step; what a batch of 64 takes beyond it is arithmetic. Operators are counted as they are
dispatched, without views and bare allocations. One thread, medians of rounds in which all alternate.

Large batches: the operators with the largest share of the time, by the profiler of torch, on all threads. The products,
of which the floor consists, are `mm` and `addmm`.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from core import BANK, NAMED, PEER, Data, Shape, environment, floor_of, peers, seconds, short, step_of, table
from launches import Launches

SMALL = ("EPHN", "batch-hard", "semi-hard", "all triplets", "contrastive", "multi-similarity", "proxy-NCA")
FIXED, SIZES = 8, (64, 512)
LARGE = (
    ("semi-hard", Shape(1024, 128, 4)),
    ("all triplets", Shape(1024, 128, 4)),
    ("distance-weighted margin", Shape(1024, 128, 4)),
    ("EPHN", Shape(1024, 128, 4)),
    ("contrastive", Shape(1024, 128, 4)),
    ("multi-similarity", Shape(1024, 128, 4)),
    ("contrastive, trimmed", Shape(4096, 128, 4)),
    ("all triplets", Shape(4096, 512, 16)),
    ("semi-hard", BANK),
)
OPERATORS = 6


def small(rounds: int) -> str:
    """Fixed cost and arithmetic of small batches, Trivet and the peer."""
    torch.set_num_threads(1)
    others, rows = peers(), []
    for case in (case for case in NAMED if case.name in SMALL):
        steps: dict[tuple[str, int], Callable[[], None]] = {}
        counts = {}
        for size in (FIXED, *SIZES):
            shape = Shape(size, 128, 4)
            data = Data.of(shape)
            for name, loss in (("trivet", case.build(shape)), ("peer", others[case.name].build(shape))):
                steps[name, size] = step_of(loss, data)
                with Launches() as launches:
                    steps[name, size]()
                counts[name, size] = launches.total
        times: dict[tuple[str, int], list[float]] = {key: [] for key in steps}
        for _ in range(rounds):
            for key, step in steps.items():
                times[key].append(seconds(step, 20))
        median = {key: 1000 * statistics.median(values) for key, values in times.items()}
        for name in ("trivet", "peer"):
            fixed = median[name, FIXED]
            rows.append(
                [case.name, {"trivet": "Trivet", "peer": PEER}[name], str(counts[name, SIZES[0]]), short(fixed)]
                + [short(median[name, size]) for size in SIZES]
                + [f"{1000 * fixed / counts[name, FIXED]:.0f}", f"{100 * fixed / median[name, SIZES[0]]:.0f} %"]
            )
    head = ["case", "library", f"operators, N = {SIZES[0]}", f"ms, N = {FIXED}", *(f"ms, N = {n}" for n in SIZES)]
    return table([*head, "µs an operator", f"fixed cost, of N = {SIZES[0]}"], rows)


def large(calls: int) -> str:
    """The longest operators of large batches."""
    rows = []
    for name, shape in LARGE:
        case = next(case for case in NAMED if case.name == name)
        data = Data.of(shape)
        step, floor = step_of(case.build(shape), data), floor_of(shape, data, proxies=False)
        for act in (step, floor):
            act()
        ratio = statistics.median(seconds(step, 1) / seconds(floor, 1) for _ in range(calls))
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            for _ in range(calls):
                step()
        found = profiled.key_averages()
        total = sum(one.self_cpu_time_total for one in found)
        longest = sorted(found, key=lambda one: -one.self_cpu_time_total)[:OPERATORS]
        products = sum(one.self_cpu_time_total for one in found if one.key in ("aten::mm", "aten::addmm", "aten::bmm"))
        said = ", ".join(
            f"{one.key.removeprefix('aten::')} {100 * one.self_cpu_time_total / total:.0f} % "
            f"({one.count / calls:.0f} calls)"
            for one in longest
        )
        rows.append([name, str(shape), short(ratio), f"{100 * products / total:.0f} %", said])
    return table(["case", "shape", "x floor", "products", "longest operators"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "core_profile.md")
    options = parser.parse_args()
    about = environment()
    threads = torch.get_num_threads()
    parts = [
        "# Where the time of a step goes",
        f"Written by `benchmarks/core_profile.py`, {datetime.date.today().isoformat()}; "
        + ", ".join(f"{name} {about[name]}" for name in ("torch", PEER, "python", "processor", "cores"))
        + ". The numbers that these explain are in [core.md](core.md).",
        "## Small batches, one thread",
        small(options.rounds),
    ]
    torch.set_num_threads(threads)
    parts += [f"## Large batches, {threads} threads", large(5)]
    options.output.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
