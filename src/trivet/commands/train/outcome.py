"""The answer of a run: how good its network is, beside the best of what it is compared with, in a sentence a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trivet.collapse.advice import chance_advice
from trivet.collapse.rules import above_chance
from trivet.collapse.significance import FLOOR, OPEN, UNTRAINED, ZERO_SHOT, doubt_words, in_words, rank_biased_words
from trivet.datasets.holdout import suggested_folds
from trivet.reports.diagnosis_record import RankingComparison, RecallComparison
from trivet.reports.items import is_number
from trivet.reports.ladder_record import CandidateRecord, LadderRecord
from trivet.reports.ladder_view import ladder_cost, ladder_sentence, result_of, too_few
from trivet.reports.measures import EVALUATION, SAMPLED, SAMPLED_PAIRS, measure_key, named
from trivet.reports.page import number, percent, points
from trivet.reports.run_record import Choice, ChosenCompared, EmbeddingSizes, Evaluated, RunRecord, as_good
from trivet.reports.shared_records import Levels
from trivet.reports.verdict_view import RESULTS
from trivet.runtime.text import BELOW, counted, noun, typed
from trivet.training.run_folder import candidate_file

RECALL = "recall@1"
CHANCE = "no-better-than-chance"
COLLAPSES = ("network-collapse", "class-collapse")
TONES = ("bad", "warn", "good")  # of a sentence, the worst first
Compared = RecallComparison | RankingComparison | ChosenCompared


@dataclass(frozen=True)
class ComparedLevel:
    """Recall@1 at a level, beside every reference and chance.

    Attributes:
        share: of the network; None where it was not measured.
        ends: its intervals, as text.
        bars: (name, share) of the network and of what it is compared with; those that are alike together.
    """

    level: str
    role: str
    items: int | None
    classes: int | None
    unit: str
    share: float | None
    ends: list[str]
    bars: list[tuple[str, float]]


def split_result(split: str, record: RunRecord) -> list[ComparedLevel]:
    """The main result of a split: recall@1 at the trained and the finest level."""
    rows = {row.name: row.levels for row in record.evaluation[split]}
    results = []
    for level, role in _main_levels(record, split).items():
        trained = rows["trained"][level]
        shares = {name: share_of(levels, level) for name, levels in rows.items() if level in levels}
        together: dict[float | None, list[str]] = {}
        for name, share in shares.items():
            together.setdefault(share, []).append("result" if name == "trained" and record.step == 0 else name)
        bars = [(", ".join(names), share) for share, names in together.items()]
        bars.append(("chance", share_of(rows["trained"], level, "chance_recall@1")))
        intervals = record.intervals.get(split, {}).get(level, {}).get(RECALL, {})
        sampled = SAMPLED_PAIRS if record.data.unit(level) == "group" else SAMPLED
        results.append(
            ComparedLevel(
                level=level,
                role=role,
                items=_count(trained.get("items")),
                classes=_count(trained.get("classes")),
                unit=record.data.unit(level),
                share=shares["trained"],
                ends=[
                    f"{percent(ends[0])} to {percent(ends[1])} for {sampled[over]}"
                    for over, ends in intervals.items()
                    if ends
                ],
                bars=[(name, value) for name, value in bars if value is not None],
            )
        )
    return results


def _main_levels(record: RunRecord, split: str) -> dict[str, str]:
    """The level trained on and the finest one, with what they are; none where the network was not evaluated."""
    trained = next((row.levels for row in record.evaluation[split] if row.name == "trained"), {})
    if not trained:
        return {}
    configured = record.settings.get("data", {}).get("level")
    main = next((level for level in (configured, record.level) if level in trained), next(iter(trained)))
    roles = (("level trained on", main), ("finest level", [*trained][-1]))
    return {level: ", ".join(role for role, of in roles if of == level) for _, level in roles}


def result_lines(record: RunRecord) -> list[tuple[str, str]]:
    """Sentences on how good the network is, with their tone ("bad", "warn" or "good"): the answer first.

    Of a ladder it begins with what the result is, and ends with what that took. There is one for each split and level,
    but for the split that a step was chosen by, which flatters; then one for each collapse, and for each length of
    embedding that is worse beyond doubt.
    """
    splits = answering_splits(record)
    lines = [_answer(record, split, level) for split in splits for level in _main_levels(record, split)]
    if (sentence := ladder_sentence(record)) is not None and record.ladder is not None:
        tone, answer = lines[0] if lines else ("good", "")
        begin = f"{sentence}{': ' if answer[:1].isdigit() else '. '}{answer}" if answer else f"{sentence}."
        lines[:1] = [(tone, f"{begin} {ladder_cost(record.ladder)}")]
    lines += [
        ("bad", f"{verdict.kind.replace('-', ' ').capitalize()}: {split} ({verdict.rule}).")
        for split, diagnosed in record.diagnosis.items()
        for verdict in diagnosed.verdicts
        if verdict.kind in COLLAPSES
    ]
    for split in splits:
        for cut in record.prefixes.get(split, []):
            for level in _main_levels(record, split):
                compared = cut.comparisons.get(level, [])
                if lost := [item for item in compared if item.outcome == "worse"]:
                    clause = (
                        f"{_share(lost[0].recall)} {RECALL}{_difference(record, lost, None, record.data.unit(level))}"
                    )
                    lines.append(("bad", f"The first {cut.prefix} numbers alone: {clause} ({split} by {level})."))
    return lines


def answering_splits(record: RunRecord) -> list[str]:
    """The evaluated splits but for the one that a step was chosen by, unless it is the only one."""
    chosen_by = record.choosing.split if record.choosing and decides(record.choosing) else None
    return [split for split in record.evaluation if split != chosen_by] or list(record.evaluation)


def size_line(sizes: EmbeddingSizes | None) -> str | None:
    """Sentence on the smallest form of an embedding that loses less than half a point of recall@1."""
    good = [size for size in (sizes.sizes if sizes else []) if as_good(size)]
    if not good:
        return None
    smallest, largest = min(good, key=lambda size: size.bytes), good[0]
    if smallest is largest:
        return "Each shorter form loses half a point of recall@1 or more."
    low, high = smallest.low or 0.0, smallest.high or 0.0
    verdict = "are enough" if low > -0.005 else "did as well here, which may be chance"
    return (
        f"{number(smallest.numbers)} numbers in {smallest.kind} {verdict}: {number(smallest.bytes)} bytes an item in "
        f"place of {number(largest.bytes)}, {points(smallest.difference)} points of recall@1 ({points(low)} to "
        f"{points(high)}). They are the fewest bytes that lose less than half a point on these very items."
    )


def _answer(record: RunRecord, split: str, level: str) -> tuple[str, str]:
    """Sentence on a split by a level: by each measure that counts, how far above or below the best reference."""
    rows = {row.name: row.levels for row in record.evaluation[split]}
    values, diagnosed = rows["trained"][level], record.diagnosis.get(split)
    share, chance = share_of(rows["trained"], level), share_of(rows["trained"], level, "chance_recall@1")
    classes = _count(values.get("classes"))
    where = f" on {_case(record, split, level)} ({split} by {level})"
    begun = start(record)
    begin = f"The result is {begun}: " if begun and record.ladder is None else ""
    if share is None:
        return "warn", f"{begin}recall@1{where} was not measured."
    if chance == 0:  # then no query has anything to find, as a warning says
        return "bad", f"Nothing can be found{where}, whatever the embedding (recall@1 {_share(share)})."
    verdicts = {verdict.kind for verdict in diagnosed.verdicts} if diagnosed and diagnosed.level == level else set()
    if _at_chance(record, split, level):
        numbers = f"{_share(share)} recall@1, {_share(chance)} by chance"
        return "bad", f"{begin}{'no' if begin else 'No'} better than chance{where}: {numbers}."
    compared: dict[str, Sequence[Compared]] = {}
    choice = record.choosing
    if choice is not None and (choice.level or record.level) == level:
        for item in record.chosen_comparisons.get(split, {}).get(level, []):
            compared[named(item.measure)] = [*compared.get(named(item.measure), []), item]
    compared[RECALL] = record.comparisons.get(split, {}).get(level, [])
    if diagnosed is not None and not any(kind in RESULTS for kind in verdicts):
        rankings = [item for item in diagnosed.measures.rankings if item.level == level]
        lower = [item for item in rankings if (item.difference or 0.0) <= -FLOOR]
        compared = {**compared, **({"MAP@R": lower} if lower and "MAP@R" not in compared else {})}
    clauses: list[str] = []
    for measure, items in compared.items():
        value = _scores(items[0])[0] if items else share
        compared_text = _difference(record, items, classes, record.data.unit(level))
        clauses.append(f"{_share(value)} {measure}{'' if clauses else where}{compared_text}")
    if "MAP@R" not in compared and (chosen_by := _measure_that_chose(record, split, level, compared[RECALL])):
        clauses.append(chosen_by)
    same = begun or record.step == 0
    outcomes = [_outcome(item) for items in compared.values() for item in items if not same or not _same(item)]
    if "worse" in outcomes:
        tone = "bad"
    elif begun:
        tone = "warn" if begun == f"the {UNTRAINED}" or "open" in outcomes else "good"
    else:
        tone = "good" if outcomes and all(outcome == "better" for outcome in outcomes) else "warn"
    if diagnosed and diagnosed.level == level and not above_chance(share, diagnosed.measures.chance_high):
        clauses.append(f"too few items to tell whether that is above chance, {_share(chance)}")
        tone = "warn" if tone == "good" else tone
    return tone, f"{begin}{'; '.join(clauses)}."


def _at_chance(record: RunRecord, split: str, level: str) -> bool:
    """True if the network is no better than chance, by the verdict or where recall@1 is no higher."""
    levels = next((row.levels for row in record.evaluation[split] if row.name == "trained"), {})
    share, chance = share_of(levels, level), share_of(levels, level, "chance_recall@1")
    if share is None or chance == 0:
        return False
    diagnosed = record.diagnosis.get(split)
    verdicts = diagnosed.verdicts if diagnosed and diagnosed.level == level else []
    return any(verdict.kind == CHANCE for verdict in verdicts) or (chance is not None and share <= chance)


def _measure_that_chose(record: RunRecord, split: str, level: str, compared: Sequence[Compared]) -> str:
    """Clause on MAP@R, by which a ladder chooses, where its result is below a reference by recall@1; else nothing."""
    tried = [] if record.ladder is None else [each for each in record.ladder.candidates if each.recall is not None]
    best = _best_reference(record, compared)
    if len(tried) < 2 or best is None or (best.difference or 0.0) >= 0:
        return ""
    rows = {row.name: row.levels for row in record.evaluation[split]}
    shares = [share_of(rows.get(name, {}), level, "map@r") for name in ("trained", best.reference)]
    return "" if None in shares else f"by MAP@R, which chose it, {_share(shares[0])} against {_share(shares[1])}"


def _best_reference(record: RunRecord, compared: Sequence[Compared]) -> Compared | None:
    """The comparison with the best reference, one that is worse beyond doubt first; None if only with itself."""
    if start(record) or record.step == 0:
        compared = [item for item in compared if not _same(item)]
    return max(compared, key=lambda item: (_outcome(item) == "worse", _scores(item)[1] or 0.0), default=None)


def _difference(record: RunRecord, compared: Sequence[Compared], classes: int | None, unit: str) -> str:
    """The difference from the best reference, its interval, and whether that is beyond doubt; nothing beside itself."""
    best = _best_reference(record, compared)
    if best is None:
        return ""
    others = [item for item in compared if _scores(item)[1] == _scores(best)[1] and item.difference == best.difference]
    distinct = [item for item in others if len(others) == 1 or item.reference != UNTRAINED]  # which is one of these
    names = " and ".join(reference_name(record, item.reference) for item in distinct)
    difference = best.difference or 0.0
    text = f"{points(difference)} points over" if difference >= 0 else f"{points(-difference)[1:]} points below"
    ranked = rank_biased_words(best.rank_biased if isinstance(best, RecallComparison) else None)
    doubt = doubt_words(
        _outcome(best),
        difference,
        (best.low or 0.0, best.high or 0.0),
        counted(best.queries, "item")
        if best.known_classes or unit == "tag" or not classes or classes == 1
        else counted(classes, unit),
    )
    return (
        f", {text} the {_share(_scores(best)[1])} of {names} ({points(best.low)} to {points(best.high)}{ranked}{doubt})"
    )


def _case(record: RunRecord, split: str, level: str) -> str:
    """Text on whether the classes of a split are trained on."""
    counts = record.data.evaluation.get(split)
    if counts is None or level not in counts.trained_classes:
        return "items not trained on"
    trained, classes = counts.trained_classes[level], counts.classes.get(level)
    unit = noun(2, record.data.unit(level))
    if not trained:
        return f"new {unit}"
    return f"known {unit}" if trained == classes else f"{unit} of which {trained} of {classes} are known"


def _scores(item: Compared) -> tuple[float | None, float | None]:
    """Measure of the network, and of the reference."""
    if isinstance(item, RecallComparison):
        return item.recall, item.reference_recall
    if isinstance(item, RankingComparison):
        return item.map_at_r, item.reference_map_at_r
    return item.value, item.reference_value


def _outcome(item: Compared) -> str:
    return ("worse" if item.worse else "open") if isinstance(item, RankingComparison) else item.outcome


def _same(item: Compared) -> bool:
    """True if the reference is the network itself, where that is as it began."""
    return item.reference == UNTRAINED or item.difference == 0


def reference_name(record: RunRecord, name: str) -> str:
    """The name of a reference in a sentence: an encoder by its own."""
    if name == ZERO_SHOT and record.ladder is not None and (encoder := result_of(record.ladder).encoder):
        return f"the features of {encoder}"
    model = str(record.settings.get("model", {}).get("name", ""))
    _, colon, encoder = model.partition(":")
    return f"the features of {encoder}" if name == ZERO_SHOT and colon else in_words(name)


def start(record: RunRecord) -> str | None:
    """Name of the network, where it is the one that training began with: none was asked for, or no step was better."""
    choice = record.choosing
    chosen = choice is not None and choice.keep != "last" and choice.step == 0 and bool(choice.checks)
    if not (chosen or record.step == 0) or not record.evaluation or record.guard.snapshot is not None:
        return None
    settings, parameters = record.settings, record.model.parameters
    data, model = settings.get("data", {}), settings.get("model", {})
    if "whitening" in (model.get("name"), model.get("head")):
        return None
    names = {row.name for rows in record.evaluation.values() for row in rows}
    if ZERO_SHOT in names and UNTRAINED not in names:
        return f"{str(model.get('name')).partition(':')[2] or model.get('name')} as it is"
    if model.get("name") != "residual" or data.get("name") not in ("vectors", "texts"):
        return f"the {UNTRAINED}"
    width = model.get("embedding_dim", 1)
    return "the raw vectors" if parameters is None or parameters <= width**2 else "a projection of the raw vectors"


def choice_line(record: RunRecord, *, run: Path | None = None) -> str | None:
    """Text on which step was the best, and why it is the model or not; None where there was nothing to choose by.

    Args:
        run: the run folder as a command is given it, by default its name.
    """
    choice = record.choosing
    if choice is None or not choice.checks:
        return None
    first, *later = choice.checks
    last = choice.keep == "last"
    if not later:
        return None if last or not record.step else "Training ended before the first look at a trained network."
    measure, highest = named(choice.measure), max(choice.checks, key=lambda check: check.value or 0.0)
    begun = None if first.value is None or first.gain is None else first.value - first.gain
    among = f", among {number(choice.known)} training items" if choice.known else ""
    of = counted(choice.classes, record.data.unit(choice.level or record.level))
    where = f"on {_holdout(record, choice)} ({choice.split}, {of}{among})"
    before = f"against {_share(begun)} before training"
    best = next(check for check in choice.checks if check.step == choice.step)
    reached = f"{measure} {_share(best.value)}, {before}"
    if record.guard.snapshot is not None and last:
        model = f"The model is that of step {number(record.guard.snapshot)}, the best that the guard's probe saw."
        text = f"{model} The best {where} is that of step {number(best.step)}: {reached}."
    elif choice.step == 0 and highest is first:
        text = f"No step had a higher {measure} {where}."
    elif choice.step == 0:
        doubt = "fewer nearest neighbours were right" if (highest.low or 0) > 0 else "that may be chance"
        at = f"{_share(highest.value)} at step {number(highest.step)}"
        text = f"{measure} {where} was {at}, {before}, but {doubt}."
    elif not last or best is later[-1]:
        text = f"The model is that of step {number(best.step)}, the best {where}: {reached}."
    else:
        text = (
            f"The model is that of the last step, {number(record.step)}: {measure} {_share(later[-1].value)} {where}."
        )
        text += (
            f" The best is that of step {number(best.step)}: {_share(best.value)}, {before}; it lies in model-best/."
        )
    if record.settings.get("data", {}).get("folds_of") == "items" and record.data.unit(record.level) != "tag":
        units = noun(2, record.data.unit(record.level))
        text += f" Queries are of {units} that are trained on; how it does on new ones was not measured"
        text += f"{_measuring_new_classes(record, choice, run or Path(record.run or 'RUN'))}."
    if choice.ended is not None:
        checks = counted(choice.patience or 0, "look")
        text += f" Training ended early, at step {number(choice.ended)}, as {checks} found no higher {measure}."
    return text


def _measuring_new_classes(record: RunRecord, choice: Choice, run: Path) -> str:
    """The command that trains again with classes held out in place of items; empty where they are too few."""
    data, batch = record.settings.get("data", {}), record.settings.get("batch", {})
    classes = choice.classes or 0 if record.data.unit(record.level) == "class" else 0
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


def decides(choice: Choice) -> bool:
    """True if the result of the run depends on the choice."""
    return choice.keep != "last" or choice.ended is not None


def _holdout(record: RunRecord, choice: Choice) -> str:
    """The items a step is chosen by: of classes that are not trained on, or only items of those that are."""
    counts = record.data.evaluation.get(choice.split)
    trained = counts.trained_classes.get(choice.level or record.level) if counts else 0
    return "items held out" if trained else "classes held out"


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


def how_to_go_on(record: RunRecord, run: Path) -> str | None:
    """Advice on what to do next, with the command that does it; None where the run was not evaluated."""
    lines = result_lines(record)
    if not lines or record.guard.stopped_by or record.status == "interrupted":
        return None
    bad = any(tone == "bad" for tone, _ in lines)
    if any(
        _at_chance(record, split, level) for split in answering_splits(record) for level in _main_levels(record, split)
    ):
        return _after_chance(record)
    verdicts = {verdict.kind for section in record.diagnosis.values() for verdict in section.verdicts}
    if "noisy-labels" in verdicts:
        return f"trivet audit {typed(run)}, as many items are among items of another label."
    again = f"trivet train {typed(run / 'config.toml')} -o {typed(f'{run}-2')}"
    bad &= record.ladder is None  # which has tried what it could
    if bad and cause_lines(record):
        return f"make the change in {typed(run / 'config.toml')}, and {again}"
    counts = record.data.train
    folds = suggested_folds(0 if counts is None else counts.classes.get(record.level, 0))
    if bad and folds > 1 and (record.choosing is None or record.choosing.keep == "last"):
        better = f"--set data.folds={folds} --set choosing.keep=best"
        return f"{again} {better}, which keeps the start where no step is better."
    index = f"{run}-index"
    item = next((item for plane in record.maps.values() for item in plane.ids), "ID")  # its text, where it has one
    scatters = [each for split in record.evaluation for each in record.scatter.get(split, {}).values()]
    name = next((name for scatter in scatters for name in scatter.ids), item)
    search = f"trivet index {typed(run)} -o {typed(index)}, then trivet search {typed(index)}"
    data = record.settings.get("data", {})
    if data.get("name") not in ("pairs", "texts"):
        search += f" --id {typed(name)}"
    elif data.get("left_vectors") or data.get("images") in ("left", "both"):  # the query is of the left side
        search += " VECTORS" if data.get("left_vectors") else " IMAGE"
    else:
        search += f" --text {typed(item)}"
    advice = list[str]()
    ladder = record.ladder
    few = ladder is not None and too_few(ladder)
    if ladder is not None and result_of(ladder).rung == "encoder" and not few:
        if ladder.missing:
            advice.append("compare other encoders, which trivet encoders lists")
        if (other := _undecided(ladder)) is not None:
            settings, output = candidate_file(run, other.name, "toml"), f"{run}-2"
            units = noun(2, ladder.unit) if ladder.folds_of == "classes" else ladder.folds_of
            advice.append(
                f"try {other.name} all the same, {points(other.difference)} points of MAP@R on held-out "
                f"{units} ({points(other.low)} to {points(other.high)}): "
                f"trivet train {typed(settings)} -o {typed(output)}"
            )
    elif few or OPEN in lines[0][1]:
        advice.append("label more classes or items, for a surer answer")
    return "; ".join([*advice, f"to search with this network: {search}"]) if advice else search


def _after_chance(record: RunRecord) -> str:
    """Advice where a result is no better than chance: the first change of its verdict."""
    verdicts = [verdict for section in record.diagnosis.values() for verdict in section.verdicts]
    changes = next((verdict.changes for verdict in verdicts if verdict.kind == CHANCE and verdict.changes), None)
    first, *_ = changes or chance_advice(trained=record.step != 0, never=record.step == 0)[1]
    return f"{first[0].lower()}{first[1:]}"


def _undecided(ladder: LadderRecord) -> CandidateRecord | None:
    """The candidate most above the best encoder, by a point or more, of those of which that is in doubt."""
    doubtful = [
        each
        for each in ladder.candidates
        if each.rung != "encoder" and not each.better and (each.low or 0.0) < 0 and (each.difference or 0.0) >= FLOOR
    ]
    return max(doubtful, key=lambda each: each.difference or 0.0, default=None)


def evaluated_rows(record: RunRecord, split: str) -> list[Evaluated]:
    """The embeddings of a split, then prefixes of them, which their names say; a network as it began is there once."""
    rows = list(record.evaluation[split])
    if record.step == 0:
        rows = [row for row in rows if row.name != UNTRAINED]
    for cut in record.prefixes.get(split, []):
        rows += [Evaluated(name=f"{row.name}, first {cut.prefix}", levels=row.levels) for row in cut.evaluated]
    named = {"trained": "result"} if record.step == 0 else {}
    return [row.model_copy(update={"name": named.get(row.name, row.name)}) for row in rows]


def merged_rows(rows: Sequence[Evaluated], level: str) -> list[tuple[str, dict[str, float | None]]]:
    """Names of the embeddings and their measures at a level; rows whose shared measures all show the same are one."""
    merged: list[tuple[str, dict[str, float | None]]] = []
    for row in rows:
        measured = [key for key in row.levels.get(level, {}) if measure_key(key) in EVALUATION]
        values = {key: share_of(row.levels, level, key) for key in measured}
        texts = {key: percent(value) for key, value in values.items() if value is not None}
        for index, (name, others) in enumerate(merged):
            both = texts.keys() & {key for key, value in others.items() if value is not None}
            if len(both) > 1 and all(percent(others[key]) == texts[key] for key in both):
                merged[index] = (f"{name}, {row.name}", values | others)
                break
        else:
            if values:
                merged.append((row.name, values))
    return merged


def share_of(levels: Levels, level: str, key: str = RECALL) -> float | None:
    """A measure at a level, in [0, 1]; None where it was not measured."""
    share = levels.get(level, {}).get(key)
    return share if is_number(share) else None


def _share(share: float | None) -> str:
    return f"{percent(share)}\u00a0%"


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None
