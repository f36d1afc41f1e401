"""Time and memory of every strategy x loss, forward and backward, against the floor and pytorch-metric-learning.

    .venv/bin/python benchmarks/core.py                 # the named cases: time, peak memory, memory of past batches
    .venv/bin/python benchmarks/core.py --cases all     # and every positives x negatives x loss
    .venv/bin/python benchmarks/core.py --filter EPHN --sizes 1024 --no-peers --no-memory --output /tmp/core.json
    .venv/bin/python benchmarks/core.py --earlier ../earlier     # and with the losses of a checkout of earlier code

The floor is the matrix products that no exact method avoids: all similarities forward, two products backward. Floor,
Trivet and the peer alternate in one process. A ratio of times is taken within each round; the median over rounds
counts. Rows are random directions, as of an untrained network: the worst case for hinges, most of which are active.
Labels are shuffled. Every measurement is written as soon as it is finished, as JSON and as a table; `--resume` keeps
finished rows. Needs a quiet machine, and pytorch-metric-learning for the peers.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import trivet
from trivet import (
    ContrastiveLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NCATripletLoss,
    NPairLoss,
    ProxyNCALoss,
    SecondOrderTripletLoss,
    SelectivelyContrastiveLoss,
    TripletLoss,
    UnhingedMarginLoss,
    UnhingedTripletLoss,
)
from trivet.mining import NEGATIVES, POSITIVES

PEER, FLOOR = "pytorch-metric-learning", "floor"
FLOOR_NUMBERS = 2**20  # similarities in a block of the floor, so that floors of different versions compare
SHORTEST = 0.02  # seconds: quicker calls are repeated, and their mean is one measurement
LONGEST_PEER = 2.0  # seconds: a slower peer takes part in the first round only
PEER_MEMORY = 2 * 2**30  # bytes: a peer that needs more is left out
NAMED_SIZES, PRODUCT_SIZES = (64, 128, 256, 512, 1024, 4096, 16384), (1024, 4096)
CHECK_SIZE, VALUE_TOLERANCE, GRADIENT_TOLERANCE = 128, 1e-4, 1e-3

Row = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """Sizes: `anchors` rows compared with each other, and with `references` rows of past batches without gradient."""

    anchors: int
    dimension: int
    samples: int  # per class, among the anchors
    references: int = 0
    reference_samples: int = 0  # per class, among the references

    @property
    def columns(self) -> int:
        """Rows that an anchor is compared with."""
        return self.references or self.anchors

    @property
    def positives(self) -> int:
        """Positives of an anchor."""
        return self.reference_samples if self.references else self.samples - 1

    @property
    def negatives(self) -> int:
        """Negatives of an anchor."""
        return self.columns - (self.reference_samples if self.references else self.samples)

    @property
    def classes(self) -> int:
        """Classes of the anchors."""
        return math.ceil(self.anchors / self.samples)

    def __str__(self) -> str:
        against = f" against {self.references}" if self.references else ""
        return f"{self.anchors}{against} x {self.dimension}, {self.samples} per class"


BANK = Shape(anchors=256, dimension=128, samples=4, references=65_536, reference_samples=16)


@dataclass(frozen=True)
class Data:
    """Unit rows with labels; `references` and `reference_labels` are None where the batch is compared with itself."""

    embeddings: Tensor
    labels: Tensor
    references: Tensor | None
    reference_labels: Tensor | None

    @classmethod
    def of(cls, shape: Shape) -> Data:
        """The same random directions and shuffled labels for the same shape."""
        generator = torch.Generator().manual_seed(0)

        def rows(size: int, samples: int) -> tuple[Tensor, Tensor]:
            directions = torch.nn.functional.normalize(torch.randn(size, shape.dimension, generator=generator), dim=1)
            labels = (torch.arange(size) // samples)[torch.randperm(size, generator=generator)]
            return directions, labels

        embeddings, labels = rows(shape.anchors, shape.samples)
        against = rows(shape.references, shape.reference_samples) if shape.references else (None, None)
        return cls(embeddings.requires_grad_(), labels, *against)


# --- What is measured ------------------------------------------------------------------------------------------------

Builder = Callable[[Any, Any, Shape], nn.Module]  # of the names of positives and negatives

LOSSES: dict[str, Builder] = {
    "triplet": lambda p, n, _: TripletLoss(margin=0.2, distance="euclidean", positives=p, negatives=n, normalize=True),
    "soft triplet": lambda p, n, _: TripletLoss(
        soft=True, margin=0.2, distance="euclidean", positives=p, negatives=n, normalize=True
    ),
    "nca": lambda p, n, _: NCATripletLoss(positives=p, negatives=n),
    "second-order": lambda p, n, _: SecondOrderTripletLoss(positives=p, negatives=n),
    "selectively contrastive": lambda p, n, _: SelectivelyContrastiveLoss(positives=p, negatives=n),
    "unhinged triplet": lambda p, n, _: UnhingedTripletLoss(positives=p, negatives=n),
    "margin": lambda p, n, _: MarginLoss(positives=p, negatives=n),
    "unhinged margin": lambda p, n, _: UnhingedMarginLoss(positives=p, negatives=n),
    # Random directions lie about sqrt(2) apart: with this margin most negatives are active.
    "contrastive": lambda p, n, _: ContrastiveLoss(
        margin=1.5, distance="euclidean", positives=p, negatives=n, normalize=True, reduction="sum"
    ),
    "multi-similarity": lambda p, n, _: MultiSimilarityLoss(threshold=0.5, positives=p, negatives=n),
    "n-pair": lambda p, n, _: NPairLoss(positives=p, negatives=n),
}

OTHER_LOSSES: dict[str, Builder] = {
    "triplet, trimmed": lambda p, n, _: TripletLoss(
        margin=0.2, distance="euclidean", positives=p, negatives=n, normalize=True, trim=0.1
    ),
    "contrastive, trimmed": lambda p, n, _: ContrastiveLoss(
        margin=1.5, distance="euclidean", positives=p, negatives=n, normalize=True, reduction="sum", trim=0.1
    ),
    "n-pair of unit rows": lambda p, n, _: NPairLoss(positives=p, negatives=n, normalize=True, temperature=0.1),
    "proxy-nca": lambda p, n, shape: ProxyNCALoss(num_classes=shape.classes, embedding_dim=shape.dimension, scale=1.0),
}


@dataclass(frozen=True)
class Case:
    """A strategy and a loss under their common name."""

    name: str
    loss: str
    positives: str
    negatives: str

    def build(self, shape: Shape) -> nn.Module:
        """The loss, with the same random choices each time."""
        torch.manual_seed(0)
        return (LOSSES | OTHER_LOSSES)[self.loss](self.positives, self.negatives, shape)

    @property
    def proxies(self) -> bool:
        """Whether anchors are compared with one learned row per class."""
        return self.loss == "proxy-nca"

    @property
    def one_each(self) -> bool:
        """Whether an anchor has one positive and one negative, found without drawing."""
        return self.positives in {"easy", "hard", "semihard"} and self.negatives in {"easy", "hard", "semihard-hardest"}


NAMED = [
    Case("EPHN", "triplet", "easy", "hard"),
    Case("batch-hard", "triplet", "hard", "hard"),
    Case("EPSHN", "triplet", "easy", "semihard-hardest"),
    Case("semi-hard", "triplet", "all", "semihard"),
    Case("all semi-hard", "triplet", "all", "all-semihard"),
    Case("easy x semi-hard", "triplet", "easy", "semihard"),
    Case("all triplets", "triplet", "all", "all"),
    Case("violating", "triplet", "all", "violating"),
    Case("random triplets", "triplet", "random", "random"),
    Case("EPHN, trimmed", "triplet, trimmed", "easy", "hard"),
    Case("batch-hard, soft", "soft triplet", "hard", "hard"),
    Case("EPHN, NCA", "nca", "easy", "hard"),
    Case("EPHN, second-order", "second-order", "easy", "hard"),
    Case("EPHN, selectively contrastive", "selectively contrastive", "easy", "hard"),
    Case("unhinged triplets", "unhinged triplet", "all", "all"),
    Case("distance-weighted margin", "margin", "all", "distance-weighted"),
    Case("easy x distance-weighted margin", "margin", "easy", "distance-weighted"),
    Case("margin, all pairs", "margin", "all", "all"),
    Case("unhinged margin, all pairs", "unhinged margin", "all", "all"),
    Case("contrastive", "contrastive", "all", "all"),
    Case("contrastive, trimmed", "contrastive, trimmed", "all", "all"),
    Case("multi-similarity", "multi-similarity", "multi-similarity", "multi-similarity"),
    Case("multi-similarity, easy", "multi-similarity", "easy", "multi-similarity"),
    Case("n-pair", "n-pair", "random", "all"),
    Case("n-pair of unit rows, all positives", "n-pair of unit rows", "all", "all"),
    Case("proxy-NCA", "proxy-nca", "all", "all"),
]
BANK_CASES = {
    "EPHN", "batch-hard", "EPSHN", "semi-hard", "all triplets", "distance-weighted margin", "contrastive",
    "multi-similarity", "n-pair of unit rows, all positives",
}  # fmt: skip


def product_cases() -> list[Case]:
    """Every loss with all positives and all negatives, whether the loss accepts them or not."""
    return [
        Case(f"{loss}: {positives} x {negatives}", loss, positives, negatives)
        for loss, positives, negatives in itertools.product(LOSSES, POSITIVES, NEGATIVES)
    ]


# --- The peer --------------------------------------------------------------------------------------------------------


class Mined(nn.Module):
    """A miner and a loss of the peer, called as one."""

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.loss, self.miner = loss, miner

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        references: Tensor | None = None,
        reference_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of what the miner chose; of everything without a miner."""
        chosen = None if self.miner is None else self.miner(embeddings, labels, references, reference_labels)
        return self.loss(embeddings, labels, chosen, references, reference_labels)


@dataclass(frozen=True)
class Peer:
    """What pytorch-metric-learning offers for a case.

    Attributes:
        build: its loss.
        needs: bytes of its largest tensors, estimated from below.
        differs: why its value is another one; empty where both must agree.
    """

    build: Callable[[Shape], nn.Module]
    needs: Callable[[Shape], int]
    differs: str = ""


def pair_bytes(shape: Shape) -> int:
    """Two indices of 8 bytes for each pair, and at least three matrices of 4 bytes: distances, a copy, a mask."""
    return shape.anchors * shape.columns * (2 * 8 + 3 * 4)


def triplet_bytes(shape: Shape) -> int:
    """Three indices of 8 bytes for each triplet."""
    return max(pair_bytes(shape), shape.anchors * shape.positives * shape.negatives * 3 * 8)


def pair_by_pair_bytes(shape: Shape) -> int:
    """A matrix of 4 bytes of all positive pairs against all negative pairs."""
    return shape.anchors * shape.positives * shape.anchors * shape.negatives * 4


def proxy_bytes(shape: Shape) -> int:
    """Three matrices of 4 bytes of anchors against proxies."""
    return shape.anchors * shape.classes * 3 * 4


def peers() -> dict[str, Peer]:
    """The peer of each named case that has one."""
    from pytorch_metric_learning import distances, losses, miners, reducers

    mean, total, cosine = reducers.MeanReducer, reducers.SumReducer, distances.CosineSimilarity

    def triplets(miner: Callable[[], nn.Module] | None, **options: Any) -> Callable[[Shape], nn.Module]:
        return lambda _: Mined(
            losses.TripletMarginLoss(**({"margin": 0.2, "reducer": mean()} | options)), miner and miner()
        )

    def extremes(positives: str, negatives: str, **options: Any) -> Callable[[], nn.Module]:
        return lambda: miners.BatchEasyHardMiner(pos_strategy=positives, neg_strategy=negatives, **options)

    def band(kind: str) -> Callable[[], nn.Module]:
        return lambda: miners.TripletMarginMiner(margin=0.2, type_of_triplets=kind)

    return {
        "EPHN": Peer(triplets(extremes("easy", "hard")), pair_bytes),
        "batch-hard": Peer(triplets(miners.BatchHardMiner), pair_bytes),
        "EPSHN": Peer(triplets(extremes("easy", "semihard")), pair_bytes),
        "semi-hard": Peer(
            triplets(band("semihard")),
            triplet_bytes,
            "takes every negative of the band; here one is drawn for each positive",
        ),
        "all semi-hard": Peer(triplets(band("semihard")), triplet_bytes),
        "all triplets": Peer(triplets(None), triplet_bytes),
        "violating": Peer(
            triplets(band("all")), triplet_bytes, "takes every violating negative; here one is drawn for each positive"
        ),
        "random triplets": Peer(
            triplets(None, triplets_per_anchor=1), pair_bytes, "the same rule with other random numbers"
        ),
        "batch-hard, soft": Peer(triplets(miners.BatchHardMiner, margin=0, smooth_loss=True), pair_bytes),
        "EPHN, NCA": Peer(
            triplets(extremes("easy", "hard", distance=cosine()), margin=0, smooth_loss=True, distance=cosine()),
            pair_bytes,
        ),
        "distance-weighted margin": Peer(
            lambda _: Mined(losses.MarginLoss(learn_beta=True), miners.DistanceWeightedMiner()),
            pair_bytes,
            "draws positives too, as many as the class has rows; here each positive has a negative",
        ),
        "contrastive": Peer(lambda _: Mined(losses.ContrastiveLoss(neg_margin=1.5, reducer=total())), pair_bytes),
        "multi-similarity": Peer(
            lambda _: Mined(
                losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5, reducer=mean()), miners.MultiSimilarityMiner()
            ),
            pair_bytes,
        ),
        "n-pair of unit rows, all positives": Peer(
            lambda _: Mined(losses.NTXentLoss(temperature=0.1, reducer=mean())), pair_by_pair_bytes
        ),
        "proxy-NCA": Peer(
            lambda shape: Mined(losses.ProxyNCALoss(shape.classes, shape.dimension, reducer=mean())),
            proxy_bytes,
            "its denominator holds the anchor's own proxy too, and its proxies start elsewhere",
        ),
    }


def check_agreement(case: Case, peer: Peer) -> Row:
    """Relative differences of value and gradient; raises AssertionError where they exceed the tolerances."""
    shape = Shape(anchors=CHECK_SIZE, dimension=128, samples=4)
    data = Data.of(shape)
    found = []
    for loss in (case.build(shape), peer.build(shape)):
        value = loss(data.embeddings, data.labels)
        (gradient,) = torch.autograd.grad(value, data.embeddings)
        found.append((value.item(), gradient))
    (ours, our_gradient), (theirs, their_gradient) = found
    value = abs(ours - theirs) / abs(theirs)
    gradient = ((our_gradient - their_gradient).norm() / their_gradient.norm()).item()
    assert value <= VALUE_TOLERANCE, f"{case.name}: the value must agree with {PEER}: got {ours} and {theirs}."
    assert gradient <= GRADIENT_TOLERANCE, (
        f"{case.name}: the gradient must agree with {PEER}: got a relative difference of {gradient}."
    )
    return {"case": case.name, "value": value, "gradient": gradient}


# --- Measuring -------------------------------------------------------------------------------------------------------


def floor_pass(embeddings: Tensor, references: Tensor, *, learned: bool) -> None:
    """The bare products in blocks: similarities, the gradient of the anchors, that of the references if `learned`."""
    rows = max(1, FLOOR_NUMBERS // len(references))
    gradient, other = torch.empty_like(embeddings), torch.zeros_like(references)
    for start in range(0, len(embeddings), rows):
        anchors = embeddings[start : start + rows]
        similarities = anchors @ references.T
        torch.mm(similarities, references, out=gradient[start : start + rows])
        if learned:
            other.addmm_(similarities.T, anchors)


def floor_of(shape: Shape, data: Data, *, proxies: bool) -> Callable[[], None]:
    """The floor of a shape: references of past batches are constants, so one product fewer."""
    embeddings = data.embeddings.detach()
    references = embeddings if data.references is None else torch.cat([embeddings, data.references])
    if proxies:
        references = embeddings[: shape.classes].clone()
    return lambda: floor_pass(embeddings, references, learned=data.references is None)


def step_of(loss: nn.Module, data: Data) -> Callable[[], None]:
    """Forward and backward of a loss."""

    def step() -> None:
        data.embeddings.grad = None
        loss.zero_grad(set_to_none=True)
        if data.references is None:
            loss(data.embeddings, data.labels).backward()
        else:  # the peer has no way to add the batch
            both = {"with_batch": True} if isinstance(loss, trivet.EmbeddingLoss) else {}
            past = {"references": data.references, "reference_labels": data.reference_labels}
            loss(data.embeddings, data.labels, **past, **both).backward()

    return step


def seconds(call: Callable[[], None], calls: int) -> float:
    """Mean time of a call."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def earlier_benchmark(checkout: Path) -> ModuleType:
    """This file once more, with the losses of a checkout of earlier code, in the same process."""
    today = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "trivet"}
    spec = importlib.util.spec_from_file_location("earlier_core", __file__)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(checkout / "src"))
    try:
        spec.loader.exec_module(module)
        assert Path(module.trivet.__file__).is_relative_to(checkout), f"the code of {checkout} must be imported."
    finally:
        sys.path.pop(0)
        for name in [name for name in sys.modules if name.split(".")[0] == "trivet"]:
            del sys.modules[name]
        sys.modules.update(today)
    return module


def time_case(case: Case, shape: Shape, peer: Peer | None, earlier: ModuleType | None, rounds: int) -> Row:
    """Floor, Trivet, earlier code and peer in turn, in an order that is drawn for each round."""
    data = Data.of(shape)
    actors = {
        "floor": floor_of(shape, data, proxies=case.proxies),
        "trivet": step_of(case.build(shape), data),
    }
    if earlier is not None:
        with contextlib.suppress(ValueError):  # a strategy that it did not have
            actors["earlier"] = earlier.step_of(earlier.Case(**asdict(case)).build(shape), data)
    notes = []
    if peer is not None:
        if (needs := peer.needs(shape)) > PEER_MEMORY:
            notes.append(f"peer left out: needs more than {needs / 2**30:.1f} GiB")
        else:
            actors["peer"] = step_of(peer.build(shape), data)
            notes += [f"differs: {peer.differs}"] if peer.differs else []
    calls, limits = {}, dict.fromkeys(actors, rounds)
    for name, act in actors.items():
        took = seconds(act, 1)  # warm-up
        if took < 1:
            took = seconds(act, 1)
        calls[name] = max(1, math.ceil(SHORTEST / took))
        if name == "peer" and took > LONGEST_PEER:
            limits[name] = 1
            notes.append(f"peer in 1 round of {rounds}: more than {LONGEST_PEER:g} s a call")
    times: dict[str, list[float]] = {name: [] for name in actors}
    orders = random.Random(0)
    for number in range(rounds):
        for name in orders.sample(list(actors), len(actors)):  # whoever follows the floor pays for what it left behind
            if number < limits[name]:
                times[name].append(seconds(actors[name], calls[name]))
    row = {
        "notes": notes,
        "seconds": times,
        "floor_ms": 1000 * statistics.median(times["floor"]),
        "ms": 1000 * statistics.median(times["trivet"]),
        "ratio": statistics.median(o / f for o, f in zip(times["trivet"], times["floor"], strict=True)),
    }
    if "earlier" in times:
        row["earlier_ms"] = 1000 * statistics.median(times["earlier"])
        row["gain"] = statistics.median(e / o for e, o in zip(times["earlier"], times["trivet"], strict=True))
    if "peer" in times:
        row["peer_ms"] = 1000 * statistics.median(times["peer"])
        row["speedup"] = statistics.median(p / o for p, o in zip(times["peer"], times["trivet"], strict=False))
    return row


def extra_memory(case: Case | None, shape: Shape) -> int:
    """Bytes that a pass takes at its peak beyond its input, of the floor if there is no case.

    The most the process ever held less what it held before, so a process can measure once.
    """

    def pass_of(shape: Shape) -> Callable[[], None]:
        data = Data.of(shape)
        if case is None:
            return floor_of(shape, data, proxies=False)
        return step_of(case.build(shape), data)

    pass_of(Shape(anchors=64, dimension=shape.dimension, samples=4))()  # what is loaded once
    act = pass_of(shape)
    before = held("VmRSS")
    act()
    return max(0, held("VmHWM") - before)


def held(what: str) -> int:
    """Bytes this process holds now ("VmRSS") or held at most ("VmHWM"; what `resource` tells counts the parent too)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[what].split()[0]) * 1024


def memory_in_new_process(name: str, shape: Shape) -> float:
    """`extra_memory` in MiB, measured in a process of its own."""
    question = json.dumps({"case": name, "shape": asdict(shape)})
    answer = subprocess.run(
        [sys.executable, __file__, "--measure-memory", question], stdout=subprocess.PIPE, text=True, check=True
    )
    return int(answer.stdout) / 2**20


# --- Goals -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """A promise about rows of results.

    Attributes:
        name: what it is about.
        limit: the largest value allowed, or the smallest if not `at_most`.
        value: of a row, given all rows; None where the goal is not about the row.
    """

    name: str
    limit: float
    at_most: bool
    unit: str
    value: Callable[[Row, Sequence[Row]], float | None]

    def met(self, value: float) -> bool:
        """Whether the value keeps the promise."""
        return value <= self.limit if self.at_most else value >= self.limit

    @property
    def says(self) -> str:
        """The limit in words."""
        return f"{'≤' if self.at_most else '≥'} {self.limit:g} {self.unit}"


GOAL_SHAPE = {"anchors": 4096, "dimension": 128, "samples": 4}
WIDE_SHAPE = GOAL_SHAPE | {"dimension": 512, "samples": 16}
PEER_GOAL_SHAPE = GOAL_SHAPE | {"anchors": 1024}
MEMORY_GOAL_SHAPE = {"anchors": 32_768, "dimension": 128}
SMALL = (64, 512)
SPEEDUPS = {
    100: {"semi-hard", "all semi-hard", "all triplets", "distance-weighted margin"},
    5: {"EPHN", "batch-hard", "contrastive"},
    10: {"multi-similarity"},
}


def matches(row: Row, wanted: Row) -> bool:
    """Whether the row has the wanted entries."""
    return all(row[key] == value for key, value in wanted.items())


def ratio_if(one_each: bool, shape: Row) -> Callable[[Row, Sequence[Row]], float | None]:
    """The ratio to the floor of rows of this size that choose one positive and one negative, or the others."""

    def value(row: Row, rows: Sequence[Row]) -> float | None:
        about = row["part"] in {"named", "product"} and matches(row, shape)
        return row["ratio"] if about and row["one_each"] is one_each else None

    return value


def speedup_of(names: set[str]) -> Callable[[Row, Sequence[Row]], float | None]:
    """How many times as long the peer takes, at the stated size, for these cases."""
    return lambda row, rows: (
        row.get("speedup")
        if row["part"] == "named" and row["case"] in names and matches(row, PEER_GOAL_SHAPE)
        else None
    )


def never_slower(row: Row, rows: Sequence[Row]) -> float | None:
    """How many times as long the peer takes, from the smallest size that counts."""
    about = row["part"] == "named" and row["anchors"] >= SMALL[0]
    return row.get("speedup") if about else None


def small(row: Row, rows: Sequence[Row]) -> float | None:
    """How many times as long the peer takes, in small batches."""
    return never_slower(row, rows) if row["anchors"] <= SMALL[1] else None


def memory_of(names: Set[str]) -> Callable[[Row, Sequence[Row]], float | None]:
    """The ratio to the floor of these cases against past batches."""
    return lambda row, rows: row["ratio"] if row["part"] == "bank" and row["case"] in names else None


def peak(row: Row, rows: Sequence[Row]) -> float | None:
    """MiB at the stated size."""
    about = row["part"] == "memory" and row["case"] != FLOOR and matches(row, MEMORY_GOAL_SHAPE)
    return row["mib"] if about else None


def growth(row: Row, rows: Sequence[Row]) -> float | None:
    """The power of N with which the peak grows from the next smaller size."""
    if row["part"] != "memory" or row["case"] == FLOOR:
        return None
    same = {key: row[key] for key in ("part", "case", "references", "dimension", "samples")}
    smaller = [
        other for other in rows if other.get("mib") and matches(other, same) and other["anchors"] < row["anchors"]
    ]
    if not smaller or not row["mib"]:
        return None
    before = max(smaller, key=lambda other: other["anchors"])
    return math.log(row["mib"] / before["mib"]) / math.log(row["anchors"] / before["anchors"])


GOALS = [
    *(
        Goal("one positive and one negative per anchor, N = {anchors}, d = {dimension}, {samples} per class".format(
            **shape), 1.5, True, "x floor", ratio_if(True, shape))
        for shape in (GOAL_SHAPE, WIDE_SHAPE)
    ),
    *(
        Goal("every other strategy x loss, N = {anchors}, d = {dimension}, {samples} per class{also}".format(
            also=also, **shape), limit, True, "x floor", ratio_if(False, shape))
        for shape in (GOAL_SHAPE, WIDE_SHAPE)
        for limit, also in ((4, ""), (2.5, ": 95 % of them"))
    ),
    *(
        Goal(f"{', '.join(sorted(names))} against {PEER}, N = {PEER_GOAL_SHAPE['anchors']}", times, False, "x as fast",
             speedup_of(names))
        for times, names in SPEEDUPS.items()
    ),
    Goal(f"every case against {PEER}, N = {SMALL[0]} to {SMALL[1]}", 1.5, False, "x as fast", small),
    Goal(f"every case against {PEER}, N >= {SMALL[0]}", 1, False, "x as fast", never_slower),
    Goal("peak memory, N = {anchors}, d = {dimension}".format(**MEMORY_GOAL_SHAPE), 1024, True, "MiB", peak),
    Goal("peak memory grows linearly", 1.1, True, "as power of N", growth),
    *(
        Goal(f"memory of past batches, {BANK.anchors} against {BANK.references} x {BANK.dimension}: {title}", limit,
             True, "x floor", memory_of(names))
        for title, limit, names in (
            ("all triplets", 3, {"all triplets"}), ("others", 2, set(BANK_CASES) - {"all triplets"})
        )
    ),
]  # fmt: skip


# --- Results ---------------------------------------------------------------------------------------------------------


def environment() -> dict[str, Any]:
    """Versions and hardware, in general words."""
    models = {
        line.partition(":")[2].strip()
        for line in (Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else [])
        if line.startswith("model name")
    }
    try:
        peer = importlib.metadata.version(PEER)
    except importlib.metadata.PackageNotFoundError:
        peer = "not installed"
    return {
        "trivet": trivet.__version__,
        PEER: peer,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "processor": ", ".join(sorted(models)) or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "precision_of_products": torch.get_float32_matmul_precision(),
    }


def key_of(row: Row) -> tuple[Any, ...]:
    """What tells a measurement from others."""
    return tuple(row[key] for key in KEY)


KEY = ("part", "case", "anchors", "references", "dimension", "samples")


class Results:
    """Rows, written to disk as soon as they are known."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.record: dict[str, Any] = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "load": os.getloadavg()[0],
            "environment": environment(),
            "earlier": "",
            "agreement": [],
            "rows": [],
            "refused": [],
            "failed": [],
        }
        if resume and path.exists():
            found = json.loads(path.read_text())
            if found["environment"] != self.record["environment"]:
                raise ValueError(
                    f"--resume needs results of the same environment: got {found['environment']} in {path} and "
                    f"{self.record['environment']} here; give another --output, or leave --resume out."
                )
            self.record |= {key: found[key] for key in ("created", "load", "earlier", "rows")}

    @property
    def rows(self) -> list[Row]:
        """What was measured."""
        return self.record["rows"]

    def has(self, row: Row) -> bool:
        """Whether the measurement is there."""
        return any(key_of(old) == key_of(row) for old in self.rows)

    def add(self, row: Row) -> None:
        """Add a row, and judge all of them again."""
        self.rows.append(row)
        for each in self.rows:
            judged = [(goal, goal.value(each, self.rows)) for goal in GOALS]
            each["goals"] = [
                {"goal": goal.name, "limit": goal.says, "value": value, "met": goal.met(value)}
                for goal, value in judged
                if value is not None
            ]
        self.write()

    def write(self) -> None:
        """Replace both files, each at once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for path, text in (
            (self.path, one_row_a_line(rounded(self.record))),
            (self.path.with_suffix(".md"), page(self.record)),
        ):
            part = path.with_name(path.name + ".part")
            part.write_text(text)
            part.replace(path)


def rounded(value: Any) -> Any:
    """The same with five significant digits of each number, which no timing exceeds."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def one_row_a_line(record: dict[str, Any]) -> str:
    """JSON whose lists of records have a line for each, so that a changed row is a changed line."""
    parts = []
    for key, value in record.items():
        rows = isinstance(value, list) and value
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value) if rows else ""
        parts.append(f"{json.dumps(key)}:" + (f"[\n{lines}\n]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, words to the left and numbers to the right."""
    words = {head[0], "goal", "limit", "goals", "notes"}
    lines = [head, ["---" if name in words else "---:" for name in head], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def short(value: float | None) -> str:
    """Three significant digits, whole from 100 on."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdict(row: Row) -> str:
    """The goals of a row."""
    return "; ".join(f"{goal['limit']}: {'met' if goal['met'] else '**missed**'}" for goal in row["goals"])


def page(record: dict[str, Any]) -> str:
    """The results as a page."""
    place, rows = record["environment"], record["rows"]
    text = [
        "# Time and memory of strategies and losses",
        f"Written by `benchmarks/core.py`, started {record['created']} at load {record['load']:.2f}. "
        + ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in place.items())
        + ".",
        "Forward and backward, float32, random directions, shuffled labels. Floor: the bare matrix products, "
        f"in blocks of {FLOOR_NUMBERS} similarities. A ratio of times is taken within each round; the median over "
        "rounds is shown. Times as fast: the peer's time divided by Trivet's. Values and gradients were compared with "
        f"the peer's at N = {CHECK_SIZE} before anything was timed, to {VALUE_TOLERANCE:g} and {GRADIENT_TOLERANCE:g}, "
        "except where the notes give a difference. A peer that needs more than "
        f"{PEER_MEMORY / 2**30:g} GiB is left out."
        + (f" Earlier: the losses of {record['earlier']}, in the same rounds." if record["earlier"] else ""),
    ]
    judged = [goal for row in rows for goal in row["goals"]]
    if judged:
        lines = []
        for goal in GOALS:
            found = [one for one in judged if one["goal"] == goal.name]
            if found:
                values = [one["value"] for one in found]
                worst = max(values) if goal.at_most else min(values)
                met = sum(one["met"] for one in found)
                lines.append([goal.name, goal.says, f"{met} of {len(found)}", short(worst)])
        text += ["## Goals", table(["goal", "limit", "met", "worst"], lines)]
    for part, title in (
        ("named", "Named cases"),
        ("bank", f"Memory of past batches: {BANK.anchors} rows against {BANK.references} constant ones"),
    ):
        groups: dict[tuple[int, int], list[Row]] = {}
        for row in rows:
            if row["part"] == part:
                groups.setdefault((row["dimension"], row["samples"]), []).append(row)
        text += [f"## {title}"] if groups else []
        for (dimension, samples), group in groups.items():
            text.append(f"### d = {dimension}, {samples} per class")
            head = ["case", "N", "floor ms", "Trivet ms", "x floor", "earlier ms", "earlier / now", f"{PEER} ms",
                    "times as fast", "goals", "notes"]  # fmt: skip
            lines = [
                [
                    row["case"],
                    str(row["anchors"]),
                    *(short(row.get(key)) for key in ("floor_ms", "ms", "ratio", "earlier_ms", "gain")),
                    *(short(row.get(key)) for key in ("peer_ms", "speedup")),
                    verdict(row),
                    "; ".join(row["notes"]),
                ]
                for row in group
            ]
            text.append(table(head, lines))
    memory = [row for row in rows if row["part"] == "memory"]
    if memory:
        head = ["case", "N", "against", "d", "MiB", "goals"]
        lines = [
            [
                row["case"],
                str(row["anchors"]),
                str(row["references"] or "itself"),
                str(row["dimension"]),
                short(row["mib"]),
                verdict(row),
            ]
            for row in memory
        ]
        text += ["## Peak memory beyond the input", "Each was measured in a process of its own.", table(head, lines)]
    text += product_tables([row for row in rows if row["part"] == "product"])
    for key, title in (("refused", "Combinations that the library rejects"), ("failed", "Failed")):
        if record[key]:
            reasons: dict[str, list[str]] = {}
            for one in record[key]:
                reasons.setdefault(one["reason"], []).append(one["case"])
            text += [f"## {title}", "\n".join(f"- {'; '.join(cases)}. {reason}" for reason, cases in reasons.items())]
    return "\n\n".join(text) + "\n"


def product_tables(rows: Sequence[Row]) -> Iterator[str]:
    """Ratios to the floor, a table of positives x negatives for each loss and size."""
    if rows:
        yield "## Every strategy x loss: time / floor"
    for (loss, anchors, dimension, samples), group in itertools.groupby(
        sorted(rows, key=lambda row: (row["loss"], row["anchors"], row["dimension"], row["samples"])),
        key=lambda row: (row["loss"], row["anchors"], row["dimension"], row["samples"]),
    ):
        ratios = {
            (row["positives"], row["negatives"]): short(row["ratio"])
            + (" !" if any(not goal["met"] for goal in row["goals"]) else "")
            for row in group
        }
        yield f"### {loss}, N = {anchors}, d = {dimension}, {samples} per class"
        positives, negatives = (list(dict.fromkeys(key[side] for key in ratios)) for side in (0, 1))
        yield table(
            ["positives \\ negatives", *negatives],
            [[p, *(ratios.get((p, n), "") for n in negatives)] for p in positives],
        )
    if rows:
        yield "!: goal missed."


# --- The run ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """A row to be measured."""

    part: str
    case: Case | None  # None: the floor
    shape: Shape

    @property
    def name(self) -> str:
        """The name of the row."""
        return FLOOR if self.case is None else self.case.name

    def row(self) -> Row:
        """What a row says before anything is measured."""
        row: Row = {"part": self.part, "case": self.name, **asdict(self.shape)}
        if self.case is not None:
            row |= {"loss": self.case.loss, "positives": self.case.positives, "negatives": self.case.negatives}
            row["one_each"] = self.case.one_each
        return row


def plan(options: argparse.Namespace) -> list[Measurement]:
    """All measurements, in their order."""
    chosen = [case for case in NAMED if options.filter.lower() in case.name.lower()]
    dimension, samples = options.dimensions[0], options.samples[0]
    found = []
    for each_dimension, each_samples in itertools.product(options.dimensions, options.samples):
        first = (each_dimension, each_samples) == (dimension, samples)
        found += [
            Measurement("named", case, Shape(size, each_dimension, each_samples))
            for size in options.sizes or NAMED_SIZES
            if first or size <= options.grid_size
            for case in chosen
        ]
    in_bank = [case for case in chosen if case.name in BANK_CASES]
    found += [Measurement("bank", case, BANK) for case in in_bank]
    if options.memory:
        beside: list[Case | None] = [None, *chosen] if chosen else []
        found += [
            Measurement("memory", case, Shape(size, dimension, samples))
            for size in options.memory_sizes
            for case in beside
        ]
        found += [Measurement("memory", case, BANK) for case in ([None, *in_bank] if in_bank else [])]
    if options.cases == "all":
        found += [
            Measurement("product", case, Shape(size, dimension, samples))
            for size in options.sizes or PRODUCT_SIZES
            for case in product_cases()
            if options.filter.lower() in case.name.lower()
        ]
    return found


def measure(measurements: Sequence[Measurement], results: Results, options: argparse.Namespace) -> None:
    """Make every measurement that is missing."""
    beside = peers() if options.peers else {}
    earlier = earlier_benchmark(options.earlier.resolve()) if options.earlier else None
    for name in dict.fromkeys(one.name for one in measurements if one.part == "named"):
        peer = beside.get(name)
        if peer is not None and not peer.differs:
            found = check_agreement(next(case for case in NAMED if case.name == name), peer)
            print(f"{name}: agrees with {PEER}, value {found['value']:.1e}, gradient {found['gradient']:.1e}")
            results.record["agreement"].append(found)
    refused = set()
    for number, one in enumerate(measurements, 1):
        row, label = one.row(), f"[{number}/{len(measurements)}] {one.part}, {one.name}, {one.shape}"
        if one.name in refused:
            continue
        if one.part == "product" and one.case is not None:
            try:
                one.case.build(one.shape)
            except ValueError as error:
                refused.add(one.name)
                results.record["refused"].append({"case": one.name, "reason": str(error)})
                continue
        if results.has(row):
            continue
        try:
            if one.part == "memory" or one.case is None:
                row["mib"] = memory_in_new_process(one.name, one.shape)
                print(f"{label}: {row['mib']:.0f} MiB", flush=True)
            else:
                peer = beside.get(one.name) if one.part != "product" else None
                rounds = options.small_rounds if one.shape.columns <= SMALL[1] else options.rounds
                row |= time_case(one.case, one.shape, peer, earlier, rounds)
                print(f"{label}: {row['ms']:.3g} ms, {row['ratio']:.2f} x floor", flush=True)
        except (ValueError, RuntimeError, AssertionError, subprocess.CalledProcessError) as error:
            results.record["failed"].append({"case": label, "reason": f"{type(error).__name__}: {error}"})
            print(f"{label}: failed: {error}", flush=True)
            results.write()
            continue
        results.add(row)
    results.write()


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", choices=["named", "all"], default="named", help="all: every strategy x loss too")
    parser.add_argument("--filter", default="", help="only cases whose name holds this text")
    parser.add_argument(
        "--sizes", type=int, nargs="+", help=f"batch sizes; else {NAMED_SIZES}, and {PRODUCT_SIZES} for all"
    )
    parser.add_argument("--dimensions", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--samples", type=int, nargs="+", default=[4, 16], help="samples per class")
    parser.add_argument(
        "--grid-size", type=int, default=4096, help="largest batch for other than the first dimension and samples"
    )
    parser.add_argument("--memory", action=argparse.BooleanOptionalAction, default=True, help="measure peak memory")
    parser.add_argument("--memory-sizes", type=int, nargs="+", default=[8192, 32_768])
    parser.add_argument("--rounds", type=int, default=5, help="at least 5 for a result")
    parser.add_argument("--small-rounds", type=int, default=20, help=f"of batches up to {SMALL[1]}")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help=f"measure {PEER} too")
    parser.add_argument("--earlier", type=Path, help="a checkout of earlier code, whose steps take turns with these")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "core.json")
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--resume", action="store_true", help="keep the rows that --output holds")
    existing.add_argument("--overwrite", action="store_true", help="replace --output")
    parser.add_argument("--measure-memory", help=argparse.SUPPRESS)
    return parser


def main() -> None:
    parser = arguments()
    options = parser.parse_args()
    if options.measure_memory:
        question = json.loads(options.measure_memory)
        case = next((case for case in NAMED if case.name == question["case"]), None)
        print(extra_memory(case, Shape(**question["shape"])))
        return
    sizes = [*(options.sizes or []), *options.memory_sizes]
    if min(sizes) < 2 * max(options.samples) or min(options.samples) < 2 or options.rounds < 1:
        parser.error("--samples must be at least 2, sizes two classes at least, --rounds at least 1.")
    if options.memory and sys.platform != "linux":
        parser.error(f"peak memory needs Linux: got {sys.platform}; pass --no-memory.")
    if options.peers and environment()[PEER] == "not installed":
        parser.error(f"--peers needs {PEER}: pip install {PEER}, or pass --no-peers.")
    if options.output.exists() and not (options.resume or options.overwrite):
        parser.error(f"--output must not exist: got {options.output}; pass --resume, --overwrite or another --output.")
    measurements = plan(options)
    if not measurements:
        parser.error(f"--filter must be part of a case's name: got {options.filter!r}; see NAMED in {__file__}.")
    try:
        results = Results(options.output, resume=options.resume)
    except ValueError as error:
        parser.error(str(error))
    if options.earlier:
        described = ["git", "-C", str(options.earlier), "log", "-1", "--format=commit %h of %cs"]
        results.record["earlier"] = subprocess.check_output(described, text=True).strip()
    measure(measurements, results, options)
    print(f"{options.output} and {options.output.with_suffix('.md').name}: {len(results.rows)} rows")
    if results.record["failed"]:
        raise SystemExit(f"{len(results.record['failed'])} measurements failed; see {options.output}.")


if __name__ == "__main__":
    main()
