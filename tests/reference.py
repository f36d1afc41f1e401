"""The strategies and losses in plain Python, sharing nothing with the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

Row = Sequence[float]

# Section 9 of the specification of easy positive sampling: eight unit vectors with exact fractions as coordinates.
V8_FRACTIONS = [
    (Fraction(1), Fraction(0)),
    (Fraction(12, 13), Fraction(5, 13)),
    (Fraction(3, 5), Fraction(4, 5)),
    (Fraction(8, 17), Fraction(15, 17)),
    (Fraction(-9, 41), Fraction(40, 41)),
    (Fraction(-4, 5), Fraction(3, 5)),
    (Fraction(-15, 17), Fraction(-8, 17)),
    (Fraction(20, 29), Fraction(-21, 29)),
]
V8 = [[float(x), float(y)] for x, y in V8_FRACTIONS]
V8_LABELS = [0, 0, 1, 0, 1, 1, 0, 2]


def measure(x: Row, y: Row, kind: str) -> float:
    squared = sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
    return {"squared_euclidean": squared, "euclidean": math.sqrt(squared), "cosine": squared / 2}[kind]


@dataclass
class Problem:
    """Anchors against references; `same(a, j)` tells whether they are the same item."""

    anchors: Sequence[Row]
    labels: Sequence[int]
    references: Sequence[Row]
    reference_labels: Sequence[int]
    same: Callable[[int, int], bool]
    kind: str

    def d(self, a: int, j: int) -> float:
        return measure(self.anchors[a], self.references[j], self.kind)

    def s(self, a: int, j: int) -> float:
        return sum(x * y for x, y in zip(self.anchors[a], self.references[j], strict=True))

    def positives(self, a: int) -> list[int]:
        return [
            j for j in range(len(self.references)) if self.reference_labels[j] == self.labels[a] and not self.same(a, j)
        ]

    def negatives(self, a: int) -> list[int]:
        return [
            j for j in range(len(self.references)) if self.reference_labels[j] != self.labels[a] and not self.same(a, j)
        ]


def batch(rows: Sequence[Row], labels: Sequence[int], kind: str) -> Problem:
    return Problem(rows, labels, rows, labels, lambda a, j: a == j, kind)


def chosen_positives(problem: Problem, a: int, rule: str, epsilon: float = 0.1) -> list[int]:
    candidates = problem.positives(a)
    if not candidates:
        return []
    if rule == "easy":
        return [min(candidates, key=lambda j: (problem.d(a, j), j))]
    if rule == "hard":
        return [min(candidates, key=lambda j: (-problem.d(a, j), j))]
    if rule == "all":
        return candidates
    assert rule == "multi-similarity"
    negatives = problem.negatives(a)
    if not negatives:
        return []
    return [p for p in candidates if problem.s(a, p) < max(problem.s(a, n) for n in negatives) + epsilon]


def negative_candidates(problem: Problem, a: int, p: int, rule: str, margin: float) -> list[int]:
    """The negatives a rule may choose for the pair (a, p); for a deterministic rule, the one it chooses."""
    negatives = problem.negatives(a)
    d_ap = problem.d(a, p)
    if rule in ("random", "all"):
        return negatives
    if rule == "hard":
        return [min(negatives, key=lambda n: (problem.d(a, n), n))] if negatives else []
    if rule == "semihard":
        return [n for n in negatives if d_ap < problem.d(a, n) < d_ap + margin]
    if rule == "violating":
        return [n for n in negatives if problem.d(a, n) < d_ap + margin]
    assert rule == "semihard-hardest"
    beyond = [n for n in negatives if problem.d(a, n) > d_ap]
    return [min(beyond, key=lambda n: (problem.d(a, n), n))] if beyond else []


def listed_negatives(problem: Problem, a: int, rule: str, reference: list[int], epsilon: float = 0.1) -> list[int]:
    """A set of negatives per anchor; "multi-similarity" compares with the least similar of `reference`."""
    negatives = problem.negatives(a)
    if rule == "all":
        return negatives
    assert rule == "multi-similarity"
    if not reference:
        return []
    least = min(problem.s(a, p) for p in reference)
    return [n for n in negatives if problem.s(a, n) > least - epsilon]


def triplets(problem: Problem, positives: str, negatives: str, margin: float) -> list[tuple[int, int, int]]:
    """All triplets of a deterministic strategy, by anchor, positive, negative."""
    return [
        (a, p, n)
        for a in range(len(problem.anchors))
        for p in chosen_positives(problem, a, positives)
        for n in negative_candidates(problem, a, p, negatives, margin)
    ]


def hinge(problem: Problem, triplet: tuple[int, int, int], margin: float, variant: str = "an") -> float:
    a, p, n = triplet
    far = problem.d(a, n) if variant == "an" else measure(problem.references[p], problem.references[n], problem.kind)
    return max(0.0, problem.d(a, p) - far + margin)


def multi_similarity(
    problem: Problem,
    positives: Sequence[Sequence[int]],
    negatives: Sequence[Sequence[int]],
    a: float = 2.0,
    b: float = 50.0,
    threshold: float = 1.0,
) -> list[float]:
    """The term of each anchor that has a positive and a negative in the batch."""
    return [
        math.log(1 + sum(math.exp(-a * (problem.s(i, p) - threshold)) for p in positives[i])) / a
        + math.log(1 + sum(math.exp(b * (problem.s(i, n) - threshold)) for n in negatives[i])) / b
        for i in range(len(problem.anchors))
        if problem.positives(i) and problem.negatives(i)
    ]


def trimmed(losses: Sequence[float], share: float) -> list[float]:
    kept = max(1, math.ceil(round((1 - share) * len(losses), 9)))
    order = sorted(range(len(losses)), key=lambda i: (losses[i], i))
    return [losses[i] for i in order[:kept]]


def distance_weights(distances: Sequence[float], k: int, upper: float | None) -> list[float]:
    """Probabilities of the negatives at these distances, from the closed form, in exact-enough logarithms."""
    allowed = [d for d in distances if upper is None or d < upper]
    logs = []
    for d in distances:
        x = max(d, 0.5)
        logs.append((2 - k) * math.log(x) - (k - 3) / 2 * math.log(max(1 - x * x / 4, 1e-8)))
    top = max(log for log, d in zip(logs, distances, strict=True) if d in allowed)
    weights = [math.exp(log - top) if d in allowed else 0.0 for log, d in zip(logs, distances, strict=True)]
    return [weight / sum(weights) for weight in weights]
