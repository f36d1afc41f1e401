"""Tables of two to nine columns whose labels are all right and whose classes overlap, drawn from known distributions.

Each is named after the published table that it is made after. Titanic is the published counts themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from readers import Array

Table = tuple[Array, Array]

# Class (0 the crew), woman, adult; died, survived. Dawson, "The 'Unusual Episode' Data Revisited", Journal of
# Statistics Education 3, 1995.
PASSENGERS = (
    *((1, 0, 0, 0, 5), (2, 0, 0, 0, 11), (3, 0, 0, 35, 13), (1, 1, 0, 0, 1), (2, 1, 0, 0, 13), (3, 1, 0, 17, 14)),
    *((1, 0, 1, 118, 57), (2, 0, 1, 154, 14), (3, 0, 1, 387, 75), (0, 0, 1, 670, 192), (1, 1, 1, 4, 140)),
    *((2, 1, 1, 13, 80), (3, 1, 1, 89, 76), (0, 1, 1, 3, 20)),
)
DIGITS = ("1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011")


def titanic(random: np.random.Generator) -> Table:
    rows = np.array([row for row in PASSENGERS for _ in range(row[3] + row[4])], np.float64)[:, :3]
    labels = np.concatenate([np.repeat([0, 1], row[3:]) for row in PASSENGERS])
    order = random.permutation(len(rows))
    return rows[order], labels[order]


def led(items: int) -> Callable[[np.random.Generator], Table]:
    """Seven segments of a display, each wrong in one case of ten; 10 classes."""

    def draw(random: np.random.Generator) -> Table:
        segments = np.array([[int(one) for one in digit] for digit in DIGITS])
        labels = random.integers(0, 10, items)
        return (segments[labels] ^ (random.random((items, 7)) < 0.1)).astype(np.float64), labels

    return draw


def crescents(random: np.random.Generator) -> Table:
    """Two bent classes in the plane."""
    labels = random.integers(0, 2, 3000)
    angle = np.where(labels == 0, 0.125, 0.375) * np.pi + np.where(labels == 0, 1.25, -1.25) * np.pi * random.random(
        3000
    )
    points = 5 * np.stack([np.sin(angle), np.cos(angle)], axis=1) + random.normal(size=(3000, 2)) * 1.6
    points[:, 0] -= 3.75 * labels
    return points, labels


def moons(random: np.random.Generator) -> Table:
    from sklearn.datasets import make_moons

    points, labels = make_moons(2000, noise=0.35, random_state=int(random.integers(2**31)))
    return points, labels


def mixture(columns: int, classes: int) -> Callable[[np.random.Generator], Table]:
    """Classes of two Gaussians each, of different widths."""

    def draw(random: np.random.Generator) -> Table:
        items, apart = int(random.integers(500, 3000)), random.uniform(1.2, 2.6)
        means = random.normal(size=(classes, 2, columns)) * apart / np.sqrt(2)
        widths = np.exp(0.3 * random.normal(size=(classes, 2)))
        labels, mode = random.integers(0, classes, items), random.integers(0, 2, items)
        return means[labels, mode] + random.normal(size=(items, columns)) * widths[labels, mode, None], labels

    return draw


def household(random: np.random.Generator) -> Table:
    """Nine columns of few levels, three classes that overlap much, as in the survey of contraception."""
    items = 1473
    age, children = random.integers(16, 50, items), random.poisson(2.5, items)
    school = np.clip(np.round(3 + random.normal(size=items)), 1, 4)
    partner = np.clip(np.round(0.6 * school + 1.6 + 0.7 * random.normal(size=items)), 1, 4)
    living = np.clip(np.round(0.5 * school + 1.7 + 0.8 * random.normal(size=items)), 1, 4)
    flags, work = random.random((items, 3)) < (0.85, 0.75, 0.07), random.integers(1, 5, items)
    logits = np.stack(
        [
            0.9 - 0.25 * children + 0.03 * (age - 30),
            -2.2 + 0.75 * school + 0.2 * living + 0.02 * (age - 35),
            0.2 + 0.2 * children - 0.075 * (age - 30),
        ],
        axis=1,
    )
    return np.column_stack([age, school, partner, children, flags, work, living]).astype(np.float64), drawn(
        logits, random
    )


def levels(random: np.random.Generator) -> Table:
    """Four to seven columns of two to four levels, two classes by a logistic model."""
    columns, count = int(random.integers(4, 8)), int(random.integers(2, 5))
    rows = random.integers(0, count, (2500, columns)).astype(np.float64)
    score = (rows - rows.mean(axis=0)) @ random.normal(size=columns)
    return rows, drawn(np.stack([np.zeros(2500), 1.5 * score], axis=1), random)


def half_noise(random: np.random.Generator) -> Table:
    """Bins of a score of which half the variance is noise, on 32 columns."""
    rows = random.normal(size=(1500, 32)) * np.linspace(2, 0.3, 32)
    score = rows @ random.normal(size=32)
    return rows, bins(score / score.std() + random.normal(size=1500), int(random.integers(2, 7)))


def bins(score: Array, count: int) -> Array:
    """Bins `(N,)` of equal size."""
    return np.searchsorted(np.quantile(score, np.arange(1, count) / count), score)


def drawn(logits: Array, random: np.random.Generator) -> Array:
    """Classes `(N,)` drawn with probabilities given by their logits `(N, C)`."""
    return np.asarray((logits + random.gumbel(size=logits.shape)).argmax(axis=1))


TABLES: dict[str, Callable[[np.random.Generator], Table]] = {
    "titanic": titanic,
    "led, 500 rows": led(500),
    "led, 3,000 rows": led(3000),
    "crescents": crescents,
    "moons": moons,
    "mixture, 2 columns": mixture(2, 3),
    "mixture, 3 columns": mixture(3, 2),
    "mixture, 4 columns": mixture(4, 5),
    "mixture, 5 columns": mixture(5, 4),
    "mixture, 7 columns": mixture(7, 10),
    "household": household,
    "levels": levels,
    "bins of a half-noise score": half_noise,
}


def published(folder: str, name: str) -> Table:
    """A table of the KEEL repository, `NAME.dat`: numbers as they are, words numbered; the last column is the class."""
    with open(f"{folder}/{name}.dat") as file:
        rows = [re.split(r"[,\s]+", line.strip()) for line in file if line.strip() and "@" not in line]
    if len(rows[0]) != len(rows[1]) or rows[0][0].startswith("A1"):  # a head
        rows = rows[1:]
    columns = []
    for column in zip(*[row[:-1] for row in rows], strict=True):
        try:
            columns.append(np.array(column, np.float64))
        except ValueError:
            columns.append(np.unique(column, return_inverse=True)[1].astype(np.float64))
    return np.stack(columns, axis=1), np.unique([row[-1] for row in rows], return_inverse=True)[1]
