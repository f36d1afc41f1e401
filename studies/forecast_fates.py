"""Is a shrinking to a point foreseen after a few steps, a slow one too? Small networks, trained to their end.

    TRIVET_DATA=... .venv/bin/python studies/forecast_fates.py --runs FOLDER --vectors FOLDER

The folder of vectors holds those of CLINC150 and BANKING77 by MiniLM. Every run leaves a file; what is there is not
trained again. The two numbers of the forecast were chosen on the runs of `selection`, and on the shorter runs that they
contain. All runs of `test`, with how each was expected to end, were written down before any of them was trained; their
data, networks and settings are others. They and the forecasts of `collapse_map.py` were judged; then a fourth of the
probability was given to a shrinking by step, and the runs of `later` were written down and judged once.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

import pages
from collapse_map import calibrated, spread
from gauntlet import wrong_labels
from guard import _sentences as made_sentences
from pages import share, table
from trivet.collapse import CollapseMonitor, Event, Forecast, diagnose
from trivet.collapse.forecast import LIKELY, NOISE, UNLIKELY, below, forecast
from trivet.collapse.thresholds import THRESHOLDS
from trivet.commands.forecast.run import LONG as LONG_PROBE
from trivet.commands.forecast.run import SHARE, SHORT
from trivet.datasets import Dataset, Splits
from trivet.runtime.json_numbers import as_json, with_nan
from trivet.training.class_sample import class_sample
from trivet.training.components import first_task, load_splits
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.loop import NotFiniteError, fit

DENSE = 60  # steps that the monitor of the forecast looks at one by one
RESULTS = Path(__file__).parent / "results"
HELD_OUT = 500  # items that are measured
ENDS = (0.1, 0.25, 0.5, 1)  # of the steps: each is the end of a shorter run, as the rate is constant


@dataclass(frozen=True)
class Task:
    """Data with a network; `batches`: (classes, items of each) of a small and of a large batch."""

    name: str
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    batches: tuple[tuple[int, int], tuple[int, int]]
    noise: float = 0.0  # share of wrong labels


@dataclass(frozen=True)
class Setting:
    """The settings of a run apart from its task; `expected`: how it was expected to end, before it was trained."""

    name: str
    loss: Mapping[str, Any]
    expected: str
    rate: float = 1e-3
    large: bool = True
    steps: int = 800
    model: Mapping[str, Any] = field(default_factory=dict)


def _triplet(positives: str, negatives: str, margin: float = 0.2, **more: Any) -> dict[str, Any]:
    return {"name": "triplet", "positives": positives, "negatives": negatives, "margin": margin, **more}


def _plain(positives: str, negatives: str, margin: float = 0.0, **more: Any) -> dict[str, Any]:
    return _triplet(positives, negatives, margin, distance="euclidean", **more)


_BARE = {"normalize": False}
SELECTION = (
    Setting("margin 0", _plain("hard", "hard"), "collapse", model=_BARE),
    Setting("margin 0, 4 dimensions", _plain("hard", "hard"), "collapse", model=_BARE | {"embedding_dim": 4}),
    Setting("margin 0, rate 1e-4", _plain("hard", "hard"), "collapse", 1e-4, model=_BARE),
    Setting("margin 0.01, small batch, rate 3e-4", _plain("hard", "hard", 0.01), "none", 3e-4, False, model=_BARE),
    Setting("batch-hard, 2 dimensions", _triplet("hard", "hard"), "collapse", model={"embedding_dim": 2}),
    Setting("batch-hard, rate 1e-4", _triplet("hard", "hard"), "collapse", 1e-4),
    Setting("batch-hard, rate 0.02", _triplet("hard", "hard"), "collapse", 0.02, model=_BARE),
    Setting(
        "first order, hard, rate 1e-4", {"name": "nca", "positives": "hard", "negatives": "hard"}, "collapse", 1e-4
    ),
    Setting("second order, 3 dimensions", {"name": "second-order"}, "none", model={"embedding_dim": 3}),
    Setting("easy positives, semi-hard", _triplet("easy", "semihard"), "none"),
    Setting("random, random, rate 3e-4", _triplet("random", "random"), "none", 3e-4),
    Setting("contrastive", {"name": "contrastive", "margin": 0.5}, "none"),
    Setting("hardest triplet alone, rate 1e-4", _plain("hard", "hard", reduction="max"), "collapse", 1e-4, model=_BARE),
    Setting("easy positives, margin 0", _plain("easy", "hard"), "none", model=_BARE),
    Setting("supervised contrastive", {"name": "supcon"}, "none", 3e-4),
    Setting("batch-hard, rate 1e-3", _triplet("hard", "hard"), "collapse"),
)
SLOW = (
    Setting("margin 0", _plain("hard", "hard"), "collapse", model=_BARE),
    Setting("margin 0, rate 1e-4", _plain("hard", "hard"), "collapse", 1e-4, model=_BARE),
    Setting("margin 0.05, small batch", _plain("hard", "hard", 0.05), "collapse", large=False, model=_BARE),
    Setting("batch-hard, rate 3e-3", _triplet("hard", "hard"), "collapse", 3e-3),
    Setting("batch-hard, rate 3e-4", _triplet("hard", "hard", 0.5), "collapse", 3e-4, model=_BARE),
    Setting(
        "batch-hard, 3 dimensions, rate 3e-4", _triplet("hard", "hard"), "collapse", 3e-4, model={"embedding_dim": 3}
    ),
    Setting("first order, hard", {"name": "nca", "positives": "hard", "negatives": "hard"}, "collapse", 3e-4),
    Setting("second order, hard", {"name": "second-order", "positives": "hard", "negatives": "hard"}, "collapse", 3e-4),
    Setting("hardest triplet alone", _plain("hard", "hard", reduction="max"), "collapse", 3e-4, model=_BARE),
    Setting("hard positives, random negatives", _triplet("hard", "random"), "collapse", 3e-4),
    Setting("random, semi-hard", _triplet("random", "semihard"), "none"),
    Setting("first order, easy", {"name": "nca", "positives": "easy", "negatives": "hard"}, "none", 3e-4),
    Setting("margin, distance-weighted", {"name": "margin"}, "none"),
)
LONG = tuple(replace(setting, rate=setting.rate / 3, steps=3200) for setting in SLOW)
_CLINC = {"name": "vectors", "path": "{vectors}/clinc150_minilm.npz", "levels": ["intent"]}
_DIGITS, _FASHION = {"name": "digits", "level": "digit"}, {"name": "fashion-mnist", "level": "item", "image_size": 14}
_MLP = {"name": "mlp", "embedding_dim": 32}
_MNIST = {"name": "mnist", "level": "digit", "image_size": 14}
_OMNIGLOT = {"name": "omniglot", "level": "alphabet", "image_size": 14}
_BANKING = {"name": "vectors", "path": "{vectors}/banking77_minilm.npz", "levels": ["intent"]}
_HARD = {"name": "nca", "positives": "hard", "negatives": "hard"}
_FINE = (
    Setting("easy positives, semi-hard", _triplet("easy", "semihard", 0.1), "none", 5e-4, steps=800),
    Setting("multi-similarity", {"name": "multi-similarity", "threshold": 1.0}, "none", 5e-4, steps=1000),
    Setting("proxies", {"name": "proxy-nca"}, "none", steps=600),
)
SETS: dict[str, tuple[tuple[Task, tuple[Setting, ...]], ...]] = {
    "selection": (
        (Task("digits, mlp", _DIGITS, _MLP, ((6, 4), (6, 24))), SELECTION),
        (Task("fashion, mlp", _FASHION, _MLP, ((7, 3), (7, 20))), SELECTION),
        (Task("clinc, mlp", _CLINC, _MLP, ((10, 3), (40, 6))), SELECTION),
        (Task("digits, conv3", _DIGITS, {"name": "conv3", "embedding_dim": 32}, ((6, 4), (6, 24))), SELECTION[::2]),
        (Task("clinc, residual", _CLINC, {"name": "residual", "embedding_dim": 64}, ((10, 3), (40, 4))), SELECTION),
        (Task("fashion, mlp, 60 % wrong", _FASHION, _MLP, ((7, 3), (7, 20)), 0.6), SLOW),
        (
            Task(
                "clinc, residual, 60 % wrong",
                _CLINC,
                {"name": "residual", "embedding_dim": 64},
                ((10, 3), (40, 4)),
                0.6,
            ),
            SLOW,
        ),
        (
            Task("fashion, conv4, 30 % wrong", _FASHION, {"name": "conv4", "embedding_dim": 64}, ((7, 3), (7, 9)), 0.3),
            SLOW,
        ),
        (Task("digits, mlp, 80 % wrong", _DIGITS, _MLP, ((6, 4), (6, 24)), 0.8), SLOW),
        (Task("fashion, mlp, 20 % wrong", _FASHION, _MLP, ((7, 3), (7, 10)), 0.2), LONG),
    ),
    "test": (
        (
            Task(
                "mnist, conv3, 50 % wrong",
                {"name": "mnist", "level": "digit", "image_size": 14},
                {"name": "conv3", "embedding_dim": 48},
                ((6, 3), (6, 14)),
                0.5,
            ),
            (
                Setting("margin 0.02", _plain("hard", "hard", 0.02), "collapse", 5e-4, steps=1200, model=_BARE),
                Setting("batch-hard, margin 0.3", _triplet("hard", "hard", 0.3), "collapse", steps=600),
                Setting("first order, hard, small batch", _HARD, "collapse", 2e-4, False, steps=1500),
                *_FINE,
            ),
        ),
        (
            Task(
                "mnist, mlp",
                {"name": "mnist", "level": "digit", "image_size": 14},
                {"name": "mlp", "embedding_dim": 48},
                ((6, 3), (6, 40)),
            ),
            (
                Setting(
                    "margin 0, 6 dimensions",
                    _plain("hard", "hard"),
                    "point",
                    2e-4,
                    steps=2000,
                    model=_BARE | {"embedding_dim": 6},
                ),
                Setting(
                    "batch-hard, 2 dimensions",
                    _triplet("hard", "hard", 0.3),
                    "collapse",
                    5e-4,
                    steps=700,
                    model={"embedding_dim": 2},
                ),
                Setting(
                    "batch-hard, rate 0.01", _triplet("hard", "hard", 0.3), "collapse", 0.01, steps=500, model=_BARE
                ),
                Setting("circle", {"name": "circle"}, "none", steps=600),
                Setting("n-pair", {"name": "n-pair"}, "none", 5e-4, steps=900),
                Setting(
                    "semi-hard, plain, small batch",
                    _plain("random", "semihard", 0.1),
                    "none",
                    large=False,
                    steps=1200,
                    model=_BARE,
                ),
            ),
        ),
        (
            Task(
                "banking, residual, 50 % wrong",
                {"name": "vectors", "path": "{vectors}/banking77_minilm.npz", "levels": ["intent"]},
                {"name": "residual", "embedding_dim": 128},
                ((8, 4), (30, 5)),
                0.5,
            ),
            (
                Setting("margin 0.02", _plain("hard", "hard", 0.02), "collapse", 2e-3, steps=1200, model=_BARE),
                Setting("batch-hard, margin 0.3", _triplet("hard", "hard", 0.3), "collapse", 5e-3, steps=600),
                Setting("first order, hard, small batch", _HARD, "collapse", 1e-3, False, steps=1500),
                *_FINE,
            ),
        ),
        (
            Task(
                "omniglot, alphabets, mlp",
                {"name": "omniglot", "level": "alphabet", "image_size": 14},
                {"name": "mlp", "embedding_dim": 24},
                ((5, 6), (12, 12)),
            ),
            (
                Setting("margin 0", _plain("hard", "hard"), "point", steps=600, model=_BARE),
                Setting("margin 0, rate 1e-4", _plain("hard", "hard"), "point", 1e-4, steps=2000, model=_BARE),
                Setting("batch-hard, rate 1e-4", _triplet("hard", "hard"), "point", 1e-4, steps=1500),
                Setting("easy positives, semi-hard", _triplet("easy", "semihard", 0.1), "none", steps=800),
                Setting("supervised contrastive", {"name": "supcon"}, "none", 5e-4, steps=1000),
                Setting(
                    "easy positives, margin 0, small batch",
                    _plain("easy", "hard"),
                    "none",
                    5e-4,
                    False,
                    steps=500,
                    model=_BARE,
                ),
            ),
        ),
        (
            Task(
                "sentences, transformer, 40 % wrong",
                {"name": "vectors", "path": "{runs}/sentences.npz", "levels": ["topic"], "codes": "uint8"},
                {
                    "name": f"python:{Path(__file__).with_name('small_transformer.py')}:SmallTransformer",
                    "embedding_dim": 40,
                },
                ((8, 3), (16, 5)),
                0.4,
            ),
            (
                Setting("margin 0.02", _plain("hard", "hard", 0.02), "collapse", 3e-4, steps=600, model=_BARE),
                Setting("batch-hard, margin 0.3", _triplet("hard", "hard", 0.3), "collapse", steps=300),
                Setting("first order, hard, small batch", _HARD, "collapse", 1e-4, False, steps=900),
                *(replace(setting, steps=setting.steps // 2) for setting in _FINE),
            ),
        ),
    ),
    "later": tuple(
        (
            task,
            (
                Setting("margin 0", _plain("hard", "hard"), ends[0], 5e-4, steps=700, model=_BARE),
                Setting("margin 0, rate 1e-4", _plain("hard", "hard"), ends[1], 1e-4, steps=800, model=_BARE),
                Setting("2 dimensions", _triplet("hard", "hard"), ends[2], 3e-4, steps=500, model={"embedding_dim": 2}),
                Setting("random, semi-hard", _triplet("random", "semihard"), "none", 5e-4, steps=500),
                Setting("supervised contrastive", {"name": "supcon"}, "none", steps=400),
            ),
        )
        for task, ends in (
            (
                Task("digits, conv2, 40 % wrong", _DIGITS, {"name": "conv2", "embedding_dim": 24},
                     ((6, 5), (6, 16)), 0.4),
                ("point", "point", "collapse"),
            ),
            (
                Task("mnist, parity, mlp", _MNIST | {"level": "parity"}, _MLP, ((2, 10), (2, 50))),
                ("point", "none", "point"),
            ),
            (
                Task("clinc, domains, linear", _CLINC | {"levels": ["domain", "intent"], "level": "domain"},
                     {"name": "linear", "embedding_dim": 48}, ((6, 6), (10, 14))),
                ("none", "none", "point"),
            ),
            (
                Task("banking, mlp, 30 % wrong", _BANKING, {"name": "mlp", "embedding_dim": 16},
                     ((8, 4), (24, 5)), 0.3),
                ("point", "point", "collapse"),
            ),
            (
                Task("fashion, groups, conv3", _FASHION | {"level": "group"}, {"name": "conv3", "embedding_dim": 20},
                     ((4, 5), (4, 20)), 0.2),
                ("point", "none", "point"),
            ),
            (
                Task("omniglot, characters, mlp", _OMNIGLOT | {"level": "character"},
                     {"name": "mlp", "embedding_dim": 40}, ((16, 3), (64, 3))),
                ("point", "none", "point"),
            ),
        )
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One training."""

    of: str
    number: int
    task: Task
    setting: Setting

    def config(self, **places: Path) -> RunConfig:
        task, setting = self.task, self.setting
        classes, samples = task.batches[setting.large]
        data = {name: value.format(**places) if isinstance(value, str) else value for name, value in task.data.items()}
        values = {
            "seed": self.number,
            "data": data,
            "model": {**task.model, **setting.model},
            "loss": dict(setting.loss),
            "batch": {"num_classes": classes, "samples_per_class": samples},
            "training": {"steps": setting.steps, "learning_rate": setting.rate, "accelerator": "cpu"},
        }
        return RunConfig.parse(values, source=f"{task.name}, {setting.name}")


def _runs() -> Iterator[Run]:
    for name, tasks in SETS.items():
        number = 1000 * list(SETS).index(name)
        for task, settings in tasks:
            for setting in settings:
                yield Run(name, number, task, setting)
                number += 1


RUNS = tuple(_runs())


class Watched(CollapseMonitor):
    """The monitor of a run, and beside it that of the forecast, which looks at each of the first steps."""

    def __init__(self) -> None:
        super().__init__(every=10)
        self.probe = CollapseMonitor(every=1)

    def update(self, embeddings: Tensor | None, labels: Any = None, loss: Any = None, **more: Any) -> list[Event]:
        if more["step"] < DENSE:
            self.probe.update(embeddings, labels, loss, **more)
        return super().update(embeddings, labels, loss, **more)


@cache
def _loaded(settings: str) -> Splits:
    return load_splits(
        RunConfig.parse({"data": json.loads(settings), "loss": {"name": "triplet"}}, source="data"), None
    )


def held_out(splits: Splits) -> Dataset:
    """Items that are measured: of the evaluation split that no step is chosen by."""
    name = next(name for name in splits.evaluation if name not in ("validation", "val"))
    dataset = splits.evaluation[name]
    return dataset.subset(class_sample(dataset.labels[splits.level], HELD_OUT, least=10, seed=0))


def with_wrong_labels(splits: Splits, share: float, seed: int) -> Dataset:
    """The training items, this share of them with a wrong label."""
    labels = splits.train.labels | {splits.level: wrong_labels(splits.train.labels[splits.level], share, seed)}
    return replace(splits.train, labels=labels) if share else splits.train


def trace(run: Run, **places: Path) -> dict[str, Any]:
    """Train under two monitors; what held-out items show at the end, and at those of shorter runs."""
    config = run.config(**places)
    splits = _loaded(json.dumps(config.data.model_dump(mode="json", exclude_none=True)))
    items, monitor = held_out(splits), Watched()
    train = with_wrong_labels(splits, run.task.noise, run.number)
    steps = config.training.num_steps
    ends: list[dict[str, Any]] = []
    lengths = {round(share * steps) for share in ENDS}

    def look() -> None:
        if learner.step in lengths:
            ends.append({"steps": learner.step, **outcome(embed(learner.model, items.inputs), before, items, splits)})

    learner, batches = first_task(config, train, splits.level, steps=steps, after_step=look, monitor=monitor)
    before = embed(calibrated(learner.model, splits), items.inputs)
    began, finite = time.process_time(), True
    try:
        if not fit(learner, batches):
            raise KeyboardInterrupt
    except NotFiniteError:
        finite = False
    return {
        "number": run.number,
        "of": run.of,
        "task": run.task.name,
        "setting": run.setting.name,
        "expected": run.setting.expected,
        "steps": steps,
        "finite": finite,
        "ends": ends,
        "events": as_json(monitor.events),
        "probe": as_json(monitor.probe.series),
        "series": as_json(monitor.series),
        "seconds": time.process_time() - began,
    }


def outcome(after: np.ndarray, before: np.ndarray, items: Dataset, splits: Splits) -> dict[str, Any]:
    """What the rule book says of held-out items beside the untrained network."""
    if not np.isfinite(after).all():
        return {"kinds": ["not-finite"]}
    found = diagnose(after, items.labels[splits.level], {"untrained network": before}, level=splits.level)
    (compared,) = (one for one in found.measures.comparisons if one.reference == "untrained network")
    collapse = next((verdict for verdict in found.verdicts if verdict.kind == "network-collapse"), None)
    return {
        "kinds": [verdict.kind for verdict in found.verdicts],
        "rule": None if collapse is None else collapse.rule,
        "kept": spread(after) / spread(before),
        "relative_spread": found.measures.relative_spread,
        "narrowing": found.measures.reference_spread,
        "recall": compared.score,
        "untrained_recall": compared.reference_score,
        "gain": [compared.low, compared.high],
    }


def series_of(traced: Mapping[str, Any], steps: int) -> dict[str, list[float]]:
    """The checks of the first steps, as `trivet forecast` would see them."""
    series = with_nan(traced["probe"])
    count = sum(step < steps for step in series["step"])
    return {name: values[:count] for name, values in series.items()}


def judged_run(traced: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """The forecast after 5 % of the steps, from 20 to 60, beside how the run, or a shorter one, ended."""
    steps = end["steps"]
    ahead = forecast(series_of(traced, min(steps, max(SHORT, min(LONG_PROBE, round(SHARE * steps))))), steps)
    quarter = next((each for each in traced["ends"] if 4 * each["steps"] >= steps), end)
    names = ("kept", "recall", "untrained_recall")
    return {
        **{name: traced[name] for name in ("number", "task", "setting", "expected")},
        "steps": steps,
        **{name: round(end[name], 4) for name in names},
        "point": is_point(end),
        "slow": is_point(end) and not is_point(quarter),
        "collapsed": "network-collapse" in end["kinds"],
        "outlook": None if ahead is None else ahead.outlook,
        "forecast": as_json(ahead),
    }


def is_point(end: Mapping[str, Any]) -> bool:
    """Whether held-out items have the shape of a full network collapse, as `trivet.collapse.rules` has it."""
    limits = {name: THRESHOLDS[name].value for name in ("gone", "point", "shrunk", "narrowed")}
    narrowed = end["kept"] < limits["shrunk"] and end["narrowing"] < limits["narrowed"]
    return bool(narrowed and (end["kept"] < limits["gone"] or end["relative_spread"] < limits["point"]))


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How well the forecasts knew the ends."""
    from sklearn.metrics import roc_auc_score

    known = [row for row in rows if row["forecast"] is not None]

    def auroc(name: str, among: Sequence[Mapping[str, Any]]) -> float | None:
        ends = [row[name] for row in among]
        return (
            float(roc_auc_score(ends, [row["forecast"]["probability"] for row in among]))
            if 0 < sum(ends) < len(ends)
            else None
        )

    bins = []
    for low, high in ((0.0, UNLIKELY), (UNLIKELY, LIKELY), (LIKELY, 1.0)):
        outlook = {0.0: "unlikely", UNLIKELY: "open", LIKELY: "likely"}[low]
        some = [row for row in known if row["outlook"] == outlook]
        bins.append([low, high, len(some), *(sum(row[name] for row in some) for name in ("point", "collapsed"))])
    return {
        "runs": len(rows),
        "known": len(known),
        **{name: sum(row[name] for row in rows) for name in ("point", "slow", "collapsed")},
        "auroc": auroc("point", known),
        "auroc_slow": auroc("slow", [row for row in known if row["slow"] or not row["point"]]),
        "auroc_collapsed": auroc("collapsed", known),
        "open": sum(row["outlook"] == "open" for row in known),
        "bins": bins,
    }


def chosen(traces: Sequence[Mapping[str, Any]]) -> list[float]:
    """Persistence and uncertainty with which the ends of these runs and of shorter ones are likeliest, by doubling."""
    from scipy.optimize import minimize

    rows = [judged_run(traced, end) for traced in traces for end in traced["ends"]]
    point = math.log2(THRESHOLDS["gone"].value)
    evidence = [row["forecast"]["evidence"] for row in rows]
    now, change = (np.log2([each[name] for each in evidence]) for name in ("shrinkage", "shrinkage_change"))
    left = np.log2([row["steps"] / (row["forecast"]["step"] + 1) for row in rows])
    ends = np.array([row["point"] for row in rows])

    def loss(values: np.ndarray) -> float:
        persistence, uncertainty = values
        chance = norm.cdf((point - now - persistence * change * left) / (NOISE + abs(uncertainty) * left))
        return float(-np.log(np.clip(np.where(ends, chance, 1 - chance), 1e-4, 1)).mean())

    return [float(value) for value in minimize(loss, [1.0, 0.5], method="Nelder-Mead").x]


def map_rows() -> list[dict[str, Any]]:
    """The runs of the collapse map, judged alike."""
    lines = [json.loads(line) for line in (RESULTS / "collapse_map.jsonl").read_text().splitlines()]
    rows = []
    for line in lines:
        point = line["collapse"] == "full"
        slow = point and line["alarm"] is not None and 4 * line["alarm"] >= line["steps"]
        ahead = Forecast(**line["forecast"])
        now, change = (math.log2(ahead.evidence[name]) for name in ("shrinkage", "shrinkage_change"))
        left = math.log2(ahead.end / (ahead.step + 1))
        ahead = replace(ahead, probability=below(math.log2(THRESHOLDS["gone"].value), left, now, change))
        rows.append(
            {"point": point, "collapsed": False, "slow": slow, "outlook": ahead.outlook, "forecast": as_json(ahead)}
        )
    return rows


def page(results: Mapping[str, Any]) -> str:
    sets = results["sets"]
    names = {"later": "30 later runs", "test": "first 30 runs", "map": "collapse map", "selection": "selection"}

    def auroc(value: float | None) -> str:
        return "–" if value is None else f"{value:.3f}"

    cells: list[tuple[str, Callable[[Any], str]]] = [
        ("runs; ended as a point; of these late; network collapse by the rule book",
         lambda s: f"{s['runs']}; {s['point']}; {s['slow']}; {s['collapsed']}"),
        ("AUROC, a point or not (goal 0.9)", lambda s: auroc(s["auroc"])),
        ("AUROC, late points or no point", lambda s: auroc(s["auroc_slow"])),
        ("AUROC, network collapse by the rule book or not", lambda s: auroc(s["auroc_collapsed"])),
        ("nobody can tell, of all", lambda s: share(s["open"], s["known"])),
        *(
            (f"{title}: points, network collapses, of all",
             lambda s, place=place: "{3}, {4} of {2}".format(*s["bins"][place]))
            for place, title in enumerate(("unlikely, up to 20 %", "open", "likely, from 80 %"))
        ),
    ]  # fmt: skip
    lines = [
        "# The forecast: is a point foreseen, a slow one too?",
        "",
        results["command"],
        "",
        results["environment"],
        "",
        "The forecast is made after 5 % of the steps, from 20 to 60. A point: the shape of held-out items beside the "
        "untrained network is that of a full network collapse by the rule book. Late: not yet after a quarter of the "
        "steps; on the map, by the alarm of the monitor. There a point is by the rules of 23 November, and none is a "
        "network collapse by the present ones, as the untrained network retrieved no better.",
        "",
        "Persistence and uncertainty are chosen on the selection, with the ends of shorter runs, by doubling alone: "
        "{:.2f}, {:.2f}. ".format(*results["chosen"])
        + "By that first rule, without a fourth for a shrinking by step, the first 30 runs and the map were judged. On "
        "the map it ordered the runs as well, and called all points unlikely. Then the fourth was added, with which no "
        "point of the selection or of the map is called unlikely. So the later runs alone are a test of the rule; "
        "theirs and the first were written down, with their expected ends, before any of them was trained.",
        "",
        *table(("", *(names[name] for name in sets)), [[name, *map(cell, sets.values())] for name, cell in cells]),
        "By the first rule:",
        "",
        *table(
            ("", *(names[name] for name in results["first"])),
            [[name, *map(cell, results["first"].values())] for name, cell in cells],
        ),
    ]
    head = (
        "task",
        "setting",
        "steps",
        "expected",
        "end",
        "kept",
        "recall@1, %",
        "kept by the forecast",
        "point, %",
        "",
    )
    for of, runs in results["runs"].items():
        rows = [
            [
                *(row["task"], row["setting"], str(row["steps"]), row["expected"]),
                ("point" + (", late" if row["slow"] else "") if row["point"] else "none")
                + (", collapsed" if row["collapsed"] else ""),
                f"{row['kept']:.3f}",
                f"{100 * row['untrained_recall']:.0f} to {100 * row['recall']:.0f}",
                *_forecast_cells(row),
            ]
            for row in runs
        ]
        lines += [f"## {names[of].capitalize()}", "", *table(head, rows)]
    return "\n".join(lines) + "\n"


def _forecast_cells(row: Mapping[str, Any]) -> list[str]:
    ahead = row["forecast"]
    if ahead is None:
        return ["–", "–", "–"]
    low, high = ahead["interval"]
    until = f", until {ahead['until']:,}" if row["outlook"] == "open" else ""
    kept = f"{ahead['shrinkage']:.2g} ({low:.2g} to {high:.2g})"
    return [kept, f"{100 * ahead['probability']:.0f}", f"{row['outlook']}{until}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="folder of what runs leave")
    parser.add_argument("--vectors", type=Path, required=True, help="folder of the MiniLM vectors")
    parser.add_argument("--of", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--share", default="1/1", help="only these of the runs, such as 1/2; judges nothing")
    parser.add_argument("--output", type=Path, default=RESULTS / "forecast_fates.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.runs.mkdir(parents=True, exist_ok=True)
    part, parts = map(int, options.share.split("/"))
    if not (options.runs / "sentences.npz").exists():
        made_sentences(options.runs / "sentences.npz")
    traces: dict[str, list[dict[str, Any]]] = {of: [] for of in options.of}
    for run in [run for run in RUNS if run.of in options.of][part - 1 :: parts]:
        path = options.runs / f"{run.number:04d}.json"
        if not path.exists():
            traced = trace(run, vectors=options.vectors, runs=options.runs)
            path.write_text(json.dumps(traced))
            end = traced["ends"][-1] if traced["ends"] else {}
            kept = f"kept {end.get('kept')}, recall {end.get('untrained_recall')} to {end.get('recall')}"
            print(f"{path.name} {traced['task']}, {traced['setting']}: {traced['seconds']:.1f} s, {kept}", flush=True)
        traces[run.of].append(json.loads(path.read_text()))
    if parts > 1 or len(options.of) < len(SETS):
        return

    def judged(of: str) -> list[dict[str, Any]]:
        return [judged_run(traced, traced["ends"][-1]) for traced in traces[of]]

    results = pages.read(options.output)
    results["command"] = "`TRIVET_DATA=... .venv/bin/python studies/forecast_fates.py --runs ... --vectors ...`"
    results["environment"] = f"{pages.environment('torch')}, one thread."
    results["chosen"] = chosen(traces["selection"])
    runs = {of: judged(of) for of in ("later", "test", "selection")}
    results["sets"] = {of: summary(runs[of]) for of in ("later", "test")} | {
        "map": summary(map_rows()),
        "selection": summary(runs["selection"]),
    }
    with patch("trivet.collapse.forecast.BY_STEP", 0.0):
        results["first"] = {
            "test": summary(judged("test")),
            "map": summary(map_rows()),
            "selection": summary(judged("selection")),
        }
    results["runs"] = {of: runs[of] for of in ("later", "test")}
    pages.write(options.output, results, page(results))


if __name__ == "__main__":
    main()
