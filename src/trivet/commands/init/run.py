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

from trivet.commands.init.data import Found, Images, look
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


class Entry(NamedTuple):
    """A setting and why it has its value; the reason may be empty."""

    key: str
    value: Any
    why: str = ""


class Proposal(NamedTuple):
    """Settings that suit some data.

    Attributes:
        kind: the data set that reads them.
        found: what was found, in sentences.
        sections: section -> its settings.
        items, classes: how many items there are, and classes at the level trained on.
    """

    kind: str
    found: list[str]
    sections: dict[str, list[Entry]]
    items: int
    classes: int

    @property
    def values(self) -> dict[str, dict[str, Any]]:
        """The settings as a file has them."""
        return {name: {one.key: one.value for one in entries} for name, entries in self.sections.items()}


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
    found = look(path, labels, text)
    if encoder is not None and found.kind != "texts":
        raise ValueError(f"--encoder makes vectors of texts: {path} holds {_things(found)}; leave it out.")
    level = found.main
    sizes = found.sizes(level)
    said = [*_found(found, path), *found.notes]
    whys = {"levels" if "levels" in found.data else "root": found.guessed}
    if found.kind == "table" and "root" in found.data:
        whys["root"] = "the paths start where trivet is started, not at the table"
    data = [Entry(key, value, whys.get(key, "")) for key, value in found.data.items()]
    data += _level(found) + _split(found, sizes)
    if found.kind == "texts":
        data += _encoder(encoder)
    if found.images is not None:
        sections, splits = _of_images(found, found.images, data)
    else:
        sections, splits = _of_vectors(found, data, data_root)
        said += [one.removesuffix(".") + "." for one in splits.warnings]
    settings = RunConfig.parse({name: {e.key: e.value for e in part} for name, part in sections.items()}, source="init")
    check_before_data(settings)
    check_levels(settings, splits.train.labels)
    make_batches(settings, splits.train, splits.level)
    return Proposal(found.kind, said, sections, found.items, len(sizes))


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
        place = schema.resolve()
        folder = output.parent.resolve()
        near = place.relative_to(folder) if place.is_relative_to(folder) else None
        lines.append(f"#:schema {f'./{near.as_posix()}' if near is not None else place.as_uri()}")
    lines += ["#", "# Found:"]
    for one in proposal.found:
        lines += _comment(one, first="#   ")
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
        return "{ " + ", ".join(f"{as_toml(key)} = {as_toml(one)}" for key, one in value.items()) + " }"
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


def _things(found: Found) -> str:
    return {"folder": "images", "table": "images", "vectors": "vectors", "texts": "texts"}[found.kind]


def _found(found: Found, path: Path) -> list[str]:
    """What there is, in sentences."""
    said = [f"{found.items:,} {_things(found)} in {path}."]
    for level in found.levels:
        sizes = found.sizes(level)
        single = int((sizes == 1).sum())
        said.append(
            f"{level}: {many(len(sizes), 'class')} of {_range(sizes, 'item')}"
            f"{f'; {single:,} of a single item' if single else ''}."
        )
    if found.images is not None:
        said += _seen(found, found.images)
    return said


def many(count: int, one: str) -> str:
    """A number and what it counts: 1 item, 1,000 items."""
    return f"{count:,} {noun(count, one)}"


def _range(numbers: np.ndarray, unit: str) -> str:
    """The smallest, the largest and the median of some numbers."""
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return many(low, unit)
    return f"{low:,} to {many(high, unit)}, median {np.median(numbers):,.0f}"


def _seen(found: Found, images: Images) -> list[str]:
    short = images.sides.min(axis=1)
    looked = "all" if images.looked_at == found.items else f"{images.looked_at:,} of them"
    said = [
        f"The shorter side of an image has {_range(short, 'pixel')}{', and no colours' if images.grey else ''} "
        f"({looked} looked at)."
    ]
    if images.broken:
        assert found.listing is not None
        place, why = next(iter(images.broken.items()))
        said.append(
            f"{many(len(images.broken), 'image')} of {images.looked_at:,} cannot be read and will be left out, "
            f"first {found.listing.ids[place]} ({why})."
        )
    return said


def _level(found: Found) -> list[Entry]:
    """The level trained on, where there are several."""
    if len(found.levels) == 1:
        return []
    others = [name for name in found.levels if name != found.main]
    why = (
        f"trained on; {', '.join(others)} {'is' if len(others) == 1 else 'are'} evaluated too, without being trained on"
    )
    return [Entry("level", found.main, why)]


def _split(found: Found, sizes: np.ndarray) -> list[Entry]:
    """How items are divided, and why; `sizes` of the classes of the level trained on."""
    if found.divided:
        where = "the folders train/, test/ and val/ say" if found.kind == "folder" else "the column split says"
        return [Entry("split", "auto", f"{where} what is trained on")]
    finest = found.sizes(list(found.levels)[-1])
    if len(sizes) < FEW_CLASSES and finest[-1] >= 4:
        return [Entry("split", "in-class", f"{len(sizes)} classes are too few to hold some out: items of each are")]
    why = 'half of the classes are never trained on, as new classes are the test of an embedding; else "in-class"'
    return [Entry("split", "class-disjoint", why)]


def _encoder(encoder: str | None) -> list[Entry]:
    """What makes vectors of texts."""
    if encoder is not None:
        return [Entry("encoder", encoder)]
    at_hand = next((name for name in ENCODERS if installed("sentence_transformers") and _cached(name)), None)
    if at_hand is not None:
        return [Entry("encoder", at_hand, "is on this machine; without it, character n-grams, which know no meaning")]
    return []


def _cached(repository: str) -> bool:
    """Whether the weights of a model of the Hugging Face hub were downloaded before."""
    if not installed("huggingface_hub"):
        return False
    from huggingface_hub import try_to_load_from_cache  # here: few need it

    return isinstance(try_to_load_from_cache(repository, WEIGHTS), str)


Sections = dict[str, list[Entry]]


def _of_vectors(found: Found, data: list[Entry], data_root: Path | None) -> tuple[Sections, Splits]:
    """A head, as `trivet train --vectors` makes it, on vectors or those of texts."""
    given = {one.key: one.value for one in data}
    splits = load(DataConfig.parse(given, source="data"), data_root)
    values = suited({"data": given}, splits)
    folds = values["data"].get("folds")
    if folds is not None:
        splits = hold_out_fold(splits, folds, 0)
        data = [
            *data,
            Entry("folds", folds, f"one of {folds} folds of the training classes is held out, to choose the step by"),
        ]
    counts = usable = _counts(splits)
    if found.kind == "texts":  # of which a batch holds no two that are equal
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
    if found.kind == "texts" and "encoder" not in given:
        raw = 'vectors of character n-grams: --encoder or model.name = "text:FOLDER" know meaning, see docs/texts.md'
    sections: Sections = {
        "data": data,
        "model": [
            Entry("name", model["name"], f"a linear head that begins as {raw}"),
            Entry("embedding_dim", model["embedding_dim"], "as long as the vectors; fewer begin as their projection"),
        ],
        "batch": _batch(usable, min(EASY, max(2, int(np.median(usable)))), HEAD_BATCH, held_out=folds is not None),
        "loss": [Entry(key, value) for key, value in loss.items()],
        "training": [Entry(key, value) for key, value in values["training"].items()],
        "evaluation": [Entry(key, value) for key, value in values["evaluation"].items()],
        "choosing": [Entry(key, value) for key, value in values.get("choosing", {}).items()],
    }
    sections["loss"][0] = Entry("name", loss["name"], "this and the rest were chosen on CLINC150, BANKING77 and CUB")
    sections["training"][0] = Entry("steps", values["training"]["steps"], "a minute; the step kept is the best of them")
    if sections["choosing"]:
        sections["choosing"][0] = Entry("keep", "best", "the vectors as they are, if no step is better beyond doubt")
    else:
        del sections["choosing"]
        sections["training"][0] = Entry("steps", values["training"]["steps"], "too few classes to choose the best by")
    return _singles(sections, counts, splits.level), splits


def _of_images(found: Found, images: Images, data: list[Entry]) -> tuple[Sections, Splits]:
    """A pretrained network where one is at hand, else a small one."""
    assert found.listing is not None
    backbone = None if images.grey else next((name for name in BACKBONES if _cached(f"timm/{name}")), None)
    data = [*data, *_image_settings(found, images, backbone)]
    values = {one.key: one.value for one in data}
    config = DataConfig.parse(values, source="data")
    assert isinstance(config, ImageFilesConfig)
    kept = None
    if images.looked_at == found.items:
        kept = np.setdiff1d(np.arange(found.items), list(images.broken))
    splits = split_listing(config, found.listing, kept)
    choosable = any(name in splits.evaluation for name in SPLITS)
    if not choosable and len(_counts(splits)) >= CHOOSABLE:
        splits = hold_out_fold(splits, FOLDS, 0)
        why = "a quarter of the training classes is held out, to choose the step by"
        data, choosable = [*data, Entry("folds", FOLDS, why)], True
    counts = _counts(splits)
    coarse = splits.level != list(found.levels)[-1]
    sections: Sections = {"data": data, "model": _network(found, images, backbone, values["image_size"])}
    samples = EASY if coarse else max(2, min(USUAL, int(np.median(counts))))
    sections["batch"] = _batch(counts, samples, BATCH, held_out=any(entry.key == "folds" for entry in data))
    if coarse:
        why = "finer classes lie in one: each item is pulled to its nearest of the class alone, so that they stay apart"
        sections["loss"] = [
            Entry("name", "triplet"),
            Entry("positives", "easy", why),
            Entry("negatives", "semihard"),
            Entry("margin", 0.2),
        ]
    else:
        why = 'among the best on four data sets; positives = "easy" if a class holds several kinds'
        sections["loss"] = [Entry("name", "multi-similarity", why), Entry("threshold", 0.5)]
    size = math.prod(one.value for one in sections["batch"])
    sections["training"] = _training(len(splits.train), size, tuned=backbone is not None)
    steps = int(sections["training"][0].value)
    sections["evaluation"] = [Entry("every", max(1, steps // 10), "steps between two looks at items held out")]
    tested = max(len(np.unique(list(part.labels.values())[-1])) for part in splits.evaluation.values())
    if tested > MANY_CLASSES:
        sections["evaluation"].append(Entry("nmi_plus", 2, f"clusters per class; more take long with {tested:,}"))
    if choosable:
        sections["choosing"] = [Entry("keep", "best", "the best step; the start, if none is better beyond doubt")]
    return _singles(sections, counts, splits.level), splits


def _image_settings(found: Found, images: Images, backbone: str | None) -> list[Entry]:
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
    entries = [Entry("image_size", size, "larger ones show more and take longer" if larger else "as the images have")]
    if isinstance(size, list):
        entries[0] = Entry(
            "image_size",
            size,
            "height and width, as most images are so much longer than wide"
            if ratio > 1
            else "height and width, as most images are so much wider than high",
        )
    if images.grey:
        entries += [Entry("channels", 1, "no image that was looked at has colours")]
        entries += [Entry("augment", "none", '"crop-flip" shifts and mirrors images: not for letters or digits')]
    else:
        entries += [
            Entry("augment", "crop-flip", 'shifts and mirrors images: "none" for letters, or where sides matter')
        ]
    share = len(images.broken) / images.looked_at
    if share > 0.005:
        why = f"{100 * share:.1f} % of those looked at cannot be read; above this share a run stops"
        entries.append(Entry("allow_corrupt", min(1.0, math.ceil(200 * share) / 100), why))
    return entries


def _network(found: Found, images: Images, backbone: str | None, size: int | list[int]) -> list[Entry]:
    """The network and the length of an embedding."""
    if backbone is not None:
        return [
            Entry("name", f"{TIMM}{backbone}", "its weights are on this machine"),
            Entry("pretrained", True),
            Entry("embedding_dim", 128),
        ]
    side = size if isinstance(size, int) else min(size)
    name = "mlp" if side < 8 else "conv2" if side < 16 else "conv3" if side <= 32 else "conv4"
    why = (
        f'from nothing. Pretrained is nearly always better, at {TUNED_SIDES[0]} pixels or more: "{TIMM}{BACKBONES[0]}" '
        "with pretrained = true downloads its weights once, weights = FILE has them: docs/networks.md"
    )
    return [Entry("name", name, why), Entry("embedding_dim", 64)]


def _batch(counts: np.ndarray, samples: int, most: int, *, held_out: bool) -> list[Entry]:
    """Classes and samples of a batch from the sizes of the training classes, less those that are held out."""
    classes = max(2, min(len(counts), most // samples))
    of = "all" if classes == len(counts) else f"of {len(counts):,}"
    less = " less those held out" if held_out else ""
    what = f"{of} training classes{less}; {classes * samples} items are compared with each other"
    why = f"a median class has {np.median(counts):,.0f}; a smaller one gives all it has"
    return [Entry("num_classes", classes, what), Entry("samples_per_class", samples, why)]


def _training(items: int, batch: int, *, tuned: bool) -> list[Entry]:
    """Steps by the number of items, and the optimiser."""
    wanted = (TUNED_PASSES if tuned else PASSES) * items / batch
    steps = int(min(MOST_STEPS, max(LEAST_STEPS, round(wanted, -2))))
    seen = steps * batch / items
    why = f"each item is seen about {seen:,.0f} times: a first guess; the curves of the report say if more would help"
    if seen < 1:
        why = f"{100 * seen:.0f} % of the items are seen: a first look; train longer if it helps"
    entries = [Entry("steps", steps, why)]
    if tuned:
        return [
            *entries,
            Entry("optimizer", "adamw"),
            Entry("learning_rate", 3e-5, "a backbone loses what it knows at larger ones"),
            Entry("weight_decay", 1e-4),
            Entry("schedule", "cosine"),
        ]
    return [*entries, Entry("learning_rate", 1e-3)]


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
    return sections | {"loss": [Entry("name", "proxy-nca", why)]}
