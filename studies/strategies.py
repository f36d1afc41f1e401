"""Which strategy should a user take? Thirteen of them with equal budgets, on four data sets.

    TRIVET_DATA=... TRIVET_MODELS=... OMP_NUM_THREADS=1 .venv/bin/python studies/strategies.py
    .venv/bin/python studies/strategies.py --table

By the protocol of Musgrave, Belongie, Lim, "A Metric Learning Reality Check", ECCV 2020, made small. On each data set
all strategies have the same network, batch size, optimiser and number of steps. Each has six trials: the defaults and
five random draws of the learning rate, of how many items of a class a batch holds, and of up to two settings of its
own. A trial is trained on two of four class-disjoint folds of the training classes, and what is best by the mean MAP@R
of the held-out classes, and the step at which it is, is trained on all training classes with five seeds and measured on
classes never seen. The draws, the ranges and the data sets were fixed before the first run; none was changed since.

Pretrained networks keep their batch norm frozen; the small network of Omniglot begins at random, so its batch norm
learns. Several processes may run this at once; each run is done once. Runs go to
studies/results/strategies-here.jsonl, the table to studies/results/strategies.md, the picture beside it.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from trivet.metrics.intervals import across_folds
from trivet.reports.figure import BLUE, RED, encode, panels, style
from trivet_papers.experiment import Arm, Experiment, Recipe, merged
from trivet_papers.runs import Runner, results
from trivet_papers.stand_ins import BANKING, CLINC, CUB, OMNIGLOT

RESULTS = Path(__file__).parent / "results"
TRIALS, FOLDS, OF, SEEDS = 6, 2, 4, 5
LEVELS = {"omniglot": "character", "cub": "class", "clinc": "intent", "banking": "intent"}
# settings, items of a batch, steps that are measured, range of the rate of Adam
DATA: dict[str, tuple[dict[str, Any], int, tuple[int, ...], tuple[float, float]]] = {
    "omniglot": (OMNIGLOT, 128, (100, 200, 400), (3e-4, 1e-2)),
    "cub": (CUB, 64, (30, 60, 120), (1e-6, 1e-4)),
    "clinc": (CLINC, 128, (50, 100, 200), (1e-5, 1e-3)),
    "banking": (BANKING, 64, (50, 100, 200), (1e-5, 1e-3)),
}
PER_CLASS = (4, 8, 16)
# settings of the loss, and what of them is drawn: low, high, on a logarithmic scale or not
STRATEGIES: dict[str, tuple[dict[str, Any], dict[str, tuple[float, float, bool]]]] = {
    "triplet, random positives": ({"name": "triplet", "positives": "random", "negatives": "semihard", "margin": 0.2},
                                  {"margin": (0.05, 0.5, True)}),
    "triplet, easy positives": ({"name": "triplet", "positives": "easy", "negatives": "semihard", "margin": 0.2},
                                {"margin": (0.05, 0.5, True)}),
    "triplet, violating negatives": ({"name": "triplet", "positives": "random", "negatives": "violating",
                                      "margin": 0.2},
                                     {"margin": (0.05, 0.5, True)}),
    "batch-hard": ({"name": "triplet", "positives": "hard", "negatives": "hard", "margin": 0.2},
                   {"margin": (0.05, 0.5, True)}),
    "margin, random positives": ({"name": "margin", "positives": "random"},
                                 {"margin": (0.05, 0.4, True), "beta": (0.6, 1.4, False)}),
    "margin, easy positives": ({"name": "margin", "positives": "easy"},
                               {"margin": (0.05, 0.4, True), "beta": (0.6, 1.4, False)}),
    "multi-similarity": ({"name": "multi-similarity", "threshold": 0.5},
                         {"threshold": (0.3, 1.0, False), "negative_scale": (10, 80, True)}),
    "multi-similarity, easy positives": ({"name": "multi-similarity", "threshold": 0.5, "positives": "easy"},
                                         {"threshold": (0.3, 1.0, False), "negative_scale": (10, 80, True)}),
    "EPHN, first order": ({"name": "nca", "positives": "easy", "negatives": "hard", "temperature": 1.0},
                          {"temperature": (0.05, 1.0, True)}),
    "EPHN, second order": ({"name": "second-order", "positives": "easy", "negatives": "hard"}, {}),
    "contrastive": ({"name": "contrastive", "margin": 1.0, "reduction": "mean-active"}, {"margin": (0.3, 2.0, False)}),
    "N-pair, unit length": ({"name": "n-pair", "normalize": True, "temperature": 0.1},
                            {"temperature": (0.03, 0.5, True)}),
    "proxy-NCA": ({"name": "proxy-nca"}, {"scale": (3, 30, True), "proxy_learning_rate": (1e-3, 1e-1, True)}),
}  # fmt: skip


def trial(data: str, strategy: str, number: int) -> dict[str, Any]:
    """The settings of a trial: number 0 has the defaults and the middle of the ranges."""
    base, items, steps, (low, high) = DATA[data]
    loss, drawn = STRATEGIES[strategy]
    source = random.Random(f"{data}, {strategy}, {number}")
    rate = math.sqrt(low * high) if number == 0 else _draw(source, low, high, log=True)
    each = PER_CLASS[0] if number == 0 else source.choice(PER_CLASS)
    own = {} if number == 0 else {key: _draw(source, *ends[:2], log=ends[2]) for key, ends in drawn.items()}
    changes = {
        "batch": {"num_classes": items // each, "samples_per_class": each},
        "loss": loss | own,
        "training": {"steps": steps[-1], "learning_rate": rate, "accelerator": "cpu"},
    }
    return merged(base, changes)


def _draw(source: random.Random, low: float, high: float, *, log: bool) -> float:
    value = math.exp(source.uniform(math.log(low), math.log(high))) if log else source.uniform(low, high)
    return float(f"{value:.3g}")


def experiment(key: str, arms: Sequence[Arm], seeds: int) -> Experiment:
    recipe = Recipe("", "", tuple(arms), seeds, (), ())
    return Experiment(f"strategies-{key}", "", "", recipe, recipe)


def trials(data: str) -> Experiment:
    arms = [
        Arm(
            {"data": data, "strategy": strategy, "trial": number, "fold": fold},
            merged(trial(data, strategy, number), {"data": {"folds": OF, "fold": fold}}),
            ("validation",),
            DATA[data][2],
        )
        for number in range(TRIALS)
        for strategy in STRATEGIES
        for fold in range(FOLDS)
    ]
    return experiment(f"trials-{data}", [replace(arm, settings=_joined(arm, data)) for arm in arms], 1)


def _joined(arm: Arm, data: str) -> Mapping[str, Any]:
    """`merged` puts a section with a name in the place of another; that of the data has only its fold changed."""
    return {**arm.settings, "data": {**DATA[data][0]["data"], "folds": OF, "fold": arm.factors["fold"]}}


def best(data: str, folder: Path) -> dict[str, tuple[int, int, float]]:
    """Strategy -> its trial and step with the highest MAP@R of the held-out classes, and that, where all are done."""
    found, _ = results(trials(data), "here", folder)
    measure = f"validation/{LEVELS[data]}/map@r"
    chosen = {}
    for strategy in STRATEGIES:
        values = {
            (number, step): [
                found.get(0, measure, step, data=data, strategy=strategy, trial=number, fold=fold)
                for fold in range(FOLDS)
            ]
            for number in range(TRIALS)
            for step in DATA[data][2]
        }
        means = {
            key: statistics.fmean(-1.0 if value is None else value for value in some) for key, some in values.items()
        }
        (number, step), value = max(means.items(), key=lambda item: item[1])
        chosen[strategy] = (number, step, value)
    return chosen


def tests(data: str, folder: Path) -> Experiment:
    arms = [
        Arm({"data": data, "strategy": "before training"}, trial(data, "contrastive", 0), ("recall", "ranking"), (0,))
    ]
    for strategy, (number, step, _) in best(data, folder).items():
        settings = trial(data, strategy, number)
        settings["training"] = settings["training"] | {"steps": step}
        arms.append(Arm({"data": data, "strategy": strategy}, settings, ("recall", "ranking")))
    return experiment(f"tests-{data}", arms, SEEDS)


def table(folder: Path) -> str:
    names = ["before training", *STRATEGIES]
    lines = [
        f"| | {' | '.join(f'{data}, recall@1 | MAP@R' for data in DATA)} | mean rank |",
        "|---" * (2 * len(DATA) + 2) + "|",
    ]
    values = {data: _tested(data, folder) for data in DATA}
    ranks = mean_ranks(values)
    for name in sorted(names, key=lambda one: ranks.get(one, 0)):
        cells = []
        for data in DATA:
            for measure in ("recall@1", "map@r"):
                some = values[data].get(name, {}).get(measure, [])
                if len(some) > 1:
                    mean, interval = across_folds(some)
                    cells.append(f"{100 * mean:.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})")
                else:
                    cells.append(f"{100 * some[0]:.1f}" if some else "–")
        rank = f"{ranks[name]:.1f}" if name in ranks else "–"
        lines.append(f"| {name} | {' | '.join(cells)} | {rank} |")
    return "\n".join(lines)


def _tested(data: str, folder: Path) -> dict[str, dict[str, list[float]]]:
    found, _ = results(tests(data, folder), "here", folder)
    return {
        str(arm.factors["strategy"]): {
            measure: found.numbers(f"unseen/{LEVELS[data]}/{measure}", **arm.factors)
            for measure in ("recall@1", "map@r")
        }
        for arm in found.arms
    }  # fmt: skip


def mean_ranks(values: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> dict[str, float]:
    """Strategy -> its mean rank by the mean MAP@R of each data set, 1 the best."""
    rows = [
        [statistics.fmean(values[data][name]["map@r"]) for name in STRATEGIES]
        for data in values
        if all(values[data].get(name, {}).get("map@r") for name in STRATEGIES)
    ]
    if not rows:
        return {}
    ranks = np.mean([stats.rankdata([-value for value in row]) for row in rows], axis=0)
    return dict(zip(STRATEGIES, ranks.tolist(), strict=True))


def critical_difference(sets: int) -> float:
    """Mean ranks that differ by less are not told apart at 5 % (Nemenyi; Demsar, JMLR 2006)."""
    count = len(STRATEGIES)
    quantile = stats.studentized_range.ppf(0.95, count, np.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(count * (count + 1) / (6 * sets)))


def picture(ranks: Mapping[str, float], sets: int) -> bytes:
    with style():
        drawn, axes = panels(1, 1, height=3.4)
        panel = axes[0, 0]
        ordered = sorted(ranks.items(), key=lambda item: item[1])
        distance = critical_difference(sets)
        for place, (name, rank) in enumerate(ordered):
            panel.plot(rank, place, "o", color=BLUE)
            panel.annotate(name, (rank, place), textcoords="offset points", xytext=(7, -3))
        panel.plot([ordered[0][1], ordered[0][1] + distance], [-1, -1], color=RED, linewidth=3)
        panel.annotate(
            f"critical difference {distance:.1f}", (ordered[0][1], -1), textcoords="offset points", xytext=(4, 5)
        )
        panel.set_xlabel(f"mean rank by MAP@R of unseen classes over {sets} data sets")
        panel.set_yticks([])
        panel.set_ylim(len(ordered), -2)
        panel.set_xlim(0.5, len(ordered) + 3.5)
        return encode(drawn, "png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--table", action="store_true", help="write the table of what has been run, and end")
    options = parser.parse_args()
    if not options.table:
        models = os.environ.get("TRIVET_MODELS")
        runner = Runner(
            RESULTS,
            data_root=None,
            models=Path(models) if models else None,
            report=lambda text: print(text, flush=True),
        )
        for data in options.data:
            runner.run_all([trials(data)], "here", None, ())
            runner.run_all([tests(data, RESULTS)], "here", None, ())
    values = {data: _tested(data, RESULTS) for data in DATA}
    ranks = mean_ranks(values)
    (RESULTS / "strategies.md").write_text(table(RESULTS) + "\n")
    if ranks:
        sets = sum(all(values[data].get(name, {}).get("map@r") for name in STRATEGIES) for data in DATA)
        (RESULTS / "strategies.png").write_bytes(picture(ranks, sets))
    print(table(RESULTS))


if __name__ == "__main__":
    main()
