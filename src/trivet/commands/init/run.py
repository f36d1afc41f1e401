"""`trivet init`: settings that suit data of one's own, written with what was found in them and why each was chosen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w
import torch

from trivet.commands.init.data import DetectedData, Images, detect
from trivet.commands.train.train_on_vectors import ITEM_FOLDS, suited
from trivet.datasets import DataConfig, Splits, load
from trivet.datasets.dataset import hold_out_fold, holds_items_out
from trivet.datasets.equal_items import distinct_texts, trained_and_evaluated, with_positive
from trivet.datasets.image_files import ImageFilesConfig, split_listing
from trivet.io.atomic_files import write_atomic
from trivet.io.overwrite_guard import INIT_START
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.models.config import TEXT
from trivet.models.encoder_weights import EncoderAtHand, at_hand
from trivet.runtime.extras import installed
from trivet.runtime.safe_read import parse_toml
from trivet.runtime.terminal import printable
from trivet.runtime.text import noun, typed
from trivet.training.checkpoint_selection import SPLITS
from trivet.training.components import check_before_data, check_levels, make_batches
from trivet.training.config import RunConfig

WIDTH = 118  # of a line of comment
FEW_CLASSES = 8  # below it, no class is held out
CHOOSABLE, FOLDS = 20, 4  # training classes from which on a quarter of them chooses the step
EASY, USUAL = 8, 4  # samples of a class in a batch, with easy positives or of vectors, and with random ones
BATCH, HEAD_BATCH = 128, 256  # items of a batch
SIDE, TUNED_SIDES = 64, (96, 224)  # pixels, of a small network, and of a pretrained one without and with a GPU
LONG = 1.4  # the ratio of sides from which on images are not cut to squares
PASSES, TUNED_PASSES = 20, 10  # how often training sees each item, from nothing and on pretrained weights
LEAST_STEPS, MOST_STEPS = 200, 2000
MANY_CLASSES = 50  # that are evaluated, from which on fewer clusters per class are made
SENTENCES = "sentence_transformers"
DOCS = "docs/settings.md"


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
    *,
    labels: Sequence[str] | None = None,
    text: str | None = None,
    encoder: str | None = None,
    weights: Mapping[str, Path] | None = None,
    choice: VectorChoice = NO_CHOICE,
    skip_empty: bool = False,
    data_root: Path | None = None,
) -> Proposal:
    """Settings that suit the data at a path, checked as far as can be without training.

    Args:
        path, labels, text, choice, skip_empty: see `detect`.
        encoder: of texts, a sentence-transformers model, by name or folder.
        weights: of images, see `at_hand`.
    """
    detected = detect(path, labels, text, choice, skip_empty=skip_empty, root=data_root)
    if encoder is not None and detected.kind != "texts":
        raise ValueError(f"--encoder makes vectors of texts: {path} holds {_kind_name(detected)}; leave it out.")
    if weights and detected.images is None:
        raise ValueError(f"--weights is for images: {path} holds {_kind_name(detected)}; leave it out.")
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
    if detected.images is not None:
        splits = _propose_for_images(proposal, detected, detected.images, weights)
    else:
        if detected.kind == "texts":
            _put_encoder(proposal, encoder)
        splits = _propose_for_vectors(proposal, data_root)
    findings += [warning.removesuffix(".") + "." for warning in splits.warnings]
    _put_loss_for_singles(proposal, splits)
    settings = RunConfig.parse(proposal.values, source="init")
    check_before_data(settings)
    check_levels(settings, splits.train.labels)
    make_batches(settings, splits.train, splits.level)
    return proposal


def write_settings(proposal: Proposal, path: Path, output: Path, schema: Path | None) -> None:
    """Write a proposal as a settings file with its reasons as comments; it names the data and the JSON schema."""
    text = as_text(proposal, path, output, schema)
    assert RunConfig.parse(parse_toml(text), source=str(output)), "a proposal can be trained"
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


def _kind_name(detected: DetectedData) -> str:
    return detected.kind if detected.images is None else "images"


def _findings(detected: DetectedData, path: Path) -> list[str]:
    """Sentences on the data."""
    findings = [f"{detected.items:,} {_kind_name(detected)} in {path}."]
    for level in detected.levels:
        sizes = detected.sizes(level)
        single = int((sizes == 1).sum())
        findings.append(
            f"{level}: {many(len(sizes), 'class')} of {_range(sizes, 'item')}"
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
    extent = "all" if images.num_decoded == detected.items else f"{images.num_decoded:,} of them"
    findings = [
        f"The shorter side of an image has {_range(short, 'pixel')}{', and no colours' if images.grey else ''} "
        f"({extent} looked at)."
    ]
    if images.broken:
        assert detected.listing is not None
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
    finest = detected.sizes(list(detected.levels)[-1])
    if len(sizes) < FEW_CLASSES and finest[-1] >= 4:
        return "in-class", f"{len(sizes)} classes are too few to hold some out: items of each are"
    why = 'half of the classes are never trained on, as new classes are the test of an embedding; else "in-class"'
    return "class-disjoint", why


def _put_encoder(proposal: Proposal, encoder: str | None) -> None:
    """The encoder of texts that was asked for, else one that is at hand."""
    if encoder is not None:
        proposal.put("data", {"encoder": encoder})
        return
    usable = (entry for entry in at_hand("texts") if not entry.encoder.prefix) if installed(SENTENCES) else ()
    ready = next(iter(usable), None)
    if ready is not None:
        why = "is on this machine; without it, character n-grams, which know no meaning"
        proposal.put("data", {"encoder": ready.model["name"].removeprefix(TEXT)}, why)


def _propose_for_vectors(proposal: Proposal, data_root: Path | None) -> Splits:
    """A head, as `trivet train --vectors` makes it, on vectors or those of texts."""
    data = proposal.values["data"]
    splits = load(DataConfig.parse(data, source="data"), data_root)
    values = suited({"data": data}, splits)
    folds, of = (values["data"].get(key) for key in ("folds", "folds_of"))
    if folds is not None:
        splits = _hold_out(proposal, splits, folds, of or "classes")
    usable = _counts(splits)
    if proposal.kind == "texts":  # of which a batch holds no two that are equal
        labels = splits.train.labels[splits.level]
        rows = with_positive(distinct_texts(splits.train, splits.level).rows, labels)
        usable = np.unique(labels[rows], return_counts=True)[1]
    if len(usable) < 2:
        raise ValueError(
            f"batches need at least two training classes, of texts with two that differ: got {len(usable)} in "
            f"{splits.level!r}; add items or name another column with --labels."
        )
    raw = "the vectors themselves"
    if proposal.kind == "texts" and "encoder" not in data:
        raw = 'vectors of character n-grams: --encoder or model.name = "text:FOLDER" know meaning, see docs/texts.md'
    proposal.put("model", values["model"], f"a linear head that begins as {raw}")
    proposal.reasons["model.embedding_dim"] = "as long as the vectors; fewer begin as their projection"
    _put_batch(
        proposal,
        usable,
        min(EASY, max(2, int(np.median(usable)))),
        HEAD_BATCH,
        holdout=folds is not None and of is None,
    )
    proposal.put("loss", values["loss"], "this and the rest were chosen on CLINC150, BANKING77 and CUB")
    steps = "a minute; the step kept is the best of them"
    if "choosing" not in values:
        steps = "too few classes to choose the best by"
    proposal.put("training", values["training"], steps)
    proposal.put("evaluation", values["evaluation"])
    if "choosing" in values:
        proposal.put("choosing", values["choosing"], "the vectors as they are, if no step is surely better")
    return splits


def _propose_for_images(
    proposal: Proposal, detected: DetectedData, images: Images, weights: Mapping[str, Path] | None
) -> Splits:
    """A pretrained network where one is at hand, else a small one."""
    assert detected.listing is not None
    backbone = next(iter(at_hand("images", weights)), None) if weights or not images.grey else None
    _put_images(proposal, images, backbone)
    config = DataConfig.parse(proposal.values["data"], source="data")
    assert isinstance(config, ImageFilesConfig)
    readable = None
    if images.num_decoded == detected.items:
        readable = np.setdiff1d(np.arange(detected.items), list(images.broken))
    splits = split_listing(config, detected.listing, readable)
    splits = replace(splits, warnings=trained_and_evaluated(splits))
    choosable, folds = any(name in splits.evaluation for name in SPLITS), False
    if not choosable and holds_items_out(splits):
        splits, choosable = _hold_out(proposal, splits, ITEM_FOLDS, "items"), True
    elif not choosable and len(_counts(splits)) >= CHOOSABLE:
        splits, choosable, folds = _hold_out(proposal, splits, FOLDS, "classes"), True, True
    counts = _counts(splits)
    coarse = splits.level != list(detected.levels)[-1]
    _put_network(proposal, backbone)
    _put_batch(proposal, counts, EASY if coarse else max(2, min(USUAL, int(np.median(counts)))), BATCH, holdout=folds)
    if coarse:
        proposal.put("loss", {"name": "triplet"})
        why = "finer classes lie in one: each item is pulled to its nearest of the class alone, so that they stay apart"
        proposal.put("loss", {"positives": "easy", "negatives": "semihard", "margin": 0.2}, why)
    else:
        why = 'among the best on four data sets; positives = "easy" if a class holds several kinds'
        proposal.put("loss", {"name": "multi-similarity", "threshold": 0.5}, why)
    _put_training(proposal, len(splits.train), tuned=backbone is not None)
    every = max(1, proposal.values["training"]["steps"] // 10)
    proposal.put("evaluation", {"every": every}, "steps between two looks at items held out")
    tested = max(len(np.unique(list(dataset.labels.values())[-1])) for dataset in splits.evaluation.values())
    if tested > MANY_CLASSES:
        proposal.put("evaluation", {"nmi_plus": 2}, f"clusters per class; more take long with {tested:,}")
    if choosable:
        proposal.put("choosing", {"keep": "best"}, "the best step; the start, if none is surely better")
    return splits


def _hold_out(proposal: Proposal, splits: Splits, folds: int, of: Literal["classes", "items"]) -> Splits:
    """The splits with a fold to choose the step by, which is put into the proposal."""
    what = "the training classes" if of == "classes" else "the items of each class"
    why = f"one of {folds} folds of {what} is held out, to choose the step by"
    why += "" if of == "classes" else ", as queries are of these classes"
    proposal.put("data", {"folds": folds} | ({"folds_of": of} if of == "items" else {}), why)
    return hold_out_fold(splits, folds, 0, of)


def _put_images(proposal: Proposal, images: Images, backbone: EncoderAtHand | None) -> None:
    """Size, colours and changes of the images."""
    sides = np.median(images.sides, axis=0)
    most = SIDE if backbone is None else TUNED_SIDES[torch.cuda.is_available()]
    short, step = int(min(most, max(8, sides.min()))), 8
    if backbone is not None and backbone.encoder.patch > 1:  # which cuts images into whole squares
        short, step = backbone.encoder.image_size(short), backbone.encoder.patch
    size: int | list[int] = short
    why = "larger ones show more and take longer" if sides.min() > short else "as the images have"
    ratio = float(sides[0] / sides[1])
    if max(ratio, 1 / ratio) >= LONG:
        long = step * round(short * min(3.0, max(ratio, 1 / ratio)) / step)
        size = [long, short] if ratio > 1 else [short, long]
        shape = "longer than wide" if ratio > 1 else "wider than high"
        why = f"height and width, as most images are so much {shape}"
    proposal.put("data", {"image_size": size}, why)
    if images.grey:
        proposal.put("data", {"channels": 1}, "no image that was looked at has colours")
        why = '"crop-flip" shifts and mirrors images: not for letters or digits'
        proposal.put("data", {"augment": "none"}, why)
    else:
        why = 'shifts and mirrors images: "none" for letters, or where sides matter'
        proposal.put("data", {"augment": "crop-flip"}, why)
    share = len(images.broken) / images.num_decoded
    if share > 0.005:
        why = f"{100 * share:.1f} % of those looked at cannot be read; above this share a run stops"
        proposal.put("data", {"allow_corrupt": min(1.0, math.ceil(200 * share) / 100)}, why)


def _put_network(proposal: Proposal, backbone: EncoderAtHand | None) -> None:
    """The network and the length of an embedding."""
    if backbone is not None:
        proposal.put("model", {**backbone.model, "embedding_dim": 128}, "its weights are on this machine")
        return
    side = np.min(proposal.values["data"]["image_size"])
    name = "mlp" if side < 8 else "conv2" if side < 16 else "conv3" if side <= 32 else "conv4"
    why = (
        f"from nothing. Pretrained is nearly always better, at {TUNED_SIDES[0]} pixels or more: trivet encoders "
        "--download efficientnet-lite0 fetches weights once, --weights NAME=FILE has them: docs/networks.md"
    )
    proposal.put("model", {"name": name, "embedding_dim": 64}, why)


def _put_batch(proposal: Proposal, counts: np.ndarray, samples: int, most: int, *, holdout: bool) -> None:
    """Classes and samples of a batch from the sizes of the training classes, less those that are held out."""
    classes = max(2, min(len(counts), most // samples))
    of = "all" if classes == len(counts) else f"of {len(counts):,}"
    less = " less those held out" if holdout else ""
    what = f"{of} training classes{less}; {classes * samples} items are compared with each other"
    proposal.put("batch", {"num_classes": classes}, what)
    why = f"a median class has {np.median(counts):,.0f}; a smaller one gives all it has"
    proposal.put("batch", {"samples_per_class": samples}, why)


def _put_training(proposal: Proposal, items: int, *, tuned: bool) -> None:
    """Steps by the number of items, and the optimiser."""
    batch = math.prod(proposal.values["batch"].values())
    wanted = (TUNED_PASSES if tuned else PASSES) * items / batch
    steps = int(min(MOST_STEPS, max(LEAST_STEPS, round(wanted, -2))))
    passes = steps * batch / items
    why = f"each item is seen about {passes:,.0f} times: a first guess; the curves of the report say if more would help"
    if passes < 1:
        why = f"{100 * passes:.0f} % of the items are seen: a first look; train longer if it helps"
    proposal.put("training", {"steps": steps}, why)
    if tuned:
        proposal.put("training", {"optimizer": "adamw"})
        rate = {"learning_rate": 3e-5, "weight_decay": 1e-4, "schedule": "cosine"}
        proposal.put("training", rate, "a backbone loses what it knows at larger ones")
    else:
        proposal.put("training", {"learning_rate": 1e-3})


def _counts(splits: Splits) -> np.ndarray:
    """The sizes of the training classes."""
    counts = np.bincount(splits.train.labels[splits.level])
    return counts[counts > 0]


def _put_loss_for_singles(proposal: Proposal, splits: Splits) -> None:
    """Take a loss that needs no positive, where a training class has a single item."""
    counts = _counts(splits)
    single = int((counts == 1).sum())
    if single:
        why = (
            f"{single:,} of {len(counts):,} training classes of {splits.level} have one item, so no positive: this "
            "loss compares items with a proxy per class. Without these items, take triplet"
        )
        proposal.values["loss"] = {"name": "proxy-nca"}
        proposal.reasons = {key: reason for key, reason in proposal.reasons.items() if not key.startswith("loss.")}
        proposal.reasons["loss.name"] = why
