"""An experiment of a paper as data: what it claims, what is run, what is measured, what is drawn of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trivet.evaluation.intervals import Interval, across_folds
from trivet.papers.figure import Figure

Size = Literal["here", "paper"]
Factor = str | float
Values = Mapping[str, Any]
Verdict = Literal["holds", "does not hold", "cannot tell", "not comparable", "not run"]
LEAST = 3  # seeds, below which no claim is judged
DIGITS = 9  # after the point, of the number of a seed: what lies beyond is rounding


@dataclass(frozen=True)
class Arm:
    """One setting of an experiment, run with every seed.

    Attributes:
        factors: what tells it from the other arms: {"loss": "margin", "positives": "easy"}.
        settings: those of a run, in sections, without the seed. "{models}" in a text is the folder of weights,
            the text "{seed}" the seed of the run.
        measures: names of `trivet.papers.measured.MEASURES`.
        at: the steps, or epochs where the settings have these, after which it is measured; 0: before training, and an
            arm that is measured there only is not trained. Default: after the last.
        last: more measures, after the last of these steps only.
    """

    factors: Mapping[str, Factor]
    settings: Values
    measures: tuple[str, ...] = ("recall",)
    at: tuple[int, ...] = ()
    last: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps or epochs after which it is measured."""
        training = self.settings["training"]
        return tuple(sorted(set(self.at))) or (training.get("epochs", training.get("steps")),)


def arms(
    base: Values,
    *,
    measures: Sequence[str] = ("recall",),
    at: Sequence[int] = (),
    last: Sequence[str] = (),
    **factors: Mapping[Any, Values],
) -> tuple[Arm, ...]:
    """An arm for each combination of the values of all factors.

    Args:
        base: settings that all share.
        factors: name -> value -> what it changes in the settings; a section with a "name" takes the place of the one
            that is there, others are joined with it.

    Example:
        >>> base = {"loss": {"name": "triplet"}, "training": {"steps": 5}}
        >>> [arm.settings["loss"] for arm in arms(base, positives={"easy": {"loss": {"positives": "easy"}}})]
        [{'name': 'triplet', 'positives': 'easy'}]
    """
    names = list(factors)
    found = []
    for values in itertools.product(*factors.values()):
        settings: dict[str, Any] = {
            key: dict(part) if isinstance(part, Mapping) else part for key, part in base.items()
        }
        for name, value in zip(names, values, strict=True):
            settings = merged(settings, factors[name][value])
        found.append(Arm(dict(zip(names, values, strict=True)), settings, tuple(measures), tuple(at), tuple(last)))
    return tuple(found)


def merged(settings: Values, changes: Values) -> dict[str, Any]:
    """Settings with changes, section by section; see `arms`."""
    whole = dict(settings)
    for key, part in changes.items():
        known = whole.get(key)
        joined = isinstance(part, Mapping) and isinstance(known, Mapping) and "name" not in part
        whole[key] = merged(known, part) if joined else part  # type: ignore[arg-type]  # both are sections
    return whole


class Results:
    """What the runs of a recipe have measured.

    Args:
        rows: arm -> seed -> step -> measure -> value; what has not been run is not there.
    """

    def __init__(self, rows: Mapping[int, Mapping[int, Mapping[int, Mapping[str, Any]]]], arms: Sequence[Arm]) -> None:
        self._rows, self.arms = rows, tuple(arms)
        self._index = {frozenset(arm.factors.items()): number for number, arm in enumerate(arms)}
        assert len(self._index) == len(arms), "two arms have the same factors"
        self.seeds = sorted({seed for seeds in rows.values() for seed in seeds})

    def arm(self, **factors: Factor) -> Arm:
        """The arm with these factors, all that it has."""
        return self.arms[self._index[frozenset(factors.items())]]

    def get(self, seed: int, measure: str, at: int | None = None, **factors: Factor) -> Any:
        """What one run has measured, a number or a list; None if it has not been run, or ended without it.

        Args:
            at: the step or epoch; None for the last one.
            factors: all those of the arm.
        """
        number = self._index[frozenset(factors.items())]
        steps = self._rows.get(number, {}).get(seed, {})
        return steps.get(self.arms[number].steps[-1] if at is None else at, {}).get(measure)

    def numbers(self, measure: str, at: int | None = None, **factors: Factor) -> list[float]:
        """The same of all seeds that have it."""
        found = (self.get(seed, measure, at, **factors) for seed in self.seeds)
        return [value for value in found if value is not None]

    def of(self, seed: int) -> Callable[..., float]:
        """`get` for one seed, where NaN stands for what is not there."""

        def value(measure: str, at: int | None = None, **factors: Factor) -> float:
            got = self.get(seed, measure, at, **factors)
            return math.nan if got is None else got

        return value


@dataclass(frozen=True)
class Claim:
    """A statement of a paper that runs can hold or break.

    Attributes:
        sentence: what the paper says, in our words.
        value: of the runs of one seed, a number that is above 0 if the claim is true of them; it is called with
            `of(measure, at=None, **factors)`, which gives what they have measured.
        says: what that number is, such as "easy less usual positives, recall@1".
        unit: "points" of a share, which are shown times 100, or "" for a plain number.
        not_comparable: why the runs cannot speak for or against it; empty where they can.
    """

    sentence: str
    value: Callable[[Callable[..., float]], float] = field(repr=False)
    says: str
    unit: Literal["points", ""] = "points"
    not_comparable: str = ""


@dataclass(frozen=True)
class Judged:
    """A claim beside what was found: the mean over seeds and its 95 % interval by Student's t."""

    claim: Claim
    verdict: Verdict
    values: tuple[float, ...]
    mean: float | None
    interval: Interval | None
    why: str = ""


def judge(claim: Claim, results: Results, seeds: int | None = None) -> Judged:
    """The verdict on a claim: whether the interval over seeds lies above 0, below it, or holds it.

    Args:
        seeds: how many there are to be; a verdict on fewer says so.
    """
    found = [_value(claim, results.of(seed)) for seed in results.seeds]
    values = tuple(round(value, DIGITS) for value, _ in found if math.isfinite(value))
    undefined = sum(whole and not math.isfinite(value) for value, whole in found)
    mean, interval = across_folds(values) if len(values) > 1 else (values[0] if values else None, None)
    if claim.not_comparable:
        return Judged(claim, "not comparable", values, mean, interval, claim.not_comparable)
    if undefined:
        why = f"its number is undefined for {undefined} of {len(found)} seeds"
        return Judged(claim, "cannot tell", values, mean, interval, why)
    if not values:
        return Judged(claim, "not run", values, None, None)
    if len(values) < LEAST or interval is None:
        why = f"{len(values)} of the {LEAST} seeds that it needs at least"
        return Judged(claim, "cannot tell", values, mean, interval, why)
    part = "" if seeds is None or len(values) >= seeds else f"on {len(values)} of {seeds} seeds"
    if interval.low > 0:
        return Judged(claim, "holds", values, mean, interval, part)
    if interval.high < 0:
        return Judged(claim, "does not hold", values, mean, interval, part)
    return Judged(claim, "cannot tell", values, mean, interval, "; ".join(filter(None, ("it includes 0", part))))


def _value(claim: Claim, of: Callable[..., float]) -> tuple[float, bool]:
    """The number of one seed, and whether all of its runs are there.

    It is NaN if one is not, as the least of some is not the least of all, or where the claim defines none.
    """
    read: list[float] = []

    def noted(*names: Any, **factors: Factor) -> float:
        read.append(of(*names, **factors))
        return read[-1]

    value = float(claim.value(noted))
    whole = all(map(math.isfinite, read)) and bool(read)
    return (value if whole else math.nan), whole


@dataclass(frozen=True)
class Column:
    """A column of a table: a measure at a step, times 100 if it is a share."""

    head: str
    measure: str
    at: int | None = None
    share: bool = True


@dataclass(frozen=True)
class Table:
    """Our numbers in the layout of the paper's table, the printed ones beside them.

    Attributes:
        rows: the factors of each row, and its head.
        printed: head of the row -> head of the column -> what the paper prints, as text.
    """

    title: str
    rows: tuple[tuple[str, Mapping[str, Factor]], ...]
    columns: tuple[Column, ...]
    printed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawing:
    """A figure of ours, made of the results, in the layout of the paper's."""

    draw: Callable[[Results], Figure] = field(repr=False)


@dataclass(frozen=True)
class Recipe:
    """What is run for an experiment, in one size.

    Attributes:
        data: in words: sets and splits.
        setting: network, batch, optimiser, length, in words.
        arms: what is run.
        seeds: how many; the seeds are 0, 1, ...
        claims: of the paper, on these runs.
        shows: the paper's tables and figures, of these runs.
        chosen: what the paper does not give and was chosen, in sentences.
        fair: of a stand-in, why it is a fair one, and what was looked at before it was fixed, in sentences.
    """

    data: str
    setting: str
    arms: tuple[Arm, ...]
    seeds: int
    claims: tuple[Claim, ...]
    shows: tuple[Table | Drawing, ...]
    chosen: str = ""
    fair: str = ""


@dataclass(frozen=True)
class Experiment:
    """An experiment of a paper: a table or figure, or a lettered part of its study.

    Attributes:
        key: "levi2021-table3".
        title: what it is about.
        ran: what the paper ran and found, in sentences, with its printed result.
        here: a stand-in that two cores finish.
        paper: the published protocol.
    """

    key: str
    title: str
    ran: str
    here: Recipe
    paper: Recipe

    def recipe(self, size: Size) -> Recipe:
        return self.here if size == "here" else self.paper
