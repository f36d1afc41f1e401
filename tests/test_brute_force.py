"""Every selector and every loss against loops in plain Python: about 5 600 cases over 2 115 generated batches.

Batches, as examples x parameters of each test; each run makes a quarter of them, `make nightly` two and a half
times as many:

    triplets of deterministic rules    40 x 11   each with up to eleven negative rules: 3 900 pairs of rules and a batch
    random rules                       25 x 15
    losses                             40 x 16   value and gradient, in one block and in several
    given indices                      20 x 16
    proxies                            25 x  8
    disjoint triplets                  40 x  2
    random rules by blocks             15 x  4

Coordinates are quarters, so that ties and duplicates are common and exact, or normal numbers, which never tie. A batch
is compared with itself, with references or with a memory, items repeat, labels have any integer dtype, and in half of
the batches they are of another relation than classes. Half of the batches run with the engine's pieces cut so small
that a dozen references fill several of them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import reference
from tests.every_loss import DEFINED, DISTANCES, OF_PROXIES, Setting, negative_selector, positive_selector
from tests.reference import Problem, Rule, Term
from torch import Tensor

import trivet
from trivet.distances import exact_order
from trivet.losses import set_sums
from trivet.mining import adjacency
from trivet.mining import batch as batches_of_rows
from trivet.mining import distance_block as blocks_of_rows
from trivet.mining import negatives as negative_rules

# How many batches are generated for each parameter of a test.
CHOICES, DRAWS, VALUES, INDICES, PROXIES, DISJOINT, SEEDS = 40, 25, 40, 20, 25, 40, 15
BLOCK_SIZES = [None, 1, 2, 5]
# Class 0, 1, 2 ... by label dtype: extreme values, and neighbours that float32 or float64 could not tell apart.
CLASSES = {
    torch.uint8: [0, 255, 1, 128, 7],
    torch.int8: [-128, 127, -1, 0, 7],
    torch.int16: [-(2**15), 2**15 - 1, -1, 0, 300],
    torch.int32: [2**24, 2**24 + 1, -(2**24) - 1, -(2**24), 0],
    torch.int64: [2**53, 2**53 + 1, -(2**62), -(2**62) - 1, 2**24 + 1],
}
TAGS = [{"a"}, {"a", "b"}, {"b", "c", "d"}, set(), {"d"}]
EDGES = {(0, 2), (1, 3), (0, 4), (1, 2)}  # of the contents p, q, x, y, z
GRADES = [
    [1.0, 0.75, 0.5, 0.25, 0.0],
    [0.75, 0.5, 0.0, 0.75, 0.25],
    [0.5, 0.0, 1.0, 0.5, 0.75],
    [0.25, 0.75, 0.5, 0.25, 0.0],
    [0.0, 0.25, 0.75, 0.0, 1.0],
]


def by_tags(least: float) -> reference.Related:
    def related(label: int, other: int) -> bool | None:
        shared = len(TAGS[label] & TAGS[other])
        return (shared / len(TAGS[label] | TAGS[other]) >= least or None) if shared else False

    return related


def of_tags(label: int, other: int) -> float:
    return len(TAGS[label] & TAGS[other]) / max(1, len(TAGS[label] | TAGS[other]))


class Years(trivet.Relation):
    """A relation of one's own: next to each other, or two apart and ignored."""

    def __init__(self) -> None:
        self.items = torch.arange(5)

    def positive(self, anchors: Tensor, others: Tensor) -> Tensor:
        return (anchors[:, None] - others).abs() <= 1

    def ignored(self, anchors: Tensor, others: Tensor) -> Tensor:
        return (anchors[:, None] - others).abs() == 2


def of_sides(u: int, v: int) -> bool | None:
    return None if (u < 2) == (v < 2) else (min(u, v), max(u, v)) in EDGES


def of_years(u: int, v: int) -> bool | None:
    return True if abs(u - v) <= 1 else None if abs(u - v) == 2 else False


# A relation of five items, and whether and how much two of their numbers belong together.
RELATIONS: dict[str, tuple[trivet.Relation, reference.Related, reference.Relevance]] = {
    "any tag": (trivet.Tags(TAGS), by_tags(0.0), of_tags),
    "all tags": (trivet.Tags(TAGS, match="all"), by_tags(1.0), of_tags),
    "half of the tags": (trivet.Tags(TAGS, match=0.5), by_tags(0.5), of_tags),
    "pairs": (
        trivet.Pairs(["p", "q", "p"], ["x", "y", "z"], listed=[(1, 0)]),
        of_sides,
        lambda u, v: float(of_sides(u, v) is True),
    ),
    "grades": (
        trivet.Grades(GRADES, positive=0.75, negative=0.5),
        lambda u, v: True if GRADES[u][v] >= 0.75 else None if GRADES[u][v] >= 0.5 else False,
        lambda u, v: GRADES[u][v],
    ),
    "own": (Years(), of_years, lambda u, v: float(of_years(u, v) is True)),
}
GRADED = ["any tag", "grades", "grades", "grades"]
HALVES = [list(signs) for signs in itertools.product([-0.5, 0.5], repeat=4)]


def generated(number: int) -> settings:
    """A quarter as many examples, the same in every run; more with a profile that asks for more than 100."""
    slow = [HealthCheck.too_slow]  # on a busy machine
    number = number * settings.default.max_examples // 400
    return settings(max_examples=number, deadline=None, derandomize=True, suppress_health_check=slow)


@dataclass(frozen=True)
class Sample:
    """A batch as lists. `unit` rows have norm 1, as given or once normalized."""

    rows: list[list[float]]
    labels: list[int]
    references: list[list[float]] | None
    reference_labels: list[int]
    ids: list[int] | None
    reference_ids: list[int] | None
    dimension: int
    dtype: torch.dtype
    classes: list[int]
    unit: bool
    normalize: bool
    exact: bool
    itself: bool
    small_pieces: bool
    relation: str | None = None

    def problem(self, kind: str) -> Problem:
        own = self.references is None
        rows = [reference.unit(row) for row in self.rows] if self.unit else self.rows
        others = rows if own or self.itself else self.references
        if self.unit and not own and not self.itself:
            others = [reference.unit(row) for row in self.references]
        ids, reference_ids = self.items()

        def same(a: int, j: int) -> bool:
            return ids is not None and ids[a] == reference_ids[j]

        reference_labels = self.labels if own else self.reference_labels
        rule = (reference.equal_labels, reference.equal_is_relevant)
        rule = RELATIONS[self.relation][1:] if self.relation else rule
        return Problem(rows, self.labels, others, reference_labels, same, kind, *rule)

    def items(self) -> tuple[list[int] | None, list[int] | None]:
        """The items of anchors and references; None where no anchor is among the references."""
        if self.references is None:
            ids = list(range(len(self.rows))) if self.ids is None else self.ids
            return ids, ids
        if self.itself and self.ids is None:
            return list(range(len(self.rows))), list(range(len(self.rows)))
        return self.ids, self.reference_ids

    def tensors(self, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """The arguments of `trivet.mine` and of a loss."""

        def rows(values: list[list[float]]) -> Tensor:
            return torch.tensor(values, dtype=dtype).reshape(-1, self.dimension)

        def labels(values: list[int]) -> Tensor | trivet.Relation:
            if self.relation:
                return RELATIONS[self.relation][0].with_items(torch.tensor(values, dtype=torch.int64))
            return torch.tensor([self.classes[value] for value in values], dtype=self.dtype)

        found = {"embeddings": rows(self.rows), "labels": labels(self.labels)}
        if self.references is not None:
            found["references"] = found["embeddings"] if self.itself else rows(self.references)
            found["reference_labels"] = labels(self.reference_labels)
        for name, ids in (("ids", self.ids), ("reference_ids", self.reference_ids)):
            if ids is not None:
                found[name] = torch.tensor(ids, dtype=torch.int64)
        return found


@st.composite
def samples(
    draw: st.DrawFn,
    *,
    unit: bool | None = None,
    exact: bool | None = None,
    normalized: bool = False,
    numbered: bool = False,
    ids: bool = False,
    graded: bool = False,
) -> Sample:
    """A batch.

    Args:
        unit: whether rows have norm 1; None for either.
        exact: whether distances are exact, with ties; None for either.
        normalized: rows may have any norm, as they are normalized anyway.
        numbered: labels count from 0, for losses with a parameter per class.
        ids: always with ids.
        graded: of a relation with grades.
    """
    related = GRADED if graded else [None] * len(RELATIONS) + list(RELATIONS)
    by = None if numbered else draw(st.sampled_from(related))
    size, others = draw(st.integers(0, 12)), draw(st.integers(0, 12))
    relation = draw(st.sampled_from(["own", "items"] if ids else ["own", "own", "items", "references", "itself"]))
    with_references = relation == "references" or (relation == "items" and draw(st.booleans()))
    unit = draw(st.booleans()) if unit is None else unit
    exact = draw(st.integers(0, 3)) > 0 if exact is None else exact
    dimension = draw(st.integers(1 if exact else 3, 4))
    scaled = normalized or draw(st.booleans())
    number = draw(st.integers(1, 5))
    dtype = draw(st.sampled_from(list(CLASSES)))
    numbers = iter(draw(st.binary(min_size=200, max_size=200)))  # one byte for each choice: quick, and shrinks
    normal = random.Random(next(numbers) + 256 * next(numbers))

    def row() -> list[float]:
        if not exact:
            return [normal.gauss(0, 1) for _ in range(dimension)]
        if not unit:
            return [(next(numbers) % 9 - 4) / 4 for _ in range(dimension)]
        length = 2.0 ** (next(numbers) % 5 - 2) if scaled else 1.0
        if dimension == 4 and next(numbers) % 2:
            return [length * x for x in HALVES[next(numbers) % 16]]
        place = next(numbers)
        return [length * (1 - place % 2 * 2) * (i == place // 2 % dimension) for i in range(dimension)]

    rows = [row() for _ in range(size)]
    references, itself = None, relation == "itself"
    if itself:
        references = rows
    elif with_references:
        references = [row() for _ in range(others)]
    named = relation == "items" or ids
    count = size if references is None else len(references)
    labels = [next(numbers) % number for _ in rows]
    return Sample(
        rows=rows,
        labels=labels,
        references=references,
        reference_labels=labels if itself else [next(numbers) % number for _ in range(count)],
        ids=[next(numbers) % 12 for _ in rows] if named else None,
        reference_ids=[next(numbers) % 12 for _ in range(count)] if named and references is not None else None,
        dimension=dimension,
        dtype=dtype,
        classes=list(range(5)) if numbered else CLASSES[dtype],
        unit=unit,
        normalize=unit and (scaled or not exact),
        exact=exact,
        itself=itself,
        small_pieces=draw(st.booleans()),
        relation=by,
    )


@contextmanager
def pieces(small: bool) -> Iterator[None]:
    """With `small`, chunks of 3 columns, sorting from 2 positives on, blocks of a few anchors, and all by products."""
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(exact_order, "CHUNK", 3)
            patch.setattr(negative_rules, "MOST_COUNTED", 1)
            patch.setattr(set_sums, "MOST_COUNTED", 1)
            patch.setattr(batches_of_rows, "NUMBERS_PER_BLOCK", 60)
            patch.setattr(adjacency, "MAX_STORED", 0)
            patch.setattr(blocks_of_rows, "MAX_EXACT", 0)
        yield


POSITIVES = {
    "easy": Rule("easy"),
    "easy, 2": Rule("easy", k=2),
    "easy, unlike": Rule("easy", most_similar=0.5),
    "hard": Rule("hard"),
    "hard, 3": Rule("hard", k=3),
    "hard, unlike": Rule("hard", k=2, most_similar=0.0),
    "semihard": Rule("semihard"),
    "semihard, unlike": Rule("semihard", most_similar=0.5),
    "all": Rule("all"),
    "all, unlike": Rule("all", most_similar=-0.25),
    "multi-similarity": Rule("multi-similarity"),
}
NEGATIVES = {
    "easy": Rule("easy"),
    "easy, 2": Rule("easy", k=2),
    "hard": Rule("hard"),
    "hard, 3": Rule("hard", k=3),
    "semihard-hardest": Rule("semihard-hardest"),
    "semihard-hardest, 2": Rule("semihard-hardest", k=2),
    "semihard-hardest or farthest": Rule("semihard-hardest", otherwise="farthest"),
    "semihard-hardest or 2 farthest": Rule("semihard-hardest", k=2, otherwise="farthest"),
    "all": Rule("all"),
    "multi-similarity": Rule("multi-similarity"),
    "multi-similarity, chosen": Rule("multi-similarity", epsilon=0.25, against_chosen=True),
    "all-semihard": Rule("all-semihard", margin=0.25),
    "all-semihard, wide": Rule("all-semihard", margin=1.0),
    "all-semihard, empty": Rule("all-semihard", margin=0.0),
    "all-violating": Rule("all-violating", margin=0.25),
}


def unit_only(*rules: Rule) -> bool:
    return any(
        rule.most_similar is not None or rule.name in ("multi-similarity", "distance-weighted") for rule in rules
    )


def several_negatives(rule: Rule) -> bool:
    return reference.is_set(rule) or reference.is_band(rule)


def possible(positives: Rule, negatives: Rule) -> bool:
    """A semi-hard positive needs one negative, of the anchor or of each positive."""
    return positives.name != "semihard" or (negatives.k == 1 and not several_negatives(negatives))


def mined(sample: Sample, positives: Rule, negatives: Rule, dtype: torch.dtype = torch.float64, **options: object):
    triplets = trivet.mine(
        **sample.tensors(dtype),
        positives=positive_selector(positives),
        negatives=negative_selector(negatives),
        normalize=sample.normalize,
        **options,
    )
    assert all(column.dtype == torch.int64 for column in triplets)
    return list(zip(*(column.tolist() for column in triplets), strict=True))


@pytest.mark.parametrize("positives", POSITIVES)
@given(data=st.data(), precision=st.sampled_from(["float64", "float32", "bfloat16"]))
@generated(CHOICES)
def test_mined_triplets_are_those_of_the_definition(positives: str, data: st.DataObject, precision: str) -> None:
    """Each of the positive rules, with every negative rule."""
    rule = POSITIVES[positives]
    sample = data.draw(samples(unit=True if unit_only(rule) else None))
    kind = data.draw(st.sampled_from(DISTANCES if sample.unit else DISTANCES[:2]))
    problem = sample.problem(kind)
    dtype = getattr(torch, precision) if sample.exact else torch.float64
    for name, other in NEGATIVES.items():
        if possible(rule, other) and (sample.unit or not unit_only(other)):
            with pieces(sample.small_pieces):
                found = mined(sample, rule, other, dtype, distance=kind)
            assert found == reference.triplets_of(problem, rule, other), name


RANDOM = {
    "random positive": (Rule("random"), Rule("hard")),
    "3 random positives": (Rule("random", k=3), Rule("semihard-hardest")),
    "unlike random positives": (Rule("random", k=2, most_similar=0.5), Rule("all")),
    "random negative": (Rule("easy"), Rule("random")),
    "3 random negatives": (Rule("all"), Rule("random", k=3)),
    "both": (Rule("random", k=2), Rule("random", k=2)),
    "semihard": (Rule("all"), Rule("semihard")),
    "semihard or random": (Rule("hard", k=2), Rule("semihard", k=2, margin=0.5, otherwise="random")),
    "semihard or farthest": (Rule("all"), Rule("semihard", k=2, margin=0.25, otherwise="farthest")),
    "violating": (Rule("all"), Rule("violating", k=2)),
    "violating or random": (Rule("easy"), Rule("violating", margin=0.0, otherwise="random")),
    "semihard-hardest or random": (Rule("hard", k=2), Rule("semihard-hardest", k=2, otherwise="random")),
    "distance-weighted": (Rule("easy", k=2), Rule("distance-weighted", k=3, upper=1.4)),
    "distance-weighted or random": (Rule("all"), Rule("distance-weighted", upper=1.2, otherwise="random")),
    "semihard positive": (Rule("semihard"), Rule("random")),
    "semihard positive and negative": (Rule("semihard"), Rule("semihard")),
    "semihard positive and negative or random": (Rule("semihard"), Rule("semihard", margin=0.25, otherwise="random")),
    "semihard positive, violating negative": (Rule("semihard", most_similar=0.5), Rule("violating")),
}


@pytest.mark.parametrize("name", RANDOM)
@given(
    data=st.data(), kind=st.sampled_from(DISTANCES), margin=st.sampled_from([0.0, 0.25, 1.0]), seed=st.integers(0, 99)
)
@generated(DRAWS)
def test_random_choices_are_candidates(name: str, data: st.DataObject, kind: str, margin: float, seed: int) -> None:
    positives, negatives = RANDOM[name]
    sample = data.draw(samples(unit=True if unit_only(positives, negatives) or kind == "cosine" else None))
    problem = sample.problem(kind)
    generator = torch.Generator().manual_seed(seed)
    with pieces(sample.small_pieces):
        found = mined(sample, positives, negatives, distance=kind, margin=margin, generator=generator)
    assert [a for a, _, _ in found] == sorted(a for a, _, _ in found)
    for a in range(len(sample.rows)):
        by_positive: dict[int, list[int]] = {}
        for _, p, n in (triplet for triplet in found if triplet[0] == a):
            by_positive.setdefault(p, []).append(n)
        check_draws(problem, a, positives, negatives, margin, by_positive)


def check_draws(
    problem: Problem, a: int, positives: Rule, negatives: Rule, margin: float, found: dict[int, list[int]]
) -> None:
    """`found` holds the negatives of each positive that was drawn for an anchor."""
    if positives.name == "semihard" and negatives.name in ("semihard", "violating"):
        check_joint_draws(problem, a, positives, negatives, margin, found)
        return
    if positives.name == "semihard":
        partners = {n: reference.semihard_positive(problem, a, n, positives) for n in problem.negatives(a)}
        assert len(found) <= 1
        assert all(partners[n] == [p] for p, drawn in found.items() for n in drawn)
        assert found or not partners or [] in partners.values()
        return
    allowed = reference.allowed_positives(problem, a, positives)
    pool = {p: reference.candidates(problem, a, p, negatives, margin) for p in allowed}
    if positives.name == "random":
        lost = sum(not pool[p] for p in allowed)
        assert set(found) <= {p for p in allowed if pool[p]}
        assert min(positives.k, len(allowed)) - lost <= len(found) <= min(positives.k, len(allowed) - lost)
    else:
        assert list(found) == [p for p in reference.ruled_positives(problem, a, positives) if pool[p]]
    for p, drawn in found.items():
        if reference.is_set(negatives):
            assert drawn == problem.negatives(a)
            continue
        assert set(drawn) <= set(pool[p])
        if negatives.name == "distance-weighted":
            assert len(drawn) == negatives.k
            continue
        assert len(drawn) == len(set(drawn)) == min(negatives.k, len(pool[p]))
        if negatives.name == "semihard-hardest":
            nearest = reference.ruled_negatives(problem, a, p, negatives)
            assert not nearest or drawn == nearest


def check_joint_draws(
    problem: Problem, a: int, positives: Rule, negatives: Rule, margin: float, found: dict[int, list[int]]
) -> None:
    """Each positive draws a negative; of those nearer than theirs the farthest is chosen, with it."""

    def beyond(p: int) -> list[bool]:
        return [problem.d(a, p) < problem.d(a, n) for n in reference.candidates(problem, a, p, negatives, margin)]

    allowed = reference.allowed_positives(problem, a, positives)
    assert len(found) <= 1
    for p, (n,) in found.items():
        assert p in allowed
        assert n in reference.candidates(problem, a, p, negatives, margin)
        assert problem.d(a, p) < problem.d(a, n)
        allowed = [other for other in allowed if (-problem.d(a, other), other) < (-problem.d(a, p), p)]
    assert not any(beyond(p) and all(beyond(p)) for p in allowed)  # those passed over may have drawn a nearer one


VARIANTS = ("triplet", "soft triplet")
STRATEGIES = [pair for pair in itertools.product(POSITIVES.values(), NEGATIVES.values()) if possible(*pair)]
OF_SETS = [(rule, other) for rule, other in STRATEGIES if several_negatives(other)]
OF_ALL_PAIRS = [
    (rule, other)
    for rule, other in OF_SETS
    if rule.name in ("all", "multi-similarity") and not reference.is_band(other)
]


@st.composite
def problems(draw: st.DrawFn, name: str) -> tuple[Setting, Sample]:
    """Options for a loss, and a batch that suits them."""
    loss = DEFINED[name]
    reduction = draw(st.sampled_from(list(loss.reductions)))
    strategies = OF_SETS if loss.sets_only else STRATEGIES
    if reduction == "objective" and not name.startswith("contrastive"):
        strategies = OF_ALL_PAIRS
    positives, negatives = draw(st.sampled_from(strategies))
    distance = draw(st.sampled_from(list(loss.distances)))
    trim = draw(st.sampled_from([0.0, 0.0, 0.0, 0.25, 0.6]))
    setting = Setting(
        positives,
        negatives,
        distance=distance,
        margin=draw(st.sampled_from([0.0, 0.25, 1.0])),
        reduction=reduction,
        trim=trim,
        trim_positives_only=trim > 0 and loss.positives_only and draw(st.booleans()),
        variant=draw(st.sampled_from(["an", "pn"])) if name in VARIANTS else "an",
        skip_if_any_empty=draw(st.booleans()),
    )
    unit = True if loss.unit or distance == "cosine" or unit_only(positives, negatives) else None
    # The pull x_a . x_p of a pair ties with that of the pair turned round, unless rounding decides.
    exact = True if name == "n-pair" and setting.trim_positives_only else None
    chosen = {"numbered": loss.numbered, "ids": loss.ids, "graded": loss.graded}
    sample = draw(samples(unit=unit, exact=exact, normalized=loss.unit, **chosen))
    return replace(setting, normalize=sample.normalize), sample


def evaluate(
    loss: trivet.EmbeddingLoss, sample: Sample, block_size: int | None, indices: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """The value, and its gradients with respect to embeddings, references and parameters."""
    loss.block_size = block_size
    given = sample.tensors()
    leaves = [given["embeddings"].requires_grad_()]
    if sample.references is not None and not sample.itself:
        leaves.append(given["references"].requires_grad_())
    value = loss(**given, indices=indices)
    found = torch.autograd.grad(value, [*leaves, *loss.parameters()], allow_unused=True, materialize_grads=True)
    assert all(bool(torch.isfinite(grad).all()) for grad in found)
    return [value.detach(), *found]


def check_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def objective_size(name: str, problem: Problem) -> int:
    return len(problem.anchors) * len(problem.references) ** (2 if name == "triplet" else 1)


@pytest.mark.parametrize("name", DEFINED)
@given(data=st.data(), block_size=st.sampled_from(BLOCK_SIZES))
@generated(VALUES)
def test_a_loss_is_its_definition(name: str, data: st.DataObject, block_size: int | None) -> None:
    setting, sample = data.draw(problems(name))
    problem = sample.problem(setting.distance)
    terms = DEFINED[name].terms(setting, problem, sample)
    used = {term.anchor for term in terms}
    if setting.trim:
        terms = reference.trimmed_terms(terms, setting.trim, setting.trim_positives_only)
    expected = reference.reduced(terms, setting.reduction, len(sample.rows), objective_size(name, problem))

    loss = DEFINED[name].make(setting)
    whole = evaluate(loss, sample, None)
    with pieces(sample.small_pieces):
        blocks = evaluate(loss, sample, block_size)
    assert whole[0].item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert blocks[0].item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    check_same(blocks, whole)
    assert (loss.last.anchors, loss.last.terms) == (len(sample.rows), len(terms))
    if not setting.trim:
        idle = [a for a in range(len(sample.rows)) if a not in used]
        reasons = [
            "no positive" if not problem.positives(a) else "no match" if problem.negatives(a) else "no negative"
            for a in idle
        ]
        assert loss.last.dropped == {
            reason: reasons.count(reason) for reason in ("no positive", "no negative", "no match")
        }


@pytest.mark.parametrize("name", DEFINED)
@given(data=st.data(), block_size=st.sampled_from(BLOCK_SIZES))
@generated(INDICES)
def test_given_indices_are_the_strategy(name: str, data: st.DataObject, block_size: int | None) -> None:
    """Mined triplets, and for a set of negatives the pairs, give what the strategy itself gives."""
    setting, sample = data.draw(problems(name))
    loss = DEFINED[name].make(setting)
    own = evaluate(loss, sample, None)
    terms = loss.last.terms
    is_set, is_band = reference.is_set(setting.negatives), reference.is_band(setting.negatives)
    if is_set or (is_band and DEFINED[name].pairs):
        problem = sample.problem(setting.distance)
        sets = [reference.sets_of(problem, a, setting.positives, setting.negatives) for a in range(len(sample.rows))]
        pulls = [(a, p) for a, (near, _) in enumerate(sets) for p in near]
        pushes = [(a, n) for a, (_, far) in enumerate(sets) for n in far]
        indices = [
            torch.tensor([pair[i] for pair in pairs], dtype=torch.int64) for pairs in (pulls, pushes) for i in (0, 1)
        ]
        check_same(evaluate(loss, sample, block_size, indices), own)
        assert loss.last.terms == terms
        found = trivet.mine_pairs(
            **sample.tensors(),
            positives=positive_selector(setting.positives),
            negatives=negative_selector(setting.negatives),
            distance=setting.distance,
            normalize=loss.normalize,
        )
        assert sorted(zip(*(c.tolist() for c in found[:2]), strict=True)) == sorted(pulls)
        assert list(zip(*(c.tolist() for c in found[2:]), strict=True)) == pushes
    if not (is_set or is_band) or (not DEFINED[name].pairs and setting.reduction != "objective"):
        triplets = trivet.mine(
            **sample.tensors(),
            positives=positive_selector(setting.positives),
            negatives=negative_selector(setting.negatives),
            distance=setting.distance,
            normalize=loss.normalize,
        )
        check_same(evaluate(loss, sample, block_size, triplets), own)
        assert loss.last.terms == terms


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", OF_PROXIES)
@given(
    sample=samples(unit=True, normalized=True, numbered=True),
    block_size=st.sampled_from(BLOCK_SIZES),
    trim=st.sampled_from([0.0, 0.25, 0.6]),
)
@generated(PROXIES)
def test_a_loss_against_proxies_is_its_definition(
    name: str, reduction: str, sample: Sample, block_size: int | None, trim: float
) -> None:
    make, definition = OF_PROXIES[name]
    generator = torch.Generator().manual_seed(1)
    loss = make(5, sample.dimension, reduction=reduction, trim=trim, generator=generator).double()
    terms = [Term(a, (value,)) for a, value in enumerate(definition(sample.rows, sample.labels, loss.proxies.tolist()))]
    if trim:
        terms = reference.trimmed_terms(terms, trim, positives_only=False)
    expected = reference.reduced(terms, reduction, len(sample.rows), 1)
    alone = replace(sample, references=None, reference_ids=None, itself=False)
    whole = evaluate(loss, alone, None)
    with pieces(sample.small_pieces):
        blocks = evaluate(loss, alone, block_size)
    assert whole[0].item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    check_same(blocks, whole)
    assert loss.last.terms == len(terms)


ONE_EACH = [
    pair
    for pair in STRATEGIES
    if pair[0].name != "all" and pair[0].k == pair[1].k == 1 and not several_negatives(pair[1])
]
ONE_EACH = [pair for pair in ONE_EACH if pair[0].name != "multi-similarity"]
# Where neither choice depends on the other, an anchor that finds no triplet finds none later either, as less is left.
SEPARATE = [pair for pair in ONE_EACH if pair[0].name != "semihard" and pair[1].name in ("hard", "easy")]


@pytest.mark.parametrize("seed", [None, 0])
@given(data=st.data(), kind=st.sampled_from(DISTANCES))
@generated(DISJOINT)
def test_disjoint_triplets_are_chosen_one_after_another(seed: int | None, data: st.DataObject, kind: str) -> None:
    """By index, or with a seed in a random order, which the triplets themselves show."""
    positives, negatives = data.draw(st.sampled_from(ONE_EACH if seed is None else SEPARATE))
    sample = data.draw(samples(unit=True if kind == "cosine" or unit_only(positives, negatives) else None))
    problem, (ids, reference_ids) = sample.problem(kind), sample.items()
    if seed is None:
        found = mined(sample, positives, negatives, distance=kind, disjoint=True)
        order: Sequence[int] = range(len(sample.rows))
    else:
        found = mined(
            sample, positives, negatives, distance=kind, disjoint="random",
            generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))),
        )  # fmt: skip
        first = [a for a, _, _ in found]
        # Anchors without a triplet may come last.
        order = [*first, *(a for a in range(len(sample.rows)) if a not in first)]
    assert found == reference.disjoint_triplets(problem, positives, negatives, ids, reference_ids, order)


@pytest.mark.parametrize("negatives", ["random", "semihard", "violating", "distance-weighted"])
@given(data=st.data(), positives=st.sampled_from(["easy", "random", "all"]), block_size=st.sampled_from(BLOCK_SIZES))
@generated(SEEDS)
def test_random_choices_do_not_depend_on_blocks(
    negatives: str, data: st.DataObject, positives: str, block_size: int | None
) -> None:
    sample = data.draw(samples(unit=True, normalized=True))
    options = {"positives": positives, "negatives": negatives, "normalize": True}
    seed, trim = data.draw(st.integers(0, 99)), data.draw(st.sampled_from([0.0, 0.0, 0.3]))

    def fresh() -> trivet.EmbeddingLoss:
        return trivet.TripletLoss(**options, margin=0.5, trim=trim, generator=torch.Generator().manual_seed(seed))

    with pieces(sample.small_pieces):  # in both: where numbers are counted or sorted, they are drawn differently
        whole = evaluate(fresh(), sample, 12)
        check_same(evaluate(fresh(), sample, block_size), whole)
