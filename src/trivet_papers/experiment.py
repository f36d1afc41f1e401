"""An experiment of a paper as data: what it claims, what is run, what is measured, what is drawn of it."""

from __future__ import annotations

import itertools
import math
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from pydantic import Field

from trivet.metrics.intervals import across_folds
from trivet.reports.shared_records import Ends
from trivet.runtime.record import Record
from trivet.runtime.text import counted
from trivet_papers.figure import Figure

Size = Literal["here", "paper"]
Factor = str | float
Cell = Mapping[str, Factor]  # the factors of an arm
Settings = Mapping[str, Any]  # of a run, in sections
BEST: Final = "best"
Step = int | Literal["best"] | None  # of a measured value: its step or epoch, or where it is largest; None: the last
Verdict = Literal["holds", "does not hold", "cannot tell", "not comparable", "not run"]
LEAST = 3  # seeds, below which no claim is judged
LEVEL = 0.95  # of an interval
LEAST_EFFECT = 0.002  # of a share: .2 points, below which an effect is none to speak of
LEAST_GAIN = 0.01  # of a share, by training: where it helps less, how it is made decides little
DIGITS = 9  # after the point, of the number of a seed: what lies beyond is rounding


@dataclass(frozen=True)
class Arm:
    """One setting of an experiment, run with every seed.

    Attributes:
        factors: what tells it from the other arms: {"loss": "margin", "positives": "easy"}.
        settings: those of a run, in sections, without the seed. "{models}" in a text is the folder of weights,
            the text "{seed}" the seed of the run.
        measures: names of `trivet_papers.measures.MEASURES`.
        at: the steps, or epochs where the settings have these, after which it is measured; 0: before training, and an
            arm that is measured there only is not trained. Default: after the last.
        last: more measures, after the last of these steps only.
    """

    factors: Cell
    settings: Settings
    measures: tuple[str, ...] = ("recall",)
    at: tuple[int, ...] = ()
    last: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps or epochs after which it is measured."""
        training = self.settings["training"]
        return tuple(sorted(set(self.at))) or (training.get("epochs", training.get("steps")),)


def arms(
    base: Settings,
    *,
    measures: Sequence[str] = ("recall",),
    at: Sequence[int] = (),
    last: Sequence[str] = (),
    **factors: Mapping[Any, Settings],
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
    combinations = []
    for values in itertools.product(*factors.values()):
        settings = base
        for name, value in zip(names, values, strict=True):
            settings = merged(settings, factors[name][value])
        combinations.append(
            Arm(dict(zip(names, values, strict=True)), settings, tuple(measures), tuple(at), tuple(last))
        )
    return tuple(combinations)


def merged(settings: Settings, changes: Settings) -> Settings:
    """Settings with changes, section by section; see `arms`."""
    result = dict(settings)
    for key, section in changes.items():
        known = result.get(key)
        joined = isinstance(section, Mapping) and isinstance(known, Mapping) and "name" not in section
        result[key] = merged(known, section) if joined else section  # type: ignore[arg-type]  # both are sections
    return result


class Results:
    """The measured values of the runs of a recipe.

    Args:
        rows: arm -> seed -> step -> measure -> value; what has not been run is not there.
        failed: arm and seed of the runs that ended before their last step or without numbers.
    """

    def __init__(
        self,
        rows: Mapping[int, Mapping[int, Mapping[int, Mapping[str, Any]]]],
        arms: Sequence[Arm],
        failed: Collection[tuple[int, int]] = (),
    ) -> None:
        self._rows, self.arms, self._failed = rows, tuple(arms), frozenset(failed)
        self._index = {frozenset(arm.factors.items()): number for number, arm in enumerate(arms)}
        assert len(self._index) == len(arms), "two arms have the same factors"
        self.seeds = sorted({seed for seeds in rows.values() for seed in seeds})

    def arm(self, **factors: Factor) -> Arm:
        """The arm with these factors, all that it has."""
        return self.arms[self._index[frozenset(factors.items())]]

    def get(self, seed: int, measure: str, at: Step = None, **factors: Factor) -> Any:
        """A value that a run has measured, a number or a list; None if it has not been run, or ended without it.

        Args:
            at: the step or epoch; None for the last one, `BEST` for that where the number is largest.
            factors: all those of the arm.
        """
        number = self._index[frozenset(factors.items())]
        steps = self._rows.get(number, {}).get(seed, {})
        if at == BEST:
            values = (row.get(measure) for row in steps.values())
            return max((value for value in values if value is not None), default=None)
        return steps.get(self.arms[number].steps[-1] if at is None else at, {}).get(measure)

    def numbers(self, measure: str, at: Step = None, **factors: Factor) -> list[float]:
        """The same of all seeds that have it."""
        values = (self.get(seed, measure, at, **factors) for seed in self.seeds)
        return [value for value in values if value is not None]

    def until(self, length: int) -> Results:
        """The same of runs that had ended after so many steps, at which they are measured."""
        arms = [replace(arm, at=tuple(step for step in arm.steps if step <= length)) for arm in self.arms]
        return Results(self._rows, arms, self._failed)

    def ended_early(self, seed: int, **factors: Factor) -> bool:
        """True if the run of this seed ended before its last step, or without numbers."""
        return (self._index[frozenset(factors.items())], seed) in self._failed

    def of(self, seed: int) -> Callable[..., float]:
        """`get` for one seed, where NaN stands for what is not there."""

        def value(measure: str, at: int | None = None, **factors: Factor) -> float:
            got = self.get(seed, measure, at, **factors)
            return math.nan if got is None else got

        return value


SeedValue = Callable[..., float]  # what the runs of one seed have measured: of(measure, at=None, **factors)


@dataclass(frozen=True)
class Lengths:
    """Steps after each of which a claim is judged, and those that the paper trains."""

    steps: tuple[int, ...]
    published: int


@dataclass(frozen=True)
class Claim:
    """A statement of a paper that runs can hold or break.

    Attributes:
        sentence: what the paper says, in our words.
        value: of the runs of one seed, a number that is above 0 if the claim is true of them; or several with their
            names, which all have to be.
        says: what that number is, such as "easy less usual positives, recall@1".
        unit: "points" of a share, which are shown times 100, or "" for a plain number.
        not_comparable: why the runs cannot speak for or against it; empty where they can.
        requires: of the runs of one seed, numbers that are above 0 if these runs put the claim to a test at all: nobody
            can tell how a network recovers that has not fallen.
        untested: why they do not, where one of these is not.
        ours: whether it is no statement of the paper, but an addition.
        lengths: where what comes out depends on how long one trains. Default: it is judged after the last step.
    """

    sentence: str
    value: Callable[[SeedValue], float | Mapping[str, float]] = field(repr=False)
    says: str
    unit: Literal["points", ""] = "points"
    not_comparable: str = ""
    requires: Callable[[SeedValue], float | Mapping[str, float]] | None = field(default=None, repr=False)
    untested: str = ""
    ours: bool = False
    lengths: Lengths | None = None


def where_training_gains(claim: Claim, gains: Callable[[SeedValue], Mapping[str, float]]) -> Claim:
    """A claim that runs test where training gains a point at least.

    Args:
        gains: over the network before training, of the runs of one seed.
    """

    def requires(of: SeedValue) -> dict[str, float]:
        return {name: gain - LEAST_GAIN for name, gain in gains(of).items()}

    return replace(claim, requires=requires, untested="training gains less than a point")


class ClaimNumber(Record):
    """One of the numbers of a claim: the mean over the seeds, its 95 % interval by Student's t, that of each seed."""

    name: str
    mean: float
    interval: Ends | None  # of two seeds at least
    values: list[float]

    @property
    def ends(self) -> Ends:
        assert self.interval is not None, "an interval needs two seeds"
        return self.interval

    @property
    def lowest(self) -> float:
        """The lower end of its interval; of seeds too few for a verdict, their mean."""
        return self.mean if len(self.values) < LEAST else self.ends[0]

    def below(self, count: int) -> bool:
        """True if it lies below 0 as one of so many, of which the lowest is sought (Bonferroni)."""
        return across_folds(self.values, level=1 - (1 - LEVEL) / count)[1].high < 0


class JudgedClaim(Record):
    """A claim beside what was found.

    Attributes:
        why: what is to be said of the verdict.
        outcomes: its numbers, the one that decides first; none where nothing was run.
        ours: whether it is an addition to the paper.
        same_as: the experiment of an earlier claim that rests on the same number, which is counted once.
    """

    sentence: str
    says: str
    unit: str
    verdict: Verdict
    why: str
    outcomes: list[ClaimNumber]
    ours: bool = False
    same_as: str = ""


def judge(claim: Claim, results: Results, seeds: int | None = None) -> JudgedClaim:
    """The verdict on a claim: whether the interval over seeds lies above 0, below it, or holds it.

    A claim of several numbers holds if the intervals of all lie above 0. That needs no correction for their count: all
    have to be wrong for a wrong "holds" (Berger, "Multiparameter hypothesis testing and acceptance sampling",
    Technometrics 1982). It does not hold if that of one lies below, at a level corrected for their count. An effect of
    less than .2 points does not make a claim hold, and runs that do not test it decide nothing. With lengths, it has a
    verdict if that is the same after each; its numbers are those after the last.

    Args:
        seeds: how many there are to be; a verdict on fewer says so.
    """
    if claim.lengths:
        once = replace(claim, lengths=None)
        after = {step: judge(once, results.until(step), seeds) for step in claim.lengths.steps}
        return _alike(after, claim.lengths.published)
    by_seed = [_value(claim.value, results, seed) for seed in results.seeds]
    outcomes = sorted(_outcomes(by_seed), key=lambda outcome: outcome.lowest)
    undefined, failed = (sum(getattr(value, what) for value in by_seed) for what in ("undefined", "failed"))

    def judged(verdict: Verdict, why: str = "") -> JudgedClaim:
        texts = {"sentence": claim.sentence, "says": claim.says, "unit": claim.unit}
        return JudgedClaim(**texts, verdict=verdict, why=why, outcomes=outcomes, ours=claim.ours)

    if claim.not_comparable:
        return judged("not comparable", claim.not_comparable)
    if claim.requires is not None and not failed:
        conditions = _outcomes([_value(claim.requires, results, seed) for seed in results.seeds])
        unmet = [each.name for each in conditions if len(each.values) >= LEAST and each.ends[0] <= 0]
        if unmet:
            names = ", ".join(filter(None, unmet))
            return judged("cannot tell", f"{claim.untested} ({names})" if names else claim.untested)
    if failed or undefined:
        message = "a run of {} ended without a result" if failed else "its number is undefined for {}"
        return judged("cannot tell", message.format(f"{failed or undefined} of {counted(len(by_seed), 'seed')}"))
    if not outcomes:
        return judged("not run")
    count = len(outcomes[0].values)
    if count < LEAST:
        return judged("cannot tell", f"{count} of the {LEAST} seeds that it needs at least")
    few = "" if seeds is None or count >= seeds else f"on {count} of {seeds} seeds"
    if outcomes[0].ends[0] > 0:
        if claim.unit == "points" and min(outcome.mean for outcome in outcomes) < LEAST_EFFECT:
            return judged("cannot tell", f"it is less than {100 * LEAST_EFFECT:g} points")
        return judged("holds", few)
    if any(outcome.below(len(outcomes)) for outcome in outcomes):
        outcomes.sort(key=lambda outcome: outcome.ends[1])
        return judged("does not hold", few)
    chance = f"it lies below 0, which one of {len(outcomes)} may by chance"
    why = "it includes 0" if outcomes[0].ends[1] >= 0 else chance
    return judged("cannot tell", "; ".join(filter(None, (why, few))))


def _alike(after: Mapping[int, JudgedClaim], published: int) -> JudgedClaim:
    """The verdict after the last of these steps if it is that after each; else nobody can tell."""
    *_, judged = after.values()
    if judged.verdict == "not run":
        return judged
    whys = [judged.why, f"alike after {', '.join(f'{step:,}' for step in after)} steps"]
    if len({each.verdict for each in after.values()}) > 1:
        each = ", ".join(f"{each.verdict} after {step:,}" for step, each in after.items())
        judged.verdict, whys = "cannot tell", [f"it depends on how long one trains: {each} steps"]
    judged.why = "; ".join(filter(None, (*whys, f"the paper trains {published:,}")))
    return judged


def mark_shared(claims: Sequence[tuple[str, JudgedClaim]]) -> None:
    """Set `same_as` of each claim whose deciding number, of all seeds, is that of another.

    Args:
        claims: with the key of the experiment of each. A claim of one number comes before those of which it is one.
    """
    known: dict[tuple[float, ...], str] = {}
    for key, claim in sorted(claims, key=lambda each: len(each[1].outcomes)):
        values = tuple(claim.outcomes[0].values) if claim.outcomes else ()
        if len(values) >= LEAST:
            claim.same_as = known.get(values, "")
            known.setdefault(values, key)


def _outcomes(by_seed: Sequence[_Seed]) -> list[ClaimNumber]:
    """The numbers of the seeds that have them."""
    rows = [value.numbers for value in by_seed if value.numbers]
    return [_outcome(name, [row[name] for row in rows]) for name in (rows[0] if rows else ())]


def _outcome(name: str, values: Sequence[float]) -> ClaimNumber:
    rounded = [round(value, DIGITS) for value in values]
    if len(rounded) == 1:
        return ClaimNumber(name=name, mean=rounded[0], interval=None, values=rounded)
    mean, ends = across_folds(rounded, level=LEVEL)
    return ClaimNumber(name=name, mean=mean, interval=[ends.low, ends.high], values=rounded)


@dataclass(frozen=True)
class _Seed:
    """The numbers of a claim of one seed: none if a run is not there, as the least of some is not the least of all."""

    numbers: Mapping[str, float]
    undefined: bool = False  # the runs are there, and the claim defines no number of them
    failed: bool = False  # a run is there that ended without what was asked


def _value(of_seed: Callable[[SeedValue], float | Mapping[str, float]], results: Results, seed: int) -> _Seed:
    of, failed = results.of(seed), False
    read: list[float] = []

    def noted(measure: str, at: int | None = None, **factors: Factor) -> float:
        nonlocal failed
        read.append(of(measure, at, **factors))
        failed |= math.isnan(read[-1]) and results.ended_early(seed, **factors)
        return read[-1]

    value = of_seed(noted)
    numbers = dict(value) if isinstance(value, Mapping) else {"": float(value)}
    if failed or not read or not all(map(math.isfinite, read)):
        return _Seed({}, failed=failed)
    if not all(map(math.isfinite, numbers.values())):
        return _Seed({}, undefined=True)
    return _Seed(numbers)


@dataclass(frozen=True)
class ResultColumn:
    """A column of a table: a measure at a step, times 100 if it is a share."""

    head: str
    measure: str
    at: Step = None
    share: bool = True


@dataclass(frozen=True)
class ResultTable:
    """Our numbers in the layout of the paper's table, the printed ones beside them.

    Attributes:
        rows: the factors of each row, and its head.
        printed: head of the row -> head of the column -> what the paper prints, as text.
    """

    title: str
    rows: tuple[tuple[str, Cell], ...]
    columns: tuple[ResultColumn, ...]
    printed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Drawing:
    """A figure of ours, made of the results, in the layout of the paper's."""

    draw: Callable[[Results], Figure] = field(repr=False)


class DrawnRecord(Record):
    """A figure: what it shows, how to read it, and for the page its picture."""

    name: str
    title: str
    source: str
    reading: str
    picture: str = Field("", exclude=True)  # a data URI

    @classmethod
    def of(cls, figure: Figure, picture: bytes) -> DrawnRecord:
        """The record of a figure and its picture as png."""
        texts = {"name": figure.name, "title": figure.title, "source": figure.source, "reading": figure.reading}
        return cls(**texts, picture=f"data:image/png;base64,{b64encode(picture).decode()}")


@dataclass(frozen=True)
class Recipe:
    """The arms, claims and figures of an experiment, in one size.

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
    shows: tuple[ResultTable | Drawing, ...]
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
