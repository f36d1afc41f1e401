"""The candidates of a ladder in the words of console and page: which is the result, by how much, and at what cost."""

from __future__ import annotations

from dataclasses import dataclass

from trivet.reports.ladder_record import CandidateRecord, ConfirmedRecord, LadderRecord
from trivet.reports.page import number, percent, points
from trivet.reports.run_record import RunRecord
from trivet.runtime.text import counted, noun

SHARE = "\u00a0%"
FEWEST = 5  # items that tell candidates apart: a gain of each of four may be chance, once in 16
COLUMNS = ("R@1", "MAP@R", "difference (90 %)", "seconds")


@dataclass(frozen=True)
class CandidateRow:
    """A row of a table: a candidate, `COLUMNS` as text, and whether it is the result."""

    name: str
    cells: tuple[str, ...]
    result: bool


def ladder_sentence(record: RunRecord) -> str | None:
    """The items, and which candidate is the result, as a sentence without its end; None where the run was no ladder."""
    ladder = record.ladder
    if ladder is None or not ladder.result:
        return None
    counts, result = record.data.train, result_of(ladder)
    classes = 0 if counts is None else counts.classes.get(record.level, 0)
    items = (
        "Your items"
        if counts is None
        else f"{number(counts.items)} items of {counted(classes, record.data.unit(record.level))}"
    )
    tried = [each for each in ladder.candidates if each.recall is not None]
    text = f"{items}: the result is {result.name}"
    of = "" if ladder.classes is None else f" of {counted(ladder.classes, ladder.unit)}"
    few = f"{counted(ladder.items or 0, 'item')}{of} cannot tell candidates apart"
    if result.rung != "encoder":
        return f"{text}, the best of {counted(len(tried), 'candidate')}{f', though {few}' * too_few(ladder)}"
    if len(tried) < 2:
        return f"{text}, unchanged"
    none = f"none of {len(tried) - 1} candidates" if len(tried) > 2 else "the candidate"
    why = f"{none} beside it was{' not' * (len(tried) == 2)} surely a point better"
    if ladder.best != ladder.result:
        why = f"{ladder.best} was not confirmed"
    return f"{text}, unchanged, as {few if too_few(ladder) else why}"


def too_few(ladder: LadderRecord) -> bool:
    """True if candidates were compared on so few items, or on a single class, that no difference could be told."""
    return ladder.items is not None and (ladder.items < FEWEST or ladder.classes == 1)


def ladder_cost(ladder: LadderRecord) -> str:
    """Sentences on what the result of a ladder took, and on how many candidates could not be compared."""
    trained = result_of(ladder).parameters
    what = "nothing was trained" if not trained else f"{number(trained)} parameters were trained"
    took = f"It took {ladder.seconds / 60:.1f} minutes to choose; {what}."
    left = sum(each.reason != "" and each.recall is None for each in ladder.candidates)
    return took + f" {counted(left, 'candidate')} could not be compared: the notes say why." * (left > 0)


def ladder_caption(ladder: LadderRecord) -> str:
    """The items that the candidates were compared on, in words."""
    if ladder.items is None:
        return "Candidates"
    units = noun(2, ladder.unit)
    what = (
        f"{units} held out of training" if ladder.folds_of == "classes" else f"{units}, of items held out of training"
    )
    of = f"of {number(ladder.classes)} {what}" if ladder.classes is not None else "held out of training"
    return f"Compared on {number(ladder.items)} items {of}; in per cent"


def ladder_rows(ladder: LadderRecord) -> list[CandidateRow]:
    """A row for each candidate; the difference is that of MAP@R from the best encoder before it.

    Where the other candidates begin as one encoder, they are named by what is done to it.
    """
    rows, encoders = [], {each.encoder for each in ladder.candidates if each.rung != "encoder" and each.encoder}
    for each in ladder.candidates:
        interval = "" if each.low is None else f" ({points(each.low)} to {points(each.high)})"
        difference = "" if each.difference is None else points(each.difference) + interval
        shares = ("", "") if each.recall is None else (percent(each.recall), percent(each.map_at_r))
        cells = (*shares, difference, number(round(each.seconds)))
        name = each.name.removeprefix(f"{each.encoder}, ") if len(encoders) == 1 else each.name
        rows.append(CandidateRow(name, cells, each.name == ladder.result))
    return rows


def ladder_notes(ladder: LadderRecord) -> list[str]:
    """Sentences on what was confirmed, what was not tried and why, and which encoders were not there to compare."""
    notes = [ladder.reason] if ladder.reason else []
    if (confirmed := ladder.confirmed) is not None:
        says = "confirms" if confirmed.passed else "does not confirm"
        classes = "" if confirmed.classes is None else f", {counted(confirmed.classes, ladder.unit)}"
        notes.append(
            f"The other half of what was held out ({counted(confirmed.items, 'item')}{classes}), which chose nothing, "
            f"{says} {ladder.best}: {_measures(confirmed)}."
        )
    if (new := ladder.new_classes) is not None:
        worth = "is no worse" if new.passed else "is worse, so search for such classes with the encoder"
        notes.append(
            f"On new classes, {counted(new.classes, 'class')} that were held out of a training of their own "
            f"({counted(new.items, 'item')}), it {worth}: {_measures(new)}."
        )
    if ladder.modes is not None:
        notes.append(
            f"In the features of the best encoder each class holds {ladder.modes:.1f} groups of items in the mean. "
            "Heads and fine-tuning were trained with easy positives, which leave these apart."
        )
    notes += [f"{each.name}: {each.reason}" for each in ladder.candidates if each.reason]
    if ladder.missing:
        notes.append(
            f"Not compared, as their weights are not on this machine: {', '.join(ladder.missing)}. trivet encoders "
            "--download NAME fetches one."
        )
    return notes


def _measures(record: ConfirmedRecord) -> str:
    """The measures of a candidate and of its encoder."""
    shares = (record.map_at_r, record.encoder_map_at_r, record.recall, record.encoder_recall)
    measure, other, recall, other_recall = (f"{percent(share)}{SHARE}" for share in shares)
    return f"MAP@R {measure} against {other} of {record.encoder}, recall@1 {recall} against {other_recall}"


def result_of(ladder: LadderRecord) -> CandidateRecord:
    """The candidate that is the result."""
    return next(each for each in ladder.candidates if each.name == ladder.result)
