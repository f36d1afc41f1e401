"""Where does a network collapse, over classes per batch x items per class, and is it foreseen? With micro-batches.

    TRIVET_DATA=... .venv/bin/python studies/collapse_map.py --budget 40
    .venv/bin/python studies/collapse_map.py --table
    .venv/bin/python studies/collapse_map.py --foretell      # makes the first steps again, for a new rule

A cell is a data set, a shape of batch P x K, a strategy, a margin and a seed: a small network is trained from random
weights with Adam, and 1,000 images of classes that were not trained on are measured, before and after. A finished cell
is a line of the results and is not run again, so the command may be stopped and started at will. Cells of the first
seed come first.

Follows Xu et al. (ICLR 2024), experiments A and C: batch-hard triplets of plain distances, rows as they are, margin 0
and 0.01; and Xuan et al. (ECCV 2020), figure 4: easy positives and hardest negatives of unit rows, with the first- and
the second-order loss, in batches of 128 with 2 to 16 items of a class. Neither says its optimiser (Xu) or trains from
random weights (Xuan): Adam at 0.001 is our choice.

kept: the mean distance of the held-out images after training over that before; the statistics of batch norm, which an
untrained network lacks, are first taken from 2,000 training images. verdict: of `trivet.collapse.diagnose`, beside the
embedding before. alarm: the first step at which the monitor of `trivet train` says that the network collapses.
forecast: of `trivet forecast`, from the first 20 steps. Its rule was not chosen on these runs, which are older: their
first steps were made again. In some of ResNet-18 these differ from those of the run.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trivet.collapse import CollapseMonitor, Event, Forecast, diagnose
from trivet.collapse.forecast import pooled
from trivet.commands.forecast.run import bound_of
from trivet.datasets import Splits, load
from trivet.models import Embedder
from trivet.runtime.json_numbers import as_json
from trivet.training.class_sample import class_sample
from trivet.training.components import first_task
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.loop import NotFiniteError, fit

RESULTS = Path(__file__).parent / "results"
PROBE = 20  # steps that the forecast rests on
HELD_OUT, STATISTICS = 1000, 2000  # images that are measured, and that batch norm is calibrated with
DATA = {"omniglot": ("character", 14), "mnist": ("digit", 14)}  # what is trained on, pixels
SHAPES = {
    "omniglot": [(p, k) for p in (2, 8, 32, 128) for k in (2, 4, 16)],
    "mnist": [(p, k) for p in (2, 6) for k in (2, 8, 32, 128, 341)],
}
FIGURE_4 = [(128 // k, k) for k in (2, 4, 8, 16)]
STRATEGIES: dict[str, dict[str, Any]] = {
    "batch-hard": {"name": "triplet", "positives": "hard", "negatives": "hard", "distance": "euclidean"},
    "easy": {"name": "triplet", "positives": "easy", "negatives": "hard", "distance": "euclidean"},
    "first-order": {"name": "nca", "positives": "easy", "negatives": "hard"},
    "second-order": {"name": "second-order", "positives": "easy", "negatives": "hard"},
}


@dataclass(frozen=True)
class Cell:
    """A run: what identifies a line of the results."""

    data: str
    classes: int
    samples: int
    strategy: str
    margin: float | None  # of batch-hard and easy
    seed: int
    model: str = "conv4"
    steps: int = 200

    @property
    def items(self) -> int:
        return self.classes * self.samples

    def config(self, micro: int) -> RunConfig:
        level, size = DATA[self.data]
        loss = STRATEGIES[self.strategy] | ({} if self.margin is None else {"margin": self.margin})
        rgb = {"channels": 3} if ":" in self.model else {}
        values = {
            "seed": self.seed,
            "data": {"name": self.data, "image_size": 2 * size if rgb else size, "level": level, **rgb},
            "batch": {"num_classes": self.classes, "samples_per_class": self.samples, "micro": micro},
            "model": {"name": self.model, "embedding_dim": 128, "normalize": self.margin is None},
            "loss": loss,
            "training": {"steps": self.steps, "learning_rate": 1e-3, "accelerator": "cpu"},
        }
        return RunConfig.parse(values, source=str(self))


def plan(seeds: Sequence[int], steps: int) -> Iterator[Cell]:
    """All cells, those that matter most first."""
    for seed in seeds:
        for data, shapes in SHAPES.items():
            by_size = sorted(shapes, key=lambda shape: shape[0] * shape[1])
            for shape in by_size:
                yield Cell(data, *shape, "batch-hard", 0.0, seed, steps=steps)
            yield Cell(data, *by_size[-1], "easy", 0.0, seed, steps=steps)
            yield Cell(data, *by_size[-1], "second-order", None, seed, steps=steps)
        for shape in FIGURE_4:
            for strategy in ("first-order", "second-order"):
                yield Cell("omniglot", *shape, strategy, None, seed, steps=steps)
        for data, shapes in SHAPES.items():
            for shape in sorted(shapes, key=lambda shape: shape[0] * shape[1]):
                yield Cell(data, *shape, "batch-hard", 0.01, seed, steps=steps)
            yield Cell(
                data, *max(shapes, key=lambda shape: shape[0] * shape[1]), "first-order", None, seed, steps=steps
            )
        for shape in ((2, 2), (8, 4), (32, 8)):
            yield Cell("omniglot", *shape, "batch-hard", 0.0, seed, model="timm:resnet18", steps=steps // 2)


class Watched(CollapseMonitor):
    """The monitor of a run, and beside it that of the forecast, which looks at each of the first steps."""

    def __init__(self, steps: int) -> None:
        super().__init__(every=10)
        self.probe = CollapseMonitor(every=1, steps=steps)

    def update(self, embeddings: Tensor, labels: Any = None, loss: Any = None, **more: Any) -> list[Event]:
        if more["step"] < PROBE:
            self.probe.update(embeddings, labels, loss, **more)
        return super().update(embeddings, labels, loss, **more)


@functools.cache
def splits_of(data: str, size: int, channels: int) -> Splits:
    values = {"name": data, "image_size": size, "level": DATA[data][0], "channels": channels}
    return load(RunConfig.parse({"data": values, "loss": {"name": "triplet"}}, source=data).data, None)


def run(cell: Cell, micro: int) -> dict[str, Any]:
    """Train and measure a cell: a line of the results."""
    config = cell.config(micro)
    splits = splits_of(cell.data, config.data.image_size, config.data.channels)  # type: ignore[attr-defined]  # both are data of images
    level, held_out = splits.level, splits.evaluation["unseen"]
    items = held_out.subset(class_sample(held_out.labels[level], HELD_OUT, least=10, seed=0))
    labels = items.labels[level]
    monitor = Watched(cell.steps)
    task, batches = first_task(config, splits.train, level, steps=cell.steps, monitor=monitor)
    before = embed(calibrated(task.model, splits), items.inputs)
    first: list[tuple[Tensor, Tensor]] = []

    def keep(_: nn.Module, given: tuple[Tensor, Tensor]) -> None:
        if not first:
            first.append((given[0].detach().clone(), given[1]))

    began, failed = time.perf_counter(), ""
    with task.loss.register_forward_pre_hook(keep):
        try:
            if not fit(task, batches):
                raise KeyboardInterrupt
        except NotFiniteError:
            failed = "not finite"
    seconds = time.perf_counter() - began
    foretold = monitor.probe.forecast()
    row: dict[str, Any] = asdict(cell) | {
        "items": cell.items,
        "micro": micro,
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "seconds": round(seconds, 2),
        "forecast": as_json(foretold),
        "bound": {key: value for key, value in bound_of(first).items() if key != "sentence"},
        "alarm": next((event.step for event in monitor.events if event.kind == "network-collapse"), None),
        "loss": None if failed else task.value,
        "failed": failed,
    }
    if failed:
        return row
    after = embed(task.model, items.inputs)
    found = diagnose(after, labels, {"untrained network": before}, level=level)
    (compared,) = (one for one in found.measures.comparisons if one.reference == "untrained network")
    collapse = next((verdict for verdict in found.verdicts if verdict.kind == "network-collapse"), None)
    return row | {
        "verdicts": [verdict.kind for verdict in found.verdicts],
        "collapse": None if collapse is None else collapse.severity,
        "rule": None if collapse is None else collapse.rule,
        "kept": spread(after) / spread(before),
        "relative_spread": found.measures.relative_spread,
        "recall": compared.score,
        "untrained_recall": compared.reference_score,
        "gain": [compared.low, compared.high],
    }


def foretold(row: dict[str, Any]) -> dict[str, Any]:
    """A line of the results with the forecast by the present rule: its first steps are made again."""
    cell = Cell(**{name: row[name] for name in Cell.__dataclass_fields__})
    config = cell.config(row["micro"])
    splits = splits_of(cell.data, config.data.image_size, config.data.channels)  # type: ignore[attr-defined]  # both are data of images
    monitor = CollapseMonitor(every=1, steps=cell.steps)
    if not fit(*first_task(config, splits.train, splits.level, steps=PROBE, monitor=monitor)):
        raise KeyboardInterrupt
    return row | {"forecast": as_json(monitor.forecast())}


def calibrated(model: Embedder, splits: Splits) -> Embedder:
    """A copy of the network whose batch norm has the statistics of training images."""
    model = copy.deepcopy(model)
    norms = [part for part in model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None  # the mean over all that it sees
    some = np.random.default_rng(0).permutation(len(splits.train))[:STATISTICS]
    with torch.no_grad():
        for rows in np.array_split(some, 8):
            model(splits.train.inputs.batch(rows))
    return model


def spread(embeddings: np.ndarray) -> float:
    """The mean distance of two items."""
    return float(torch.pdist(torch.from_numpy(embeddings).double()).mean())


def table(rows: Sequence[dict[str, Any]]) -> str:
    """What is known, seeds joined: mean, and in brackets the least and the largest."""
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row["data"], row["model"], row["steps"], row["strategy"], row["margin"], row["items"], row["samples"])
        cells.setdefault(key, []).append(row)
    lines = [
        "| data, network, steps | strategy | margin | P x K | N | seeds | collapsed | alarm at step | kept | "
        "recall@1, % | untrained | a point, % | kept by the forecast | outlook | bound |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (data, model, steps, strategy, margin, items, samples), found in sorted(
        cells.items(), key=lambda one: tuple(str(part).rjust(9) for part in one[0])
    ):
        ended = [row for row in found if not row["failed"]]
        full, partial = (sum(row["collapse"] == severity for row in ended) for severity in ("full", "partial"))
        alarms = [row["alarm"] for row in found if row["alarm"] is not None]
        told = [row["forecast"] for row in found if row["forecast"] is not None]
        chance, outlook, ahead = "–", "–", "–"
        if told:
            one = pooled([Forecast(**{**each, "interval": tuple(each["interval"])}) for each in told])
            low, high = one.interval
            chance, outlook = f"{100 * one.probability:.0f}", one.outlook
            ahead = f"{one.shrinkage:.2g} ({low:.2g} to {high:.2g})"
        untrained = statistics.fmean(row["untrained_recall"] for row in ended) if ended else math.nan
        cells_of_line = [
            f"{data}, {model}, {steps}",
            strategy,
            "–" if margin is None else f"{margin:g}",
            f"{items // samples} x {samples}",
            str(items),
            str(len(found)),
            f"{full}"
            + (f", in part {partial}" if partial else "")
            + (f", failed {len(found) - len(ended)}" if len(found) > len(ended) else ""),
            ", ".join(map(str, alarms)) or "–",
            ranged([row["kept"] for row in ended], ".3f"),
            ranged([100 * row["recall"] for row in ended], ".1f"),
            f"{100 * untrained:.1f}",
            chance,
            ahead,
            outlook,
            "vacuous"
            if all(row["bound"]["vacuous"] for row in found)
            else ranged([row["bound"]["bound"] for row in found], ".2g"),
        ]
        lines.append("| " + " | ".join(cells_of_line) + " |")
    return "\n".join(lines)


def ranged(values: Sequence[float], form: str) -> str:
    """The mean, and between what the values lie."""
    if not values:
        return "–"
    mean = format(statistics.fmean(values), form)
    return mean if len(values) == 1 else f"{mean} ({min(values):{form}} to {max(values):{form}})"


def judged(rows: Sequence[dict[str, Any]]) -> str:
    """How well alarm and forecast knew the end of the runs: a sentence each."""
    ended = [row for row in rows if not row["failed"]]
    if not ended:
        return ""
    full, partial = (sum(row["collapse"] == severity for row in ended) for severity in ("full", "partial"))
    alarms = [row for row in ended if row["alarm"] is not None]
    at_a_point = sum(row["collapse"] == "full" for row in alarms)
    counts = {
        name: [sum(Forecast(**row["forecast"]).outlook == name for row in some) for some in _by_end(ended)]
        for name in ("likely", "open", "unlikely")
    }
    told = "; ".join(
        f"{name} for {points} of {full} points and {others} others" for name, (points, others) in counts.items()
    )
    return "\n".join(
        [
            f"{len(ended)} runs: {full} ended as a point, {partial} collapsed in part.",
            f"Alarm of the monitor: {at_a_point} of {full} that ended as a point, {len(alarms) - at_a_point} of "
            f"{len(ended) - full} others.",
            f"Forecast of a point after 20 steps: {told}.",
        ]
    )


def _by_end(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The runs that ended as a point, and the others."""
    return [row for row in rows if row["collapse"] == "full"], [row for row in rows if row["collapse"] != "full"]


def page(rows: Sequence[dict[str, Any]], command: str) -> str:
    days = sorted({row["date"] for row in rows})
    return (
        "# Collapse over the shape of the batch\n\n"
        f"`{command}`, {days[0]} to {days[-1]}, torch {rows[-1]['torch']}, one thread, no GPU: "
        f"{sum(row['seconds'] for row in rows) / 60:.0f} minutes of training. Mean over the seeds, in brackets the "
        "least and the largest; kept by the forecast with its interval of 90 %.\n\n"
        f"{judged(rows)}\n\n{table(rows)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--micro", type=int, default=256, help="items that are embedded at once")
    parser.add_argument("--budget", type=float, default=math.inf, help="minutes after which no cell is begun")
    parser.add_argument("--results", type=Path, default=RESULTS / "collapse_map.jsonl")
    parser.add_argument("--table", action="store_true", help="print what is known and end")
    parser.add_argument("--foretell", action="store_true", help="renew the forecasts of what is known, and end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file: Path = options.results
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    fields = tuple(Cell.__dataclass_fields__)
    done = {tuple(row[name] for name in fields) for row in rows}
    if options.foretell:
        rows = [row if "end" in (row["forecast"] or {}) else foretold(row) for row in rows]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif not options.table:
        began = time.perf_counter()
        cells = [cell for cell in plan(options.seeds, options.steps) if tuple(asdict(cell).values()) not in done]
        for number, cell in enumerate(cells, start=1):
            if time.perf_counter() - began > 60 * options.budget:
                print(f"{len(cells) - number + 1} cells are left: start again to go on.", file=sys.stderr)
                break
            row = run(cell, options.micro)
            with file.open("a") as target:
                target.write(json.dumps(row) + "\n")
            rows.append(row)
            print(
                f"{number}/{len(cells)} {cell}: {row['seconds']:.0f} s, collapse {row.get('collapse')}, kept "
                f"{row.get('kept', math.nan):.3f}, recall {row.get('recall', math.nan):.3f}",
                file=sys.stderr,
                flush=True,
            )
    if rows:
        (file.with_suffix(".md")).write_text(page(rows, ".venv/bin/python studies/collapse_map.py"))
        print(judged(rows), table(rows), sep="\n\n")


if __name__ == "__main__":
    main()
