"""Result of a training run in numbers and sentences: beside every reference, by chance, and by the chosen step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trivet.collapse.significance import OF_CLASSES, RAW, UNTRAINED, ZERO_SHOT
from trivet.reports.diagnosis_record import RankingComparison, RecallComparison
from trivet.reports.items import is_number
from trivet.reports.measures import SAMPLED, named
from trivet.reports.page import number, percent, points
from trivet.reports.run_record import Choice, ChosenCompared, RunRecord, SelectionCheck
from trivet.reports.shared_records import Levels
from trivet.reports.verdict_view import RESULTS
from trivet.runtime.text import BELOW, counted, typed

RECALL = "recall@1"
COLLAPSES = ("network-collapse", "class-collapse")
_BEGUN_AS = (UNTRAINED, ZERO_SHOT)
_HELPED, _NO_DIFFERENCE = "Training helped", "Training made no clear difference"
_WORSE, _PERHAPS_WORSE = "Training made it worse", "Training may have made it worse"
_RAW_BETTER, _RAW_OPEN = "The raw inputs do better", "Training helped, but the raw inputs may do better"
_OF_TRAINING = (_HELPED, _NO_DIFFERENCE, _WORSE, _PERHAPS_WORSE, _RAW_BETTER, _RAW_OPEN)  # these hold by a measure
Compared = TypeVar("Compared", RecallComparison, ChosenCompared)


@dataclass(frozen=True)
class Helped:
    """Effect of training: its tone ("bad", "warn" or "good"), and words with their numbers, by a measure."""

    tone: str
    words: str
    numbers: str
    measure: str = RECALL


@dataclass(frozen=True)
class ComparedLevel:
    """Recall@1 at a level, beside every reference and chance.

    Attributes:
        share: of the trained network; None where it was not measured.
        helped: by recall@1; None where nothing is known.
        chosen: the same by the measure that a step was chosen by, where that is another.
        ends: its intervals, as text.
        bars: (name, share) of the trained network and of what it is compared with.
        names, prefixes: the networks, and (length, helped, the share of each) of the first numbers of each embedding.
    """

    level: str
    role: str
    items: int | None
    classes: int | None
    share: float | None
    helped: Helped | None
    chosen: Helped | None
    ends: list[str]
    bars: list[tuple[str, float]]
    names: list[str]
    prefixes: list[tuple[int, Helped | None, list[float | None]]]
    sentence: str


def split_result(split: str, record: RunRecord) -> list[ComparedLevel]:
    """The main result of a split: recall@1 at the trained and the finest level."""
    by_name = {row.name: row.levels for row in record.evaluation[split]}
    trained = by_name.pop("trained", {})
    if not trained:
        return []
    configured = record.settings.get("data", {}).get("level")
    main = next((level for level in (configured, record.level) if level in trained), next(iter(trained)))
    finest = list(trained)[-1]
    diagnosed = record.diagnosis.get(split)
    by_chance = diagnosed is not None and any(item.kind == "no-better-than-chance" for item in diagnosed.verdicts)
    choice = record.choosing
    results = []
    for level in dict.fromkeys([main, finest]):
        shares = {name: share_of(levels, level) for name, levels in by_name.items()}
        references = {name: share for name, share in shares.items() if share is not None}
        share, chance = share_of(trained, level), share_of(trained, level, "chance_recall@1")
        compared = record.comparisons.get(split, {}).get(level, [])
        worthless = by_chance and diagnosed is not None and diagnosed.level == level
        chosen = []
        if not worthless and choice is not None and (choice.level or record.level) == level:
            chosen = record.chosen_comparisons.get(split, {}).get(level, [])
        names = ["trained", *references]
        prefixes = []
        for cut in record.prefixes.get(split, []):
            levels_of = {row.name: row.levels for row in cut.evaluated}
            recalls = [share_of(levels_of.get(name, {}), level) for name in names]
            prefixes.append((cut.prefix, _helped(recalls[0], chance, cut.comparisons.get(level, [])), recalls))
        bars = [("trained", share), *references.items(), ("chance", chance)]
        intervals = record.intervals.get(split, {}).get(level, {}).get(RECALL, {})
        roles = (("level trained on", main), ("finest level", finest))
        results.append(
            ComparedLevel(
                level=level,
                role=", ".join(role for role, of in roles if of == level),
                items=_count(trained[level].get("items")),
                classes=_count(trained[level].get("classes")),
                share=share,
                helped=_helped(share, chance, compared, by_chance=worthless),
                chosen=_judged(chosen, named(chosen[0].measure)) if chosen else None,
                ends=[
                    f"{percent(ends[0])} to {percent(ends[1])} for {SAMPLED[over]}"
                    for over, ends in intervals.items()
                    if ends
                ],
                bars=[(name, value) for name, value in bars if value is not None],
                names=names,
                prefixes=prefixes,
                sentence=_sentence(level, share, references, chance, compared),
            )
        )
    return results


def result_lines(record: RunRecord, *, run: str | None = None) -> list[tuple[str, str]]:
    """Sentences on whether training helped, with their tone ("bad", "warn", "good"), the worst first.

    Where a step was chosen by another measure than recall@1, what is said by that one comes before.

    Args:
        run: as in `choice_line`.
    """
    entries: dict[tuple[str, str], list[str]] = {}
    by_choice: dict[tuple[str, str], list[str]] = {}
    for split in record.evaluation:
        for result in split_result(split, record):
            where = f"{split} by {result.level}"
            if chosen := result.chosen:
                by_choice.setdefault((chosen.tone, f"{chosen.words} by {chosen.measure}"), []).append(
                    where + chosen.numbers
                )
            by_outcome: dict[tuple[str, str], dict[int | None, str]] = {}
            for prefix, helped in ((None, result.helped), *(cut[:2] for cut in result.prefixes)):
                if helped is not None:
                    by_outcome.setdefault((helped.tone, helped.words), {})[prefix] = helped.numbers
            for key, numbers_of in by_outcome.items():
                entries.setdefault(key, []).append(_location(where, numbers_of))
    if by_choice:
        entries = {
            (tone, words + (f" by {RECALL}" if words in _OF_TRAINING else "")): v
            for (tone, words), v in entries.items()
        }
    lines = [
        ("bad", f"{verdict.kind.replace('-', ' ').capitalize()}: {split} ({verdict.rule}).")
        for split, diagnosed in record.diagnosis.items()
        for verdict in diagnosed.verdicts
        if verdict.kind in COLLAPSES
    ]
    for by_sentence, more in ((by_choice, []), (entries, _ranked_lower(record))):
        sentences = [
            *more,
            *((tone, f"{words}: {', '.join(splits)}.") for (tone, words), splits in by_sentence.items()),
        ]
        lines += sorted(sentences, key=lambda line: ("bad", "warn", "good").index(line[0]))
    if not fell_back(record):
        return lines
    if record.choosing and record.choosing.keep != "last":  # the model is as it began: there is none
        lines = [line for line in lines if not line[1].startswith(_NO_DIFFERENCE)]
    return [("warn", choice_line(record, run=run) or ""), *lines]


def _ranked_lower(record: RunRecord) -> list[tuple[str, str]]:
    """A sentence where MAP@R is lower than in a reference, and recall@1 is not."""
    lower_in = []
    if (choice := record.choosing) and choice.measure == "map@r":  # which says so itself
        return []
    for split in record.evaluation:
        diagnosed = record.diagnosis.get(split)
        if diagnosed is None or any(comparison.kind in RESULTS for comparison in diagnosed.verdicts):
            continue
        for level in dict.fromkeys(comparison.level for comparison in diagnosed.measures.rankings):
            lower = [
                comparison
                for comparison in diagnosed.measures.rankings
                if comparison.level == level and comparison.worse
            ]
            if lower:
                against = _against([(row, row.reference_map_at_r) for row in lower])
                lower_in.append(f"{split} by {level} (MAP@R {_percent(lower[0].map_at_r)}, against {against})")
    prefix = "Fewer of all items of a class are found: "
    return [("warn", f"{prefix}{', '.join(lower_in)}.")] if lower_in else []


def _location(where: str, numbers_of: Mapping[int | None, str]) -> str:
    """Text on where a result holds: whole embeddings, which the key None stands for, and prefixes; each with numbers.

    Those of a prefix of which the same holds as of the whole stand in the table below.
    """
    cuts = [prefix for prefix in numbers_of if prefix is not None]
    if None not in numbers_of:
        return f"{where} with {_list([f'the first {prefix} numbers{numbers_of[prefix]}' for prefix in cuts])}"
    return f"{where}{numbers_of[None]}" + (
        f", also with the first {_list(list(map(str, cuts)))} numbers" if cuts else ""
    )


def fell_back(record: RunRecord) -> bool:
    """True if training did not help on the items by which a step is chosen.

    No step is better than the start, which is the model; or none even had a higher measure, where the model is that of
    the last step all the same.
    """
    choice = record.choosing
    if choice is None or len(choice.checks) < 2 or choice.step != 0 or _snapshot(record) is not None:
        return False
    return choice.keep != "last" or _highest(choice) is choice.checks[0]


def choice_line(record: RunRecord, *, run: str | None = None) -> str | None:
    """Text on which model is measured, which step was the best, and why; None where there was nothing to choose by.

    Args:
        run: the run folder as a command is given it, by default its name.
    """
    choice = record.choosing
    if choice is None or not choice.checks:
        return None
    first, *later = choice.checks
    last, reached = choice.keep == "last", record.step
    snapshot = _snapshot(record)
    model = f"the model is {snapshot or (f'that of the last step, {number(reached)}' if last else _begun(record))}"
    if not later:
        return None if last else f"{_capital(model)}: training ended before the first look at a trained one."
    measure = named(choice.measure)
    start = None if first.value is None or first.gain is None else first.value - first.gain
    among = f", among {number(choice.known)} training items" if choice.known else ""
    where = f"on {_holdout(record, choice)} ({choice.split}, {choice.classes} classes{among})"
    before = f"against {_percent(start)} before"
    best = next(check for check in choice.checks if check.step == choice.step)
    if snapshot is not None:
        text = f"{_capital(model)}. The best {where} is that of step {number(best.step)}: "
        text += f"{measure} {_percent(best.value)}, {before} training."
    elif choice.step == 0:
        highest = _highest(choice)
        if highest is first:
            text = f"No step had a higher {measure} {where}; {model}."
        else:
            doubt = "fewer nearest neighbours were right" if (highest.low or 0) > 0 else "that may be chance"
            text = f"{measure} was {_percent(highest.value)} at step {number(highest.step)}, {before}, but {doubt}."
            text = f"{_capital(model)}; {where} {text}"
    elif not last:
        text = f"The model is that of step {number(best.step)}, the best {where}"
        text += f": {measure} {_percent(best.value)}, {before} training."
    elif best is later[-1]:
        text = f"{_capital(model)}, the best {where}: {measure} {_percent(best.value)}, {before} training."
    else:
        text = f"{_capital(model)}: {measure} {_percent(later[-1].value)} {where}. The best is that of step "
        text += f"{number(best.step)}: {_percent(best.value)}, {before} training; it lies in model-best/."
    if record.settings.get("data", {}).get("folds_of") == "items":
        text += " Queries are of classes that are trained on; how it does on new ones was not measured"
        text += f"{_measuring_new_classes(record, choice, Path(run or record.run or 'RUN'))}."
    if choice.known:
        text += f" In the table of {choice.split} its items are only among themselves."
    if choice.step == 0 and not last:
        text += " The row “trained” in the tables is this model."
    if choice.ended is not None:
        checks = counted(choice.patience or 0, "look")
        text += f" Training ended early, at step {number(choice.ended)}, as {checks} found no higher {measure}."
    return text


def _measuring_new_classes(record: RunRecord, choice: Choice, run: Path) -> str:
    """The command that trains again with classes held out in place of items; empty where they are too few."""
    data, batch = record.settings.get("data", {}), record.settings.get("batch", {})
    classes = choice.classes or 0
    folds = min(data.get("folds", 0), classes // 2)
    if folds < 2:
        return ""
    changes = ["data.folds_of=classes"] + ([] if folds == data["folds"] else [f"data.folds={folds}"])
    trained = classes - -(-classes // folds)
    if (batch.get("num_classes") or 0) > trained:
        changes.append(f"batch.num_classes={trained}")
    options = " ".join(f"--set {change}" for change in changes)
    return (
        f": trivet train {typed(run / 'config.toml')} {options} -o {typed(run.with_name(f'{run.name}-classes'))} does"
    )


def _snapshot(record: RunRecord) -> str | None:
    """The network that the guard made the result; None where that is the last, or the best step."""
    snapshot, choice = record.guard.snapshot, record.choosing
    if snapshot is None or choice is None or choice.keep != "last":
        return None
    return f"that of step {number(snapshot)}, the best that the guard's probe saw"


def decides(choice: Choice) -> bool:
    """True if the result of the run depends on the choice."""
    return choice.keep != "last" or choice.ended is not None


def _highest(choice: Choice) -> SelectionCheck:
    return max(choice.checks, key=lambda check: check.value or 0.0)


def _holdout(record: RunRecord, choice: Choice) -> str:
    """The items a step is chosen by: of classes that are not trained on, or only items of those that are."""
    counts = record.data.evaluation.get(choice.split)
    trained = counts.trained_classes.get(choice.level or record.level) if counts else 0
    return "items held out" if trained else "classes held out"


def _capital(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"


def _begun(record: RunRecord) -> str:
    """A name for the network of a run before its first step."""
    settings, parameters = record.settings, record.model.parameters
    data, model = settings.get("data", {}), settings.get("model", {})
    if model.get("name") != "residual" or data.get("name") not in ("vectors", "texts"):
        return "the untrained network"
    width = model.get("embedding_dim", 1)
    return "the raw vectors" if parameters is None or parameters <= width**2 else "a projection of the raw vectors"


def cause_lines(record: RunRecord) -> list[str]:
    """The cause of a bad result and what to change, as the diagnosis of the first split that has one says it.

    The split is named if others have such a result, too. Where other verdicts say how it came to it, so does the first.
    """
    diagnosed = record.diagnosis
    bad = {
        split: [first, *(item for item in verdicts if item.kind not in RESULTS)]
        for split in dict.fromkeys([*record.evaluation, *diagnosed])
        for verdicts in [diagnosed[split].verdicts if split in diagnosed else []]
        for first in [item for item in verdicts if item.kind in RESULTS][:1]
    }
    for split, (first, *others) in bad.items():
        where = f" ({split})" if len(bad) > 1 else ""
        cause = first.cause
        if cause == BELOW and others:
            first = others[0]
            cause = f"{first.kind.replace('-', ' ')}: {first.rule}. {first.cause}"
        return [f"Cause{where}: {cause}", *(f"Change {n}: {item}" for n, item in enumerate(first.changes, 1))]
    return []


def _helped(
    share: float | None, chance: float | None, compared: Sequence[RecallComparison], *, by_chance: bool = False
) -> Helped | None:
    """Effect of training, on the same items as each reference."""
    if share is None:
        return None
    if chance == 0:  # then no query has anything to find, as a warning says
        return Helped("bad", "Nothing can be found, whatever the embedding", f" (recall@1 {_percent(share)})")
    if by_chance or (chance is not None and share <= chance):
        numbers = f" (recall@1 {_percent(share)}, {_percent(chance)} by chance)"
        return Helped("bad", "No better than chance", numbers)
    return _judged(compared, RECALL) if compared else None


def _judged(compared: Sequence[Compared], measure: str) -> Helped:
    """Effect of training by a measure, beside all that it was compared with, or those that decide."""
    begun_as = [item for item in compared if item.reference in _BEGUN_AS]
    lost = [item for item in compared if item.outcome == "worse"]
    uncertain = [item for item in compared if item.outcome == "open"]
    if lost:
        tone, words = "bad", _WORSE if any(item in begun_as for item in lost) else _RAW_BETTER
    elif begun_as and all(item.outcome == "better" for item in begun_as):
        tone, words = ("warn", _RAW_OPEN) if uncertain else ("good", _HELPED)
    else:
        tone, words = "warn", _PERHAPS_WORSE if uncertain else _NO_DIFFERENCE
    scores = [
        (item.value, item.reference_value) if isinstance(item, ChosenCompared) else (item.recall, item.reference_recall)
        for item in compared
    ]
    numbers = _against(
        [(item, reference) for item, (_, reference) in zip(compared, scores, strict=True) if item in lost or not lost]
    )
    name = f"{RECALL} " if measure == RECALL else ""
    return Helped(tone, words, f" ({name}{_percent(scores[0][0])}, against {numbers})", measure)


def _against(compared: Sequence[tuple[RecallComparison | RankingComparison | ChosenCompared, float | None]]) -> str:
    """Scores of references with the difference and its interval; those that are alike together.

    A network that begins as its inputs has their numbers.
    """
    names: dict[str, list[str]] = {}
    for item, score in compared:
        change = f"{points(item.difference)} points, {points(item.low)} to {points(item.high)}"
        names.setdefault(f"{_percent(score)} of {{}}: {change}", []).append(_reference(item.reference))
    text = "; ".join(text.format(_list(those)) for text, those in names.items())
    return f"{text},{OF_CLASSES}" if all(item.known_classes for item, _ in compared) else text


def _reference(name: str) -> str:
    return f"the {name}" if name in (*_BEGUN_AS, RAW) else name


def _percent(share: float | None) -> str:
    return f"{percent(share)}\u00a0%"


def _sentence(
    level: str,
    share: float | None,
    references: Mapping[str, float],
    chance: float | None,
    compared: Sequence[RecallComparison],
) -> str:
    if share is None:
        return f"Recall@1 by {level} was not measured."
    named = {_reference(name): recall for name, recall in references.items()}
    others = [f"{percent(recall)}\u00a0% with {name}" for name, recall in named.items()]
    if chance is not None:
        others.append(f"{percent(chance)}\u00a0% by chance")
    text = f"After training, the nearest neighbour has the same {level} for {percent(share)}\u00a0% of the items"
    text += f", against {_list(others)}." if others else "."
    # Compared as shown, so that a difference nobody can see is called none.
    rounded = round(100 * share, 1)
    doubtful = {item.reference for item in compared if item.outcome != "worse"}
    above = [name for name, recall in references.items() if round(100 * recall, 1) > rounded]
    higher, perhaps = ([_reference(name) for name in above if (name in doubtful) == doubt] for doubt in (False, True))
    equal = [name for name, recall in named.items() if round(100 * recall, 1) == rounded]
    if chance is not None and rounded <= round(100 * chance, 1):
        text += " That is no better than chance."
    for names, how in (
        (higher, "did better than the trained network"),
        (perhaps, "had more, which may be chance"),
        (equal, "did equally well"),
    ):
        text += f" {_list(names)[:1].upper()}{_list(names)[1:]} {how}." if names else ""
    return text


def _list(items: Sequence[str]) -> str:
    return " and ".join([item for item in (", ".join(items[:-1]), *items[-1:]) if item])


def share_of(levels: Levels, level: str, key: str = RECALL) -> float | None:
    """A measure at a level, in [0, 1]; None where it was not measured."""
    share = levels.get(level, {}).get(key)
    return share if is_number(share) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None
