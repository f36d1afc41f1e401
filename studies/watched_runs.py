"""Does the monitor give runs their right name? Small networks that begin trained, and go on well, badly or oddly.

    TRIVET_DATA=... .venv/bin/python studies/watched_runs.py     # about 45 minutes on one core

Four sources: pairs of MNIST digits (100 pairs in 10 classes by the left one), hashed words of CLINC150 (intents, by
domain), hashed words of docstrings of installed packages (modules, by package), and pairs of garments of Fashion-MNIST,
as those of digits. A network of two layers is trained on each by the finer classes. Then it is trained on in each way
of `WAYS`, watched by a `CollapseMonitor` with a probe of 300 items, once with the batches and once, as the guest of
another library, without.

What became of a run is decided by `fate` on 1,200 other items of the same classes, in plain numpy: no code of the
monitor takes part. The ways, their expected fates and all rules below were written down before any monitor saw a run;
the learning rates were set on other seeds (--pilot --unwatched) so that runs come to their fates.

These are the third and the fourth draw. The first, of three sources, led to changes: the monitor judges by
rank-biased precision as well, and its closing sentence names a collapse that stands. The second, of other seeds and a
fourth source, led to none; but its rule for rank-biased precision was that of the monitor alone, and is now that of
`trivet diagnose`, too. Their counts stand at the end of the results.

Fates are by the rule book, in which a mean distance below a quarter of the start's counts as well as a narrow cone, and
recall@1 in galleries of 300, as large as those of the probe, for it depends on the size. Where a measure lies within
its own sampling interval of 99 % from a bound, the fate lies between two: either is right. Counts are given with that,
and without.

Results go to studies/results/watched_runs.json and .md.
"""

from __future__ import annotations

import argparse
import ast
import copy
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import pages
import readers
from pages import share, table
from readers import Array, clinc_domains, idx, texts
from trivet import ContrastiveLoss, MultiSimilarityLoss, SupConLoss, TripletLoss
from trivet.collapse import CollapseMonitor
from trivet.collapse.strategy import SamplingStrategy

PACKAGES = ("torch", "sympy", "networkx", "transformers", "matplotlib", "sklearn")
PROBE, HIDDEN = 300, 1200
HARM, SLIGHT = 0.03, 0.01  # of recall@1 by the finest classes, below the start
DRAWS = (20, 30)  # their first seeds; earlier draws had those from 0 and 10 on, pilots from 100
LOOKS = 12  # at the items that no monitor sees, evenly spaced, besides those whenever the probe is asked
CONVICTING = ("network-collapse", "class-collapse", "harm")


class Source(NamedTuple):
    """Inputs `(N, d)`, finer classes and classes `(N,)`, of items to train on, of the probe, and of hidden ones."""

    name: str
    inputs: dict[str, Array]
    fine: dict[str, Array]
    coarse: dict[str, Array]


def _parts(name: str, inputs: Array, fine: Array, coarse: Array, seed: int) -> Source:
    """Half of each finer class to train on; the probe and the hidden items from the rest."""
    random = np.random.default_rng(seed)
    train, rest = [], []
    for number in np.unique(fine):
        members = random.permutation(np.flatnonzero(fine == number))
        train.append(members[: len(members) // 2])
        rest.append(members[len(members) // 2 :])
    others = random.permutation(np.concatenate(rest))
    rows = {"train": np.concatenate(train), "probe": others[:PROBE], "hidden": others[PROBE : PROBE + HIDDEN]}
    scaled = (inputs / inputs[rows["train"]].std()).astype(np.float32)
    return Source(name, *({part: of[at] for part, at in rows.items()} for of in (scaled, fine, coarse)))


def _words(sentences: list[str]) -> Array:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

    counts = HashingVectorizer(n_features=2**14, alternate_sign=False, stop_words="english").transform(sentences)
    rows: Array = TruncatedSVD(128, random_state=0).fit_transform(
        TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    )
    return rows


def _pairs(name: str, data: str, seed: int) -> Source:
    """Two pictures side by side, at half the size: the classes are the left one, the finer ones both."""
    images, labels = idx(data, "train")
    small = images.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(len(images), -1) / 255
    random = np.random.default_rng(seed)
    left, right = random.permutation(len(small))[:6000].reshape(2, 3000)
    fine = 10 * labels[left] + labels[right]
    return _parts(name, np.concatenate([small[left], small[right]], axis=1), fine, labels[left], seed)


def pairs(seed: int) -> Source:
    return _pairs("pairs of digits", "mnist", seed)


def garments(seed: int) -> Source:
    return _pairs("pairs of garments", "fashion-mnist", seed)


def requests(seed: int) -> Source:
    """Words of CLINC150's requests, 128 axes: all 150 intents, in ten domains."""
    found, domains = texts("clinc150"), clinc_domains()
    fine = np.unique([intent for _, intent in found], return_inverse=True)[1]
    coarse = np.unique([domains[intent] for _, intent in found], return_inverse=True)[1]
    return _parts("requests", _words([text for text, _ in found]), fine, coarse, seed)


def docstrings(seed: int) -> Source:
    """Words of docstrings, 128 axes: up to 60 of a module, and modules of six packages with 30 or more."""
    random = np.random.default_rng(seed)
    found: dict[str, list[str]] = {}
    for module, kind, text in readers.docstrings(PACKAGES):
        functions = found.setdefault(module, [])
        if kind is ast.FunctionDef and len(text) > 120:
            functions.append(text[:600])
    kept = {module: random.permutation(of)[:60] for module, of in found.items() if len(of) >= 30}
    modules = np.repeat(list(kept), [len(of) for of in kept.values()])
    rows = _words([str(text) for of in kept.values() for text in of])
    fine = np.unique(modules, return_inverse=True)[1]
    coarse = np.unique([str(module).split("/")[0] for module in modules], return_inverse=True)[1]
    return _parts("docstrings", rows, fine, coarse, seed)


SOURCES: tuple[Callable[[int], Source], ...] = (pairs, requests, docstrings, garments)


class Network(nn.Module):
    """Two layers of 256 and 64, of length 1, times a scale after a constant is added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, 256), nn.Linear(256, 64)
        self.dropout = nn.Dropout(0.0)
        self.scale, self.shift = 1.0, 0.0

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.last(self.dropout(torch.relu(self.first(inputs))))
        return self.scale * nn.functional.normalize(nn.functional.normalize(rows) + self.shift / 8)


class Pull(nn.Module):
    """A loss without negatives: the mean squared distance of items of one class."""

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        distances = torch.cdist(embeddings, embeddings).square()
        return distances[labels[:, None] == labels].mean()


@dataclass(frozen=True)
class Way:
    """A way to train on.

    Attributes:
        expected: its fate.
        trained: labels: fine, coarse, shuffled, "noisy" (60 % shuffled), or "few" (those of five finer classes).
        wide: 16 classes of 8 items in a batch, not 8 of 4.
        change: attributes of the network.
        last: train the last layer alone.
    """

    name: str
    expected: str
    loss: Callable[[], nn.Module]
    rate: float
    trained: str = "fine"
    wide: bool = False
    sgd: bool = False
    decay: float = 0.0
    change: tuple[tuple[str, float], ...] = ()
    last: bool = False
    steps: int = 240


def _triplet(positives: str, negatives: str, margin: float = 0.2) -> Callable[[], nn.Module]:
    return lambda: TripletLoss(positives=positives, negatives=negatives, margin=margin)


WAYS = (
    Way("supcon, rate 0.03", "harm", SupConLoss, 0.03),
    Way("multi-similarity, rate 0.03", "harm", MultiSimilarityLoss, 0.03),
    Way("easy positives, semi-hard, rate 0.1", "harm", _triplet("easy", "semihard"), 0.1),
    Way("contrastive, SGD, rate 20", "harm", lambda: ContrastiveLoss(margin=0.8), 20, sgd=True),
    Way("supcon, labels shuffled", "harm", SupConLoss, 1e-3, trained="shuffled"),
    Way("supcon, 60 % wrong labels", "harm", SupConLoss, 3e-3, trained="noisy", wide=True),
    Way("supcon, five classes alone", "harm", SupConLoss, 3e-3, trained="few"),
    Way("supcon on classes", "class-collapse", SupConLoss, 1e-2, trained="coarse", wide=True, steps=480),
    Way(
        "contrastive on classes",
        "class-collapse",
        lambda: ContrastiveLoss(margin=1.0),
        3e-3,
        trained="coarse",
        steps=480,
    ),
    Way("batch-hard on classes", "class-collapse", _triplet("hard", "hard", 1.0), 3e-3, trained="coarse", wide=True),
    Way(
        "multi-similarity on classes",
        "class-collapse",
        MultiSimilarityLoss,
        1e-2,
        trained="coarse",
        wide=True,
        steps=480,
    ),
    Way("batch-hard, rate 0.3", "network-collapse", _triplet("hard", "hard", 0.3), 0.3, wide=True),
    Way("batch-hard, shuffled", "network-collapse", _triplet("hard", "hard", 0.3), 0.1, trained="shuffled", wide=True),
    Way("batch-hard, SGD, rate 1,000", "network-collapse", _triplet("hard", "hard", 0.3), 1000, sgd=True),
    Way("positives alone, decay 60", "network-collapse", Pull, 0.01, decay=60.0, wide=True),
    Way("supcon, decay 60", "network-collapse", SupConLoss, 0.01, decay=60.0),
    Way("norms of 1,000", "healthy", _triplet("easy", "semihard", 600.0), 1e-4, change=(("scale", 1000.0),)),
    Way("temperature 0.01", "healthy", lambda: SupConLoss(temperature=0.01), 3e-5, wide=True),
    Way("first layer frozen", "healthy", SupConLoss, 1e-3, last=True),
    Way("narrow cone", "healthy", _triplet("easy", "semihard", 0.02), 1e-4, change=(("shift", 10.0),)),
    Way("dropout 0.7", "healthy", SupConLoss, 3e-4, change=(("dropout", 0.7),), wide=True),
    Way("rate 1e-7", "healthy", _triplet("hard", "hard"), 1e-7),
    Way("weight decay 0.1", "healthy", SupConLoss, 3e-4, decay=0.1, wide=True),
)


def batches(labels: Array, wide: bool, random: np.random.Generator) -> Array:
    """Rows of one batch."""
    classes, items = (16, 8) if wide else (8, 4)
    chosen = random.permutation(np.unique(labels))[:classes]
    return np.concatenate([random.permutation(np.flatnonzero(labels == label))[:items] for label in chosen])


def begun(source: Source, seed: int) -> Network:
    """The network that all runs of a source begin with."""
    torch.manual_seed(seed)
    random, network = np.random.default_rng(seed), Network(source.inputs["train"].shape[1])
    optimizer, loss = torch.optim.Adam(network.parameters(), 1e-3), SupConLoss()
    for _ in range(400):
        rows = batches(source.fine["train"], True, random)
        value = loss(
            network(torch.from_numpy(source.inputs["train"][rows])), torch.from_numpy(source.fine["train"][rows])
        )
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return network


def trained_labels(source: Source, way: Way, random: np.random.Generator) -> tuple[Array, Array]:
    """Rows to train on, and the label of each."""
    labels = source.coarse["train"] if way.trained == "coarse" else source.fine["train"].copy()
    rows = np.arange(len(labels))
    if way.trained == "few":
        rows = np.flatnonzero(np.isin(labels, random.permutation(np.unique(labels))[:5]))
    elif way.trained in ("shuffled", "noisy"):
        wrong = random.permutation(len(labels))[: round(len(labels) * (1 if way.trained == "shuffled" else 0.6))]
        labels[wrong] = random.permutation(labels[wrong])
    return rows, labels[rows]


@torch.no_grad()
def embed(network: Network, inputs: Array) -> Tensor:
    network.eval()
    rows = network(torch.from_numpy(inputs))
    network.train()
    return rows


@dataclass(frozen=True, eq=False)
class Look:
    """Hidden items at one step, in galleries of 300: arrays `(N,)` of each item.

    Attributes:
        coarse, fine: whether the nearest is of the class, and of the finer class.
        within, between, distance: mean distance to items of the class, of others, and of both.
        around, norm, along: squared distance from the mean, squared norm, squared distance along the first axis.
        spots: occupied ones of a gallery, where two within 0.1 of the mean distance are at one.
    """

    coarse: Array
    fine: Array
    within: Array
    between: Array
    distance: Array
    around: Array
    norm: Array
    along: Array
    spots: float

    def json(self) -> dict[str, float]:
        """Recall@1 by classes and finer ones, and the shape."""
        return {
            "coarse": float(self.coarse.mean()),
            "fine": float(self.fine.mean()),
            "spread": float(np.sqrt(_ratio(self.around, self.norm)[0])),
            "inside": _ratio(self.within, self.between)[0],
            "line": _ratio(self.along, self.around)[0],
            "distance": float(self.distance.mean()),
            "spots": self.spots,
        }


def look(rows: Array, coarse: Array, fine: Array) -> Look:
    points = rows.astype(np.float64)
    if not np.isfinite(points).all():
        points = np.zeros_like(points)
    centred = points - points.mean(axis=0)
    axis = np.linalg.eigh(centred.T @ centred)[1][:, -1]
    columns, spots = [], []
    for at in np.split(np.arange(len(points)), len(points) // PROBE):
        squares = (centred[at] ** 2).sum(axis=1)
        squared = np.maximum(squares[:, None] + squares - 2 * centred[at] @ centred[at].T, 0)
        np.fill_diagonal(squared, np.inf)
        # Of items that are all equal the first would be nearest: a random one is.
        random = np.random.default_rng(0).random(squared.shape)
        nearest = at[(squared + 1e-12 * squares.mean() * random).argmin(axis=1)]
        np.fill_diagonal(squared, 0)
        distances, same = np.sqrt(squared), coarse[at][:, None] == coarse[at]
        sums, inside = distances.sum(axis=1), (distances * same).sum(axis=1)
        columns.append(
            [
                *(coarse[nearest] == coarse[at], fine[nearest] == fine[at]),
                *(inside / np.maximum(same.sum(axis=1) - 1, 1), (sums - inside) / (~same).sum(axis=1)),
                sums / (len(at) - 1),
            ]
        )
        left, count = np.ones(len(at), bool), 0
        while left.any():
            left &= distances[int(left.argmax())] > 0.1 * distances.mean()
            left[0] = False
            count += 1
        spots.append(count)
    of_items = [np.concatenate(parts).astype(np.float64) for parts in zip(*columns, strict=True)]
    around, norm = (centred**2).sum(axis=1), (points**2).sum(axis=1)
    return Look(*of_items, around, norm, (centred @ axis) ** 2, float(np.mean(spots)))


def _ratio(above: Array, below: Array, *, twice: bool = False) -> tuple[float, float]:
    """The ratio of two means and its standard error, linearised; of means over pairs, twice."""
    least = max(float(below.mean()), 1e-300)
    ratio = float(above.mean()) / least
    return ratio, (2 if twice else 1) * float((above - ratio * below).std()) / least / np.sqrt(len(above))


def _mean(values: Array) -> tuple[float, float]:
    """The mean of a measure of queries and its standard error; of 1.3 times the variance, as the gallery is random."""
    return float(values.mean()), float(np.sqrt(1.3) * values.std() / np.sqrt(len(values)))


def measured(start: Look, now: Look, fine_chance: float) -> dict[str, tuple[float, float]]:
    """What `fate` judges, each with its standard error."""
    spread, error = _ratio(now.around, now.norm)
    root = max(np.sqrt(spread), 1e-150)
    return {
        "left": _mean(now.fine - fine_chance - 0.5 * (start.fine - fine_chance)),
        "lost": _mean(start.fine - now.fine),
        "lost_coarse": _mean(start.coarse - now.coarse),
        "spread": (float(root), float(error / root / 2)),
        "shrinkage": _ratio(now.distance, start.distance, twice=True),
        "inside": _ratio(now.within, now.between, twice=True),
        "line": _ratio(now.along, now.around),
        "spots": (now.spots, 0.0),
        "start_spread": (float(np.sqrt(_ratio(start.around, start.norm)[0])), 0.0),
    }


def fate(of: Mapping[str, float], classes: int) -> str:
    """What became of hidden items since the start; `classes` are the finer ones.

    network-collapse: recall@1 by the finer classes is nearer to chance than to the start, and by the classes 3 points
    lower; and items crowd: spread and mean distance are less than half of the start's, and the spread is below 0.1 or
    the mean distance below a quarter of the start's; or over 90 % of the variance lies along one line, or there are
    fewer spots than half the classes. class-collapse: recall@1 by the finer classes is 10 points lower, by the classes
    no lower than 3, and the ratio of distances within and between classes is below 0.5. harm: 3 points lower. healthy:
    no more than 1 point lower. Between the two, slight: not counted.
    """
    narrowed = of["spread"] < 0.5 * of["start_spread"] and of["shrinkage"] < 0.5
    crowded = narrowed and (of["spread"] < 0.1 or of["shrinkage"] < 0.25)
    crowded = crowded or of["line"] > 0.9 or of["spots"] < classes / 2
    if of["left"] < 0 and crowded and of["lost_coarse"] > HARM:
        return "network-collapse"
    if of["lost"] >= 0.1 and of["lost_coarse"] <= HARM and of["inside"] < 0.5:
        return "class-collapse"
    return "harm" if of["lost"] >= HARM else "healthy" if of["lost"] <= SLIGHT else "slight"


def fates(start: Look, now: Look, fine_chance: float, classes: int) -> list[str]:
    """The fate, and those that it lies next to: with each measure at either end of its own interval of 99 %."""
    found = measured(start, now, fine_chance)
    values = {name: value for name, (value, _) in found.items()}
    ends = [values | {name: value + z * error} for name, (value, error) in found.items() for z in (-2.576, 2.576)]
    return list(dict.fromkeys(fate(each, classes) for each in (values, *ends)))


def run(source: Source, way: Way, start: Network, seed: int, *, watched: bool) -> dict[str, Any]:
    """Train on in one way; what hidden items show at each look, and what the monitors called."""
    torch.manual_seed(seed)
    random, network = np.random.default_rng(seed), copy.deepcopy(start)
    for name, value in way.change:
        setattr(network, name, nn.Dropout(value) if name == "dropout" else value)
    rows, labels = trained_labels(source, way, random)
    parameters = list((network.last if way.last else network).parameters())
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(parameters, way.rate)
        if way.sgd
        else torch.optim.AdamW(parameters, way.rate, weight_decay=way.decay)
    )
    loss = way.loss()
    # The labels of the probe are those that the user trains on; finer ones are known where they train on coarse ones.
    coarse = way.trained == "coarse"
    levels = [source.coarse["probe"], source.fine["probe"]] if coarse else [source.fine["probe"]]

    hidden: dict[int, Look] = {}

    def watch_hidden(step: int) -> None:
        if step not in hidden:
            hidden[step] = look(embed(network, source.inputs["hidden"]).numpy(), *_hidden(source))

    asked = [0]  # the step of the probe

    def probe() -> Sequence[Any]:
        watch_hidden(asked[0])
        return embed(network, source.inputs["probe"]), *(torch.from_numpy(level) for level in levels)

    strategy = None
    if isinstance(loss, TripletLoss):
        strategy = SamplingStrategy(
            loss, classes_per_batch=16 if way.wide else 8, samples_per_class=8 if way.wide else 4
        )
    monitors = {
        "with batches": CollapseMonitor(steps=way.steps, strategy=strategy),
        "guest": CollapseMonitor(steps=way.steps),
    }
    watch_hidden(0)
    if watched:
        for monitor in monitors.values():
            monitor.follow(network)
            monitor.begin(probe)
    for step in range(way.steps):
        asked[0] = step
        chosen = batches(labels, way.wide, random)
        embeddings = network(torch.from_numpy(source.inputs["train"][rows[chosen]]))
        value = loss(embeddings, torch.from_numpy(labels[chosen]))
        if watched:
            monitors["with batches"].update(embeddings, torch.from_numpy(labels[chosen]), value, step=step, probe=probe)
            monitors["guest"].update(None, items=len(chosen), step=step, probe=probe)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if (step + 1) % (way.steps // LOOKS) == 0:
            watch_hidden(step + 1)
    asked[0], called = way.steps, {}
    for name, monitor in monitors.items() if watched else ():
        closing = monitor.close(probe, step=way.steps)
        called[name] = {
            "events": [
                {"kind": event.kind, "step": event.step, "suspected": event.suspected, "changes": event.changes}
                for event in monitor.events
            ],
            "closing": closing,
        }
    chance, classes = _chance(source.fine["hidden"]), len(np.unique(source.fine["hidden"]))
    first = hidden[0]
    return {
        "source": source.name,
        "way": way.name,
        "expected": way.expected,
        "fates": {step: fates(first, hidden[step], chance, classes) for step in sorted(hidden)},
        "hidden": [{"step": step, **hidden[step].json()} for step in (0, way.steps)],
        "called": called,
    }


def _hidden(source: Source) -> tuple[Array, Array]:
    return source.coarse["hidden"], source.fine["hidden"]


def _chance(labels: Array) -> float:
    sizes = np.bincount(labels)
    return float((sizes * (sizes - 1)).sum() / (len(labels) * (len(labels) - 1)))


def closing_outcome(result: Mapping[str, Any], sentence: str) -> str:
    """Whether the closing sentence holds for hidden items, by the finest classes: right, wrong, or open.

    Below or above the start: they moved that way. As it began: they moved by less than 3 points; else it is open.
    """
    moved = result["hidden"][1]["fine"] - result["hidden"][0]["fine"]
    for word, sign in (("below its start", -1), ("above its start", 1)):
        if word in sentence:
            return "right" if sign * moved > 0 else "wrong"
    return "right" if abs(moved) < HARM else "open"


def kind_at_end(found: Mapping[str, Any]) -> str | None:
    """The kind that a monitor leaves: a collapse that its closing sentence names, or harm if it called any kind."""
    for kind in CONVICTING[:2]:
        if f"ends as a {kind.replace('-', ' ')}" in found["closing"]:
            return kind
    called = any(event["kind"] in CONVICTING and not event["suspected"] for event in found["events"])
    return "harm" if called or "below its start" in found["closing"] else None


def judged(results: Sequence[Mapping[str, Any]], monitor: str, *, between: bool) -> dict[str, int]:
    """Counts: runs of each fate, those called by their kind, false kinds, and closing sentences.

    A kind is false if at no look hidden items had that fate; a collapse is a harm, too.

    Args:
        between: whether fates that a run lies next to are right, too.
    """
    names = ("lost", "right", "other", "silent", "false kind", "healthy", "accused", "suspected", "slight")
    counts = dict.fromkeys((*names, "slight called", "closed", "closing right", "closing wrong", "next to another"), 0)
    for result in results:
        found = result["called"][monitor]
        kinds = {event["kind"] for event in found["events"] if event["kind"] in CONVICTING and not event["suspected"]}
        kind, (end, *beside) = kind_at_end(found), list(result["fates"].values())[-1]
        allowed = {end, *(beside if between else ())}
        unheard = bool({"healthy", "slight"} & allowed) and kind is None
        if end in CONVICTING:
            counts["lost"] += 1
            counts["right"] += kind in allowed or unheard
            counts["silent"] += kind is None and not unheard
            counts["other"] += kind is not None and kind not in allowed
            counts["next to another"] += bool(beside)
        elif end == "healthy":
            counts["healthy"] += 1
            counts["accused"] += kind is not None and kind not in allowed
            counts["suspected"] += kind is None and any(event["suspected"] for event in found["events"])
        else:
            counts["slight"] += 1
            counts["slight called"] += kind is not None
        possible = {each for looked in result["fates"].values() for each in looked[: None if between else 1]}
        possible |= {"harm"} if {*CONVICTING} & possible else set()
        counts["false kind"] += bool(kinds - possible)
        outcome = closing_outcome(result, found["closing"])
        counts["closed"] += 1
        counts["closing right"] += outcome == "right"
        counts["closing wrong"] += outcome == "wrong"
    return counts


def counted(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Counts by monitor, with the batches, and as a guest; and of both where no fate lies between two."""
    return {
        f"{name}{'' if between else ', strictly'}": judged(results, name, between=between)
        for name in ("with batches", "guest")
        for between in (True, False)
    }


def report(results: Sequence[Mapping[str, Any]], environment: str, earlier: Mapping[str, Any]) -> str:
    lines = [
        "# Runs under the monitor",
        "",
        "`TRIVET_DATA=... .venv/bin/python studies/watched_runs.py`",
        "",
        environment,
        "",
    ]
    lines += [
        "What became of runs is decided by 1,200 items that no monitor sees; rules in that file. Strictly: a fate that "
        "lies within sampling error from another is that fate alone. Else either is right, and one that needs no call "
        "is right without.",
        "",
    ]
    counts = counted(results)
    cells: list[tuple[str, str, Callable[[dict[str, int]], str]]] = [
        ("runs that lost, with another fate within sampling error", "", lambda c: str(c["next to another"])),
        ("right kind called, of runs that lost", ">= 90 %", lambda c: share(c["right"], c["lost"])),
        ("another kind", "", lambda c: str(c["other"])),
        ("nothing called", "", lambda c: str(c["silent"])),
        ("runs with a kind called that they never were", "0", lambda c: str(c["false kind"])),
        ("healthy ones accused", "0", lambda c: share(c["accused"], c["healthy"])),
        ("healthy ones suspected", "", lambda c: str(c["suspected"])),
        ("1 to 3 points lost: called", "", lambda c: share(c["slight called"], c["slight"])),
        ("closing sentence right", "all", lambda c: share(c["closing right"], c["closed"])),
        ("closing sentence wrong", "0", lambda c: str(c["closing wrong"])),
    ]
    lines += table(("", "goal", *counts), [[name, goal, *map(cell, counts.values())] for name, goal, cell in cells])
    rows = []
    for one in results:
        start, end = one["hidden"]
        rows.append(
            [
                str(one["draw"]),
                *(one["source"], one["way"], one["expected"], " or ".join(list(one["fates"].values())[-1])),
                f"{100 * start['fine']:.1f} to {100 * end['fine']:.1f}",
                *("; ".join(map(_event, found["events"])) for found in one["called"].values()),
                one["called"]["with batches"]["closing"].partition(":")[0],
            ]
        )
    names = ("seed", "source", "way", "expected", "fate", "recall@1 by finer classes")
    names += ("with batches", "guest", "closing")
    lines += table(names, rows)
    for name, draw in earlier.items():
        lines += ["", f"## {name}", "", draw["environment"], ""]
        lines += table(
            ("", *draw["counts"]),
            [[name, *(str(counts[name]) for counts in draw["counts"].values())] for name in draw["counts"]["guest"]],
        )
    return "\n".join(lines)


def _event(event: Mapping[str, Any]) -> str:
    return f"{event['kind']}{' suspected' if event['suspected'] else ''} at {event['step']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pilot", action="store_true", help="other seeds, to set rates by and to choose rules on")
    parser.add_argument("--unwatched", action="store_true", help="fates alone; writes nothing")
    parser.add_argument("--sources", nargs="*", default=[make.__name__ for make in SOURCES])
    parser.add_argument("--ways", nargs="*", default=[way.name for way in WAYS])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "watched_runs.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = []
    chosen = [(number, make) for number, make in enumerate(SOURCES) if make.__name__ in options.sources]
    for draw, (number, make) in itertools.product((110,) if options.pilot else DRAWS, chosen):
        seed = draw + number
        source = make(seed)
        start = begun(source, seed)
        for place, way in enumerate(way for way in WAYS if way.name in options.ways):
            result = {"draw": draw} | run(source, way, start, 50 * seed + place, watched=not options.unwatched)
            results.append(result)
            first, last = ({k: round(v, 3) for k, v in one.items()} for one in result["hidden"])
            ends = [kind_at_end(found) for found in result["called"].values()]
            fate_now = list(result["fates"].values())[-1]
            print(
                source.name,
                way.name,
                way.expected,
                fate_now,
                *ends,
                first if not place else "",
                last,
                sep=" | ",
                flush=True,
            )
    if not options.unwatched:
        environment = f"{pages.environment('torch')}, one thread."
        earlier = pages.read(options.output)["earlier"]
        found = {"environment": environment, "counts": counted(results), "runs": results, "earlier": earlier}
        pages.write(options.output, found, report(results, environment, earlier))


if __name__ == "__main__":
    main()
