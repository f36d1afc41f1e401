"""The model card of an exported network: Markdown, from the record of its run alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trivet.commands.train.outcome import evaluated_rows
from trivet.reports.items import is_number
from trivet.reports.measures import between, finite, named
from trivet.reports.page import MISSING, percent
from trivet.reports.run_record import Counts, RunData, RunRecord
from trivet.runtime.terminal import printable
from trivet.runtime.text import counted, noun

MEASURES = ("recall@1", "map@r", "r-precision", "nmi", "nmi+")
SETTINGS = {  # what of the settings a reader needs first
    "data": ("name", "image_size", "channels", "resize", "augment", "prefix"),
    "batch": ("num_classes", "samples_per_class", "size"),
    "model": ("name", "embedding_dim", "normalize", "head", "pooling", "freeze", "lora", "max_tokens"),
    "loss": ("name", "positives", "negatives", "margin", "temperature", "distance", "prefixes"),
    "training": ("steps", "optimizer", "learning_rate", "schedule", "precision"),
}
DIAGNOSED = {"train": "the training items"}
# What Markdown and HTML read as more than a text, with links, mentions and lists.
_SPECIAL = re.compile(r"[\\`*_{}\[\]()<>#|~!&$]|:(?=//)|(?<=\bwww)\.|(?<!\w)@|^[-+]|(?<=^\d)[.)]")
_FOLDERS = re.compile(r"(?<![\w.])[~.]{0,2}/(?:[^\s:/]+/)+")


def model_card(record: RunRecord | None, *, title: str, use: str, checked: str = "", licence: str | None = None) -> str:
    """The card as Markdown.

    Args:
        record: of the run; None where there is none.
        title: the name of the run.
        use: how to use what lies beside the card, as Markdown.
        checked: what was compared with what, a sentence; "" if nothing was.
        licence: of the weights; None where it is not stated.
    """
    sections = [f"# {escaped(title)}", "An embedding network, trained and exported with Trivet.", f"## Use\n\n{use}"]
    sections.append(checked)
    if record is None:
        sections.append("The run has no record: what it was trained on, and how good it is, is not known here.")
    else:
        sections += [_data(record), _settings(record), _measured(record), _diagnosed(record), _limits(record)]
    sections.append(
        "## Licence\n\n"
        + (
            escaped(licence)
            if licence
            else "Not stated: it follows from the licences of the data and of any weights that the training began "
            "from. Whoever publishes this network states it here."
        )
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def escaped(text: object) -> str:
    """A text of any origin as one line that Markdown shows as it is.

    Example:
        >>> print(escaped("<b>a_b</b>"))
        \\<b\\>a\\_b\\</b\\>
    """
    return _SPECIAL.sub(r"\\\g<0>", printable(" ".join(str(text).split())))


def _data(record: RunRecord) -> str:
    data, level = record.data, record.level
    name = escaped(_short(record.settings.get("data", {}).get("name", "unknown data")))
    lines = [f"## Trained on\n\n{name}, labelled by {escaped(level)}."]
    if data.train is not None:
        lines.append(f"- For training: {_count(data.train, data)}.")
    for split, counts in data.evaluation.items():
        trained = counts.trained_classes.get(level)
        known = (
            ""
            if trained is None
            else f"; {trained or 'none'} of these {noun(2, data.unit(level))} {_were(trained)} trained on"
        )
        lines.append(f"- {escaped(split)}, held out: {_count(counts, data)}{known}.")
    return lines[0] + "\n\n" + "\n".join(lines[1:])


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _count(counts: Counts, data: RunData) -> str:
    items = MISSING if counts.items is None else counted(counts.items, "item")
    several = len(counts.classes) > 1
    classes = [
        counted(count, data.unit(level)) + (f" by {escaped(level)}" if several else "")
        for level, count in counts.classes.items()
    ]
    return ", ".join([items, *classes])


def _settings(record: RunRecord) -> str:
    rows = [
        f"| {section}.{key} | {escaped(_short(value))} |"
        for section, keys in SETTINGS.items()
        for key in keys
        if (value := record.settings.get(section, {}).get(key)) is not None
    ]
    if record.step is not None:
        rows.append(f"| last step | {record.step} |")
    choice = record.choosing
    if choice is not None and choice.step is not None:
        rows.append(f"| best step by {escaped(choice.measure)} on {escaped(choice.split)} | {choice.step} |")
    return "\n".join(["## Settings\n\n| setting | value |\n|---|---|", *rows])


def _short(value: object) -> str:
    """A setting or a sentence without the folders of the machine that it was trained on."""
    if isinstance(value, Mapping):
        value = value.get("name", dict(value))
    return _FOLDERS.sub("", value) if isinstance(value, str) else json.dumps(value)


def _measured(record: RunRecord) -> str:
    sections = ["## Measures"]
    for split in record.evaluation:
        rows = evaluated_rows(record, split)
        levels = rows[0].levels if rows else {}
        for level, measures in levels.items():
            names = [name for name in MEASURES if any(name in row.levels.get(level, {}) for row in rows)]
            if not names:
                continue
            heads = list(map(named, names))
            sections.append(
                f"{escaped(split)}, by {escaped(level)}, in percent:\n\n| | {' | '.join(heads)} |\n|---|"
                + "---:|" * len(names)
            )
            intervals = record.intervals.get(split, {}).get(level, {})
            for row in rows:
                known = intervals if row is rows[0] else {}
                cells = [_cell(row.levels.get(level, {}).get(name), known.get(name, {})) for name in names]
                sections[-1] += f"\n| {escaped(row.name)} | {' | '.join(cells)} |"
            chance = [percent(finite(measures.get(f"chance_{name}"))) for name in names]
            sections[-1] += f"\n| by chance | {' | '.join(chance)} |"
    if len(sections) == 1:
        return "## Measures\n\nThis run was not evaluated."
    cuts = " Rows named first N are of the first N numbers of each embedding." if any(record.prefixes.values()) else ""
    sections.append(
        "In brackets: 95 % intervals, for other classes where there are, else for other items. The first row is this "
        f"network; the others are what it has to beat.{cuts}"
    )
    return "\n\n".join(sections)


def _cell(value: object, interval: Mapping[str, Sequence[Any] | None]) -> str:
    ends = interval.get("classes") or interval.get("queries")
    share = percent(finite(value)) if is_number(value) else MISSING
    return share if not ends else f"{share} [{between(ends)}]"


def _diagnosed(record: RunRecord) -> str:
    lines = []
    for split, section in record.diagnosis.items():
        for verdict in section.verdicts:
            verdict_text = ", ".join([verdict.kind.replace("-", " "), *filter(None, [verdict.severity])])
            rule = _short(verdict.rule).rstrip(".")
            lines.append(f"- {escaped(DIAGNOSED.get(split, split))}: {escaped(verdict_text)}: {escaped(rule)}.")
    return "\n".join(["## Diagnosis\n", *lines]) if lines else "## Diagnosis\n\nThis run was not diagnosed."


def _limits(record: RunRecord) -> str:
    settings, lines = record.settings, []
    main = next(iter(record.data.evaluation.items()), None)
    if main is not None:
        split, counts = main
        trained, classes = counts.trained_classes.get(record.level), counts.classes.get(record.level)
        units = noun(2, record.data.unit(record.level))
        if trained == 0:
            lines.append(
                f"The {units} of {escaped(split)} were never trained on: its measures are for unknown {units}."
            )
        elif trained is not None and trained == classes:
            lines.append(
                f"All {units} of {escaped(split)} were trained on: how it does on {units} never seen is not known."
            )
    else:
        lines.append("Nothing was held out: how it does on other items is not known.")
    choice = record.choosing
    if choice is not None and choice.step is not None and choice.keep != "last":
        lines.append(f"The step was chosen by {escaped(choice.split)}: its measures there flatter it.")
    noise = record.data.noise
    if noise is not None and noise.rate:
        lines.append(f"Of the training labels, {percent(noise.rate)} % were made wrong on purpose.")
    tolerance = record.label_noise.strategy.tolerance
    if tolerance is not None and (rate := tolerance.rate.value) is not None:
        lines.append(
            f"The sampling tolerates about {percent(rate)} % of wrong labels; how many there are was not measured."
        )
    size = settings.get("data", {}).get("image_size")
    if size is not None:
        side = " x ".join(map(str, size)) if isinstance(size, list) else f"{size} x {size}"
        lines.append(f"Images are seen at {side} pixels: smaller details are lost.")
    if record.status not in ("finished", "stopped"):
        lines.append(f"The run is not finished: its status is {escaped(record.status)}.")
    lines += [escaped(_short(warning)) for warning in record.warnings]
    return "\n".join(["## Limits\n", *(f"- {line}" for line in lines)])
