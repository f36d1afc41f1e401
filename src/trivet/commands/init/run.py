"""`trivet init`: settings that suit data of one's own, written with what was found in them and why each was chosen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch

from trivet.commands.init.data import DetectedData, Images
from trivet.commands.train.sided_candidates import make_proposer
from trivet.datasets import Splits, load
from trivet.datasets.config import with_validation_fold
from trivet.datasets.equal_items import distinct_texts, with_positive
from trivet.datasets.image_files import ImageFilesConfig, split_listing
from trivet.datasets.leaks import leak_warnings
from trivet.datasets.pairs import load_sides
from trivet.datasets.pairs_config import PairsConfig
from trivet.io.atomic_files import write_atomic
from trivet.io.overwrite_guard import INIT_START
from trivet.models.encoder_weights import at_hand
from trivet.runtime.safe_read import parse_toml
from trivet.runtime.terminal import printable
from trivet.runtime.text import noun, typed
from trivet.training.ladder_config import RUNGS, LadderSettings

WIDTH = 118  # of a line of comment
FEW_TO_SPLIT = 8  # classes below which none is evaluated that is not trained on
SIDE, ENCODER_SIDES = 64, (96, 224)  # pixels, from scratch, and of pretrained encoders without and with a GPU
LONG = 1.4  # the ratio of sides from which on images are not cut to squares
STEP = 8  # pixels that sides are multiples of
DOCS = "docs/settings.md"
PROPOSED = "the settings of trivet train"


@dataclass
class Proposal:
    """Settings that suit some data.

    Attributes:
        kind: the data set that reads them.
        findings: what was found, in sentences.
        items, classes: how many items there are, and classes at the level trained on.
        values: section -> key -> value.
        reasons: "section.key" -> why it has its value, where that needs a word.
    """

    kind: str
    findings: list[str]
    items: int
    classes: int
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def put(self, section: str, values: Mapping[str, Any], why: str = "") -> None:
        """Add settings to a section; the reason is that of the first."""
        self.values.setdefault(section, {}).update(values)
        if why:
            self.reasons[f"{section}.{next(iter(values))}"] = why


def propose(
    path: Path,
    detected: DetectedData,
    *,
    ladder: Mapping[str, Any] | None = None,
    changes: Sequence[str] = (),
    data_root: Path | None = None,
) -> Proposal:
    """Settings that suit the data at a path, checked as far as can be without training.

    Args:
        detected: what `detect` found there.
        ladder: settings of `LadderConfig` that are known already.
        changes: of the form "data.key=value", by which the data are read.
    """
    sizes = detected.sizes(detected.main)
    findings = [*_findings(detected, path), *detected.notes]
    proposal = Proposal(detected.kind, findings, detected.items, len(sizes), {"data": dict(detected.data)})
    if detected.guessed:
        proposal.reasons["data.levels" if "levels" in detected.data else "data.root"] = detected.guessed
    if detected.kind == "table" and "root" in detected.data:
        proposal.reasons["data.root"] = "the paths start there, not at the table"
    if len(detected.levels) > 1:
        others = [name for name in detected.levels if name != detected.main]
        verb = "is" if len(others) == 1 else "are"
        why = f"trained on; {', '.join(others)} {verb} evaluated too, without being trained on"
        proposal.put("data", {"level": detected.main}, why)
    split, why = _split(detected, sizes)
    proposal.put("data", {"split": split}, why)
    proposal.values = LadderSettings.with_overrides(proposal.values, changes)
    known = dict(ladder or {})
    if detected.images is not None:
        encoders = bool(known.get("weights") or known.get("start")) or bool(at_hand("images"))
        _put_images(proposal, detected.images, encoders=encoders)
    if detected.images is not None and detected.listing is not None:
        splits = _splits_of_images(proposal, detected, detected.images)
    elif detected.item_kind == "images and texts":
        config = LadderSettings.parse(proposal.values, source=PROPOSED).data
        assert isinstance(config, PairsConfig)
        splits = with_validation_fold(load_sides(config, (None, None), unread=True), config)
    else:
        splits = load(LadderSettings.parse(proposal.values, source=PROPOSED).data, data_root)
        if detected.kind == "texts":
            _check_texts(splits)
    findings += [warning.removesuffix(".") + "." for warning in splits.warnings]
    proposal.put(
        "ladder",
        {"rungs": list(RUNGS)},
        "tried in this order; each is compared with the best encoder as it is, on items held out",
    )
    proposal.put("ladder", known)
    why = "nearest neighbours are those of the smallest angle, whatever the length of an embedding"
    proposal.put("evaluation", {"distance": "cosine"}, why)
    if detected.kind != "pairs" and not detected.levels.keys() <= detected.tags.keys():
        proposal.put("evaluation", {"nmi_plus": 2}, "clusters per class; more take long where classes are many")
    settings = LadderSettings.parse(proposal.values, source="init")
    proposer = make_proposer(settings, splits.train, splits.level, len(sizes))
    names = [entry.encoder.name for entry in proposer.ready]
    if detected.kind != "vectors":
        findings.append(_encoders_sentence(names, proposer.missing))
    return proposal


def propose_ladder(
    path: Path,
    detected: DetectedData,
    *,
    ladder: Mapping[str, Any] | None = None,
    changes: Sequence[str] = (),
    data_root: Path | None = None,
) -> tuple[LadderSettings, list[str]]:
    """The settings of `propose`, with changes of the form "section.key=value", and what was found in the data."""
    of_data = [change for change in changes if change.startswith("data.")]
    proposal = propose(path, detected, ladder=ladder, changes=of_data, data_root=data_root)
    values = LadderSettings.with_overrides(proposal.values, changes)
    return LadderSettings.parse(values, source=PROPOSED), proposal.findings


def _encoders_sentence(names: Sequence[str], missing: Sequence[str]) -> str:
    """A sentence on the encoders that will be compared, and on how to have others."""
    text = f"Encoders to compare: {', '.join(names)}." if names else "No pretrained encoder is on this machine."
    if missing:
        text += f" trivet encoders --download fetches others once: {', '.join(missing)}."
    return text


def write_settings(proposal: Proposal, path: Path, output: Path, schema: Path | None) -> None:
    """Write a proposal as a settings file with its reasons as comments; it names the data and the JSON schema."""
    text = as_text(proposal, path, output, schema)
    assert LadderSettings.parse(parse_toml(text), source=str(output)), "a proposal can be trained"
    write_atomic(output, text.encode())


def as_text(proposal: Proposal, path: Path, output: Path, schema: Path | None) -> str:
    """The settings file."""
    lines = [INIT_START + printable(f" {path}: train with trivet train {typed(output)}")]
    if schema is not None:
        schema_path = schema.resolve()
        folder = output.parent.resolve()
        near = schema_path.relative_to(folder) if schema_path.is_relative_to(folder) else None
        lines.append(f"#:schema {f'./{near.as_posix()}' if near is not None else schema_path.as_uri()}")
    lines += ["#", "# Found:"]
    for finding in proposal.findings:
        lines += _comment(finding, first="#   ")
    lines += ["#", *_comment(f"Paths are relative to the folder that trivet is started in. All settings: {DOCS}."), ""]
    lines += ["seed = 0"]
    for name, values in proposal.values.items():
        lines += ["", f"[{name}]"]
        for key, value in values.items():
            line = f"{key} = {as_toml(value)}"
            why = printable(proposal.reasons.get(f"{name}.{key}", ""))
            if why and len(line) + len(why) + 4 <= WIDTH:
                lines.append(f"{line}  # {why}")
            else:
                lines += [*(_comment(why) if why else []), line]
    return "\n".join(lines) + "\n"


def as_toml(value: Any) -> str:
    """A value in one line of TOML."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{as_toml(key)} = {as_toml(inner)}" for key, inner in value.items()) + " }"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")


def _comment(text: str, first: str = "# ") -> list[str]:
    later = "#" + " " * (len(first) + 1)
    return textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=later if first != "# " else first,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _findings(detected: DetectedData, path: Path) -> list[str]:
    """Sentences on the data."""
    findings = [f"{detected.items:,} {detected.item_kind} in {path}."]
    for level in detected.levels:
        sizes = detected.sizes(level)
        single = int((sizes == 1).sum())
        kind = "tag" if level in detected.tags else "group" if detected.kind == "pairs" else "class"
        findings.append(
            f"{level}: {many(len(sizes), kind)} of {_range(sizes, 'item')}"
            f"{f'; {single:,} of a single item' if single else ''}."
        )
    if detected.images is not None:
        findings += _image_findings(detected, detected.images)
    return findings


def many(count: int, singular: str) -> str:
    """A number and what it counts: 1 item, 1,000 items."""
    return f"{count:,} {noun(count, singular)}"


def _range(numbers: np.ndarray, unit: str) -> str:
    """The smallest, the largest and the median of some numbers."""
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return many(low, unit)
    return f"{low:,} to {many(high, unit)}, median {np.median(numbers):,.0f}"


def _image_findings(detected: DetectedData, images: Images) -> list[str]:
    short = images.sides.min(axis=1)
    everything = detected.listing is not None and images.num_decoded == detected.items
    extent = "all" if everything else f"{images.num_decoded:,} of them"
    findings = [
        f"The shorter side of an image has {_range(short, 'pixel')}{', and no colours' if images.grey else ''} "
        f"({extent} looked at)."
    ]
    if images.broken:
        assert detected.listing is not None, "of pairs, a broken image ends the reading"
        position, why = next(iter(images.broken.items()))
        findings.append(
            f"{many(len(images.broken), 'image')} of {images.num_decoded:,} cannot be read and will be left out, "
            f"first {detected.listing.ids[position]} ({why})."
        )
    return findings


def _split(detected: DetectedData, sizes: np.ndarray) -> tuple[str, str]:
    """Split of the items, and why; `sizes` of the classes of the level trained on."""
    if detected.divided:
        where = "the folders train/, test/ and val/ say" if detected.kind == "folder" else "a column says"
        return "auto", f"{where} what is trained on"
    if detected.kind == "pairs" and detected.data["split"] == "queries":
        return "queries", "most hang together, so that single ones are held out, with what belongs to no other"
    if detected.kind == "pairs":
        return "groups", "pairs that share no content with those that are trained on are evaluated"
    if detected.main in detected.tags:
        return "in-class", "items with tags have no class to hold out: a share of the items is"
    finest = detected.sizes(list(detected.levels)[-1])
    if len(sizes) < FEW_TO_SPLIT and finest[-1] >= 4:
        return "in-class", f"{len(sizes)} classes are too few to hold some out: items of each are"
    why = 'half of the classes are never trained on, as new classes are the test of an embedding; else "in-class"'
    return "class-disjoint", why


def _check_texts(splits: Splits) -> None:
    """ValueError unless two training classes have two different texts: of equal ones a batch holds one."""
    if splits.level in splits.train.relations:
        return
    labels = splits.train.labels[splits.level]
    rows = with_positive(distinct_texts(splits.train, splits.level).rows, labels)
    if (usable := len(np.unique(labels[rows]))) < 2:
        raise ValueError(
            f"batches need at least two training classes, of texts with two that differ: got {usable} in "
            f"{splits.level!r}; add items or name another column with --labels."
        )


def _splits_of_images(proposal: Proposal, detected: DetectedData, images: Images) -> Splits:
    """The images, none of which is read, in their parts."""
    assert detected.listing is not None
    config = LadderSettings.parse(proposal.values, source=PROPOSED).data
    assert isinstance(config, ImageFilesConfig)
    readable = None
    if images.num_decoded == detected.items:
        readable = np.setdiff1d(np.arange(detected.items), list(images.broken))
    splits = split_listing(config, detected.listing, readable)
    return replace(splits, warnings=leak_warnings(splits, "images"))


def _put_images(proposal: Proposal, images: Images, *, encoders: bool) -> None:
    """Size and colours of the images."""
    sides = np.median(images.sides, axis=0)
    most = ENCODER_SIDES[torch.cuda.is_available()] if encoders else SIDE
    short = int(min(most, max(STEP, sides.min())))
    size: int | list[int] = short
    why = "larger ones show more and take longer" if sides.min() > short else "as the images have"
    ratio = float(sides[0] / sides[1])
    if max(ratio, 1 / ratio) >= LONG:
        long = STEP * round(short * min(3.0, max(ratio, 1 / ratio)) / STEP)
        size = [long, short] if ratio > 1 else [short, long]
        shape = "longer than wide" if ratio > 1 else "wider than high"
        why = f"height and width, as most images are so much {shape}"
    proposal.put("data", {"image_size": size}, why)
    if images.grey:
        proposal.put("data", {"channels": 1}, "no image that was looked at has colours")
    share = len(images.broken) / images.num_decoded
    if share > 0.005:
        why = f"{100 * share:.1f} % of those looked at cannot be read; above this share a run stops"
        proposal.put("data", {"allow_corrupt": min(1.0, math.ceil(200 * share) / 100)}, why)
