"""Embeddings of known condition: made or trained so that the right diagnosis is known beforehand.

Cases are numbered within their kind; thresholds may be chosen on those with an even number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from trivet.collapse.strategy import SamplingStrategy
from trivet.commands.demo.run import COARSE, NUMBERS, Positives, train_parity
from trivet.datasets import DigitsConfig, load
from trivet.distances import unit_rows
from trivet.losses import TripletLoss
from trivet.metrics import recall_at_k
from trivet.training.embed_dataset import embed, raw_inputs
from trivet_papers.xu2024.training import train_digits

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Fate:
    """An embedding and its expected diagnosis.

    Attributes:
        name: what was done.
        kind, severity: the expected verdict; a severity of None is not judged.
        embeddings, labels: what is diagnosed.
        reference: the same items before training, where that is part of the case.
        strategy: where the fate lies in the sampling.
    """

    name: str
    kind: str
    severity: str | None
    embeddings: Array
    labels: Array
    reference: Array | None = None
    strategy: SamplingStrategy | None = None


def clusters(
    seed: int, *, classes: int, per_class: int, d: int, within: float, modes: int = 1, tail: bool = False
) -> tuple[Array, Array]:
    """Classes of `modes` Gaussian spots around standard normal means; `within` is the deviation of a spot."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    spot = np.tile(np.arange(per_class) % modes, classes)
    centres = random.standard_normal((classes, modes, d))
    noise = random.standard_t(5, (len(labels), d)) if tail else random.standard_normal((len(labels), d))
    return centres[labels, spot] + within * noise, labels


def unit(points: Array) -> Array:
    """Rows of length 1."""
    return unit_rows(torch.from_numpy(points)).numpy()


def flipped(labels: Array, share: float, seed: int, *, pairs: bool = False) -> Array:
    """Exactly this share of the labels replaced: by a random other class, or by the next one."""
    random = np.random.default_rng(seed)
    classes = int(labels.max()) + 1
    wrong = random.permutation(len(labels))[: round(share * len(labels))]
    step = np.ones(len(wrong), dtype=np.int64) if pairs else random.integers(1, classes, len(wrong))
    noisy = labels.copy()
    noisy[wrong] = (noisy[wrong] + step) % classes
    return noisy


def digits() -> tuple[Array, Array, Array, Array]:
    """Standardised images and labels of 1,200 training and 597 test digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(labels))
    images = images[order].reshape(-1, 1, 8, 8).astype(np.float32) / 16
    images = (images - images[:1200].mean()) / images[:1200].std()
    return images[:1200], labels[order][:1200], images[1200:], labels[order][1200:]


def trained(seed: int, *, d: int, classes: int, samples: int, **options: Any) -> tuple[Array, Array, Array]:
    """Held-out digits embedded by a network trained with batch-hard triplets, their labels, and the same untrained.

    By the small protocol of network collapse, see `train_digits`, which takes the options; of each anchor the hardest
    triplet unless they say otherwise.
    """
    found = train_digits(classes, samples, d, seed=seed, **({"reduction": "mean"} | options))
    return found.after.embeddings, found.after.labels, found.before.embeddings


def healthy() -> Iterator[Fate]:
    """Spread out by class; and noise, which is only spread out."""

    def case(name: str, points: Array, labels: Array, **more: Any) -> Fate:
        return Fate(name, "healthy", None, points, labels, **more)

    shapes = [(2, 5, 0.6), (3, 4, 0.5), (8, 10, 0.5), (16, 3, 0.8), (32, 100, 0.6), (64, 20, 1.0), (128, 50, 0.4)]
    for number, (d, classes, within) in enumerate(shapes):
        points, labels = clusters(number, classes=classes, per_class=1000 // classes, d=d, within=within)
        yield case(f"clusters, d = {d}, {classes} classes", points, labels)
        yield case(f"clusters on the sphere, d = {d}, {classes} classes", unit(points), labels)
    for number, modes in enumerate((2, 3, 6, 10)):
        points, labels = clusters(20 + number, classes=6, per_class=120, d=16, within=0.2, modes=modes)
        yield case(f"classes of {modes} modes", points, labels)
    for number, scale in enumerate((1e-6, 1e3)):
        points, labels = clusters(30 + number, classes=10, per_class=50, d=16, within=0.5)
        yield case(f"clusters x {scale:g}", points * scale, labels)
    for number, d in enumerate((64, 512, 2048, 1024)):
        random = np.random.default_rng(40 + number)
        points = random.standard_normal((600, d))
        yield Fate(f"Gaussian noise, d = {d}", "no-better-than-chance", None, points, random.integers(0, 12, 600))
    for number, size in enumerate((6, 9, 20, 24)):
        points, labels = clusters(50 + number, classes=3, per_class=size // 3, d=8, within=0.4)
        yield case(f"{len(points)} items", points, labels)
    for number, count in enumerate((20_000, 30_000)):
        points, labels = clusters(60 + number, classes=500, per_class=count // 500, d=64, within=0.6)
        yield case(f"{count} items", points.astype(np.float32), labels)
    for number, exponent in enumerate((1.0, 1.5, 2.0, 1.2)):
        points, labels = clusters(70 + number, classes=30, per_class=200, d=24, within=0.6)
        sizes = np.maximum(2, 200 / np.arange(1, 31) ** exponent).astype(int)
        kept = np.concatenate([np.flatnonzero(labels == one)[:size] for one, size in enumerate(sizes)])
        yield case(f"unbalanced, power {exponent}", points[kept], labels[kept])
    for number, shift in enumerate((0.0, 0.5, 1.0, 2.0)):
        points, labels = clusters(80 + number, classes=20, per_class=50, d=64, within=0.6)
        yield case(f"after a rectifier, shift {shift}", np.maximum(points + shift, 0), labels)
    for number in range(4):
        points, labels = clusters(90 + number, classes=10, per_class=80, d=20, within=0.4, tail=True)
        yield case("heavy tails", points * 10.0 ** (number - 1), labels)
    images, labels, test, test_labels = digits()
    for name, points, own in (("training", images, labels), ("test", test, test_labels)):
        yield case(f"pixels of {name} digits", points.reshape(len(points), -1), own)
        yield case(f"pixels of {name} digits on the sphere", unit(points.reshape(len(points), -1)), own)
    for seed, (d, classes, samples) in enumerate(
        [(32, 8, 4), (8, 8, 4), (128, 4, 4), (4, 8, 4), (32, 10, 8), (16, 2, 8)]
    ):
        points, own, before = trained(seed, d=d, classes=classes, samples=samples)
        yield case(f"trained on digits, d = {d}, batch {classes} x {samples}", points, own, reference=before)
    yield from (fate for fate in parity() if fate.kind == "healthy")


def network_collapse() -> Iterator[Fate]:
    """All items, whatever their class, on a point, a line, or a few spots; and `narrow` ones, which are none."""

    def case(name: str, severity: str, points: Array, labels: Array, **more: Any) -> Fate:
        return Fate(name, "network-collapse", severity, points, labels, **more)

    for number, d in enumerate((2, 16, 128, 512)):
        labels = np.arange(200) % 8
        yield case(f"constant, d = {d}", "full", np.full((200, d), 0.37), labels)
        noise = 1e-7 * np.random.default_rng(number).standard_normal((200, d))
        yield case(f"constant and rounding, d = {d}", "full", np.full((200, d), 0.37) + noise, labels)
    for number, d in enumerate((3, 8, 32, 128)):
        random = np.random.default_rng(10 + number)
        along = random.standard_normal(300)[:, None] * random.standard_normal(d)
        yield case(f"line, d = {d}", "partial", along + 1e-3 * random.standard_normal((300, d)), np.arange(300) % 6)
    for number, (spots, classes) in enumerate([(1, 4), (2, 6), (2, 20), (3, 10), (4, 30), (5, 12)]):
        random = np.random.default_rng(20 + number)
        spot = random.integers(0, spots, 400)
        points = random.standard_normal((spots, 16))[spot] + 1e-3 * random.standard_normal((400, 16))
        # Around a single spot nothing but jitter is left.
        yield case(
            f"{spots} spots of {classes} classes", "full" if spots == 1 else "partial", points, np.arange(400) % classes
        )
    yield from narrow()
    settings = [
        {"d": 32, "classes": 8, "samples": 4, "noise": 0.3},
        {"d": 32, "classes": 8, "samples": 16, "noise": 0.3},
        {"d": 8, "classes": 8, "samples": 4, "reduction": "max"},
        {"d": 4, "classes": 8, "samples": 4, "reduction": "max"},
        {"d": 32, "classes": 10, "samples": 8, "noise": 0.1},
        {"d": 32, "classes": 10, "samples": 8, "reduction": "max"},
        {"d": 128, "classes": 8, "samples": 4, "noise": 0.3},
        {"d": 4, "classes": 8, "samples": 4, "noise": 0.3},
    ]
    for seed, setting in enumerate(settings):
        points, own, before = trained(seed, **setting)
        shrunk, (found, found_before) = (
            spread_out(points) / spread_out(before),
            (recall(points, own), recall(before, own)),
        )
        name = "trained with the hardest, " + ", ".join(f"{key} {value}" for key, value in setting.items())
        name += f" (x {shrunk:.2g}, recall@1 {found_before:.2f} to {found:.2f})"
        # How far a run shrinks, and what it then finds, is not known before. By chance a tenth of the digits is found.
        if found - 0.1 < 0.5 * (found_before - 0.1):
            yield case(name, "full" if shrunk < 0.05 else "partial", points, own, reference=before)
        else:
            yield Fate(name, "healthy", None, points, own, reference=before)


def narrow() -> Iterator[Fate]:
    """Embeddings shifted or scaled, in which each item finds its class as before: no collapse."""
    for number, size in enumerate((1e-6, 1e-5, 1e-3, 3e-3, 0.03, 0.05)):
        points, labels = clusters(number, classes=10, per_class=40, d=32, within=0.5)
        centre = np.random.default_rng(number).standard_normal(32)
        yield Fate(f"shrunk x {size:g} around a point", "healthy", None, centre + size * points, labels)
        yield Fate(f"shrunk x {size:g} on the sphere", "healthy", None, unit(centre + size * points), labels)
    for number, size in enumerate((0.01, 0.03, 0.1, 0.2)):
        before, labels = clusters(30 + number, classes=10, per_class=40, d=16, within=0.5)
        yield Fate(f"shrunk x {size:g} beside the reference", "healthy", None, size * before, labels, before)


def spread_out(points: Array) -> float:
    """Mean distance of the rows from their mean."""
    return float(np.linalg.norm(points - points.mean(0), axis=1).mean())


def recall(points: Array, labels: Array) -> float:
    """Recall@1."""
    return float(recall_at_k(points, labels, (1,))[1])


def class_collapse() -> Iterator[Fate]:
    """Classes far apart, each of them a point or nearly so."""
    shapes = [
        (2, 8, 0.001),
        (5, 16, 0.01),
        (10, 32, 0.03),
        (10, 8, 0.05),
        (100, 64, 0.02),
        (3, 4, 0.05),
        (20, 128, 0.05),
        (4, 2, 0.03),
    ]
    for number, (classes, d, within) in enumerate(shapes):
        points, labels = clusters(number, classes=classes, per_class=600 // classes, d=d, within=within)
        yield Fate(f"points, d = {d}, {classes} classes, within {within}", "class-collapse", "full", points, labels)
        yield Fate(f"points on the sphere, d = {d}, {classes} classes", "class-collapse", "full", unit(points), labels)
    yield from (fate for fate in parity() if fate.kind == "class-collapse")


def parity() -> Iterator[Fate]:
    """Digits trained on odd and even: random positives merge the digits of a parity, easy ones do not."""
    splits = load(DigitsConfig(), None)
    arms: tuple[Positives, Positives] = ("random", "easy")
    pixels = raw_inputs(splits.evaluation["seen"].inputs)
    for seed in range(3):
        for arm in arms:
            network = train_parity(splits, NUMBERS, arm, seed).model
            points = embed(network, splits.evaluation["seen"].inputs)
            labels = splits.evaluation["seen"].labels[COARSE]
            kind = "class-collapse" if arm == "random" else "healthy"
            yield Fate(f"parity with {arm} positives, seed {seed}", kind, None, points, labels, pixels)


def exploding() -> Iterator[Fate]:
    """Unbounded norms."""
    for number, factor in enumerate((1e5, 1e8, 1e6, 1e12)):
        points, labels = clusters(number, classes=8, per_class=40, d=16, within=0.5)
        yield Fate(f"clusters x {factor:g}", "exploding-norm", None, points * factor, labels)
    for number, factor in enumerate((1e3, 1e6, 1e4, 3e3)):
        points, labels = clusters(10 + number, classes=8, per_class=40, d=16, within=0.5)
        points[np.random.default_rng(number).permutation(len(points))[: 2 + number]] *= factor
        yield Fate(f"{2 + number} rows x {factor:g}", "exploding-norm", None, points, labels)


def noisy() -> Iterator[Fate]:
    """Labels exchanged in an embedding that separates the true classes."""
    for number, (share, pairs) in enumerate(
        [(0.2, False), (0.3, True), (0.4, False), (0.25, True), (0.3, False), (0.2, True)]
    ):
        points, labels = clusters(number, classes=10, per_class=80, d=32, within=0.5)
        how = "pairwise" if pairs else "at random"
        yield Fate(
            f"clusters, {100 * share:.0f} % of the labels exchanged {how}",
            "noisy-labels",
            None,
            points,
            flipped(labels, share, number, pairs=pairs),
        )
    images, labels, test, test_labels = digits()
    for number, share in enumerate((0.2, 0.3, 0.4, 0.25)):
        points, own = ((images, labels), (test, test_labels))[number % 2]
        flat = points.reshape(len(points), -1)
        yield Fate(
            f"pixels of digits, {100 * share:.0f} % exchanged", "noisy-labels", None, flat, flipped(own, share, number)
        )
    for seed in range(2):
        points, own, _ = trained(seed, d=32, classes=8, samples=4)
        yield Fate(
            f"trained on digits, {20 + 10 * seed} % exchanged after",
            "noisy-labels",
            None,
            points,
            flipped(own, 0.2 + 0.1 * seed, seed),
        )


def dead() -> Iterator[Fate]:
    """Negatives so easy that no triplet is left, although the classes overlap."""
    for number, (margin, within) in enumerate([(0.2, 2.5), (0.5, 3.0), (0.1, 3.5), (1.0, 4.0)]):
        points, labels = clusters(number, classes=8, per_class=40, d=16, within=within)
        loss = TripletLoss(margin=margin, positives="easy", negatives="easy")
        name = f"easy negatives, margin {margin}, within {within}"
        yield Fate(name, "dead-sampler", None, points, labels, strategy=SamplingStrategy(loss, 4, 8))


FAMILIES: tuple[Callable[[], Iterator[Fate]], ...] = (healthy, network_collapse, class_collapse, exploding, noisy, dead)
