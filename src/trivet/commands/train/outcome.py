"""Result of a training run in numbers and sentences: beside every reference, by chance, and by the chosen step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trivet.commands.diagnose.page import RESULTS
from trivet.reports.diagnosis_record import RecallComparison
from trivet.reports.items import is_number
from trivet.reports.measures import NAMES
from trivet.reports.page import number, percent, points
from trivet.reports.run_record import Choice, ChosenCompared, RunRecord, SelectionCheck
from trivet.reports.shared_records import Levels
from trivet.runtime.text import BELOW, counted

_REFERENCES = {
    "untrained network": "the untrained network",
    "zero-shot backbone": "the zero-shot backbone",
    "raw inputs": "the raw inputs",
}
_BEGUN_AS = ("untrained network", "zero-shot backbone")
_HELPED, _NO_DIFFERENCE = "Training helped", "Training made no clear difference"
_WORSE, _PERHAPS_WORSE = "Training made it worse", "Training may have made it worse"
_RAW_BETTER = "The raw inputs do better"
_OF_TRAINING = (_HELPED, _NO_DIFFERENCE, _WORSE, _PERHAPS_WORSE, _RAW_BETTER)  # these hold by a measure
RECALL = "recall@1"


def split_result(split: str, record: RunRecord) -> dict[str, Any]:
    """The main result of a split: recall@1 at the trained and the finest level, beside every reference."""
    by_name = {row.name: row.levels for row in record.evaluation[split]}
    trained = by_name.pop("trained", {})
    configured = record.settings.get("data", {}).get("level")
    main = next((level for level in (configured, record.level) if level in trained), next(iter(trained), ""))
    diagnosed = record.diagnosis.get(split)
    kinds = [item.kind for item in diagnosed.verdicts] if diagnosed else []
    by_chance = diagnosed.level if diagnosed and "no-better-than-chance" in kinds else None
    rows = []
    cuts = record.prefixes.get(split, [])
    chosen_level = (choice.level or record.level) if (choice := record.choosing) else None
    for level in dict.fromkeys([main, *list(trained)[-1:]]) if trained else ():
        references = {
            name: share
            for name, levels in by_name.items()
            if (share := share_of(levels, level, "recall@1")) is not None
        }
        share, chance = (share_of(trained, level, name) for name in ("recall@1", "chance_recall@1"))
        intervals = record.intervals.get(split, {}).get(level, {}).get("recall@1", {})
        compared = record.comparisons.get(split, {}).get(level, [])
        chosen = record.chosen_comparisons.get(split, {}).get(level, []) if level == chosen_level else []
        bars = [("trained", share), *references.items(), ("chance", chance)]
        lengths = [*(number(cut.prefix) for cut in cuts), "all"]
        shares = [{row.name: share_of(row.levels, level, "recall@1") for row in cut.evaluated} for cut in cuts]
        roles = [role for role, of in (("level trained on", main), ("finest level", list(trained)[-1])) if of == level]
        rows.append(
            {
                "level": level,
                "role": ", ".join(roles),
                "items": trained[level].get("items"),
                "classes": trained[level].get("classes"),
                "share": share,
                "helped": _helped(share, chance, compared, by_chance=level == by_chance),
                "ends": [
                    f"{percent(ends[0])} to {percent(ends[1])} over {over}" for over, ends in intervals.items() if ends
                ],
                "bars": [bar for bar in bars if bar[1] is not None],
                "prefixes": {
                    "names": ["trained", *references],
                    "rows": [
                        (length, [recalls.get(name) for name in ("trained", *references)])
                        for length, recalls in zip(lengths, [*shares, {"trained": share, **references}], strict=True)
                    ],
                },
                "prefixes_helped": [
                    (cut.prefix, helped)
                    for cut, recalls in zip(cuts, shares, strict=True)
                    if (helped := _helped(recalls.get("trained"), chance, cut.comparisons.get(level, [])))
                ],
                "chosen": [] if level == by_chance or not chosen else [(_name(chosen[0].measure), *_by_choice(chosen))],
                "sentence": _sentence(level, share, references, chance, compared),
            }
        )
    counts = record.data.evaluation.get(split)
    return {"split": split, "levels": rows, "has_queries": bool(counts and counts.protocol)}


def result_lines(record: RunRecord) -> list[tuple[str, str]]:
    """Sentences on whether training helped, with their tone ("bad", "warn", "good"), the worst first.

    Where a step was chosen by another measure than recall@1, what is said by that one comes before.
    """
    entries: dict[tuple[str, str], list[str]] = {}
    by_choice: dict[tuple[str, str], list[str]] = {}
    for split in record.evaluation:
        for level in split_result(split, record)["levels"]:
            for measure, tone, words, numbers in level["chosen"]:
                entry = f"{split} by {level['level']}{numbers}"
                by_choice.setdefault((tone, f"{words} by {measure}"), []).append(entry)
            by_outcome: dict[tuple[str, str], dict[int | None, str]] = {}
            for prefix, helped in ((None, level["helped"]), *level["prefixes_helped"]):
                if helped is not None:
                    tone, words, numbers = helped
                    by_outcome.setdefault((tone, words), {})[prefix] = numbers
            for key, numbers_of in by_outcome.items():
                entries.setdefault(key, []).append(_location(f"{split} by {level['level']}", numbers_of))
    if by_choice:
        entries = {
            (tone, words + (f" by {RECALL}" if words in _OF_TRAINING else "")): v
            for (tone, words), v in entries.items()
        }
    lines = []
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
    return [("warn", choice_line(record) or ""), *lines]


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
                against = [(row.reference_map_at_r, row.reference) for row in lower]
                others = [f"{_percent(value)} of {_REFERENCES.get(name, name)}" for value, name in against]
                lower_in.append(f"{split} by {level} (MAP@R {_percent(lower[0].map_at_r)}, against {_list(others)})")
    prefix = "The nearest item is found as often, but less of its class: "
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


def choice_line(record: RunRecord) -> str | None:
    """Text on which model is measured, which step was the best, and why; None where there was nothing to choose by."""
    choice = record.choosing
    if choice is None or not choice.checks:
        return None
    first, *later = choice.checks
    last, reached = choice.keep == "last", record.step
    snapshot = _snapshot(record)
    model = f"the model is {snapshot or (f'that of the last step, {number(reached)}' if last else _begun(record))}"
    if not later:
        return None if last else f"{_capital(model)}: training ended before the first look at a trained one."
    measure = NAMES.get(choice.measure, choice.measure)
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
            text = f"Training did not help {where}; {model}: no step had a higher {measure}."
        else:
            doubt = "fewer nearest neighbours were right" if (highest.low or 0) > 0 else "that may be chance"
            text = f"{measure} was {_percent(highest.value)} at step {number(highest.step)}, {before}, but {doubt}."
            text = f"{_capital(model)}; {where} {text}" if last else f"Training did not help {where}; {model}: {text}"
    elif not last:
        text = f"The model is that of step {number(best.step)}, the best {where}"
        text += f": {measure} {_percent(best.value)}, {before} training."
    elif best is later[-1]:
        text = f"{_capital(model)}, the best {where}: {measure} {_percent(best.value)}, {before} training."
    else:
        text = f"{_capital(model)}: {measure} {_percent(later[-1].value)} {where}. The best is that of step "
        text += f"{number(best.step)}: {_percent(best.value)}, {before} training; it lies in model-best/."
    if choice.known:
        text += f" In the table of {choice.split} its items are only among themselves."
    if choice.step == 0 and not last:
        text += " The row “trained” in the tables is this model."
    if choice.ended is not None:
        checks = counted(choice.patience or 0, "look")
        text += f" Training ended early, at step {number(choice.ended)}, as {checks} found no higher {measure}."
    return text


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
) -> tuple[str, str, str] | None:
    """The tone, the words and the numbers of what training did, on the same items as each reference."""
    if share is None:
        return None
    if by_chance or (chance is not None and share <= chance):
        return "bad", "No better than chance", f" (recall@1 {_percent(share)}, {_percent(chance)} by chance)"
    if not compared:
        return None
    if lost := [item for item in compared if item.outcome == "worse"]:
        begun = any(item.reference in _BEGUN_AS for item in lost)
        return "bad", _WORSE if begun else _RAW_BETTER, _numbers(share, lost)
    begun_as = [item for item in compared if item.reference in _BEGUN_AS]
    if begun_as and all(item.outcome == "better" for item in begun_as):
        return "good", _HELPED, ""
    if uncertain := [item for item in compared if item.outcome == "open"]:
        return "warn", _PERHAPS_WORSE, _numbers(share, uncertain)
    return "warn", _NO_DIFFERENCE, _numbers(share, begun_as)


def _by_choice(compared: Sequence[ChosenCompared]) -> tuple[str, str, str]:
    """The tone, the words and the numbers of what training did, by the measure that a step was chosen by."""
    outcomes = [item.outcome for item in compared]
    begun_as = [item for item in compared if item.reference in _BEGUN_AS]
    relevant = begun_as
    if "worse" in outcomes:
        relevant = [item for item in compared if item.outcome == "worse"]
        tone, words = "bad", _WORSE if any(item in begun_as for item in relevant) else _RAW_BETTER
    elif begun_as and all(item.outcome == "better" for item in begun_as):
        tone, words = "good", _HELPED
    elif "open" in outcomes:
        relevant = [item for item in compared if item.outcome == "open"]
        tone, words = "warn", _PERHAPS_WORSE
    else:
        tone, words = "warn", _NO_DIFFERENCE
    against = [
        f"{_percent(item.reference_value)} of {_REFERENCES.get(item.reference, item.reference)}: "
        f"{points(item.difference)} points, {points(item.low)} to {points(item.high)}"
        for item in relevant
    ]
    return tone, words, f" ({_percent(compared[0].value)}, against {'; '.join(against)})" if against else ""


def _name(measure: str) -> str:
    return NAMES.get(measure, measure)


def _percent(share: float | None) -> str:
    return f"{percent(share)}\u00a0%"


def _numbers(share: float, compared: Sequence[RecallComparison]) -> str:
    against = [
        f"{_percent(item.reference_recall)} of {_REFERENCES.get(item.reference, item.reference)}" for item in compared
    ]
    return f" (recall@1 {_percent(share)}, against {_list(against)})" if against else ""


def _sentence(
    level: str,
    share: float | None,
    references: Mapping[str, float],
    chance: float | None,
    compared: Sequence[RecallComparison],
) -> str:
    if share is None:
        return f"Recall@1 by {level} was not measured."
    named = {_REFERENCES.get(name, name): recall for name, recall in references.items()}
    others = [f"{percent(recall)}\u00a0% with {name}" for name, recall in named.items()]
    if chance is not None:
        others.append(f"{percent(chance)}\u00a0% by chance")
    text = f"After training, the nearest neighbour has the same {level} for {percent(share)}\u00a0% of the items"
    text += f", against {_list(others)}." if others else "."
    # Compared as shown, so that a difference nobody can see is called none.
    rounded = round(100 * share, 1)
    doubtful = {item.reference for item in compared if item.outcome != "worse"}
    above = [name for name, recall in references.items() if round(100 * recall, 1) > rounded]
    higher, perhaps = (
        [_REFERENCES.get(name, name) for name in above if (name in doubtful) == doubt] for doubt in (False, True)
    )
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


def share_of(levels: Levels, level: str, key: str) -> float | None:
    """A measure at a level, in [0, 1]; None where it was not measured."""
    share = levels.get(level, {}).get(key)
    return share if is_number(share) else None
