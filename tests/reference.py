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


def log_one_plus_exp(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def nca(s_ap: float, s_an: float, temperature: float = 1.0) -> float:
    return -math.log(math.exp(s_ap / temperature) / (math.exp(s_ap / temperature) + math.exp(s_an / temperature)))


def second_order(s_ap: float, s_an: float) -> float:
    pull, push = math.exp(s_ap - s_ap**2 / 2), math.exp(s_an**2 / 2)
    return -math.log(pull / (pull + push))


def selectively_contrastive(s_ap: float, s_an: float, hard_weight: float = 1.0, temperature: float = 0.1) -> float:
    return hard_weight * s_an if s_an > s_ap else nca(s_ap, s_an, temperature)


def unhinged_pair(d: float, t: int, beta: float = 1.4, margin: float = 0.2) -> float:
    """Equation 31 of Le and Odobez, with d_max = 2."""
    return 2 + (d - beta) * t + margin


def unhinged_triplet(d_ap: float, d_an: float, margin: float = 0.2) -> float:
    """Equation 12 of Le and Odobez, with d_max = 2."""
    return 2 + d_ap - d_an + margin


def n_pair(problem: Problem, a: int, p: int, negatives: Sequence[int], temperature: float = 1.0) -> float:
    return math.log(1 + sum(math.exp((problem.s(a, n) - problem.s(a, p)) / temperature) for n in negatives))


def unit(row: Row) -> list[float]:
    norm = math.sqrt(sum(x * x for x in row))
    return [x / norm for x in row]


def proxy_nca(row: Row, label: int, proxies: Sequence[Row], scale: float, own_in_sum: bool = False) -> float:
    weights = [math.exp(-scale * measure(unit(row), unit(proxy), "squared_euclidean")) for proxy in proxies]
    return -math.log(weights[label] / sum(w for z, w in enumerate(weights) if own_in_sum or z != label))


# Section 6 of the specification of extreme triplets: a batch with the triplets of four miners, and single triplets.
EXTREME_ROWS = [[4, 1, 0], [3, -1, 1], [4, 0, 1], [1, 4, 0], [0, 3, 1], [2, 3, 2], [1, 0, 4], [2, 2.5, 2]]
EXTREME_LABELS = [0, 0, 0, 1, 1, 1, 2, 2]
EXTREME_TRIPLETS = {
    "EPHN": [(0, 2, 7), (1, 2, 6), (2, 1, 7), (3, 4, 7), (4, 3, 7), (5, 4, 7), (6, 7, 5), (7, 6, 5)],
    "EPSHN": [(0, 2, 7), (1, 2, 6), (2, 1, 7), (3, 4, 7), (4, 3, 7), (5, 4, 0), (6, 7, 5), (7, 6, 1)],
    "HPHN": [(0, 1, 7), (1, 0, 6), (2, 0, 7), (3, 5, 7), (4, 5, 7), (5, 3, 7), (6, 7, 5), (7, 6, 5)],
    "EPEN": [(0, 2, 4), (1, 2, 4), (2, 1, 4), (3, 4, 1), (4, 3, 1), (5, 4, 1), (6, 7, 3), (7, 6, 1)],
}
# S_ap, S_an, gamma; the loss of the first order, of the second, and 2 S_an - 2 S_ap + 0.2.
EXTREME_VECTORS = [
    (0.5, 0.5, 0.5, 0.6931471806, 0.5759394199, 0.2),
    (0.9, 0.2, 0.5, 0.4031860489, 0.4835890879, -1.2),
    (0.3, 0.95, 0.5, 1.0700553357, 0.7960787325, 1.5),
    (0.95, 0.98, 0.5, 0.7082596763, 0.6839151928, 0.26),
    (0.8, 0.7, 0.2, 0.6443966601, 0.5825344794, 0.0),
    (0.6, 0.9, 0.8, 0.8543552445, 0.6856753053, 0.8),
    (0.7, -0.3, -0.4, 0.3132616875, 0.5090141341, -1.8),
]


def extreme_similarities(triplet: Sequence[int]) -> tuple[float, float]:
    """S_ap and S_an of a triplet of the batch."""
    a, p, n = (unit(EXTREME_ROWS[i]) for i in triplet)
    return sum(x * y for x, y in zip(a, p, strict=True)), sum(x * y for x, y in zip(a, n, strict=True))


def triplet_of(s_ap: float, s_an: float, gamma: float) -> list[list[float]]:
    """Unit vectors of an anchor, a positive and a negative with these similarities, gamma that of their directions."""
    p, n = math.sqrt(1 - s_ap**2), math.sqrt(1 - s_an**2)
    return [[1.0, 0.0, 0.0], [s_ap, p, 0.0], [s_an, n * gamma, n * math.sqrt(1 - gamma**2)]]
