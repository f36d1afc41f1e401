"""Short training runs, many of which collapse: is each detected, when, and as the right kind?

    TRIVET_DATA=... .venv/bin/python studies/gauntlet.py --runs FOLDER --parts fit      # the risk
    TRIVET_DATA=... .venv/bin/python studies/gauntlet.py --runs FOLDER --parts watch overhead

A run combines a task with a plain setting. The runs of `TASKS` were used to choose the thresholds, the coefficients of
the risk and `fate`, which decides from the end of a run on held-out items whether it collapsed. The
runs of `TEST_TASKS` are the test: other tasks and settings, written down before any of them was trained, and trained
once, when everything else was final. They were picked by analogy, so that about half of them may collapse. Before any
of their results was read, a task was dropped and the network of two settings made smaller, to save time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pages
from pages import share, table
from trivet.collapse import CollapseMonitor, batch_risk
from trivet.collapse.monitor import FIRST, SERIES
from trivet.datasets import DataConfig, Dataset, Splits, load
from trivet.distances import as_classes
from trivet.losses import TripletLoss
from trivet.metrics import recall_at_k
from trivet.models import build
from trivet.runtime.text import counted
from trivet.samplers import PKBatches
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.loop import Batches, step_seed
from trivet.training.optimizer import make_optimizer

HELD_OUT = 600  # items, of at most 60 classes of the finest level
NARROW = 0.1  # mean distance over the mean norm, or over that before training: below, a point or a narrow cone
HARM = 0.05  # of recall@1 below the best plain setting of the task: the run lost something
TIGHT = 0.5  # distances inside classes over those between them: below, the classes of a coarse task are tight
LOST = 0.05  # of recall@1, below the best of the run so far
EARLY = 0.05  # of the steps, after which the forecast is judged


@dataclass(frozen=True)
class Task:
    """Training data, with or without wrong labels."""

    name: str
    data: Mapping[str, Any]
    noise: float = 0.0
    batches: tuple[tuple[int, int], tuple[int, int]] = ((6, 4), (6, 20))  # a small and a large one
    steps: int = 400
    coarse: bool = False  # trained on a level that has a finer one


TASKS = (
    Task("digits", {"name": "digits", "level": "digit"}),
    Task("digits, 30 % wrong", {"name": "digits", "level": "digit"}, 0.3),
    Task("digits, parity", {"name": "digits", "level": "parity"}, 0.0, ((2, 10), (2, 50)), coarse=True),
    Task("mnist", {"name": "mnist", "level": "digit"}),
    Task("mnist, 20 % wrong", {"name": "mnist", "level": "digit"}, 0.2),
    Task("mnist, parity", {"name": "mnist", "level": "parity"}, 0.0, ((2, 10), (2, 50)), coarse=True),
    Task("omniglot", {"name": "omniglot", "level": "character"}, 0.0, ((8, 4), (48, 4)), 300),
    Task("omniglot, 30 % wrong", {"name": "omniglot", "level": "character"}, 0.3, ((8, 4), (48, 4)), 300),
    Task("omniglot, alphabets", {"name": "omniglot", "level": "alphabet"}, 0.0, ((4, 6), (12, 12)), 300, coarse=True),
)


@dataclass(frozen=True)
class Setting:
    """The settings of a run, apart from its task."""

    name: str
    loss: Mapping[str, Any]
    large: bool = False
    model: str = "mlp"
    dimension: int = 32
    normalize: bool = True
    learning_rate: float = 1e-3
    shrink: float = 1.0  # initial factor on the weights of the last layer
    samples: int | None = None  # of a class in a batch, instead of the task's


def _triplet(positives: str, negatives: str, margin: float = 0.2, **more: Any) -> dict[str, Any]:
    return {"name": "triplet", "positives": positives, "negatives": negatives, "margin": margin, **more}


_BATCH_HARD = _triplet("hard", "hard")
_CONTRASTIVE = {"name": "contrastive", "margin": 0.5}
_PLAIN = _triplet("hard", "hard", 0.0, distance="euclidean")
SETTINGS = (
    Setting("batch-hard, small batches", _BATCH_HARD),
    Setting("batch-hard, large batches", _BATCH_HARD, large=True),
    Setting("batch-hard, convolutions", _BATCH_HARD, large=True, model="conv4"),
    Setting("margin 0, large batches", _PLAIN, large=True, normalize=False),
    Setting("margin 0, 4 dimensions", _PLAIN, large=True, normalize=False, dimension=4),
    Setting("batch-hard, 2 dimensions", _BATCH_HARD, dimension=2),
    Setting("hardest triplet alone", {**_PLAIN, "reduction": "max"}, normalize=False),
    Setting("batch-hard, learning rate 0.05", _BATCH_HARD, large=True, normalize=False, learning_rate=0.05),
    Setting("batch-hard, near-constant start", {**_PLAIN, "margin": 0.2}, normalize=False, shrink=1e-3),
    Setting("first order, 2 of a class", {"name": "nca", "positives": "hard", "negatives": "hard"}, samples=2),
    Setting("first order, easy positives", {"name": "nca", "positives": "easy", "negatives": "hard"}, model="conv4"),
    Setting("second order", {"name": "second-order"}, large=True),
    Setting("easy positives, semi-hard", _triplet("easy", "semihard"), large=True),
    Setting("easy positives, semi-hard, convolutions", _triplet("easy", "semihard"), model="conv4"),
    Setting("random, semi-hard", _triplet("random", "semihard")),
    Setting("random, random", _triplet("random", "random"), large=True),
    Setting("random, random, convolutions", _triplet("random", "random"), large=True, model="conv4", dimension=8),
    Setting("contrastive", _CONTRASTIVE, large=True),
    Setting("margin, distance-weighted", {"name": "margin"}),
    Setting("multi-similarity", {"name": "multi-similarity", "threshold": 1.0}, large=True),
)
COARSE_SETTINGS = (  # for coarse tasks, where they make classes collapse
    Setting("contrastive, convolutions", _CONTRASTIVE, large=True, model="conv4", dimension=8),
    Setting("contrastive, 2 dimensions", _CONTRASTIVE, large=True, dimension=2),
    Setting("hard positives, random negatives", _triplet("hard", "random"), large=True, dimension=8),
    Setting("all triplets", _triplet("all", "all"), large=True, model="conv4", dimension=8),
    Setting("proxies", {"name": "proxy-nca"}, large=True, dimension=8),
    Setting("margin, hard positives", {"name": "margin", "positives": "hard"}, large=True, dimension=8),
    Setting("easy positives, 8 dimensions", _triplet("easy", "semihard"), large=True, dimension=8),
    Setting("easy positives, margin", {"name": "margin", "positives": "easy"}, large=True, dimension=8),
)
TEST_TASKS = (
    Task("fashion", {"name": "fashion-mnist", "level": "item"}, 0.0, ((7, 3), (7, 16))),
    Task("fashion, 30 % wrong", {"name": "fashion-mnist", "level": "item"}, 0.3, ((7, 3), (7, 16))),
    Task("fashion, groups", {"name": "fashion-mnist", "level": "group"}, 0.0, ((4, 5), (4, 24)), coarse=True),
    Task("digits, 15 % wrong", {"name": "digits", "level": "digit"}, 0.15, ((5, 5), (6, 12))),
    Task("digits, parity, 10 % wrong", {"name": "digits", "level": "parity"}, 0.1, ((2, 8), (2, 40)), coarse=True),
    Task("omniglot, 10 % wrong", {"name": "omniglot", "level": "character"}, 0.1, ((16, 3), (32, 6)), 250),
    Task(
        "omniglot, more alphabets", {"name": "omniglot", "level": "alphabet"}, 0.0, ((6, 5), (20, 8)), 250, coarse=True
    ),
)
TEST_SETTINGS = (
    Setting("batch-hard, conv3, 16 dimensions", _triplet("hard", "hard", 0.3), large=True, model="conv3", dimension=16),
    Setting("batch-hard, 3 dimensions", _BATCH_HARD, large=True, dimension=3),
    Setting("margin 0, 6 dimensions", _PLAIN, normalize=False, dimension=6),
    Setting("batch-hard, learning rate 0.02", _BATCH_HARD, normalize=False, learning_rate=0.02, dimension=16),
    Setting("first order, hard, 3 of a class", {"name": "nca", "positives": "hard", "negatives": "hard"}, samples=3),
    Setting("n-pair", {"name": "n-pair"}, large=True, dimension=16),
    Setting("selectively contrastive", {"name": "selectively-contrastive"}, model="conv3", dimension=16),
    Setting("easy positives, violating, 64 dimensions", _triplet("easy", "violating", 0.5), large=True, dimension=64),
    Setting("margin, learning rate 0.003", {"name": "margin"}, large=True, learning_rate=3e-3),
)
TEST_COARSE_SETTINGS = (
    Setting("contrastive, 3 dimensions", {"name": "contrastive", "margin": 1.0}, large=True, dimension=3),
    Setting("contrastive, conv3", {"name": "contrastive", "margin": 1.0}, large=True, model="conv3", dimension=16),
    Setting("proxies, 16 dimensions", {"name": "proxy-nca"}, large=True, dimension=16),
    Setting("easy positives, conv3", _triplet("easy", "semihard", 0.1), large=True, model="conv3", dimension=16),
)


@dataclass(frozen=True)
class Run:
    """One training."""

    number: int
    task: Task
    setting: Setting
    test: bool

    def config(self) -> RunConfig:
        task, setting = self.task, self.setting
        classes, samples = task.batches[setting.large]
        return RunConfig.parse(
            {
                "seed": self.number,
                "data": dict(task.data),
                "model": {"name": setting.model, "embedding_dim": setting.dimension, "normalize": setting.normalize},
                "loss": dict(setting.loss),
                "batch": {"num_classes": classes, "samples_per_class": setting.samples or samples},
                "training": {"steps": task.steps, "learning_rate": setting.learning_rate},
            },
            source=f"{task.name}, {setting.name}",
        )


def _runs() -> Iterator[Run]:
    number = 0
    for test, tasks, settings, coarse in (
        (False, TASKS, SETTINGS, COARSE_SETTINGS),
        (True, TEST_TASKS, TEST_SETTINGS, TEST_COARSE_SETTINGS),
    ):
        for task in tasks:
            for setting in settings + coarse if task.coarse else settings:
                yield Run(number, task, setting, test)
                number += 1


RUNS = tuple(_runs())
PARTS = {  # of runs 82 to 192, on MNIST and Omniglot, every other one, as they take long
    "chosen": tuple(run for run in RUNS if not run.test and (not 82 <= run.number <= 192 or run.number % 2 == 0)),
    "test": tuple(run for run in RUNS if run.test),
}


@cache
def _loaded(name: str, level: str) -> Splits:
    return load(DataConfig.parse({"name": name, "level": level}, source="data"), None)


def _held_out(dataset: Dataset) -> Dataset:
    finest = list(dataset.labels.values())[-1]
    random = np.random.default_rng(0)
    kept = random.permutation(np.unique(finest))[:60]
    rows = np.flatnonzero(np.isin(finest, kept))
    return dataset.subset(np.sort(random.permutation(rows)[:HELD_OUT]))


def wrong_labels(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Exactly this share of the labels replaced by another class, uniformly."""
    random = np.random.default_rng(seed)
    classes, place = np.unique(labels, return_inverse=True)
    wrong = random.permutation(len(labels))[: round(share * len(labels))]
    place[wrong] = (place[wrong] + random.integers(1, len(classes), len(wrong))) % len(classes)
    return classes[place]


def trace(run: Run) -> dict[str, Any]:
    """Train in a plain loop under a monitor; held-out items, measured at intervals, show how the run ends."""
    config = run.config()
    train, held_out, finest = _items(run, config.seed)
    level = train_level(run)
    model = build(config.model, train.inputs.shape, config.seed)
    shrink_last(model, run.setting.shrink)
    loss = config.loss.build(
        num_classes=len(train.names[level]),
        embedding_dim=config.model.embedding_dim,
        generator=torch.Generator().manual_seed(step_seed(config.seed, 0, 3)),
    )
    optimizer = make_optimizer(model, loss, config.training)
    batches = PKBatches(
        train.labels[level],
        num_classes=config.batch.num_classes,
        samples_per_class=config.batch.samples_per_class,
        seed=config.seed,
    )
    steps = config.training.num_steps
    looks_at = {0, 1, 2, 5, 10, 15, 20, 30, 40, 60, 80, *range(100, steps, 20), steps}
    checks = []
    monitor = CollapseMonitor()
    model.train()
    plan = Batches(train, level, batches, None, seed=config.seed, start=0, steps=steps)
    for step, (images, labels, *_) in enumerate(plan):
        if step in looks_at:
            checks.append(_look(step, model, held_out, level))
        index = batches.batch(*divmod(step, batches.steps_per_epoch))
        fine = None if finest == level else torch.from_numpy(train.labels[finest][index])
        embeddings = model(images)
        value = loss(embeddings, labels)
        record = loss.last
        assert record is not None
        monitor.update(embeddings, labels, value, fine=fine, active=record.active_fraction, step=step)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    checks.append(_look(steps, model, held_out, level))
    return {
        "task": run.task.name,
        "setting": run.setting.name,
        "test": run.test,
        "steps": steps,
        "finest": finest,
        "coarse": run.task.coarse,
        "checks": checks,
        "monitor": monitor.as_json(),
    }


def train_level(run: Run) -> str:
    return _loaded(run.task.data["name"], run.task.data["level"]).level


def _items(run: Run, seed: int) -> tuple[Dataset, Dataset, str]:
    """The training items, with wrong labels if the task has them; held-out items; the finest level."""
    splits = _loaded(run.task.data["name"], run.task.data["level"])
    labels = wrong_labels(splits.train.labels[splits.level], run.task.noise, seed)
    train = replace(splits.train, labels={**splits.train.labels, splits.level: labels})
    return train, _held_out(next(iter(splits.evaluation.values()))), list(train.labels)[-1]


def shrink_last(model: torch.nn.Module, factor: float) -> None:
    """Multiply the weights of the last layer: with a small factor all items start near one point."""
    last = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        last.weight.mul_(factor)


def _look(step: int, model: Any, held_out: Dataset, level: str) -> dict[str, float]:
    """Held-out items at a step: distances, tightness of the classes of the level, recall@1 of the finest level."""
    embeddings, finest = embed(model, held_out.inputs), list(held_out.labels)[-1]
    points = torch.from_numpy(embeddings).double()
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    classes = as_classes(held_out.labels[level], count=len(points))
    same = (classes[:, None] == classes).fill_diagonal_(False)
    other = classes[:, None] != classes
    between = float(distances[other].mean())
    return {
        "step": step,
        "distance": float(distances.sum() / (len(points) * (len(points) - 1))),
        "norm": float(torch.linalg.vector_norm(points, dim=1).mean()),
        "within_between": float(distances[same].mean()) / between if between else 1.0,
        finest: recall_at_k(embeddings, held_out.labels[finest], (1,))[1],
    }


def fate(traced: Mapping[str, Any], best: float) -> str:
    """The outcome of a run, from its end on held-out items; `best` is the recall@1 of the best of its task.

    network-collapse: a point or a narrow cone, and at least 5 points below the best. class-collapse: on a coarse task,
    tight classes, at least 5 points below the best and 5 below the run's own best. harmless: a narrow cone that cost
    less than 5 points; such runs are not counted. Otherwise healthy, however well it did.
    """
    end, finest = traced["checks"][-1], traced["finest"]
    lost = best - end[finest] >= HARM
    if end["distance"] < NARROW * end["norm"] or not end["norm"] > 0:
        return "network-collapse" if lost else "harmless"
    own = max(look[finest] for look in traced["checks"])
    if traced["coarse"] and lost and own - end[finest] >= LOST and end["within_between"] < TIGHT:
        return "class-collapse"
    return "healthy"


def lost_at(traced: Mapping[str, Any], *, for_good: bool) -> int | None:
    """The first check 5 points of recall@1 below the best before it; for good: it never recovers."""
    best, found = 0.0, None
    for look in traced["checks"]:
        value = look[traced["finest"]]
        if best - value < LOST:
            found = None if for_good else found
        elif found is None:
            found = look["step"]
        best = max(best, value)
    return found


def trained(folder: Path, runs: Iterable[Run]) -> list[dict[str, Any]]:
    """The traces of these runs under the current rules of the monitor; missing ones are trained first."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for run in runs:
        path = folder / f"{run.number:03d}.json"
        if not path.exists():
            began = time.perf_counter()
            traced = trace(run)
            path.write_text(json.dumps(traced))
            print(f"{path.name}  {run.task.name}, {run.setting.name}: {time.perf_counter() - began:.1f} s", flush=True)
        found.append(replayed(json.loads(path.read_text()) | {"number": run.number}))
    return found


def with_fates(traces: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same with "fate" and "harm"; the best of a task is the best of its runs here."""
    best: dict[str, float] = {}
    for traced in traces:
        best[traced["task"]] = max(best.get(traced["task"], 0.0), traced["checks"][-1][traced["finest"]])
    return [
        {
            **traced,
            "fate": fate(traced, best[traced["task"]]),
            "harm": best[traced["task"]] - traced["checks"][-1][traced["finest"]],
        }
        for traced in traces
    ]


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def rows_of(traced: Mapping[str, Any]) -> list[tuple[int, dict[str, float] | None]]:
    """(step, inputs of the risk) at each check of a run."""
    series = {name: _numbers(values) for name, values in traced["monitor"]["series"].items()}
    return [
        (int(step), batch_risk.features({name: values[: i + 1] for name, values in series.items()}))
        for i, step in enumerate(series["step"])
    ]


def fit(traces: Sequence[Mapping[str, Any]], first: int = 4) -> dict[str, Any]:
    """Weights of the risk: logistic regression on all checks from step 4 on, each run with the same total weight.

    Does a network collapse? Harmless cones are left out. The inputs are standardised for the fit, whose penalty is
    |weights|^2 / 6.
    """
    from sklearn.linear_model import LogisticRegression

    rows, targets, weights = [], [], []
    for traced in traces:
        if traced["fate"] == "harmless":
            continue
        known = [found for step, found in rows_of(traced) if step >= first and found is not None]
        rows += [[found[name] for name in batch_risk.FEATURES] for found in known]
        targets += [traced["fate"] == "network-collapse"] * len(known)
        weights += [1 / len(known)] * len(known)
    raw, share = np.array(rows), np.array(weights)
    middle, scale = raw.mean(axis=0), raw.std(axis=0)
    points = (raw - middle) / scale
    model = LogisticRegression(C=3.0, max_iter=2000).fit(points, targets, sample_weight=share)
    own = model.coef_[0] / scale  # in the units of the measures
    return {
        "origin": f"studies/gauntlet.py --parts fit, {len(traces)} runs of its part chosen on",
        "features": list(batch_risk.FEATURES),
        "weights": [float(f"{value:.6g}") for value in (model.intercept_[0] - own @ middle, *own)],
    }


def replayed(traced: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the events and risks of the current rules, applied check by check."""
    monitor = CollapseMonitor()
    judge = monitor._judge
    series = {name: _numbers(values) for name, values in traced["monitor"]["series"].items()}
    for *row, _ in zip(*(series[name] for name in SERIES), strict=True):
        judge.record(row)
        values = [judge.series[name][-1] for name in ("norm", "loss")]
        judge.judge(int(row[0]), not_finite=not np.isfinite(values).all())
    return {**traced, "monitor": monitor.as_json()}


def risk_after(traced: Mapping[str, Any], share: float) -> float:
    """The risk after this share of the steps."""
    series = traced["monitor"]["series"]
    last = max(i for i, step in enumerate(series["step"]) if step + 1 <= share * traced["steps"])
    return float(series["risk"][last] or 0.0)


def judged(traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How the monitor did on these runs."""
    from sklearn.metrics import roc_auc_score

    rows = []
    for traced in traces:
        alarms = [event for event in traced["monitor"]["events"] if event["kind"].endswith("collapse")]
        first = min(alarms, key=lambda event: event["step"], default=None)
        rows.append(
            {
                "task": traced["task"],
                "setting": traced["setting"],
                "fate": traced["fate"],
                "recall@1": traced["checks"][-1][traced["finest"]],
                "harm": traced["harm"],
                "called": None if first is None else first["kind"],
                "at": None if first is None else first["step"],
                "steps": traced["steps"],
                "lost_at": lost_at(traced, for_good=False),
                "lost_for_good_at": lost_at(traced, for_good=True),
                "risk_early": risk_after(traced, EARLY),
            }
        )
    collapsed = [row for row in rows if row["fate"] in ("network-collapse", "class-collapse")]
    healthy = [row for row in rows if row["fate"] == "healthy"]
    called = [row for row in collapsed if row["called"]]

    def before(name: str) -> int:
        return sum(row[name] is None or row["at"] < row[name] for row in called)

    sorted_out = [row for row in rows if row["fate"] in ("network-collapse", "healthy", "class-collapse")]
    return {
        "runs": rows,
        "collapsed": len(collapsed),
        "healthy": len(healthy),
        "harmless": sum(row["fate"] == "harmless" for row in rows),
        "harmless_called": sum(row["fate"] == "harmless" and row["called"] is not None for row in rows),
        "called": len(called),
        "false_alarms": sum(row["called"] is not None for row in healthy),
        "right_kind": sum(row["called"] == row["fate"] for row in called),
        "before_5_points": before("lost_at"),
        "before_5_points_for_good": before("lost_for_good_at"),
        "before_half": sum(row["at"] < row["steps"] / 2 for row in called),
        "lost_within_5_percent": sum(
            row["lost_at"] is not None and row["lost_at"] <= EARLY * row["steps"] for row in collapsed
        ),
        "lost_before_a_look_judges": sum(row["lost_at"] is not None and row["lost_at"] <= FIRST for row in collapsed),
        "auroc": float(
            roc_auc_score(
                [row["fate"] == "network-collapse" for row in sorted_out], [row["risk_early"] for row in sorted_out]
            )
        ),
    }


def overhead(repeats: int = 7, steps: int = 12) -> dict[str, Any]:
    """How much longer a step of ResNet-18 takes under a monitor: alternating, each a mean over some steps.

    Batches of 32 images of 3 x 64 x 64, batch-hard triplets, forward, backward and Adam; the monitor
    checks every tenth step; the first ten steps, each of which it checks, are over before the clock starts.
    """
    import timm

    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(32, 3, 64, 64, generator=generator), torch.arange(32) // 4
    model = timm.create_model("resnet18", num_classes=128)
    loss = TripletLoss(positives="hard", negatives="hard", normalize=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    monitor = CollapseMonitor()
    spent: dict[str, list[float]] = {"plain": [], "watched": []}

    def step(watched: bool) -> None:
        embeddings = model(images)
        value = loss(embeddings, labels)
        if watched:
            record = loss.last
            assert record is not None
            monitor.update(embeddings, labels, value, active=lambda: record.active_fraction)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    for _ in range(10):
        step(True)
    for _ in range(repeats):
        for name in spent:
            began = time.perf_counter()
            for _ in range(steps):
                step(name == "watched")
            spent[name].append((time.perf_counter() - began) / steps)
    embeddings = model(images)
    began = time.perf_counter()
    for _ in range(200):
        monitor.update(embeddings, labels, 0.2)
    update = (time.perf_counter() - began) / 200
    plain, watched = (statistics.median(spent[name]) for name in ("plain", "watched"))
    return {
        "step_ms": 1e3 * plain,
        "watched_step_ms": 1e3 * watched,
        "ratio": statistics.median(b / a for a, b in zip(*spent.values(), strict=True)),
        "update_ms": 1e3 * update,
        "update_share": update / plain,
        "repeats": repeats,
        "steps": steps,
        "threads": torch.get_num_threads(),
    }


SHORT_STEPS = {3: 384, 4: 512, 10: 832, 40: 1792}
"""Milliseconds of a step, about -> width of the network that takes them."""
SPANS = ((0, 10), (10, 300), (300, 600), (600, 900))


def overhead_of_short_steps(repeats: int = 5) -> list[dict[str, Any]]:
    """What the monitor costs of short steps: the time in its updates over that of the steps without it, one thread.

    Four layers on 64 rows, batch-hard triplets, forward, backward and Adam. The shares are those of the first ten
    updates, each of which is checked, and of the updates between two changes of the pace of the checks.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(64, 256, generator=generator), torch.arange(64) // 4
    found = []
    for width in SHORT_STEPS.values():
        shares, steps = [], []
        for _ in range(repeats):
            sizes = [256, width, width, width, 64]
            layers = [part for pair in pairwise(sizes) for part in (torch.nn.Linear(*pair), torch.nn.ReLU())][:-1]
            model, loss = torch.nn.Sequential(*layers), TripletLoss(positives="hard", negatives="hard", normalize=True)
            optimizer, monitor = torch.optim.Adam(model.parameters(), lr=1e-4), CollapseMonitor()
            own, whole = [], []
            for _ in range(SPANS[-1][1]):
                began = time.perf_counter()
                embeddings = model(rows)
                value = loss(embeddings, labels)
                record = loss.last
                assert record is not None
                before = time.perf_counter()
                monitor.update(embeddings, labels, value, active=partial(getattr, record, "active_fraction"))
                after = time.perf_counter()
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
                own.append(after - before)
                whole.append(time.perf_counter() - began - own[-1])
            shares.append([sum(own[a:b]) / sum(whole[a:b]) for a, b in SPANS])
            steps.append(statistics.median(whole))
        medians = [statistics.median(column) for column in zip(*shares, strict=True)]
        found.append({"step_ms": 1e3 * statistics.median(steps), "shares": medians, "repeats": repeats})
    return found


def _of_all(shares: Sequence[float]) -> float:
    """The share of all updates from that of each span, steps being equally long."""
    return sum((b - a) * share for (a, b), share in zip(SPANS, shares, strict=True)) / SPANS[-1][1]


def report(results: Mapping[str, Any]) -> str:
    """The results as a page of text."""
    lines = ["# The gauntlet: monitor and forecast", "", results["command"], "", results["environment"], ""]
    heads = {"chosen": "chosen on", "test": "test"}
    if "watch" in results:
        parts = [results["watch"][name] for name in heads]
        counts = [f"{part['collapsed']} of {len(part['runs'])} runs" for part in parts]
        lines += [
            "## Detection",
            "",
            f"{counts[0]} used to choose rules, thresholds and forecast collapsed, and {counts[1]} of the "
            "test. The test has other tasks and settings, written down before any was trained and judged once.",
            "",
        ]
        rows: list[tuple[str, str, Any]] = [
            ("collapsed runs detected", ">= 95 %", lambda h: share(h["called"], h["collapsed"])),
            ("false alarms", "<= 5 %", lambda h: share(h["false_alarms"], h["healthy"])),
            ("kind right, of those detected", ">= 90 %", lambda h: share(h["right_kind"], h["called"])),
            (
                "detected before 5 points of recall@1 were lost",
                "all",
                lambda h: share(h["before_5_points"], h["called"]),
            ),
            ("... lost for good", "", lambda h: share(h["before_5_points_for_good"], h["called"])),
            ("detected before half of the run", "all", lambda h: share(h["before_half"], h["called"])),
            ("5 points lost within 5 % of the steps", "", lambda h: share(h["lost_within_5_percent"], h["collapsed"])),
            (
                f"5 points lost by step {FIRST}, before which no check is judged",
                "",
                lambda h: share(h["lost_before_a_look_judges"], h["collapsed"]),
            ),
            ("AUROC of the risk after 5 % of the steps", ">= 0.9", lambda h: f"{h['auroc']:.3f}"),
            (
                "harmless narrow cones, not counted (detected)",
                "",
                lambda h: f"{h['harmless']} ({h['harmless_called']})",
            ),
        ]
        columns = ("", "goal", *heads.values())
        lines += table(columns, ([name, goal, *map(cell, parts)] for name, goal, cell in rows))
    if "overhead" in results:
        found = results["overhead"]
        lines += [
            "## What the monitor costs",
            "",
            found["environment"],
            "",
            f"A step of ResNet-18 on 32 images of 64 x 64 takes {found['step_ms']:.0f} ms, "
            f"{counted(found['threads'], 'thread')}; under a monitor {found['ratio']:.4f} times as long (median of "
            f"{found['repeats']} alternating runs of "
            f"{found['steps']} steps). An update alone takes {found['update_ms']:.2f} ms, checks included: "
            f"{100 * found['update_share']:.2f} % of the step. Goal: 2 %.",
            "",
            "Of shorter steps, one thread, 64 rows of 64 numbers, batch-hard triplets, in per cent:",
            "",
            "| a step | " + " | ".join(f"updates {a + 1} to {b}" for a, b in SPANS) + " | all |",
            "|---:" * (len(SPANS) + 2) + "|",
            *(
                f"| {one['step_ms']:.1f} ms | "
                + " | ".join(f"{100 * share:.1f}" for share in (*one["shares"], _of_all(one["shares"])))
                + " |"
                for one in found["short"]
            ),
            "",
        ]
    if "watch" in results:
        columns = ("part", "task", "setting", "outcome", "recall@1", "below best", "detected", "at", "lost at")
        runs = [(head, row) for name, head in heads.items() for row in results["watch"][name]["runs"]]
        cells = [
            [
                *(head, row["task"], row["setting"], row["fate"], f"{row['recall@1']:.3f}", f"{row['harm']:.3f}"),
                *("" if row[name] is None else str(row[name]) for name in ("called", "at", "lost_at")),
            ]
            for head, row in runs
        ]
        lines += ["## All runs", "", *table(columns, cells)]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="folder of traces; missing ones are trained")
    parser.add_argument("--parts", nargs="+", choices=["fit", "watch", "overhead"], required=True)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "gauntlet.json")
    parser.add_argument("--of", nargs="+", choices=list(PARTS), default=list(PARTS), help="the runs to train")
    parser.add_argument("--share", default="1/1", help="train only these of the runs, such as 1/2, and judge nothing")
    options = parser.parse_args()
    part, parts = map(int, options.share.split("/"))
    if "overhead" not in options.parts:
        torch.set_num_threads(1)
    if "fit" in options.parts:
        model = fit(with_fates(trained(options.runs, PARTS["chosen"])))
        Path(batch_risk.__file__).with_name("batch_risk.json").write_text(json.dumps(model, indent=1) + "\n")
        return
    runs = [run for name in options.of for run in PARTS[name]]
    if parts > 1 and "watch" in options.parts:
        trained(options.runs, runs[part - 1 :: parts])
        return
    results = pages.read(options.output)
    results["command"] = "`TRIVET_DATA=... .venv/bin/python studies/gauntlet.py --runs FOLDER --parts ...`"
    made = f"{pages.environment('torch', 'numpy')}."
    if options.parts != ["overhead"]:
        results["environment"] = made
    if "watch" in options.parts:
        traces = with_fates(trained(options.runs, runs))
        results["watch"] = results.get("watch", {}) | {
            name: judged([traced for traced in traces if traced["test"] == (name == "test")]) for name in options.of
        }
    if "overhead" in options.parts:
        results["overhead"] = overhead() | {"short": overhead_of_short_steps(), "environment": made}
    pages.write(options.output, results, report(results))


if __name__ == "__main__":
    main()
