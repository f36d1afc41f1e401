"""Checks of the losses and of the memory over several processes, against one process that holds the whole batch.

They run in `mining/crew.py`, beside those of gathering itself.
"""

from __future__ import annotations

import copy
import math
import runpy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from pytorch_metric_learning import losses, miners, reducers
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper, DistributedMinerWrapper
from tests.every_loss import EVERY_LOSS, PROXIES
from tests.mining.crew import PATIENCE, Crew, check, check_of_two, message, thorough
from torch import Tensor, nn

import trivet
from trivet.losses import LOSSES
from trivet.mining import (
    AllSemihardNegatives,
    DistanceWeighted,
    EasyPositive,
    HardNegative,
    HardPositive,
    RandomNegative,
    RandomPositive,
    SemihardHardestNegative,
    SemihardNegative,
    ViolatingNegative,
)
from trivet.mining.gather import gather_rows, sum_over_processes
from trivet.samplers import CrossBatchMemory, embed_in_pieces

COUNTS = [9, 4, 6, 5]
LABELS = [0, 1, 2, 0, 1, 3, 2, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 2, 0, 3, 1]
CLASSES = 5
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
SEED = 5
EXAMPLE = Path(__file__).parents[2] / "examples" / "many_devices.py"

Options = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A whole batch, and how it is given to the loss.

    Attributes:
        counts: how many rows each process brings.
        ids: whether they are given. Then some items have two rows, on different processes, some of other labels.
        references: whether further ones are given, which all processes share; with ids, some are rows of the batch.
        seed: of the embeddings.
        alone: how many of the first rows are of a class of their own each.
        copies: how many different rows there are, each several times and in several classes; None for all.
    """

    counts: list[int]
    dtype: torch.dtype = torch.float64
    ids: bool = False
    references: bool = False
    block_size: int | None = None
    seed: int = 0
    alone: int = 0
    copies: int | None = None

    @property
    def size(self) -> int:
        return sum(self.counts)

    @property
    def labels(self) -> Tensor:
        return torch.tensor([100 + i if i < self.alone else label for i, label in enumerate(LABELS[: self.size])])

    @property
    def items(self) -> Tensor:
        return torch.arange(self.size) % (2 * self.size // 3)

    def normal(self, *shape: int, seed: int) -> Tensor:
        numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return numbers.to(self.dtype)

    @property
    def embeddings(self) -> Tensor:
        rows = self.normal(self.size, 4, seed=self.seed)
        return rows if self.copies is None else rows[torch.arange(self.size) % self.copies]

    @property
    def others(self) -> tuple[Tensor, Tensor, Tensor]:
        """The further references, their labels and their items."""
        return self.normal(5, 4, seed=self.seed + 100), torch.tensor([0, 1, 2, 0, 7]), torch.tensor([0, 40, 41, 1, 42])


TAGS = trivet.Tags([["a"], ["a", "b"], ["b", "c", "d"], [], ["d"]], match=0.5)
GRADES = trivet.Grades([[abs(4 - abs(u - v)) / 4 for u in range(5)] for v in range(5)], positive=0.75, negative=0.5)


@dataclass(frozen=True)
class Related(Case):
    """A batch of another relation than classes."""

    relation: trivet.Relation = TAGS

    @property
    def labels(self) -> trivet.Relation:
        return self.relation[super().labels % CLASSES]

    @property
    def others(self) -> tuple[Tensor, trivet.Relation, Tensor]:
        rows, labels, items = super().others
        return rows, self.relation[labels % CLASSES], items


class Outcome(NamedTuple):
    """What a loss gave: its value, the gradients, the record of the step and the key of the next one."""

    value: Tensor
    of_embeddings: Tensor
    of_references: Tensor
    of_parameters: list[Tensor]
    record: list[float]
    key: list[int]


def record_of(loss: trivet.EmbeddingLoss) -> list[float]:
    last = loss.last
    assert last is not None
    means = [last.mean_to_positive, last.mean_to_negative]
    shares = [last.active_fraction, last.hard_fraction]
    return [float(last.anchors), float(last.terms), *map(float, last.dropped.values()), *shares, *means]


def outcome(
    loss: trivet.EmbeddingLoss,
    value: Tensor,
    embeddings: Tensor,
    references: Tensor | None,
    group: dist.ProcessGroup | None,
) -> Outcome:
    """After backward; gradients of what the processes share are averaged, those of the own rows are of one process."""
    loss.zero_grad()
    value.backward()
    nothing = torch.zeros(())
    shares = [nothing if references is None else references.grad, *(p.grad for p in loss.parameters())]
    if group is not None:
        size = dist.get_world_size(group)
        shares = [sum_over_processes(share, group=group) / size for share in shares]  # as DistributedDataParallel does
        embeddings.grad /= size
    return Outcome(value.detach(), embeddings.grad, shares[0], shares[1:], record_of(loss), loss.key.tolist())


def alone(loss: trivet.EmbeddingLoss, case: Case) -> Outcome:
    """One process that holds the whole batch."""
    embeddings = case.embeddings.requires_grad_()
    others, labels, items = case.others if case.references else (None, None, None)
    if others is not None:
        others.requires_grad_()
    value = loss(
        embeddings,
        case.labels,
        ids=case.items if case.ids else None,
        references=others,
        reference_labels=labels,
        reference_ids=items if case.ids else None,
        with_batch=case.references,
    )
    return outcome(loss, value, embeddings, others, None)


def together(loss: trivet.EmbeddingLoss, case: Case, crew: Crew) -> Outcome:
    """This process's part."""
    span = crew.span(case.counts)
    embeddings = case.embeddings[span].requires_grad_()
    others, labels, items = case.others if case.references else (None, None, None)
    if others is not None:
        others.requires_grad_()
    value = loss(
        embeddings,
        case.labels[span],
        ids=case.items[span] if case.ids else None,
        references=others,
        reference_labels=labels,
        reference_ids=items if case.ids else None,
        gather=True if crew.group is None else crew.group,
    )
    return outcome(loss, value, embeddings, others, crew.group or dist.group.WORLD)


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest error, relative to the largest number."""
    found, expected = found.detach(), expected.detach()
    scale = float(expected.abs().max())
    error = float((found - expected).abs().max()) if found.numel() else 0.0
    return error / scale if scale else error


def differences(found: Outcome, expected: Outcome, span: slice, dtype: torch.dtype) -> list[str]:
    """What is not equal, and what would be equal for no good reason."""
    pairs = {
        "value": (found.value, expected.value),
        "gradient": (found.of_embeddings, expected.of_embeddings[span]),
        "gradient of the references": (found.of_references, expected.of_references),
        **{
            f"gradient of parameter {i}": pair
            for i, pair in enumerate(zip(found.of_parameters, expected.of_parameters, strict=True))
        },
    }
    errors = {name: distance(*pair) for name, pair in pairs.items()}
    faults = [f"{name} off by {error:.1e}" for name, error in errors.items() if not error <= TOLERANCE[dtype]]
    for a, b in zip(found.record, expected.record, strict=True):
        if not (math.isclose(a, b, rel_tol=TOLERANCE[dtype]) or (math.isnan(a) and math.isnan(b))):
            faults.append(f"record {found.record} for {expected.record}")
            break
    if found.key != expected.key:
        faults.append(f"key {found.key} for {expected.key}")
    if not expected.of_embeddings.any():
        faults.append("no gradient at all")
    return faults


def compare(
    crew: Crew, make: Callable[..., trivet.EmbeddingLoss], cases: Iterable[tuple[Options, Case]], *, steps: int = 1
) -> None:
    """Both ways for every case; a process goes on after a fault, as the others would wait for it.

    The first case is taken, and every fifth after it, nightly all. Of these, four processes, which take longer, get
    every third.
    """
    faults = []
    for options, case in islice(cases, None, None, max(1, crew.size - 1) * (1 if thorough() else 5)):
        # Every process has a seed of its own, and that of process 0 counts.
        loss, other = (
            make(**options, block_size=case.block_size, generator=torch.Generator().manual_seed(seed)).to(case.dtype)
            for seed in (SEED, SEED + crew.rank)
        )
        for _ in range(steps):
            found = together(other, case, crew)
            expected = crew.once(lambda loss=loss, case=case: alone(loss, case))
            wrong = differences(found, expected, crew.span(case.counts), case.dtype)
            faults += [f"{options}, {case}: {fault}" for fault in wrong]
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:8]])


def in_turn(crew: Crew, choices: Iterable[Options], references: bool = True) -> Iterator[tuple[Options, Case]]:
    """The choices in turn with and without ids and references, in blocks, in single and in double precision."""
    ways = cycle(product([False, True], [False, True] if references else [False], [None, 3], TOLERANCE))
    for options, (ids, further, block_size, dtype) in zip(choices, ways, strict=False):
        yield options, Case(COUNTS[: crew.size], dtype, ids, further, block_size)


SINGLE = ["easy", "hard", "semihard-hardest"]
SETS = ["multi-similarity", "all"]
STRATEGIES = [
    *({"positives": p, "negatives": n} for p in ["easy", "hard", "all", "multi-similarity"] for n in [*SINGLE, *SETS]),
    {"positives": "all", "negatives": AllSemihardNegatives(margin=1.5)},
    {"positives": "semihard", "negatives": "easy"},
    {"positives": "semihard", "negatives": "hard"},
]
EACH_TWICE = [*STRATEGIES, STRATEGIES[6], *STRATEGIES]  # an odd number later, in the other precision
PAIRS = [
    {"positives": p, "negatives": n}
    for p in ["easy", "hard", "all", "multi-similarity", "random", EasyPositive(k=2), RandomPositive(k=2)]
    for n in SETS
]


def triplet(**options: Any) -> trivet.TripletLoss:
    return trivet.TripletLoss(**{"margin": 3.0, "normalize": True, **options})


def margin(**options: Any) -> trivet.MarginLoss:
    return trivet.MarginLoss(**options)


def margin_per_class(**options: Any) -> trivet.MarginLoss:
    return trivet.MarginLoss(num_classes=CLASSES, beta_penalty=0.3, **options)


def contrastive(**options: Any) -> trivet.ContrastiveLoss:
    return trivet.ContrastiveLoss(**{"margin": 3.5, "normalize": True, **options})


def n_pair(**options: Any) -> trivet.NPairLoss:
    return trivet.NPairLoss(l2_weight=0.1, normalize="multi-similarity" in options.values(), **options)


# The losses that two processes compare, and the strategies of each.
OF_TWO: dict[str, tuple[Callable[..., trivet.EmbeddingLoss], Sequence[Options]]] = {
    "triplet, pn": (lambda **o: triplet(variant="pn", distance="euclidean", margin=1.5, **o), STRATEGIES[1::2]),
    "soft triplet": (lambda **o: triplet(soft=True, **o), STRATEGIES[::2]),
    "n-pair": (n_pair, PAIRS[:8]),
}
SUITED: dict[str, Options] = {
    "margin": {"num_classes": None},
    "contrastive": {"margin": 3.5, "normalize": True},
    "circle": {"scale": 8.0},
}
for place, name in enumerate(name for name in EVERY_LOSS if name not in (*PROXIES, "triplet", "n-pair")):
    OF_TWO[name] = partial(EVERY_LOSS[name], **SUITED.get(name, {})), STRATEGIES[place % 2 :: 2]


def check_loss(name: str, make: Callable[..., trivet.EmbeddingLoss], choices: Sequence[Options]) -> None:
    def loss(crew: Crew) -> None:
        compare(crew, make, in_turn(crew, choices))

    loss.__name__ = name
    check_of_two(loss)


for name, (make, choices) in OF_TWO.items():
    check_loss(name, make, choices)


@check
def triplet_loss(crew: Crew) -> None:
    compare(crew, triplet, in_turn(crew, EACH_TWICE))


@check
def margin_loss_per_class(crew: Crew) -> None:
    compare(crew, margin_per_class, in_turn(crew, EACH_TWICE))


@check_of_two
def margin_loss_per_sample(crew: Crew) -> None:
    cases = [(options, Case(COUNTS[: crew.size], ids=True, block_size=2)) for options in STRATEGIES]
    compare(crew, lambda **o: trivet.MarginLoss(num_samples=20, **o), cases)


@check_of_two
def n_pair_loss_without_references(crew: Crew) -> None:
    compare(crew, n_pair, in_turn(crew, PAIRS[8:], references=False))


def proxy_anchor(**options: Any) -> trivet.ProxyAnchorLoss:
    return trivet.ProxyAnchorLoss(CLASSES, 4, **{**options, "generator": torch.Generator().manual_seed(SEED)})


@check
def proxy_anchor_loss(crew: Crew) -> None:
    """Five proxies: of two processes one has two of them, of four three have one."""
    choices: list[Options] = [{}, {"scale": 4.0}, {"reduction": "sum"}, {"trim": 0.4}, {"scale": 1.0, "margin": 0.5}]
    choices.append({"reduction": "sum", "trim": 0.4})
    compare(crew, proxy_anchor, in_turn(crew, choices * 4, references=False))


@dataclass(frozen=True)
class OfThree(Case):
    """A batch of three classes."""

    @property
    def labels(self) -> Tensor:
        return super().labels % 3


@check
def other_relations_than_classes(crew: Crew) -> None:
    for place, options in [*enumerate([*STRATEGIES[::4], *RANDOM[::6]])][:: crew.size - 1]:
        relation, further = (TAGS, GRADES)[place % 2], bool(place // 2 % 2)
        case = Related(COUNTS[: crew.size], ids=further, references=further, block_size=3, relation=relation)
        compare(crew, (triplet, contrastive)[place % 2], [(options, case)])
    compare(crew, proxy_anchor_of_tags, [({}, Related(COUNTS[: crew.size]))])


@check_of_two
def losses_by_relevance(crew: Crew) -> None:
    for place, make in enumerate(BY_RELEVANCE):
        relation, further = (TAGS, GRADES)[place % 2], bool(place // 2 % 2)
        case = Related(COUNTS[: crew.size], ids=further, references=further, block_size=3, relation=relation)
        compare(crew, make, [(options, case) for options in STRATEGIES[place:]])


BY_RELEVANCE: list[Callable[..., trivet.EmbeddingLoss]] = [
    partial(trivet.ContrastiveLoss, margin=3.5, normalize=True, relevance_margin=True),
    partial(trivet.MultiSimilarityLoss, relevance_margin=True),
    trivet.ApproxNDCGLoss,
]


def proxy_anchor_of_tags(**options: Any) -> trivet.ProxyAnchorLoss:
    return trivet.ProxyAnchorLoss(4, 4, **{**options, "generator": torch.Generator().manual_seed(SEED)})


@check
def distillation_is_that_of_one_process(crew: Crew) -> None:
    """Value and gradient, with a teacher of another dimension and precision, whatever the blocks."""
    counts, generator = COUNTS[: crew.size], torch.Generator().manual_seed(SEED)
    size, span = sum(counts), crew.span(counts)
    student = torch.randn(size, 4, dtype=torch.float64, generator=generator)
    teacher = torch.randn(size, 3, generator=generator)
    for block_size in (None, 2):
        loss = trivet.DistillationLoss(temperature=0.3, block_size=block_size)
        whole, own = (rows.clone().requires_grad_() for rows in (student, student[span]))
        expected = loss(whole, teacher)
        expected.backward()
        found = loss(own, teacher[span], gather=crew.group or True)
        found.backward()
        assert whole.grad is not None
        assert own.grad is not None
        assert torch.allclose(found, expected, rtol=1e-12)
        assert torch.allclose(own.grad / crew.size, whole.grad[span], rtol=1e-9, atol=1e-12)
    wide = 5 if crew.rank else 4
    embeddings, other = torch.ones(2, wide), torch.ones(2, 8 - wide)
    told = message(lambda: loss(embeddings, other, gather=crew.group or True))
    assert told.startswith("every process must pass embeddings of one dimension, and a teacher of one: got [4, 5]")
    told = message(lambda: loss(own, own, references=own, teacher_references=own, gather=crew.group or True))
    assert told.startswith("references must be left out with gather: got both;")


@check
def different_relations_are_an_error_everywhere(crew: Crew) -> None:
    case = Related(COUNTS[: crew.size], relation=TAGS if crew.rank else GRADES)
    text = message(lambda: triplet()(**plain(case, crew.span(case.counts)), gather=crew.group))
    assert "every process must pass labels by the same relation: got one of signature" in text, text
    compare(crew, triplet, [(STRATEGIES[0], Related(COUNTS[: crew.size]))])


class HardestProxy(trivet.ProxyAnchorLoss):
    """The largest term alone is a choice that all processes share, as trimming is."""

    reductions = ("mean", "sum", "max")


@check
def fewer_proxies_than_processes(crew: Crew) -> None:
    """Three proxies: of four processes one has none, and nothing to compute but what it must add to the others'."""
    choices: list[Options] = [{}, {"trim": 0.4}, {"reduction": "max"}, {"reduction": "max", "trim": 0.4}]
    ways = [(None, torch.float32), (1, torch.float64)]
    for place, options in enumerate(choices):
        compare(
            crew,
            lambda generator, **o: HardestProxy(3, 4, generator=torch.Generator().manual_seed(SEED), **o),
            [
                (options, OfThree(COUNTS[: crew.size], dtype, block_size=size))
                for size, dtype in ways[:: 1 - place % 2 * 2]
            ],
        )


RANDOM = [
    {"positives": "random", "negatives": "random"},
    {"positives": "random", "negatives": "semihard"},
    {"positives": "random", "negatives": "violating"},
    {"positives": "random", "negatives": "distance-weighted"},
    {"positives": "random", "negatives": "all"},
    {"positives": "semihard", "negatives": "random"},
    {"positives": "semihard", "negatives": "distance-weighted"},
    {"positives": "all", "negatives": "semihard"},
    {"positives": "multi-similarity", "negatives": "random"},
    {"positives": RandomPositive(k=2), "negatives": SemihardNegative(k=2, margin=0.4, otherwise="random")},
    {"positives": EasyPositive(k=2), "negatives": RandomNegative(k=3)},
    {"positives": HardPositive(k=2, max_positive_similarity=0.9), "negatives": HardNegative(k=2)},
    {"positives": "easy", "negatives": DistanceWeighted(k=2, upper_cutoff=1.2)},
    {"positives": "hard", "negatives": ViolatingNegative(k=2, margin=0.1, otherwise="random")},
    {"positives": "all", "negatives": SemihardHardestNegative(k=2, otherwise="random")},
    {"positives": "random", "negatives": SemihardNegative(otherwise="drop")},
    *({"positives": "easy", "negatives": "hard", "disjoint": disjoint} for disjoint in (True, "random")),
    *({"positives": "random", "negatives": "semihard", "disjoint": disjoint} for disjoint in (True, "random")),
]


@check
def random_choices_are_those_of_one_process(crew: Crew) -> None:
    compare(crew, triplet, in_turn(crew, RANDOM, references=False), steps=2)
    compare(crew, margin_per_class, in_turn(crew, RANDOM[1:], references=False), steps=2)


@check
def random_choices_among_references_too(crew: Crew) -> None:
    cases = [
        (options, Case(COUNTS[: crew.size], ids=True, references=True, block_size=block_size))
        for options, block_size in zip(RANDOM, cycle([None, 2]), strict=False)
    ]
    compare(crew, triplet, cases)


@check
def processes_with_one_block_beside_those_with_several(crew: Crew) -> None:
    counts = [1, 8, 2, 5][: crew.size]
    for make in (triplet, margin_per_class):
        compare(crew, make, [(options, Case(counts, block_size=2)) for options in STRATEGIES])


@check
def process_without_a_term(crew: Crew) -> None:
    counts = COUNTS[1 : crew.size] + COUNTS[:1]
    choices = [{"positives": "easy", "negatives": "hard", "disjoint": True}, *STRATEGIES[1:6]]
    cases = [
        (options, Case(counts, block_size=block_size, alone=counts[0]))
        for options, block_size in product(choices, (None, 3))
    ]
    compare(crew, triplet, cases)
    compare(crew, margin, cases[::-1])


@check_of_two
def every_reduction(crew: Crew) -> None:
    """In turn with and without references; nightly both."""
    turn = cycle([[False, True], [True, False]])
    for name in [name for name in LOSSES if name not in PROXIES]:
        make = {"triplet": triplet, "margin": margin_per_class, "contrastive": contrastive}.get(name, LOSSES[name])
        for reduction in LOSSES[name].reductions:
            options = {"positives": "all", "negatives": "all", "reduction": reduction}
            cases = [Case(COUNTS[: crew.size], ids=True, references=further) for further in next(turn)]
            compare(crew, make, [(options, case) for case in cases])


@check_of_two
def copies_in_several_processes(crew: Crew) -> None:
    """Distances of 0 between rows of different classes, of which a root makes much."""
    cases = [
        (options, Case(COUNTS[: crew.size], ids=seed % 2 > 0, references=seed % 3 > 0, seed=seed, copies=4))
        for options, seed in product(PAIRS[4:8], range(12))
    ]
    compare(crew, lambda **o: triplet(variant="pn", distance="euclidean", margin=1.5, **o), cases)


@check
def hardest_triplet_alone(crew: Crew) -> None:
    trimmed = [{"positives": "all", "negatives": "all", "trim": 0.3}, {**RANDOM[1], "trim": 0.3}]
    # The first process has no term, or several blocks beside one of the others.
    ways = [
        (COUNTS[: crew.size], None, 0),
        ([4, 2, 1, 3][: crew.size], 2, 0),
        (COUNTS[1 : crew.size] + COUNTS[:1], 3, COUNTS[1]),
        (COUNTS[1 : crew.size] + COUNTS[:1], None, COUNTS[1]),
    ]
    cases = [
        (choice | {"reduction": "max"}, Case(counts, block_size=size, alone=alone))
        for choice, (counts, size, alone) in product([*trimmed, *STRATEGIES[::3]], ways)
    ]
    compare(crew, triplet, cases)


@check
def trimming(crew: Crew) -> None:
    makes: list[Callable[..., trivet.EmbeddingLoss]] = [
        triplet,
        margin_per_class,
        contrastive,
        lambda **o: trivet.MultiSimilarityLoss(threshold=0.5, **o),
        trivet.NCATripletLoss,
        trivet.NPairLoss,
    ]
    choices = [
        {"make": make, "positives": each, "negatives": each, "trim": trim, "trim_positives_only": only}
        for make, each, trim, only in [
            *product(makes, ["all"], [0.1, 0.4], [False, True]),
            *product([trivet.UnhingedMarginLoss], ["all"], [0.1, 0.4], [False]),
            *product([margin_per_class], ["hard"], [0.3], [False, True]),
        ]
    ]
    compare(crew, lambda make, **o: make(**o), in_turn(crew, choices))
    compare(crew, triplet, in_turn(crew, [{**RANDOM[1], "trim": 0.5}], references=False), steps=2)


@check
def record_and_value_have_the_same_bits_everywhere(crew: Crew) -> None:
    loss = trivet.MarginLoss(generator=torch.Generator().manual_seed(crew.rank))
    case = Case(COUNTS[: crew.size], torch.float32)
    for _ in range(3):
        found = together(loss, case, crew)
        own = torch.tensor([[found.value.item(), *found.record, *found.key]], dtype=torch.float64)
        everyone = gather_rows(own, [1] * crew.size, crew.group)
        assert everyone.equal(own.expand_as(everyone)), everyone


@check
def without_a_gradient(crew: Crew) -> None:
    case = Case(COUNTS[: crew.size])
    span = crew.span(case.counts)
    for loss in (triplet(positives="easy", negatives="hard"), margin_per_class(positives="all", negatives="all")):
        expected = loss(case.embeddings, case.labels).item()
        with torch.no_grad():
            found = loss(case.embeddings[span].requires_grad_(), case.labels[span], gather=crew.group)
        assert not found.requires_grad
        assert math.isclose(found.item(), expected, rel_tol=1e-6), (found.item(), expected)


@check
def frozen_embeddings_and_a_learned_boundary(crew: Crew) -> None:
    case = Case(COUNTS[: crew.size])
    span = crew.span(case.counts)
    one, other = (margin_per_class(positives="all", negatives="all").double() for _ in range(2))
    one(case.embeddings, case.labels).backward()
    other(case.embeddings[span], case.labels[span], gather=crew.group).backward()
    mean = sum_over_processes(other.beta.grad, group=crew.group) / crew.size
    assert distance(mean, one.beta.grad) <= 1e-12


@check
def default_group_and_one_of_some_processes(crew: Crew) -> None:
    choices = [({"positives": "random", "negatives": "semihard"}, Case(COUNTS[: crew.size]))]
    compare(Crew(crew.rank, crew.size, None), margin_per_class, choices, steps=2)
    members = list(range(1, crew.size))
    group = dist.new_group(members, timeout=PATIENCE)
    if crew.rank in members:
        part = Crew(members.index(crew.rank), len(members), group)
        compare(part, margin_per_class, [(choices[0][0], Case(COUNTS[: part.size], block_size=2))], steps=2)


def rejected(crew: Crew, culprit: int, own: str, batch: Callable[[Case, slice, bool], Options], **options: Any) -> None:
    """A wrong batch on one process is an error on all, changes nothing, and the next batch is computed as ever."""
    case = Case(COUNTS[: crew.size], block_size=3)
    choice = {"positives": "random", "negatives": "semihard", **options}
    loss = margin_per_class(**choice, generator=torch.Generator().manual_seed(SEED)).double()
    loss.key = torch.tensor([crew.rank, 7])
    text = message(lambda: loss(**batch(case, crew.span(case.counts), crew.rank == culprit), gather=crew.group))
    other = f"every process must pass a valid batch: process {culprit} got ValueError: {own}"
    assert text.startswith(own if crew.rank == culprit else other), text
    assert loss.key.tolist() == [crew.rank, 7]
    assert loss.last is None
    compare(crew, margin_per_class, [(choice, case)])


def plain(case: Case, span: slice, *, drop: int = 0, width: int = 4) -> Options:
    rows = case.embeddings[span][drop:, :width].requires_grad_()
    return {"embeddings": rows, "labels": case.labels[span][drop:]}


def wrong_labels(case: Case, span: slice, wrong: bool) -> Options:
    return {**plain(case, span), "labels": case.labels[span] + (CLASSES if wrong else 0)}


def with_indices(case: Case, span: slice, wrong: bool) -> Options:
    return plain(case, span) | ({"indices": (torch.tensor([0]),) * 3} if wrong else {})


@check
def wrong_label_is_an_error_everywhere(crew: Crew) -> None:
    rejected(crew, 0, f"labels must lie in [0, {CLASSES}) to have a beta each: got {CLASSES} to", wrong_labels)


@check
def indices_are_an_error_everywhere(crew: Crew) -> None:
    rejected(
        crew,
        crew.size - 1,
        "indices must be left out with gather, as they count the rows of one process: got both;",
        with_indices,
    )


@check
def losses_that_cannot_be_computed_say_so_everywhere(crew: Crew) -> None:
    case = Case(COUNTS[: crew.size])
    batch = plain(case, crew.span(case.counts))
    proxies = trivet.ProxyNCALoss(CLASSES, 4).double()
    text = message(lambda: proxies(**batch, gather=crew.group))
    assert text.startswith("gather must be left out: ProxyNCALoss does not compare items with each other"), text
    needs_ids = trivet.MarginLoss(num_samples=30)
    text = message(lambda: needs_ids(**batch, gather=crew.group))
    assert text.startswith("ids must be given for one beta per sample"), text
    compare(crew, triplet, [(STRATEGIES[0], case)])


class Training(nn.Module):
    """A model with its loss, as DistributedDataParallel takes them."""

    def __init__(self, group: dist.ProcessGroup | None, block_size: int | None, micro: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        seed = SEED if group is None else SEED + dist.get_rank(group)
        self.loss = margin_per_class(block_size=block_size, generator=torch.Generator().manual_seed(seed))
        self.group, self.micro = group, micro
        self.double()

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = self.loss(embed_in_pieces(self.model, inputs, self.micro), labels, gather=self.group or False)
        return value


@check_of_two
def parallel_training_is_training_on_one_process(crew: Crew) -> None:
    for block_size, micro in ((None, None), (5, None), (None, 2)):  # of 5 rows: some processes have two blocks
        one, many = Training(None, block_size), Training(crew.group, block_size, micro)
        start = copy.deepcopy(one.state_dict())
        # A bucket for each parameter: their sums alternate with those of the loss.
        parallel = nn.parallel.DistributedDataParallel(many, process_group=crew.group, bucket_cap_mb=1e-6)
        optimizers = [torch.optim.SGD(module.parameters(), lr=0.5) for module in (one, many)]
        for step in range(4):
            case = Case([COUNTS[(rank + step) % 4] for rank in range(crew.size)], seed=step)
            span = crew.span(case.counts)
            expected = one(case.embeddings, case.labels)
            found = parallel(case.embeddings[span], case.labels[span])
            assert distance(found, expected) <= 1e-10, (step, found, expected)
            for value, optimizer in zip((expected, found), optimizers, strict=True):
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
        for (name, expected), found in zip(one.named_parameters(), many.parameters(), strict=True):
            assert distance(found, expected) <= 1e-10, name
            assert distance(start[name], expected) > 1e-2, name


@check
def gradients_are_those_of_one_process_and_of_the_wrapper_of_pytorch_metric_learning(crew: Crew) -> None:
    """Under DistributedDataParallel, around the model alone, and by the mean of the gradients without it."""
    theirs = DistributedLossWrapper(losses.TripletMarginLoss(margin=0.2, reducer=reducers.MeanReducer()))
    ours = trivet.TripletLoss(margin=0.2, distance="euclidean", normalize=True, positives="all", negatives="all")
    case = Case([6] * crew.size)
    span = crew.span(case.counts)

    def gradients(loss: Callable[[Tensor, Tensor], Tensor], rows: slice, wrapped: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(4, 3).double()
        module = nn.parallel.DistributedDataParallel(model) if wrapped else model
        loss(module(case.embeddings[rows]), case.labels[rows]).backward()
        return [parameter.grad for parameter in model.parameters()]

    rows = case.embeddings[span], case.labels[span]
    assert math.isclose(theirs(*rows), crew.size * ours(*rows, gather=True), rel_tol=1e-12)
    expected = gradients(ours, slice(None), wrapped=False)
    gathered = partial(ours, gather=True)
    means = [sum_over_processes(grad) / crew.size for grad in gradients(gathered, span, wrapped=False)]
    for found in (gradients(gathered, span, wrapped=True), means, gradients(theirs, span, wrapped=True)):
        assert max(map(distance, found, expected)) <= 1e-12
    assert min(grad.abs().max() for grad in expected) > 1e-3

    hard, scales = miners.BatchHardMiner(), trivet.MultiSimilarityLoss(positives="hard", negatives="hard")
    ours = trivet.TripletLoss(margin=0.2, distance="euclidean", normalize=True, positives="hard", negatives="hard")
    similarity = DistributedLossWrapper(losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5))
    for wrapped, loss, times in ((theirs, ours, crew.size), (similarity, scales, 1)):  # the miner is not wrapped
        of_rows = [times * grad for grad in gradients(loss, span, wrapped=True)]
        mined = gradients(lambda x, y, wrapped=wrapped: wrapped(x, y, hard(x, y)), span, wrapped=True)
        assert max(map(distance, mined, of_rows)) <= 1e-12
    both = gradients(lambda x, y: theirs(x, y, DistributedMinerWrapper(hard)(x, y)), span, wrapped=True)
    assert max(map(distance, both, gradients(partial(ours, gather=True), span, wrapped=True))) <= 1e-12
    efficient = DistributedLossWrapper(theirs.loss, efficient=True)
    assert max(map(distance, gradients(efficient, span, wrapped=True), expected)) > 1e-3


@check_of_two
def example_trains(crew: Crew) -> None:
    values = runpy.run_path(str(EXAMPLE))["train"](steps=8)
    everyone = gather_rows(torch.tensor([values]), [1] * crew.size, crew.group)
    assert everyone[0].equal(everyone[1])
    assert sum(values[4:]) < sum(values[:4])


@dataclass
class Memories:
    """A memory of one process and one that the processes share, of the same size."""

    crew: Crew
    size: int = 17
    dtype: torch.dtype = torch.float32
    relation: trivet.Relation | None = None
    one: CrossBatchMemory = field(init=False)
    many: CrossBatchMemory = field(init=False)

    def __post_init__(self) -> None:
        self.one, self.many = (CrossBatchMemory(size=self.size, embedding_dim=4).to(self.dtype) for _ in range(2))

    def batch(self, step: int, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor, Tensor], slice]:
        """The batch of a step, and which rows of it are those of this process; items come again and again."""
        case = Case([COUNTS[(rank + step) % 4] for rank in range(self.crew.size)], dtype, seed=step)
        items = torch.randint(30, (case.size,), generator=torch.Generator().manual_seed(step))
        labels = items % CLASSES if self.relation is None else self.relation[items % CLASSES]
        return (case.embeddings, labels, items), self.crew.span(case.counts)

    def same(self) -> bool:
        """Whether both hold the same, bit for bit; then all processes do, as the first is the same on each."""
        states = zip(self.one.state_dict().items(), self.many.state_dict().values(), strict=True)
        return all(torch.equal(expected, found) for (_, expected), found in states)


@check
def memory_is_that_of_one_process(crew: Crew) -> None:
    for options, block_size, dtype, relation in (
        ({"positives": "hard", "negatives": "hard"}, None, torch.float64, None),
        ({"positives": "all", "negatives": "all"}, 3, torch.float32, None),
        ({"positives": "random", "negatives": "distance-weighted"}, 3, torch.float64, None),
        ({"positives": "hard", "negatives": "semihard"}, 3, torch.float64, TAGS),
    )[:: crew.size - 1]:
        memories = Memories(crew, relation=relation)
        make = margin_per_class if relation is None else margin
        one, other = (
            make(**options, block_size=block_size, generator=torch.Generator().manual_seed(seed)).to(dtype)
            for seed in (SEED, SEED + crew.rank)
        )
        for step in range(5):
            batch, span = memories.batch(step, dtype)
            whole, own = batch[0].clone().requires_grad_(), batch[0][span].requires_grad_()
            expected = memories.one(one, whole, *batch[1:])
            found = memories.many(other, own, *(column[span] for column in batch[1:]), gather=crew.group)
            expected = outcome(one, expected, whole, None, None)
            wrong = differences(outcome(other, found, own, None, crew.group), expected, span, dtype)
            assert not wrong, (options, step, wrong)
            assert memories.same(), (options, step)
        assert len(memories.many) == memories.size


@check
def memory_rejects_a_batch_on_every_process(crew: Crew) -> None:
    memories = Memories(crew)
    batch, span = memories.batch(0, torch.float64)
    memories.one.add(*batch)
    memories.many.add(*(column[span] for column in batch), gather=crew.group)
    batch, span = memories.batch(1, torch.float64)
    good = [column[span] for column in batch]
    broken = {
        "embeddings must be finite: rows 0": [good[0] * torch.nan, *good[1:]],
        "embeddings as torch.float32 must be finite: rows 0": [good[0] * 1e30, *good[1:]],
        "ids must identify the item of each row: got None": [*good[:2], None],
    }
    loss = triplet(positives="easy", negatives="hard")
    for said, bad in broken.items():
        other = f"every process must pass a valid batch: process 1 got ValueError: {said}"
        own = bad if crew.rank == 1 else good
        for call in (
            lambda own=own: memories.many(loss, *own, gather=crew.group),
            lambda own=own: memories.many.add(*own, gather=crew.group),
        ):
            text = message(call)
            assert text.startswith(said if crew.rank == 1 else other), text
            assert memories.same(), said
    # What only the loss knows to be wrong.
    by_class = trivet.MarginLoss(num_classes=CLASSES)
    text = message(lambda: memories.many(by_class, good[0], good[1] + CLASSES * crew.rank, good[2], gather=crew.group))
    assert "labels must lie in" in text, text
    assert memories.same()
    expected = memories.one(loss, *batch)
    assert distance(memories.many(loss, *good, gather=crew.group), expected) <= 1e-12
    assert memories.same()


@check
def memories_of_different_length_are_an_error_everywhere(crew: Crew) -> None:
    memories = Memories(crew)
    batch, span = memories.batch(0, torch.float32)
    own = [column[span] for column in batch]
    if crew.rank == 1:
        memories.many.add(*(column[:3] for column in batch))
    text = message(lambda: memories.many(triplet(), *own, gather=crew.group))
    assert "pass the same references: got 0 references from process 0 and 3 references from process 1; " in text, text
    assert len(memories.many) == (3 if crew.rank == 1 else 0)
