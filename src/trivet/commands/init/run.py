"""`trivet init`: settings that suit data of one's own, written with what was found in them and why each was chosen."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w
import torch

from trivet.commands.init.data import DetectedData, Images, detect
from trivet.commands.train.train_on_vectors import suited
from trivet.datasets import DataConfig, Splits, load
from trivet.datasets.dataset import hold_out_fold
from trivet.datasets.duplicate_texts import distinct_texts, with_positive
from trivet.datasets.image_files import ImageFilesConfig, split_listing
from trivet.io.atomic_files import write_atomic
from trivet.io.overwrite_guard import INIT_START
from trivet.models.config import TIMM
from trivet.runtime.extras import installed
from trivet.runtime.safe_read import parse_toml
from trivet.runtime.terminal import printable
from trivet.runtime.text import noun
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
# Pretrained networks that are looked for on this machine, the first ones first.
BACKBONES = ("tf_efficientnet_lite0.in1k", "resnet50.a1_in1k", "resnet18.a1_in1k")
ENCODERS = ("sentence-transformers/all-MiniLM-L6-v2",)
WEIGHTS = "model.safetensors"
DOCS = "docs/settings.md"


class ProposedSetting(NamedTuple):
    """A setting and why it has its value; the reason may be empty."""

    key: str
    value: Any
    why: str = ""


class Proposal(NamedTuple):
    """Settings that suit some data.

    Attributes:
        kind: the data set that reads them.
        detected: what was found, in sentences.
        sections: section -> its settings.
        items, classes: how many items there are, and classes at the level trained on.
    """

    kind: str
    findings: list[str]
    sections: dict[str, list[ProposedSetting]]
    items: int
    classes: int

    @property
    def values(self) -> dict[str, dict[str, Any]]:
        """The settings as a file has them."""
        return {name: {entry.key: entry.value for entry in entries} for name, entries in self.sections.items()}


def propose(
    path: Path,
    *,
    labels: Sequence[str] | None = None,
    text: str | None = None,
    encoder: str | None = None,
    data_root: Path | None = None,
) -> Proposal:
    """Settings that suit the data at a path, checked as far as can be without training.

    Args:
        path: a folder of images, a table of images or texts, or vectors.
        labels: the columns, or names of folder levels, that are labels, coarse first; guessed, if not given.
        text: the column of texts.
        encoder: of texts, a sentence-transformers model, by name or folder.
        data_root: see `trivet.datasets.load`.

    Raises:
        ValueError: if there is nothing that can be trained on, or an option does not fit.
    """
    detected = detect(path, labels, text)
    if encoder is not None and detected.kind != "texts":
        raise ValueError(f"--encoder makes vectors of texts: {path} holds {_kind_name(detected)}; leave it out.")
    level = detected.main
    sizes = detected.sizes(level)
    findings = [*_findings(detected, path), *detected.notes]
    whys = {"levels" if "levels" in detected.data else "root": detected.guessed}
    if detected.kind == "table" and "root" in detected.data:
        whys["root"] = "the paths start where trivet is started, not at the table"
    data = [ProposedSetting(key, value, whys.get(key, "")) for key, value in detected.data.items()]
    data += _level(detected) + _split(detected, sizes)
    if detected.kind == "texts":
        data += _encoder(encoder)
    if detected.images is not None:
        sections, splits = _image_sections(detected, detected.images, data)
    else:
        sections, splits = _vector_sections(detected, data, data_root)
        findings += [warning.removesuffix(".") + "." for warning in splits.warnings]
    settings = RunConfig.parse(
        {name: {e.key: e.value for e in entries} for name, entries in sections.items()}, source="init"
    )
    check_before_data(settings)
    check_levels(settings, splits.train.labels)
    make_batches(settings, splits.train, splits.level)
    return Proposal(detected.kind, findings, sections, detected.items, len(sizes))


def write_settings(proposal: Proposal, path: Path, output: Path, schema: Path | None) -> None:
    """Write a proposal as a settings file with its reasons as comments.

    Args:
        path: the data, named in the first line.
        output: the file.
        schema: the JSON schema for editors, which the file then names.

    Raises:
        OSError: if it cannot be written.
    """
    text = as_text(proposal, path, output, schema)
    assert RunConfig.parse(parse_toml(text), source=str(output)), "a proposal can be trained"
    write_atomic(output, text.encode())


def as_text(proposal: Proposal, path: Path, output: Path, schema: Path | None) -> str:
    """The settings file."""
    lines = [INIT_START + printable(f" {path}: train with trivet train {output}")]
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
    for name, entries in proposal.sections.items():
        lines += ["", f"[{name}]"]
        for entry in entries:
            line = f"{entry.key} = {as_toml(entry.value)}"
            why = printable(entry.why)
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
    return {"folder": "images", "table": "images", "vectors": "vectors", "texts": "texts"}[detected.kind]


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


def _level(detected: DetectedData) -> list[ProposedSetting]:
    """The level trained on, where there are several."""
    if len(detected.levels) == 1:
        return []
    others = [name for name in detected.levels if name != detected.main]
    why = (
        f"trained on; {', '.join(others)} {'is' if len(others) == 1 else 'are'} evaluated too, without being trained on"
    )
    return [ProposedSetting("level", detected.main, why)]


def _split(detected: DetectedData, sizes: np.ndarray) -> list[ProposedSetting]:
    """Split of the items, and why; `sizes` of the classes of the level trained on."""
    if detected.divided:
        where = "the folders train/, test/ and val/ say" if detected.kind == "folder" else "the column split says"
        return [ProposedSetting("split", "auto", f"{where} what is trained on")]
    finest = detected.sizes(list(detected.levels)[-1])
    if len(sizes) < FEW_CLASSES and finest[-1] >= 4:
        return [
            ProposedSetting(
                "split", "in-class", f"{len(sizes)} classes are too few to hold some out: items of each are"
            )
        ]
    why = 'half of the classes are never trained on, as new classes are the test of an embedding; else "in-class"'
    return [ProposedSetting("split", "class-disjoint", why)]


def _encoder(encoder: str | None) -> list[ProposedSetting]:
    """Encoder of texts."""
    if encoder is not None:
        return [ProposedSetting("encoder", encoder)]
    at_hand = next((name for name in ENCODERS if installed("sentence_transformers") and _cached(name)), None)
    if at_hand is not None:
        return [
            ProposedSetting(
                "encoder", at_hand, "is on this machine; without it, character n-grams, which know no meaning"
            )
        ]
    return []


def _cached(repository: str) -> bool:
    """Test whether the weights of a model of the Hugging Face hub were downloaded before."""
    if not installed("huggingface_hub"):
        return False
    from huggingface_hub import try_to_load_from_cache  # here: few need it

    return isinstance(try_to_load_from_cache(repository, WEIGHTS), str)


Sections = dict[str, list[ProposedSetting]]


def _vector_sections(
    detected: DetectedData, data: list[ProposedSetting], data_root: Path | None
) -> tuple[Sections, Splits]:
    """A head, as `trivet train --vectors` makes it, on vectors or those of texts."""
    data_values = {setting.key: setting.value for setting in data}
    splits = load(DataConfig.parse(data_values, source="data"), data_root)
    values = suited({"data": data_values}, splits)
    folds = values["data"].get("folds")
    if folds is not None:
        splits = hold_out_fold(splits, folds, 0)
        data = [
            *data,
            ProposedSetting(
                "folds", folds, f"one of {folds} folds of the training classes is held out, to choose the step by"
            ),
        ]
    counts = usable = _counts(splits)
    if detected.kind == "texts":  # of which a batch holds no two that are equal
        labels = splits.train.labels[splits.level]
        usable = np.unique(
            labels[with_positive(distinct_texts(splits.train, splits.level).rows, labels)], return_counts=True
        )[1]
    if len(usable) < 2:
        raise ValueError(
            f"batches need at least two training classes, of texts with two that differ: got {len(usable)} in "
            f"{splits.level!r}; add items or name another column with --labels."
        )
    model, loss = values["model"], values["loss"]
    raw = "the vectors themselves"
    if detected.kind == "texts" and "encoder" not in data_values:
        raw = 'vectors of character n-grams: --encoder or model.name = "text:FOLDER" know meaning, see docs/texts.md'
    sections: Sections = {
        "data": data,
        "model": [
            ProposedSetting("name", model["name"], f"a linear head that begins as {raw}"),
            ProposedSetting(
                "embedding_dim", model["embedding_dim"], "as long as the vectors; fewer begin as their projection"
            ),
        ],
        "batch": _batch(usable, min(EASY, max(2, int(np.median(usable)))), HEAD_BATCH, holdout=folds is not None),
        "loss": [ProposedSetting(key, value) for key, value in loss.items()],
        "training": [ProposedSetting(key, value) for key, value in values["training"].items()],
        "evaluation": [ProposedSetting(key, value) for key, value in values["evaluation"].items()],
        "choosing": [ProposedSetting(key, value) for key, value in values.get("choosing", {}).items()],
    }
    sections["loss"][0] = ProposedSetting(
        "name", loss["name"], "this and the rest were chosen on CLINC150, BANKING77 and CUB"
    )
    sections["training"][0] = ProposedSetting(
        "steps", values["training"]["steps"], "a minute; the step kept is the best of them"
    )
    if sections["choosing"]:
        sections["choosing"][0] = ProposedSetting(
            "keep", "best", "the vectors as they are, if no step is better beyond doubt"
        )
    else:
        del sections["choosing"]
        sections["training"][0] = ProposedSetting(
            "steps", values["training"]["steps"], "too few classes to choose the best by"
        )
    return _singles(sections, counts, splits.level), splits


def _image_sections(detected: DetectedData, images: Images, data: list[ProposedSetting]) -> tuple[Sections, Splits]:
    """A pretrained network where one is at hand, else a small one."""
    assert detected.listing is not None
    backbone = None if images.grey else next((name for name in BACKBONES if _cached(f"timm/{name}")), None)
    data = [*data, *_image_settings(detected, images, backbone)]
    values = {setting.key: setting.value for setting in data}
    config = DataConfig.parse(values, source="data")
    assert isinstance(config, ImageFilesConfig)
    readable = None
    if images.num_decoded == detected.items:
        readable = np.setdiff1d(np.arange(detected.items), list(images.broken))
    splits = split_listing(config, detected.listing, readable)
    choosable = any(name in splits.evaluation for name in SPLITS)
    if not choosable and len(_counts(splits)) >= CHOOSABLE:
        splits = hold_out_fold(splits, FOLDS, 0)
        why = "a quarter of the training classes is held out, to choose the step by"
        data, choosable = [*data, ProposedSetting("folds", FOLDS, why)], True
    counts = _counts(splits)
    coarse = splits.level != list(detected.levels)[-1]
    sections: Sections = {"data": data, "model": _network(detected, images, backbone, values["image_size"])}
    samples = EASY if coarse else max(2, min(USUAL, int(np.median(counts))))
    sections["batch"] = _batch(counts, samples, BATCH, holdout=any(entry.key == "folds" for entry in data))
    if coarse:
        why = "finer classes lie in one: each item is pulled to its nearest of the class alone, so that they stay apart"
        sections["loss"] = [
            ProposedSetting("name", "triplet"),
            ProposedSetting("positives", "easy", why),
            ProposedSetting("negatives", "semihard"),
            ProposedSetting("margin", 0.2),
        ]
    else:
        why = 'among the best on four data sets; positives = "easy" if a class holds several kinds'
        sections["loss"] = [ProposedSetting("name", "multi-similarity", why), ProposedSetting("threshold", 0.5)]
    size = math.prod(setting.value for setting in sections["batch"])
    sections["training"] = _training(len(splits.train), size, tuned=backbone is not None)
    steps = int(sections["training"][0].value)
    sections["evaluation"] = [
        ProposedSetting("every", max(1, steps // 10), "steps between two looks at items held out")
    ]
    tested = max(len(np.unique(list(dataset.labels.values())[-1])) for dataset in splits.evaluation.values())
    if tested > MANY_CLASSES:
        sections["evaluation"].append(
            ProposedSetting("nmi_plus", 2, f"clusters per class; more take long with {tested:,}")
        )
    if choosable:
        sections["choosing"] = [
            ProposedSetting("keep", "best", "the best step; the start, if none is better beyond doubt")
        ]
    return _singles(sections, counts, splits.level), splits


def _image_settings(detected: DetectedData, images: Images, backbone: str | None) -> list[ProposedSetting]:
    """Size, colours and changes of the images."""
    sides = np.median(images.sides, axis=0)
    most = SIDE if backbone is None else TUNED_SIDES[torch.cuda.is_available()]
    short = int(min(most, max(8, sides.min())))
    size: int | list[int] = short
    ratio = float(sides[0] / sides[1])
    if max(ratio, 1 / ratio) >= LONG:
        long = 8 * round(short * min(3.0, max(ratio, 1 / ratio)) / 8)
        size = [long, short] if ratio > 1 else [short, long]
    larger = sides.min() > short
    entries = [
        ProposedSetting("image_size", size, "larger ones show more and take longer" if larger else "as the images have")
    ]
    if isinstance(size, list):
        entries[0] = ProposedSetting(
            "image_size",
            size,
            "height and width, as most images are so much longer than wide"
            if ratio > 1
            else "height and width, as most images are so much wider than high",
        )
    if images.grey:
        entries += [ProposedSetting("channels", 1, "no image that was looked at has colours")]
        entries += [
            ProposedSetting("augment", "none", '"crop-flip" shifts and mirrors images: not for letters or digits')
        ]
    else:
        entries += [
            ProposedSetting(
                "augment", "crop-flip", 'shifts and mirrors images: "none" for letters, or where sides matter'
            )
        ]
    share = len(images.broken) / images.num_decoded
    if share > 0.005:
        why = f"{100 * share:.1f} % of those looked at cannot be read; above this share a run stops"
        entries.append(ProposedSetting("allow_corrupt", min(1.0, math.ceil(200 * share) / 100), why))
    return entries


def _network(
    detected: DetectedData, images: Images, backbone: str | None, size: int | list[int]
) -> list[ProposedSetting]:
    """The network and the length of an embedding."""
    if backbone is not None:
        return [
            ProposedSetting("name", f"{TIMM}{backbone}", "its weights are on this machine"),
            ProposedSetting("pretrained", True),
            ProposedSetting("embedding_dim", 128),
        ]
    side = size if isinstance(size, int) else min(size)
    name = "mlp" if side < 8 else "conv2" if side < 16 else "conv3" if side <= 32 else "conv4"
    why = (
        f'from nothing. Pretrained is nearly always better, at {TUNED_SIDES[0]} pixels or more: "{TIMM}{BACKBONES[0]}" '
        "with pretrained = true downloads its weights once, weights = FILE has them: docs/networks.md"
    )
    return [ProposedSetting("name", name, why), ProposedSetting("embedding_dim", 64)]


def _batch(counts: np.ndarray, samples: int, most: int, *, holdout: bool) -> list[ProposedSetting]:
    """Classes and samples of a batch from the sizes of the training classes, less those that are held out."""
    classes = max(2, min(len(counts), most // samples))
    of = "all" if classes == len(counts) else f"of {len(counts):,}"
    less = " less those held out" if holdout else ""
    what = f"{of} training classes{less}; {classes * samples} items are compared with each other"
    why = f"a median class has {np.median(counts):,.0f}; a smaller one gives all it has"
    return [ProposedSetting("num_classes", classes, what), ProposedSetting("samples_per_class", samples, why)]


def _training(items: int, batch: int, *, tuned: bool) -> list[ProposedSetting]:
    """Steps by the number of items, and the optimiser."""
    wanted = (TUNED_PASSES if tuned else PASSES) * items / batch
    steps = int(min(MOST_STEPS, max(LEAST_STEPS, round(wanted, -2))))
    passes = steps * batch / items
    why = f"each item is seen about {passes:,.0f} times: a first guess; the curves of the report say if more would help"
    if passes < 1:
        why = f"{100 * passes:.0f} % of the items are seen: a first look; train longer if it helps"
    entries = [ProposedSetting("steps", steps, why)]
    if tuned:
        return [
            *entries,
            ProposedSetting("optimizer", "adamw"),
            ProposedSetting("learning_rate", 3e-5, "a backbone loses what it knows at larger ones"),
            ProposedSetting("weight_decay", 1e-4),
            ProposedSetting("schedule", "cosine"),
        ]
    return [*entries, ProposedSetting("learning_rate", 1e-3)]


def _counts(splits: Splits) -> np.ndarray:
    """The sizes of the training classes."""
    counts = np.bincount(splits.train.labels[splits.level])
    return counts[counts > 0]


def _singles(sections: Sections, counts: np.ndarray, level: str) -> Sections:
    """With a loss that needs no positive, where a training class has a single item."""
    single = int((counts == 1).sum())
    if not single:
        return sections
    why = (
        f"{single:,} of {len(counts):,} training classes of {level} have one item, so no positive: this loss compares "
        "items with a proxy per class. Without these items, take triplet"
    )
    return sections | {"loss": [ProposedSetting("name", "proxy-nca", why)]}
