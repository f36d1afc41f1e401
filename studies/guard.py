"""Is the guard right and in time? Runs of networks that begin pretrained, and of others.

    TRIVET_DATA=... .venv/bin/python studies/guard.py --runs FOLDER --vectors FOLDER --weights FILE \\
        --encoder FOLDER --parts estimate
    ... --of learn --parts watch     # runs by which rules are chosen
    ... --of test --parts watch      # judged once, when all else is final
    ... --of later --parts watch     # the second test, likewise
    ... --of test later odd --parts watch  # the results of 29 November; about 75 minutes of one core

FILE holds the weights of EfficientNet-Lite0, the folder of vectors those of CLINC150 and BANKING77 by MiniLM, as
`clinc150_minilm.npz` and `banking77_minilm.npz` from encoded_texts.py; the encoder is MiniLM itself, a folder of
sentence-transformers. Every run leaves a file; what is there is not trained again, so any part can be stopped at any
time. --share 1/2 makes every other run, for two processes.

A run combines a task, which has its network, with a plain setting. Each is trained once under two monitors: one sees
the batches alone, the other asks a probe besides. So both are judged on the same runs, the old way beside the new. What
became of a run is told by items that no monitor sees, see `fate`. All tasks and settings of the test, and the rules of
`fate`, were written down before any of them was trained. The data, networks, batches and values of its settings are
others than those of the runs that rules are chosen on; 36 of its 65 runs are expected to be harmed or to collapse.

After that test the rules were changed once more, by its runs and those of `learn`. Its results stand as they were. The
second test, `later`, is of other tasks and settings, among them a sentence encoder that is fine-tuned from end to end.
It, too, was written down before any of its runs was trained; 37 of the 64 are expected to be harmed or to collapse. The
results of both are under "before". Then the rules were written anew, for other reasons than these runs, and `odd`, ten
runs that look like faults and are expected to be healthy, was written down. The odd runs and those of small networks
were trained on 27 November, and a rule was taken out that called harm what never was better than chance; the counts of
the other rules then are under "before_halves". Harm by halves of the probe came after that, from `watched_runs.py`, and
all runs were trained anew on 29 November; that by halves a gain is told too often is under "gains_by_halves". Without
it they were trained once more on that day and judged once. The earlier benchmark is `gauntlet.py`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pages
from pages import share, table
from readers import cifar_archive, cub_archive, write_file
from trivet.collapse.alarms import SERIES, Judge
from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.collapse.probe import Probe, ProbeResult, ProbeTracker, measure_probe
from trivet.collapse.significance import compare_values, recall_by_chance
from trivet.commands.train.pre_run_forecast import foresee
from trivet.datasets import Dataset, Splits
from trivet.distances import as_classes
from trivet.runtime.json_numbers import as_json
from trivet.training.components import Components, load_splits
from trivet.training.config import RunConfig, resolved
from trivet.training.embed_dataset import embed
from trivet.training.loop import NotFiniteError, fit

JUDGED = 600  # items by which a fate is told, of at most 60 classes of the finest level
PROBE = 200  # items of the probe
HARM = 0.05  # of recall@1 below the best plain setting of the task: the run lost something
LOST = 0.05  # of recall@1, below the best of the run so far
NARROW = 0.1  # relative spread, below which items lie in a narrow cone
TIGHT = 0.5  # distances inside classes over those between them: below, the classes of a coarse task are tight
EARLY = 0.05  # of the steps, within which nobody can warn in time, and after which the forecast is judged
HARMED = ("network-collapse", "class-collapse", "harm")
GOALS = {"recall": 0.95, "false": 0.05, "in time": 0.8, "auroc": 0.93}


@dataclass(frozen=True, eq=False)
class Task:
    """Data with a network.

    Attributes:
        rate: the learning rate of a setting with rate 1.
        batches: (classes, items of each) of a small and of a large batch.
        noise: share of wrong labels.
        coarse: trained on a level that has a finer one.
    """

    name: str
    data: Mapping[str, Any]
    model: Mapping[str, Any]
    rate: float
    steps: int
    batches: tuple[tuple[int, int], tuple[int, int]]
    noise: float = 0.0
    coarse: bool = False


@dataclass(frozen=True)
class Setting:
    """The settings of a run apart from its task; `harms`: whether it was expected to, before it was trained."""

    name: str
    loss: Mapping[str, Any]
    harms: bool
    rate: float = 1.0  # times that of the task
    large: bool = False
    model: Mapping[str, Any] = field(default_factory=dict)


def _triplet(positives: str, negatives: str, margin: float = 0.2, **more: Any) -> dict[str, Any]:
    return {"name": "triplet", "positives": positives, "negatives": negatives, "margin": margin, **more}


_TRANSFORMER = {"name": f"python:{Path(__file__).with_name('small_transformer.py')}:SmallTransformer"}
_LITE = {"name": "timm:tf_efficientnet_lite0", "weights": "{weights}", "embedding_dim": 64}
_NCA = {"name": "nca", "positives": "easy", "negatives": "hard"}
_BARE = {"model": {"normalize": False}}
LEARN: dict[Task, tuple[Setting, ...]] = {}
TEST: dict[Task, tuple[Setting, ...]] = {}

_SCRATCH = (
    Setting("batch-hard", _triplet("hard", "hard"), True, large=True),
    Setting("batch-hard, rate x 20", _triplet("hard", "hard"), True, rate=20),
    Setting("margin 0, 4 dimensions", _triplet("hard", "hard", 0.0, distance="euclidean"), True, large=True,
            model={"embedding_dim": 4, "normalize": False}),
    Setting("first order", _NCA, False, large=True),
    Setting("first order, rate x 5", _NCA, False, rate=5),
    Setting("n-pair", {"name": "n-pair"}, False),
    Setting("proxies", {"name": "proxy-nca"}, False, large=True),
    Setting("margin, rate x 30", {"name": "margin"}, True, rate=30),
    Setting("contrastive", {"name": "contrastive", "margin": 0.5}, False, large=True),
    Setting("easy positives, semi-hard", _triplet("easy", "semihard"), False, large=True),
)  # fmt: skip
_BEGUN = (
    Setting("batch-hard, rate x 30", _triplet("hard", "hard"), True, rate=30),
    Setting("easy positives, semi-hard, rate x 100", _triplet("easy", "semihard"), True, rate=100),
    Setting("margin, rate x 100", {"name": "margin"}, True, rate=100),
    Setting("margin 0, 4 dimensions", _triplet("hard", "hard", 0.0, distance="euclidean"), True, large=True,
            model={"embedding_dim": 4, "normalize": False}),
    Setting("first order, rate x 10", _NCA, False, rate=10),
    Setting("multi-similarity", {"name": "multi-similarity", "threshold": 1.0}, False, large=True),
    Setting("proxies", {"name": "proxy-nca"}, False),
    Setting("easy positives, semi-hard", _triplet("easy", "semihard"), False, large=True),
)  # fmt: skip
LEARN |= {
    Task(
        "mnist, 20 % wrong",
        {"name": "mnist", "level": "digit"},
        {"name": "mlp", "embedding_dim": 32},
        rate=1e-3,
        steps=300,
        batches=((5, 4), (6, 16)),
        noise=0.2,
    ): _SCRATCH,
    Task(
        "mnist, parity",
        {"name": "mnist", "level": "parity"},
        {"name": "mlp", "embedding_dim": 16},
        rate=1e-3,
        steps=300,
        batches=((2, 10), (2, 40)),
        coarse=True,
    ): _SCRATCH,
    Task(
        "sentences, transformer",
        {"name": "vectors", "path": "{runs}/sentences.npz", "levels": ["topic"], "codes": "uint8"},
        {**_TRANSFORMER, "embedding_dim": 32},
        rate=1e-3,
        steps=250,
        batches=((8, 4), (12, 6)),
    ): _SCRATCH,
    Task(
        "banking, residual head",
        {"name": "vectors", "path": "{vectors}/banking77_minilm.npz", "levels": ["intent"]},
        {"name": "residual", "embedding_dim": 384},
        rate=1e-4,
        steps=250,
        batches=((8, 4), (16, 8)),
    ): _BEGUN,
    Task(
        "cifar, EfficientNet",
        {"name": "folder", "root": "{runs}/cifar-begun", "image_size": 64},
        _LITE,
        rate=3e-5,
        steps=60,
        batches=((6, 4), (8, 4)),
    ): (
        *_BEGUN,
        Setting("batch norm trained", _triplet("easy", "semihard"), True, model={"batch_norm": "train"}),
        Setting(
            "batch norm trained, rate x 10",
            {"name": "multi-similarity", "threshold": 1.0},
            True,
            rate=10,
            model={"batch_norm": "train"},
        ),
    ),
    Task(
        "mnist, ResNet-18",
        {"name": "mnist", "level": "digit"},
        {"name": "timm:resnet18", "embedding_dim": 32},
        rate=1e-3,
        steps=80,
        batches=((5, 4), (6, 6)),
    ): _SCRATCH[:8],
}

_TEST_SCRATCH = (
    Setting("batch-hard, margin 0.3, rate x 3", _triplet("hard", "hard", 0.3), True, rate=3, large=True),
    Setting("batch-hard, rate x 40", _triplet("hard", "hard"), True, rate=40),
    Setting("hard positives, random negatives", _triplet("hard", "random"), True, large=True),
    Setting("margin 0, 6 dimensions", _triplet("hard", "hard", 0.0, distance="euclidean"), True, large=True,
            model={"embedding_dim": 6, "normalize": False}),
    Setting("margin, hard positives, rate x 20", {"name": "margin", "positives": "hard"}, True, rate=20),
    Setting("first order, rate x 3", _NCA, False, rate=3, large=True),
    Setting("first order, hard positives", {**_NCA, "positives": "hard"}, True),
    Setting("n-pair, large batches", {"name": "n-pair"}, False, large=True),
    Setting("proxies, rate x 3", {"name": "proxy-nca"}, False, rate=3),
    Setting("multi-similarity", {"name": "multi-similarity", "threshold": 1.0}, False, large=True),
    Setting("easy positives, violating", _triplet("easy", "violating", 0.3), False, large=True),
)  # fmt: skip
_TEST_BEGUN = (
    Setting("batch-hard, rate x 50", _triplet("hard", "hard"), True, rate=50, large=True),
    Setting("random, semi-hard, rate x 200", _triplet("random", "semihard"), True, rate=200),
    Setting("margin, rate x 200", {"name": "margin"}, True, rate=200),
    Setting("batch-hard, 3 dimensions", _triplet("hard", "hard"), True, model={"embedding_dim": 3}),
    Setting("hard positives, random negatives, rate x 30", _triplet("hard", "random"), True, rate=30, large=True),
    Setting("contrastive, rate x 100", {"name": "contrastive", "margin": 0.8}, True, rate=100),
    Setting("first order, rate x 5", _NCA, False, rate=5, large=True),
    Setting("n-pair", {"name": "n-pair"}, False, large=True),
    Setting("proxies, rate x 5", {"name": "proxy-nca"}, False, rate=5),
    Setting("random, semi-hard", _triplet("random", "semihard"), False),
    Setting("easy positives, violating", _triplet("easy", "violating", 0.1), False, large=True),
)  # fmt: skip
TEST |= {
    Task(
        "clinc, residual head",
        {"name": "vectors", "path": "{vectors}/clinc150_minilm.npz", "levels": ["intent"]},
        {"name": "residual", "embedding_dim": 256},
        rate=2e-4,
        steps=200,
        batches=((10, 3), (20, 6)),
    ): _TEST_BEGUN,
    Task(
        "clinc, domains, residual head",
        {
            "name": "vectors",
            "path": "{vectors}/clinc150_minilm.npz",
            "levels": ["domain", "intent"],
            "level": "domain",
        },
        {"name": "residual", "embedding_dim": 384},
        rate=2e-4,
        steps=200,
        batches=((6, 5), (10, 12)),
        coarse=True,
    ): _TEST_BEGUN,
    Task(
        "clinc, texts, transformer",
        {"name": "vectors", "path": "{runs}/clinc-words.npz", "levels": ["intent"]},
        {**_TRANSFORMER, "embedding_dim": 48, "words": 1500, "dropout": 0.2},
        rate=1e-3,
        steps=300,
        batches=((10, 4), (20, 5)),
    ): _TEST_SCRATCH,
    Task(
        "cub-50, EfficientNet",
        {"name": "folder", "root": "{runs}/cub", "image_size": 64, "split": "class-disjoint", "folds": 5},
        _LITE,
        rate=3e-5,
        steps=70,
        batches=((7, 4), (10, 4)),
    ): (
        *_TEST_BEGUN[:3],
        Setting("batch norm trained", _triplet("random", "semihard"), True, model={"batch_norm": "train"}),
        Setting("batch norm trained, first order", _NCA, True, rate=5, model={"batch_norm": "train"}),
        *_TEST_BEGUN[5:],
    ),
    Task(
        "cifar, ResNet-18",
        {"name": "folder", "root": "{runs}/cifar", "image_size": 32},
        {"name": "timm:resnet18", "embedding_dim": 24},
        rate=5e-4,
        steps=100,
        batches=((8, 4), (10, 5)),
    ): _TEST_SCRATCH[:10],
    Task(
        "fashion, groups, 10 % wrong",
        {"name": "fashion-mnist", "level": "group"},
        {"name": "conv3", "embedding_dim": 16},
        rate=1e-3,
        steps=250,
        batches=((4, 5), (4, 20)),
        noise=0.1,
        coarse=True,
    ): _TEST_SCRATCH,
}

_LATER_SCRATCH = (
    Setting("batch-hard, margin 0.5", _triplet("hard", "hard", 0.5), True, large=True),
    Setting("batch-hard, rate x 10", _triplet("hard", "hard", 0.1), True, rate=10),
    Setting("random positives, hard negatives, rate x 30", _triplet("random", "hard"), True, rate=30, large=True),
    Setting("margin 0, 5 dimensions", _triplet("hard", "semihard", 0.0, distance="euclidean"), True,
            model={"embedding_dim": 5, "normalize": False}),
    Setting("margin, rate x 40", {"name": "margin"}, True, rate=40, large=True),
    Setting("first order, hard positives, rate x 3", {**_NCA, "positives": "hard"}, True, rate=3, large=True),
    Setting("n-pair, rate x 30", {"name": "n-pair"}, True, rate=30),
    Setting("supervised contrastive", {"name": "supcon"}, False, large=True),
    Setting("arcface, rate x 3", {"name": "arcface"}, False, rate=3),
    Setting("circle", {"name": "circle"}, False, large=True),
    Setting("easy positives, semi-hard, rate x 2", _triplet("easy", "semihard", 0.1), False, rate=2, large=True),
)  # fmt: skip
_LATER_BEGUN = (
    Setting("batch-hard, rate x 40", _triplet("hard", "hard"), True, rate=40, large=True),
    Setting("random, semi-hard, rate x 100", _triplet("random", "semihard"), True, rate=100),
    Setting("margin, rate x 100", {"name": "margin"}, True, rate=100),
    Setting("contrastive, rate x 50", {"name": "contrastive", "margin": 0.6}, True, rate=50),
    Setting("random positives, hard negatives, rate x 30", _triplet("random", "hard"), True, rate=30, large=True),
    Setting("first order, hard positives, rate x 20", {**_NCA, "positives": "hard"}, True, rate=20),
    Setting("first order, rate x 3", _NCA, False, rate=3, large=True),
    Setting("n-pair", {"name": "n-pair"}, False, large=True),
    Setting("arcface, rate x 3", {"name": "arcface"}, False, rate=3),
    Setting("supervised contrastive", {"name": "supcon"}, False, large=True),
    Setting("random, semi-hard", _triplet("random", "semihard"), False),
    Setting("easy positives, violating", _triplet("easy", "violating", 0.3), False, large=True),
)  # fmt: skip
_ENCODER = {"name": "text:{encoder}", "max_tokens": 32}
LATER: dict[Task, tuple[Setting, ...]] = {
    Task(
        "clinc, MiniLM",
        {"name": "texts", "path": "{runs}/clinc.csv", "levels": ["intent"]},
        _ENCODER,
        rate=2e-5,
        steps=80,
        batches=((8, 4), (16, 4)),
    ): _LATER_BEGUN,
    Task(
        "clinc, domains, MiniLM",
        {"name": "texts", "path": "{runs}/clinc.csv", "levels": ["domain", "intent"], "level": "domain"},
        _ENCODER,
        rate=2e-5,
        steps=80,
        batches=((5, 6), (8, 8)),
        coarse=True,
    ): (*_LATER_BEGUN[:4], *_LATER_BEGUN[7:9], _LATER_BEGUN[-1]),
    Task(
        "cub-50, vectors, residual head",
        {"name": "vectors", "path": "{runs}/cub-vectors.npz", "levels": ["class"], "folds": 5},
        {"name": "residual", "embedding_dim": 512},
        rate=2e-4,
        steps=250,
        batches=((8, 4), (12, 6)),
    ): _LATER_BEGUN,
    Task(
        "omniglot, alphabets",
        {"name": "omniglot", "level": "alphabet"},
        {"name": "conv3", "embedding_dim": 48},
        rate=1e-3,
        steps=250,
        batches=((6, 6), (10, 10)),
        coarse=True,
    ): _LATER_SCRATCH,
    Task(
        "fashion, items, 30 % wrong",
        {"name": "fashion-mnist", "level": "item"},
        {"name": "mlp", "embedding_dim": 24},
        rate=1e-3,
        steps=300,
        batches=((5, 6), (7, 12)),
        noise=0.3,
    ): _LATER_SCRATCH,
    Task(
        "cifar, 40 % wrong, conv3",
        {"name": "folder", "root": "{runs}/cifar", "image_size": 32},
        {"name": "conv3", "embedding_dim": 40},
        rate=1e-3,
        steps=200,
        batches=((8, 4), (10, 8)),
        noise=0.4,
    ): _LATER_SCRATCH,
}

_NEAR = _triplet("easy", "semihard")
_FAR = _triplet("easy", "semihard", 200.0, distance="euclidean")
_LONG = {"name": "residual", "embedding_dim": 384, "normalize": False}
_HOT = {"name": "supcon", "temperature": 0.01}


def _of_vectors(path: str, level: str, **more: Any) -> dict[str, Any]:
    return {"name": "vectors", "path": path, "levels": [level], **more}


ODD: dict[Task, tuple[Setting, ...]] = {
    Task("banking, norms of 1,000", _of_vectors("{runs}/banking-long.npz", "intent"), _LONG,
         rate=1e-4, steps=150, batches=((8, 4), (16, 8))): (Setting("easy positives, semi-hard", _FAR, False),),
    Task("clinc, norms of 1,000", _of_vectors("{runs}/clinc-long.npz", "intent"), _LONG,
         rate=1e-4, steps=150, batches=((8, 4), (16, 8))): (Setting("margin 0", {**_FAR, "margin": 0.0}, False),),
    Task("banking, residual head, hot", _of_vectors("{vectors}/banking77_minilm.npz", "intent"),
         {"name": "residual", "embedding_dim": 384},
         rate=1e-4, steps=150, batches=((8, 4), (16, 8))): (Setting("temperature 0.01", _HOT, False, large=True),),
    Task("mnist, hot", {"name": "mnist", "level": "digit"}, {"name": "mlp", "embedding_dim": 32},
         rate=1e-3, steps=150, batches=((5, 4), (6, 12))): (Setting("temperature 0.01", _HOT, False, large=True),),
    Task("banking, narrow cone", _of_vectors("{runs}/banking-cone.npz", "intent"),
         {"name": "residual", "embedding_dim": 384},
         rate=1e-4, steps=150, batches=((8, 4), (16, 8))): (Setting("easy positives, semi-hard", _NEAR, False),),
    Task("clinc, narrow cone", _of_vectors("{runs}/clinc-cone.npz", "intent"),
         {"name": "residual", "embedding_dim": 384},
         rate=1e-4, steps=150, batches=((8, 4), (16, 8))): (Setting("first order", _NCA, False, large=True),),
    Task("sentences, dropout 0.7", _of_vectors("{runs}/sentences.npz", "topic", codes="uint8"),
         {**_TRANSFORMER, "embedding_dim": 32, "dropout": 0.7},
         rate=1e-3, steps=200, batches=((8, 4), (12, 6))): (Setting("proxies", {"name": "proxy-nca"}, False),),
    Task("clinc, texts, dropout 0.7", _of_vectors("{runs}/clinc-words.npz", "intent"),
         {**_TRANSFORMER, "embedding_dim": 48, "words": 1500, "dropout": 0.7},
         rate=1e-3, steps=200, batches=((10, 4), (20, 5))): (Setting("supervised", {"name": "supcon"}, False),),
    Task("banking, rate 1e-7", _of_vectors("{vectors}/banking77_minilm.npz", "intent"),
         {"name": "residual", "embedding_dim": 384},
         rate=1e-7, steps=150, batches=((8, 4), (16, 8))): (Setting("batch-hard", _triplet("hard", "hard"), False),),
    Task("cifar, frozen EfficientNet", {"name": "folder", "root": "{runs}/cifar-begun", "image_size": 64},
         {**_LITE, "freeze": "all"},
         rate=1e-3, steps=50, batches=((6, 4), (8, 4))): (Setting("easy positives, semi-hard", _NEAR, False),),
}  # fmt: skip
"""Odd runs that were expected to be healthy: each with one setting that looks like a fault."""
SETS = {"learn": LEARN, "test": TEST, "later": LATER, "odd": ODD}


@dataclass(frozen=True)
class Run:
    """One training."""

    of: str
    number: int
    task: Task
    setting: Setting

    def config(self, places: Mapping[str, str]) -> RunConfig:
        task, setting = self.task, self.setting
        classes, samples = task.batches[setting.large]
        data, model = (
            {key: value.format(**places) if isinstance(value, str) else value for key, value in part.items()}
            for part in (task.data, {**task.model, **setting.model})
        )
        loss = dict(setting.loss)
        config = RunConfig.parse(
            {
                "seed": self.number,
                "data": data,
                "model": model,
                "loss": loss,
                "batch": {"num_classes": classes, "samples_per_class": samples},
                "training": {"steps": task.steps, "learning_rate": task.rate * setting.rate, "checkpoint_every": 50},
                "guard": {"probe": PROBE},
            },
            source=f"{task.name}, {setting.name}",
        )
        return resolved(config)


def _runs() -> tuple[Run, ...]:
    found: list[Run] = []
    for name, tasks in SETS.items():
        for task, settings in tasks.items():
            found += [Run(name, len(found) + number, task, setting) for number, setting in enumerate(settings)]
    return tuple(found)


RUNS = _runs()


# The data that are made: sentences of made words, CLINC150 as word numbers, and folders of images.


def prepare(runs: Path, vectors: Path, weights: Path, needed: Sequence[Run]) -> None:
    """Make what these runs need and is not there yet."""
    runs.mkdir(parents=True, exist_ok=True)
    used = {str(value) for run in needed for value in run.task.data.values()}
    names = {value.removeprefix("{runs}/") for value in used}
    if "cub-vectors.npz" in names:
        names.add("cub")
    for name, make in (
        ("sentences.npz", _sentences),
        ("clinc-words.npz", lambda path: _clinc_words(path, vectors)),
        ("clinc.csv", lambda path: _clinc_texts(path, vectors)),
        ("cub", _cub),
        ("cub-vectors.npz", lambda path: _cub_vectors(path, weights)),
        ("cifar", lambda path: _cifar(path, 300, 60, first=0)),
        ("cifar-begun", lambda path: _cifar(path, 400, 60, first=300)),
        ("banking-long.npz", lambda path: _moved(path, vectors / "banking77_minilm.npz", scale=1000)),
        ("clinc-long.npz", lambda path: _moved(path, vectors / "clinc150_minilm.npz", scale=1000)),
        ("banking-cone.npz", lambda path: _moved(path, vectors / "banking77_minilm.npz", shift=12)),
        ("clinc-cone.npz", lambda path: _moved(path, vectors / "clinc150_minilm.npz", shift=12)),
    ):
        if name in names and not (runs / name).exists():
            made = runs / f"{os.getpid()}-{name}"
            make(made)
            if not (runs / name).exists():  # another process may have made it meanwhile
                made.rename(runs / name)


def _sentences(path: Path) -> None:
    """24 topics of six words; a sentence has two of them and two to six fillers."""
    draw = random.Random(0)
    rows, topics = [], []
    for item in range(4000):
        topic = item % 24
        words = [1 + 6 * topic + word for word in draw.sample(range(6), 2)]
        words += [145 + draw.randrange(40) for _ in range(draw.randint(2, 6))]
        draw.shuffle(words)
        rows.append(words + [0] * (8 - len(words)))
        topics.append(topic)
    split = np.where(np.arange(4000) < 2800, "train", "test")
    np.savez(path, embeddings=np.array(rows, np.float32), topic=np.array(topics), split=split)


def _moved(path: Path, vectors: Path, *, scale: float = 1.0, shift: float = 0.0) -> None:
    """Vectors times a scale, and moved so far in a random direction."""
    with np.load(vectors, allow_pickle=False) as file:
        arrays = dict(file)
    rows = arrays["embeddings"]
    direction = np.random.default_rng(0).standard_normal(rows.shape[1])
    moved = scale * rows + shift * direction / np.linalg.norm(direction)
    np.savez(path, **arrays | {"embeddings": moved.astype(np.float32)})


def _clinc_words(path: Path, vectors: Path) -> None:
    """The texts of 40 intents as numbers of their words, the 1,499 most frequent ones of the training texts."""
    with np.load(vectors / "clinc150_minilm.npz", allow_pickle=False) as file:
        texts, intents, splits = file["text"], file["intent"], file["split"]
    kept = np.isin(intents, np.random.default_rng(0).permutation(np.unique(intents))[:40])
    texts, intents, splits = texts[kept], intents[kept], splits[kept]
    counts: dict[str, int] = {}
    for text in texts[splits == "train"]:
        for word in str(text).split():
            counts[word] = counts.get(word, 0) + 1
    known = {
        word: 1 + place for place, word in enumerate(sorted(counts, key=lambda word: (-counts[word], word))[:1499])
    }
    rows = np.zeros((len(texts), 12), np.float32)
    for row, text in zip(rows, texts, strict=True):
        numbers = [known[word] for word in str(text).split() if word in known][:12]
        row[: len(numbers)] = numbers
    np.savez(path, embeddings=rows, intent=intents, split=splits)


def _clinc_texts(path: Path, vectors: Path) -> None:
    """The texts of the vectors: those to test are of other intents than those to train on."""
    with np.load(vectors / "clinc150_minilm.npz", allow_pickle=False) as file, path.open("w", newline="") as target:
        columns = ("text", "domain", "intent", "split")
        writer = csv.writer(target)
        writer.writerow(columns)
        writer.writerows(zip(*(file[name].tolist() for name in columns), strict=True))


def _cub(path: Path) -> None:
    """30 images of each of the 50 classes."""
    archive, names = cub_archive()
    _unpack(archive, names, path, 30)


def _cub_vectors(path: Path, weights: Path) -> None:
    """What EfficientNet-Lite0 makes of the same images; those to test are of the classes not trained on."""
    data = {"name": "folder", "root": str(path.with_name("cub")), "image_size": 96, "split": "class-disjoint"}
    model = {"name": "timm:tf_efficientnet_lite0", "weights": str(weights), "head": "none", "embedding_dim": 1280}
    config = RunConfig.parse({"data": data, "model": model, "loss": {"name": "triplet"}}, source="vectors of CUB")
    splits = load_splits(config, None)
    network = Components(config, splits).state.learner.model
    given = {"train": splits.train, "test": next(iter(splits.evaluation.values()))}
    made = {name: embed(network, dataset.inputs) for name, dataset in given.items()}
    classes = [dataset.labels[splits.level] for dataset in given.values()]
    names = np.repeat(list(made), [len(rows) for rows in made.values()])
    np.savez(path, embeddings=np.concatenate(list(made.values())), split=names, **{"class": np.concatenate(classes)})


def _cifar(path: Path, train: int, test: int, *, first: int) -> None:
    """So many images of each class to train on, from the first on, and to test."""
    archive = cifar_archive()
    for part, most in (("train", train), ("test", test)):
        names = [name for name in archive.namelist() if name.endswith(".jpg") and f"/{part}/" in name]
        _unpack(archive, sorted(names), path / part, most, first=first)


def _unpack(archive: zipfile.ZipFile, names: Sequence[str], path: Path, most: int, *, first: int = 0) -> None:
    """So many images of each class, which is their folder, from the first on."""
    counts: dict[str, int] = {}
    for name in names:
        label = Path(name).parent.name
        counts[label] = counts.get(label, 0) + 1
        if first < counts[label] <= first + most:
            write_file(path / label / Path(name).name, archive.read(name))


# A run.


@cache
def _loaded(settings: str) -> Splits:
    return load_splits(RunConfig.parse({**json.loads(settings), "loss": {"name": "triplet"}}, source="data"), None)


def splits_of(run: Run, config: RunConfig) -> Splits:
    """The data of a run, with its wrong labels."""
    settings = {"data": config.data.model_dump(mode="json", exclude_none=True)}
    if config.model.name.startswith("text:"):  # its tokenizer makes the inputs
        settings["model"] = config.model.model_dump(mode="json", exclude_none=True)
    splits = _loaded(json.dumps(settings))
    if not run.task.noise:
        return splits
    draw = np.random.default_rng(run.number)
    labels = splits.train.labels[splits.level].copy()
    classes = np.unique(labels)
    wrong = draw.permutation(len(labels))[: round(run.task.noise * len(labels))]
    place = np.searchsorted(classes, labels[wrong])
    labels[wrong] = classes[(place + draw.integers(1, len(classes), len(wrong))) % len(classes)]
    return replace(splits, train=replace(splits.train, labels={**splits.train.labels, splits.level: labels}))


def judged_items(splits: Splits) -> Dataset:
    """Items that no monitor sees: of the evaluation split that no step is chosen by."""
    name = next(name for name in splits.evaluation if name not in ("validation", "val"))
    dataset = splits.evaluation[name]
    finest, draw = list(dataset.labels.values())[-1], np.random.default_rng(0)
    kept = draw.permutation(np.unique(finest))[:60]
    rows = np.flatnonzero(np.isin(finest, kept))
    return dataset.subset(np.sort(draw.permutation(rows)[:JUDGED]))


def _classes(dataset: Dataset, level: str) -> list[np.ndarray]:
    """Class numbers at the level, and at the finest one where that is another."""
    numbers = [as_classes(labels, count=len(dataset)).numpy() for labels in dataset.labels.values()]
    at = list(dataset.labels).index(level)
    return [numbers[at], *numbers[-1:][: len(numbers) - 1 - at]]


class Both:
    """Two monitors of one training: one of the batches alone, one that asks a probe, as each look does for replays."""

    def __init__(self, levels: list[np.ndarray], steps: int) -> None:
        self.alone, self.probed = CollapseMonitor(steps=steps), CollapseMonitor(steps=steps)
        self.checks: dict[int, ProbeResult] = {}
        self._levels = levels

    def begin(self, probe: Probe, *, step: int) -> None:
        self.probed.begin(probe, step=step)

    def update(self, *given: Any, probe: Probe | None = None, **others: Any) -> list[Event]:
        before = len(self.probed.series["step"])
        self.alone.update(*given, **others)
        self.probed.update(*given, probe=probe, **others)
        if probe is not None and len(self.probed.series["step"]) > before:
            step = others["step"]
            start = self.probed.probing.reference if not self.checks else None  # before a pass moved batch norm
            self.checks[step] = start or measure_probe(step, probe()[0], self._levels)
        return []

    def close(self, probe: Probe | None, *, step: int) -> None:
        """Ask the probe at the end, as a training does."""
        before = self.probed.probing.last
        self.probed.close(probe, step=step)
        last = self.probed.probing.last
        if last is not None and last is not before:
            self.checks[step] = last


def trace(run: Run, places: Mapping[str, str]) -> dict[str, Any]:
    """Train under both monitors; items that neither sees show, at intervals, what becomes of the run."""
    config = run.config(places)
    splits = splits_of(run, config)
    parts = Components(config, splits)
    assert parts.probe_items is not None, f"{run.task.name} has too few items for a probe"
    items = judged_items(splits)
    levels = _classes(items, splits.level)
    steps = config.training.num_steps
    looks_at = {0, 1, 2, 4, 7, 10, 15, 20, 25, *range(30, steps, 10 if steps <= 150 else 20), steps}
    checks: list[ProbeResult] = []

    def judge(step: int) -> None:
        if step in looks_at:
            checks.append(measure_probe(step, embed(parts.state.learner.model, items.inputs), levels))

    began = time.process_time()
    judge(0)
    task = parts.state.learner
    task.after_step = lambda: judge(task.step)
    both = Both(_classes(parts.probe_items.items, splits.level), steps)
    task.monitor = both  # type: ignore[assignment]  # it has the two methods that a step calls
    finite = True
    try:
        if not fit(task, parts.batches_from(0)):
            raise KeyboardInterrupt  # a signal: no whole run, so it leaves no file
    except NotFiniteError:
        finite = False
        judge(steps)
    both.close(task.probe, step=task.step)
    return {
        "of": run.of,
        "number": run.number,
        "task": run.task.name,
        "setting": run.setting.name,
        "expected": run.setting.harms,
        "steps": steps,
        "batch": config.batch.batch_size,
        "coarse": run.task.coarse,
        "classes": as_json(levels),
        "finite": finite,
        "checks": as_json(checks),
        "alone": both.alone.as_json(),
        "probed": both.probed.as_json(),
        "probe": {
            "classes": as_json(both.probed.probing.levels),
            "checks": as_json([*both.checks.values()]),
        },
        "seconds": time.process_time() - began,
    }


# What became of it.


def result_of(values: Mapping[str, Any]) -> ProbeResult:
    """A result as a run left it; those trained before 27 November have no mean distance."""
    return ProbeResult.from_json({"mean_distance": None, **values})


def fate(traced: Mapping[str, Any], best: float) -> str:
    """The outcome of a run on items that no monitor sees; `best` is the recall@1 of the best plain run of its task.

    network-collapse: a narrow cone, half as wide as at the start or less, and at least 5 points below the best; or not
    finite. class-collapse: on a coarse task, tight classes, at least 5 points below the best and 5 below the run's own
    best, by the finest level. harm: neither, and worse than at the start beyond doubt, see `Comparison.worse`, or no
    better than chance. harmless: a narrow cone that cost less than 5 points; such runs are not counted. Otherwise
    healthy, however well it did.
    """
    start, end = (result_of(traced["checks"][place]) for place in (0, -1))
    own = max(result_of(one).score for one in traced["checks"])
    lost = best - end.score >= HARM
    if not traced["finite"]:
        return "network-collapse"
    if end.relative_spread < NARROW and end.relative_spread < 0.5 * start.relative_spread:
        return "network-collapse" if lost else "harmless"
    if traced["coarse"] and lost and own - end.score >= LOST and end.within_between < TIGHT:
        return "class-collapse"
    levels = [np.array(one) for one in traced["classes"]]
    return "harm" if _harmed(start, end, levels) else "healthy"


def fate_beside_start(traced: Mapping[str, Any]) -> str:
    """The outcome by the definition of the diagnosis: what was lost since the start, on items that no monitor sees.

    network-collapse: by `trivet.collapse.rules` at the last two looks; or not finite. class-collapse: as in
    `fate`, whatever the best run. harm: as there. Otherwise healthy, also where another setting did better.
    """
    start, *rest = (result_of(one) for one in traced["checks"])
    tracker, end = ProbeTracker(), rest[-1]
    tracker.levels = [np.array(one) for one in traced["classes"]]
    for one in (start, *rest[-2:]):
        tracker.record(one)
    if not traced["finite"] or tracker.collapse() is not None:
        return "network-collapse"
    own = max(one.score for one in (start, *rest))
    if traced["coarse"] and own - end.score >= LOST and end.within_between < TIGHT:
        return "class-collapse"
    return "harm" if _harmed(start, end, tracker.levels) else "healthy"


def _harmed(start: ProbeResult, end: ProbeResult, levels: Sequence[np.ndarray]) -> bool:
    worse = [
        compare_values(now.hits, then.hits, labels, reference="start", level="").worse
        for now, then, labels in zip(end.scores, start.scores, levels, strict=True)
    ]
    _, high = recall_by_chance(end.nearest, np.arange(len(end.nearest)), levels[0])
    return any(worse) or end.recall <= high


def lost_at(traced: Mapping[str, Any], *, for_good: bool) -> int | None:
    """The first look 5 points of recall@1 below the best before it; for good: it never recovers."""
    best, found = 0.0, None
    for one in map(result_of, traced["checks"]):
        if best - one.score < LOST:
            found = None if for_good else found
        elif found is None:
            found = one.step
        best = max(best, one.score)
    return found


class Replay(Judge):
    """The judge of a monitor, whose probe shows what it showed when the run was trained."""

    def __init__(self, checks: Mapping[int, ProbeResult], steps: int) -> None:
        super().__init__(steps)
        self._checks = checks

    def measure_probe(self, probe: Probe, step: int) -> None:
        self.probing.record(self._checks[step])


def replayed(traced: Mapping[str, Any]) -> dict[str, Any]:
    """The "events" and "closing" that the rules as they are now give on what a run left, look by look."""
    series = {
        name: [float("nan") if value is None else value for value in values]
        for name, values in traced["probed"]["series"].items()
    }
    checks = {one["step"]: result_of(one) for one in traced["probe"]["checks"]}
    judge = Replay(checks, int(series["step"][-1]) + 1)
    probing = judge.probing
    probing.levels = [np.array(one) for one in traced["probe"]["classes"]]
    probing.record(next(iter(checks.values())))
    done = 0
    for *row, _ in zip(*(series[name] for name in SERIES), strict=True):
        step = int(row[0])
        for _ in range(step + 1 - done):
            probing.count(traced["batch"])
            judge.updates += 1
        done = step + 1
        judge.record(row)
        finite = np.isfinite([judge.series[name][-1] for name in ("norm", "loss")]).all()
        judge.judge(step, not_finite=not finite, probe=tuple)
    if (last := max(checks)) > series["step"][-1]:
        judge.close(tuple, last)
    return {"events": as_json(judge.events), "closing": probing.closing()}


def closing_outcome(traced: Mapping[str, Any], sentence: str) -> str:
    """Whether a closing sentence holds for the items that no monitor sees, by the finest level: right, wrong, open.

    Where it says above or below the start, they must have moved that way; else it is wrong. Where it cannot tell, they
    must have moved by less than 5 points or by no more than chance; else it left open what they show.
    """
    start, end = (result_of(traced["checks"][place]) for place in (0, -1))
    moved = end.score - start.score
    for word, sign in (("below", -1), ("above", 1)):
        if f"{word} its start" in sentence:
            return "right" if sign * moved > 0 else "wrong"
    found = compare_values(
        end.scores[-1].hits, start.scores[-1].hits, np.array(traced["classes"][-1]), reference="", level="",
        confidence=0.95,
    )  # fmt: skip
    return "right" if abs(moved) < LOST or found.low <= 0 <= found.high else "open"


def with_fates(traces: Sequence[Mapping[str, Any]], earlier: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same with "fate", "best" of the task, also of the rows of earlier runs, and "end"."""
    best: dict[str, float] = {row["task"]: row["best"] for row in earlier}
    ends = [result_of(traced["checks"][-1]).score for traced in traces]
    for traced, end in zip(traces, ends, strict=True):
        best[traced["task"]] = max(best.get(traced["task"], 0.0), end)
    return [
        {**traced, "fate": fate(traced, best[traced["task"]]), "best": best[traced["task"]], "end": end}
        for traced, end in zip(traces, ends, strict=True)
    ]


def judged(traces: Sequence[Mapping[str, Any]], which: str) -> dict[str, Any]:
    """How a monitor did: "alone" by the batches, which suspect, or "replayed" with the probe by the rules as they are
    now, of which only what is certain is an alarm.
    """
    from sklearn.metrics import roc_auc_score

    rows = []
    for traced in traces:
        left = replayed(traced) if which == "replayed" else traced[which]
        events, closing = left["events"], left["closing"]
        alarms = [
            event
            for event in events
            if event["kind"] in (*HARMED, "not-finite") and (which == "alone" or not event["suspected"])
        ]
        first = min(alarms, key=lambda event: event["step"], default=None)
        series = traced["alone"]["series"]
        early = max(at for at, step in enumerate(series["step"]) if step <= max(20, EARLY * traced["steps"]))
        rows.append(
            {name: traced[name] for name in ("number", "task", "setting", "expected", "fate", "best", "end", "steps")}
            | {
                "called": None if first is None else first["kind"],
                "at": None if first is None else first["step"],
                "fate_beside_start": fate_beside_start(traced),
                "events": [Event.from_json(event).title for event in events],
                "kinds": [event["kind"] for event in alarms],
                "suspected": not alarms and any(event["suspected"] for event in events),
                "closing": closing,
                "closing_is": None if closing is None else closing_outcome(traced, closing),
                "lost_at": lost_at(traced, for_good=False),
                "lost_for_good_at": lost_at(traced, for_good=True),
                "risk": series["risk"][early] or 0.0,
                "cost": (traced["probed"]["probe"] or {}).get("cost"),
            }
        )
    targets = [row["fate"] == "network-collapse" for row in rows if row["fate"] != "harmless"]
    risks = [row["risk"] for row in rows if row["fate"] != "harmless"]
    return {
        "runs": rows,
        **counted(rows),
        "beside_start": counted([{**row, "fate": row["fate_beside_start"]} for row in rows]),
        "closed": sum(row["closing"] is not None for row in rows),
        "closing_right": sum(row["closing_is"] == "right" for row in rows),
        "closing_wrong": sum(row["closing_is"] == "wrong" for row in rows),
        "auroc": float(roc_auc_score(targets, risks)) if len(set(targets)) > 1 else None,
        "cost": None if which == "alone" else float(np.mean([row["cost"] for row in rows])),
    }


def counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Counts of rows; those by the rules of 23 November have one kind."""
    harmed = [row for row in rows if row["fate"] in HARMED]
    called = [(row["fate"], row.get("kinds", [row["called"]])) for row in harmed if row["called"]]
    healthy = [row for row in rows if row["fate"] == "healthy"]
    return {
        "harmed": len(harmed),
        "healthy": len(healthy),
        "harmless": sum(row["fate"] == "harmless" for row in rows),
        "called": len(called),
        "right_kind": sum(kinds[-1] == fate for fate, kinds in called),
        "other_kind": sum(any(kind != fate for kind in kinds) for fate, kinds in called),
        "false": sum(row["called"] is not None for row in healthy),
        "harmed_suspected": sum(row.get("suspected", False) for row in harmed),
        "healthy_suspected": sum(row.get("suspected", False) for row in healthy),
        "slow": sum(map(_slow, rows)),
        "in_time": sum(map(_in_time, rows)),
    }


def _slow(row: Mapping[str, Any]) -> bool:
    """Whether a run that was harmed had not lost 5 points for good within the first 5 % of its steps."""
    lost = row["lost_for_good_at"]
    return row["fate"] in HARMED and (lost is None or lost > EARLY * row["steps"])


def _in_time(row: Mapping[str, Any]) -> bool:
    """Whether such a run was called before it had."""
    lost = row["lost_for_good_at"]
    return _slow(row) and row["called"] is not None and (lost is None or row["at"] < lost)


def foretold(run: Run, places: Mapping[str, str]) -> dict[str, Any]:
    """What a run says of itself before its first step."""
    config = run.config(places)
    return {"number": run.number, **foresee(Components(config, splits_of(run, config)))}


def once(path: Path, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """What a file holds, which is made first if it is not there."""
    if not path.exists():
        began = time.process_time()
        text = json.dumps(make())
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").replace(path)
        print(f"{path.name}: {time.process_time() - began:.1f} s", flush=True)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def estimate(runs: Sequence[Run], places: Mapping[str, str]) -> dict[str, float]:
    """Core seconds of each task's runs, from eight steps of the first and of the last one."""
    found: dict[str, float] = {}
    for task in dict.fromkeys(run.task for run in runs):
        own = [run for run in runs if run.task == task]
        seconds = []
        for run in {own[0].number: own[0], own[-1].number: own[-1]}.values():
            config = run.config(places)
            splits = splits_of(run, config)
            parts = Components(config, splits)
            assert parts.probe_items is not None
            items = judged_items(splits)
            batches = parts.batches_from(0)
            batches.steps = 8
            task_made = parts.state.learner
            task_made.monitor = None
            began = time.process_time()
            fit(task_made, batches)
            step = (time.process_time() - began) / 8
            began = time.process_time()
            parts.probe_items.probe_of(parts.state.learner.model, cosine=False)()
            probe = time.process_time() - began
            began = time.process_time()
            embed(parts.state.learner.model, items.inputs)
            look_at = time.process_time() - began
            steps = config.training.num_steps
            seconds.append(steps * step + (12 + steps / 10) * (probe + 0.02) + (9 + steps / 15) * (look_at + 0.05))
        found[task.name] = float(np.mean(seconds))
        print(f"{task.name}: {len(own)} runs of {found[task.name]:.0f} s", flush=True)
    return found


def report(results: Mapping[str, Any]) -> str:
    """The results as a page of text."""
    before, gains = results["before"], results["gains_by_halves"]
    lines = [
        "# The guard: runs that collapse, lose what they began with, or learn",
        "",
        results["command"],
        "",
        results["environment"],
        "",
        "The second test and the first were seen when earlier rules were chosen, and stand below by the rules of 23"
        " November. All runs were trained anew by the present rules, on 29 November, and judged once. The odd runs,"
        " expected to be healthy, were written down before they were trained. What these runs have changed: trained"
        " on 27 November, they showed that a rule called harm where recall@1 never was better than chance, in 8 "
        "runs of the second test with 40 % wrong labels, 4 of them healthy and 1 harmless, and it was taken out. "
        "What the other rules gave then has a column of its own. Since then harm is judged by rank-biased "
        "precision, which is recall@1 in random halves of the items of the probe, instead of by R-precision, as "
        "other runs suggested (studies/watched_runs.py). Sentences on a gain were judged so at first, too: of "
        f"{gains['said']} such ones, {gains['wrong']} did not hold for items that no monitor sees, and a gain is "
        "judged by recall@1 alone now. An event that is only suspected is no alarm. The kind is the last of those "
        "called. A closing sentence is right if items that no monitor sees moved the way it says, else wrong; where"
        " it cannot tell, it is right if they moved by less than 5 points or no more than chance, else open. These "
        "items are of other classes than the probe in some tasks.",
        "",
        "The outcome beside the start is by the definition that the rules have now, see `fate_beside_start`: a collapse"
        " has lost retrieval since the start. By that of then it was a narrow cone, 5 points below the best run of the "
        "task, also where the start was no better. That column, and open beside wrong, were added when the first runs "
        "had been seen.",
        "",
    ]
    for of, found in results["watch"].items():
        lines += section(of, found, [])
    lines += ["# By the rules of 23 November", "", before["environment"], ""]
    lines += [
        "The rules were chosen on the learning runs, and final before any run of a test was trained. Between the two "
        "tests they were changed: the numbers of the first, and of the learning runs, are by the rules of then. What "
        "was tried, what was missed and why, and the gauntlet's test beside these, is in the "
        "[notes](collapse_notes.md#probe).",
        "",
    ]
    for of, found in before["watch"].items():
        lines += section(of, found, before["foretold"].get(of, []))
    return "\n".join(lines) + "\n"


def section(of: str, found: Mapping[str, Any], foretold: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines on one set of runs."""
    one = found["replayed"]
    columns = {"batches alone": found["alone"], "batches and probe": one}
    if "beside_start" in one:
        columns["batches and probe, outcome beside the start"] = one["beside_start"]
    if "before_halves" in found:
        columns["trained on 27 November, before harm was judged in halves"] = found["before_halves"]
    if "before" in found:
        columns["the same runs by the rules of 23 November"] = found["before"]
    lines = [
        f"## {of.capitalize()}",
        "",
        f"{len(one['runs'])} of {sum(run.of == of for run in RUNS)} runs: {one['harmed']} harmed or collapsed, "
        f"{one['healthy']} healthy, {one['harmless']} harmless narrow cones, which are not counted.",
        "",
    ]

    def number(name: str, text: Callable[[float], str]) -> Callable[[Any], str]:
        return lambda counts: "" if counts.get(name) is None else text(counts[name])

    cells: list[tuple[str, str, Callable[[Any], str]]] = [
        ("harmed or collapsed runs called", ">= 95 %", lambda h: share(h["called"], h["harmed"])),
        ("false alarms", "<= 5 %", lambda h: share(h["false"], h["healthy"])),
        ("harmed or collapsed, only suspected", "", number("harmed_suspected", str)),
        ("healthy, only suspected", "", number("healthy_suspected", str)),
        ("kind right, of those called", "", lambda h: share(h["right_kind"], h["called"])),
        ("another kind called, too or instead", "", number("other_kind", str)),
        (
            "called before 5 points were lost for good, of those that took longer than 5 % of the steps",
            ">= 80 %",
            lambda h: share(h["in_time"], h["slow"]),
        ),
        ("closing sentence right", "all", lambda h: share(h["closing_right"], h["closed"]) if h.get("closed") else ""),
        ("closing sentence wrong", "0", lambda h: share(h["closing_wrong"], h["closed"]) if h.get("closed") else ""),
        (
            "AUROC of the forecast of a network collapse after 5 % of the steps, at least 20",
            ">= 0.93",
            number("auroc", lambda value: f"{value:.3f}"),
        ),
        (
            "cost of the probe over that of the steps, mean of the runs",
            "<= 2 %",
            number("cost", lambda value: f"{100 * value:.1f} %"),
        ),
    ]
    counts = [[name, goal, *(cell(each) for each in columns.values())] for name, goal, cell in cells]
    counts = [line for line in counts if any(line[2:])]
    told = {row["number"]: row for row in foretold}
    if told:
        rows = [row for row in one["runs"] if row["number"] in told and row["fate"] != "harmless"]
        hit = sum(bool(told[row["number"]]["sentence"]) for row in rows if row["fate"] in HARMED)
        soon = sum(_in_time(row) or (_slow(row) and bool(told[row["number"]]["sentence"])) for row in rows)
        miss = sum(bool(told[row["number"]]["sentence"]) for row in rows if row["fate"] == "healthy")
        harmed, slow = sum(row["fate"] in HARMED for row in rows), sum(map(_slow, rows))
        healthy = sum(row["fate"] == "healthy" for row in rows)
        counts += [
            ["runs asked before their first step", "all", "", share(len(told), len(one["runs"]))],
            ["foretold before the first step, of those harmed", "", "", share(hit, harmed)],
            ["foretold, of those healthy", "", "", share(miss, healthy)],
            ["foretold, or called in time, of those that took longer", "", "", share(soon, slow)],
        ]
    names = ("task", "setting", "expected", "outcome", "recall@1", "best", "alone", "probed", "lost for good at")
    runs = [
        [
            *(row["task"], row["setting"], "harm" if row["expected"] else "", row["fate"]),
            *(f"{row['end']:.3f}", f"{row['best']:.3f}", *map(_events, (alone, row))),
            "" if row["lost_for_good_at"] is None else str(row["lost_for_good_at"]),
            *([_closing(row)] if "closing" in row else []),
        ]
        for alone, row in zip(found["alone"]["runs"], one["runs"], strict=True)
    ]
    ending = ["closing sentence"] if one["runs"] and "closing" in one["runs"][0] else []
    return [*lines, *table(("", "goal", *columns), counts), *table((*names, *ending), runs)]


def _events(row: Mapping[str, Any]) -> str:
    if "events" in row:
        return "; ".join(row["events"])
    return "" if row["called"] is None else f"{row['called']} at {row['at']}"


def _closing(row: Mapping[str, Any]) -> str:
    return "" if row["closing"] is None else f"{row['closing_is']}: {row['closing']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="folder of what runs leave, and of data that are made")
    parser.add_argument("--vectors", type=Path, required=True, help="folder of the MiniLM vectors")
    parser.add_argument("--weights", type=Path, required=True, help="weights of EfficientNet-Lite0")
    parser.add_argument("--encoder", type=Path, default=Path(), help="folder of MiniLM; for the runs of `later` only")
    parser.add_argument("--parts", nargs="+", choices=["estimate", "watch", "foretell"], required=True)
    parser.add_argument("--of", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--only", type=int, nargs="*", help="numbers of runs; judges nothing")
    parser.add_argument("--share", default="1/1", help="only these of the runs, such as 1/2; judges nothing")
    parser.add_argument("--small", action="store_true", help="only heads and small networks; the odd runs all")
    parser.add_argument(
        "--made", action="store_true", help="train nothing: judge what is there, and say how much it is"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "guard.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    places = {name: str(getattr(options, name).resolve()) for name in ("runs", "vectors", "weights", "encoder")}
    part, parts = map(int, options.share.split("/"))
    runs = [run for run in RUNS if run.of in options.of and (not options.only or run.number in options.only)]
    if options.small:
        large = ("timm:", "text:")
        runs = [run for run in runs if run.of == "odd" or not str(run.task.model["name"]).startswith(large)]
    if "estimate" in options.parts:
        prepare(options.runs, options.vectors, options.weights, runs)
        seconds = estimate(runs, places)
        for of in options.of:
            total = sum(seconds[run.task.name] for run in runs if run.of == of)
            print(f"{of}: {sum(run.of == of for run in runs)} runs, {total / 60:.0f} core minutes to watch")
        return
    mine = runs[part - 1 :: parts]

    def made(run: Run) -> dict[str, Any]:
        prepare(options.runs, options.vectors, options.weights, [run])
        return trace(run, places)

    if options.made:
        mine = [run for run in mine if (options.runs / f"run-{run.number:03d}.json").exists()]
    traces = [once(options.runs / f"run-{run.number:03d}.json", lambda run=run: made(run)) for run in mine]
    if options.only or parts > 1:
        if "foretell" in options.parts:
            for run in mine:
                once(options.runs / f"foretold-{run.number:03d}.json", lambda run=run: foretold(run, places))
        return
    results = pages.read(options.output)
    results["command"] = "`TRIVET_DATA=... .venv/bin/python studies/guard.py --runs ... --parts ...`"
    results["environment"] = f"{pages.environment('torch')}, one thread."
    for of in options.of:
        earlier = results["before"]["watch"].get(of, {"replayed": {"runs": []}})["replayed"]["runs"]
        own = with_fates([traced for traced in traces if traced["of"] == of], earlier)

        def there(kind: str, number: int) -> bool:
            return not options.made or (options.runs / f"{kind}-{number:03d}.json").exists()

        found = {which: judged(own, which) for which in ("alone", "replayed")}
        if halves := results.get("before_halves", {}).get(of):
            found["before_halves"] = halves
        if earlier:
            numbers = {traced["number"] for traced in own}
            found["before"] = counted([row for row in earlier if row["number"] in numbers])
        results.setdefault("watch", {})[of] = found
        if "foretell" in options.parts:
            results.setdefault("foretold", {})[of] = [
                once(options.runs / f"foretold-{n:03d}.json", lambda n=n: foretold(RUNS[n], places))
                for n in (traced["number"] for traced in own)
                if there("foretold", n)
            ]
    pages.write(options.output, results, report(results))


if __name__ == "__main__":
    main()
