"""The strategies and losses in plain Python, sharing nothing with the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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


Related = Callable[[int, int], bool | None]


Relevance = Callable[[int, int], float]


def equal_labels(label: int, other: int) -> bool | None:
    return label == other


def equal_is_relevant(label: int, other: int) -> float:
    return float(label == other)


@dataclass
class Problem:
    """Anchors against references; `same(a, j)` tells whether they are the same item.

    `related` tells of two labels whether their items belong together, or do not, or (None) neither; `grade` how
    relevant they are to each other.
    """

    anchors: Sequence[Row]
    labels: Sequence[int]
    references: Sequence[Row]
    reference_labels: Sequence[int]
    same: Callable[[int, int], bool]
    kind: str
    related: Related = equal_labels
    grade: Relevance = equal_is_relevant

    def relevance(self, a: int, j: int) -> float:
        return self.grade(self.labels[a], self.reference_labels[j])

    def d(self, a: int, j: int) -> float:
        return measure(self.anchors[a], self.references[j], self.kind)

    def s(self, a: int, j: int) -> float:
        return sum(x * y for x, y in zip(self.anchors[a], self.references[j], strict=True))

    def positives(self, a: int) -> list[int]:
        return self._with(a, True)

    def negatives(self, a: int) -> list[int]:
        return self._with(a, False)

    def _with(self, a: int, related: bool) -> list[int]:
        found = [self.related(self.labels[a], label) for label in self.reference_labels]
        return [j for j in range(len(self.references)) if found[j] is related and not self.same(a, j)]


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
    threshold: float = 0.5,
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


def supcon(
    problem: Problem, a: int, positives: Sequence[int], negatives: Sequence[int], temperature: float = 0.1
) -> float:
    """Equation 2 of Khosla et al., of one anchor."""
    total = math.fsum(math.exp(problem.s(a, j) / temperature) for j in [*positives, *negatives])
    return -math.fsum(math.log(math.exp(problem.s(a, p) / temperature) / total) for p in positives) / len(positives)


def approx_ndcg(
    problem: Problem, a: int, positives: Sequence[int], negatives: Sequence[int], temperature: float
) -> float:
    """1 less equation 16 of Qin, Liu and Li of one anchor, with gains as they are."""

    def rank(p: int) -> float:
        above = [(problem.s(a, p) - problem.s(a, j)) / temperature for j in [*positives, *negatives] if j != p]
        return 1 + math.fsum(1 / (1 + math.exp(x)) for x in above)

    gains = sorted((problem.relevance(a, p) for p in positives), reverse=True)
    best = math.fsum(gain / math.log2(1 + place) for place, gain in enumerate(gains, start=1))
    return 1 - math.fsum(problem.relevance(a, p) / math.log2(1 + rank(p)) for p in positives) / best


def circle(
    problem: Problem, a: int, positives: Sequence[int], negatives: Sequence[int], margin: float, scale: float
) -> float:
    """Equation 6 of Sun et al., of one anchor, with O_p = 1 + m, O_n = -m and margins 1 - m and m."""
    similar, others = ([problem.s(a, j) for j in chosen] for chosen in (positives, negatives))
    pull = math.fsum(math.exp(-scale * max(0.0, 1 + margin - s) * (s - (1 - margin))) for s in similar)
    push = math.fsum(math.exp(scale * max(0.0, s + margin) * (s - margin)) for s in others)
    return math.log1p(pull * push)


def unit(row: Row) -> list[float]:
    norm = math.sqrt(sum(x * x for x in row))
    return [x / norm for x in row]


def proxy_nca(row: Row, label: int, proxies: Sequence[Row], scale: float, own_in_sum: bool = False) -> float:
    weights = [math.exp(-scale * measure(unit(row), unit(proxy), "squared_euclidean")) for proxy in proxies]
    return -math.log(weights[label] / sum(w for z, w in enumerate(weights) if own_in_sum or z != label))


def proxy_anchor(
    rows: Sequence[Row], labels: Sequence[int], proxies: Sequence[Row], scale: float, margin: float
) -> list[float]:
    """The parts of equation 4 of Kim et al., a term for each proxy, whose mean it is."""
    present = len(set(labels))
    terms = []
    for z, proxy in enumerate(proxies):
        similarities = [1 - measure(unit(row), unit(proxy), "cosine") for row in rows]
        pull = math.fsum(math.exp(-scale * (s - margin)) for s, y in zip(similarities, labels, strict=True) if y == z)
        push = math.fsum(math.exp(scale * (s + margin)) for s, y in zip(similarities, labels, strict=True) if y != z)
        terms.append(math.log1p(pull) * len(proxies) / max(1, present) + math.log1p(push))
    return terms


def margin_softmax(
    row: Row, label: int, proxies: Sequence[Row], sub_centers: int, scale: float, margined: Callable[[float], float]
) -> float:
    """ArcFace and CosFace, by what the margin makes of the similarity to the own class."""
    similarities = [sum(x * y for x, y in zip(unit(row), unit(proxy), strict=True)) for proxy in proxies]
    starts = range(0, len(proxies), sub_centers)
    nearest = [max(similarities[start : start + sub_centers]) for start in starts]
    own = margined(min(1.0, nearest[label]))
    return math.log1p(math.fsum(math.exp(scale * (s - own)) for z, s in enumerate(nearest) if z != label))


def arcface_margin(similarity: float, margin: float) -> float:
    angle = math.acos(similarity)
    return math.cos(angle + margin) if angle + margin < math.pi else similarity - margin * math.sin(margin)


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


# What follows chooses and adds up for any strategy: a selector is a `Rule`, what it finds for an anchor a list.


@dataclass(frozen=True)
class Rule:
    """A selector: its name and its options, each where it has them."""

    name: str
    k: int = 1
    most_similar: float | None = None
    epsilon: float = 0.5
    against_chosen: bool = False
    margin: float | None = None
    otherwise: str = "drop"
    upper: float | None = None


def nearest_items(problem: Problem, a: int, items: Sequence[int], k: int = 1) -> list[int]:
    return sorted(items, key=lambda j: (problem.d(a, j), j))[:k]


def farthest_items(problem: Problem, a: int, items: Sequence[int], k: int = 1) -> list[int]:
    return sorted(items, key=lambda j: (-problem.d(a, j), j))[:k]


def allowed_positives(problem: Problem, a: int, rule: Rule) -> list[int]:
    """The positives that are not too similar to the anchor."""
    return [p for p in problem.positives(a) if rule.most_similar is None or problem.s(a, p) <= rule.most_similar]


def semihard_positive(problem: Problem, a: int, n: int, rule: Rule) -> list[int]:
    """The farthest positive strictly nearer than the negative that was chosen before."""
    return farthest_items(
        problem, a, [p for p in allowed_positives(problem, a, rule) if problem.d(a, p) < problem.d(a, n)]
    )


def ruled_positives(problem: Problem, a: int, rule: Rule) -> list[int]:
    """The positives of a deterministic rule that needs no negative, in the order of its slots."""
    allowed = allowed_positives(problem, a, rule)
    if rule.name == "multi-similarity":
        return chosen_positives(problem, a, rule.name, rule.epsilon)
    return {"easy": nearest_items, "hard": farthest_items, "all": lambda *rest: allowed}[rule.name](
        problem, a, allowed, rule.k
    )


def ruled_negatives(problem: Problem, a: int, p: int | None, rule: Rule) -> list[int]:
    """The negatives of a deterministic rule for the pair (a, p), nearest (or farthest) first; p may not matter."""
    negatives = problem.negatives(a)
    if rule.name == "easy":
        return farthest_items(problem, a, negatives, rule.k)
    if is_band(rule):
        assert p is not None
        assert rule.margin is not None
        return negative_candidates(problem, a, p, rule.name.removeprefix("all-"), rule.margin)
    if rule.name == "semihard-hardest":
        assert p is not None
        beyond = [n for n in negatives if problem.d(a, n) > problem.d(a, p)]
        if not beyond and rule.otherwise == "farthest":
            return farthest_items(problem, a, negatives, rule.k)
        negatives = beyond
    return nearest_items(problem, a, negatives, rule.k)


def candidates(problem: Problem, a: int, p: int, rule: Rule, margin: float) -> list[int]:
    """The negatives a random rule draws from for the pair (a, p), those it falls back to included."""
    negatives = problem.negatives(a)
    if rule.name == "distance-weighted":
        found = [n for n in negatives if rule.upper is None or measure_of_unit(problem, a, n) < rule.upper]
    elif rule.name == "semihard-hardest":
        found = ruled_negatives(problem, a, p, rule)
    else:
        found = negative_candidates(problem, a, p, rule.name, margin if rule.margin is None else rule.margin)
    if not found and rule.otherwise == "farthest":
        return farthest_items(problem, a, negatives, rule.k)
    return negatives if not found and rule.otherwise == "random" else found


def measure_of_unit(problem: Problem, a: int, j: int) -> float:
    return measure(problem.anchors[a], problem.references[j], "euclidean")


def is_band(rule: Rule) -> bool:
    """Whether a rule gives a set of negatives for each positive."""
    return rule.name in ("all-semihard", "all-violating")


def is_set(rule: Rule) -> bool:
    """Whether a rule gives one set of negatives for all positives of the anchor."""
    return rule.name in ("all", "multi-similarity")


def pairs_of(problem: Problem, a: int, positives: Rule, negatives: Rule) -> tuple[list[int], list[int]]:
    """The positives and the set of negatives of an anchor."""
    found = ruled_positives(problem, a, positives)
    least_similar = found if negatives.against_chosen else problem.positives(a)
    return found, listed_negatives(problem, a, negatives.name, least_similar, negatives.epsilon)


def tuples_of(problem: Problem, a: int, positives: Rule, negatives: Rule) -> list[tuple[int, int]]:
    """The chosen (positive, negative) of an anchor, by slot of the positive; every combination for a set."""
    if is_set(negatives):
        return [(p, n) for ps, ns in [pairs_of(problem, a, positives, negatives)] for p in ps for n in ns]
    if positives.name == "semihard" and negatives.name == "semihard-hardest":  # each positive has its negative first
        own = [
            (p, n) for p in allowed_positives(problem, a, positives) for n in ruled_negatives(problem, a, p, negatives)
        ]
        farthest = farthest_items(problem, a, [p for p, n in own if problem.d(a, p) < problem.d(a, n)])
        return [(p, n) for p, n in own if p in farthest]
    if positives.name == "semihard":
        first = ruled_negatives(problem, a, None, negatives)
        return [(p, n) for n in first for p in semihard_positive(problem, a, n, positives)]
    return [(p, n) for p in ruled_positives(problem, a, positives) for n in ruled_negatives(problem, a, p, negatives)]


def sets_of(problem: Problem, a: int, positives: Rule, negatives: Rule) -> tuple[list[int], list[int]]:
    """The positives and the negatives of an anchor, each once, also where tuples have one several times."""
    if is_set(negatives):
        return pairs_of(problem, a, positives, negatives)
    tuples = tuples_of(problem, a, positives, negatives)
    return list(dict.fromkeys(p for p, _ in tuples)), sorted({n for _, n in tuples})


def triplets_of(problem: Problem, positives: Rule, negatives: Rule) -> list[tuple[int, int, int]]:
    return [(a, p, n) for a in range(len(problem.anchors)) for p, n in tuples_of(problem, a, positives, negatives)]


def disjoint_triplets(
    problem: Problem,
    positives: Rule,
    negatives: Rule,
    ids: Sequence[int] | None,
    reference_ids: Sequence[int] | None,
    order: Sequence[int],
) -> list[tuple[int, int, int]]:
    """Anchors in this order, each with what is left; ids None where no anchor is among the references."""
    found: list[tuple[int, int, int]] = []
    taken: set[int] = set()
    items: set[int] = set()

    def used(a: int, j: int) -> bool:
        return problem.same(a, j) or j in taken or (reference_ids is not None and reference_ids[j] in items)

    for a in order:
        if ids is not None and ids[a] in items:
            continue
        for p, n in tuples_of(replace(problem, same=used), a, positives, negatives)[:1]:
            found.append((a, p, n))
            taken |= {p, n}
            if ids is not None and reference_ids is not None:
                items |= {ids[a], reference_ids[p], reference_ids[n]}
    return found


@dataclass(frozen=True)
class Term:
    """A term of a loss: its anchor and its parts, which add up to it.

    `pull` is what trimming of positives looks at, None without one; `rest` are the parts that stay without the
    positive, None if the whole term goes.
    """

    anchor: int
    parts: tuple[float, ...]
    pull: float | None = None
    rest: tuple[float, ...] | None = None


def trimmed_terms(terms: Sequence[Term], share: float, positives_only: bool) -> list[Term]:
    """Without the share of the largest terms, or of the hardest pulling positives; of equal ones the last go."""

    def size(i: int) -> float:
        return terms[i].pull if positives_only else sum(terms[i].parts)

    ranked = sorted((i for i, t in enumerate(terms) if t.pull is not None or not positives_only), key=size)
    gone = set(ranked[max(1, math.ceil(round((1 - share) * len(ranked), 9))) :])
    kept = []
    for i, term in enumerate(terms):
        if i not in gone:
            kept.append(term)
        elif positives_only and term.rest is not None:
            kept.append(Term(term.anchor, term.rest))
    return kept


def reduced(terms: Sequence[Term], reduction: str, anchors: int, objective: int) -> float:
    if reduction == "max":
        return max((math.fsum(term.parts) for term in terms), default=0.0)
    total = math.fsum(part for term in terms for part in term.parts)
    active = sum(part > 0 for term in terms for part in term.parts)
    sizes = {"mean": len(terms), "mean-active": active, "sum": 1, "anchors": anchors, "objective": objective}
    return total / max(1, sizes[reduction])


def triplet_terms(
    problem: Problem, triplets: Sequence[tuple[int, int, int]], value: Callable[[int, int, int], float]
) -> list[Term]:
    return [Term(a, (value(a, p, n),), pull=problem.d(a, p)) for a, p, n in triplets]


def pair_terms(
    problem: Problem,
    positives: Rule,
    negatives: Rule,
    pull: Callable[[int, int], float],
    push: Callable[[int, int], float],
    joined: bool,
) -> list[Term]:
    """Terms of pulls and pushes, functions of an anchor and the other; `joined` makes a tuple's two one term."""
    terms = []
    for a in range(len(problem.anchors)):
        if is_set(negatives) or is_band(negatives):
            near, far = sets_of(problem, a, positives, negatives)
        else:
            tuples = tuples_of(problem, a, positives, negatives)
            near, far = [p for p, _ in tuples], [n for _, n in tuples]
        pulls, pushes = [pull(a, p) for p in near], [push(a, n) for n in far]
        if joined and not (is_set(negatives) or is_band(negatives)):
            terms += [Term(a, (x, y), x, (y,)) for x, y in zip(pulls, pushes, strict=True)]
        else:
            terms += [Term(a, (x,), x) for x in pulls] + [Term(a, (y,)) for y in pushes]
    return terms


def multi_similarity_terms(
    problem: Problem,
    positives: Rule,
    negatives: Rule,
    a: float,
    b: float,
    threshold: float,
    skip_if_any_empty: bool,
    relevance_margin: bool = False,
) -> list[Term]:
    """One term for each anchor with a positive and a negative in the batch."""
    terms = []
    for i in range(len(problem.anchors)):
        near, far = sets_of(problem, i, positives, negatives)
        if not (problem.positives(i) and problem.negatives(i)) or (skip_if_any_empty and not (near and far)):
            continue
        pull = math.log1p(math.fsum(math.exp(-a * (problem.s(i, p) - threshold)) for p in near)) / a
        limits = [threshold + relevance_margin * problem.relevance(i, n) * (1 - threshold) for n in far]
        push = math.log1p(math.fsum(math.exp(b * (problem.s(i, n) - t)) for n, t in zip(far, limits, strict=True))) / b
        terms.append(Term(i, (pull + push,), pull, (push,)))
    return terms


def n_pair_terms(problem: Problem, positives: Rule, negatives: Rule, temperature: float) -> list[Term]:
    sets = [sets_of(problem, a, positives, negatives) for a in range(len(problem.anchors))]
    return [
        Term(a, (n_pair(problem, a, p, far, temperature),), pull=-problem.s(a, p))
        for a, (near, far) in enumerate(sets)
        if far
        for p in near
    ]


def set_terms(
    problem: Problem,
    positives: Rule,
    negatives: Rule,
    value: Callable[[int, Sequence[int], Sequence[int]], float],
    both: bool,
) -> list[Term]:
    """One term for each anchor with a chosen positive, and with `both` a negative; a function of what was chosen."""
    terms = []
    for a in range(len(problem.anchors)):
        near, far = sets_of(problem, a, positives, negatives)
        if near and (far or not both):
            terms.append(Term(a, (value(a, near, far),)))
    return terms
