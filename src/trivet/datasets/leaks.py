"""Copies across the parts of a data set: items of one part that another has as well, letter for letter or nearly."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from trivet.datasets.dataset import Dataset, Inputs
from trivet.datasets.equal_items import content_keys, normalised_words
from trivet.datasets.inputs import FileInputs
from trivet.distances import unit_rows
from trivet.io.image_file import Frame
from trivet.label_noise.near_copies import View, find_near_copies
from trivet.runtime.arrays import Integers

Content = Literal["images", "texts", "vectors"]
DECODED = 64  # pixels a side of what signatures are made of
SIDE, WINDOW_SIDE = 16, 8  # pixels a side of the signature of an image, and of a window, of which there are many
WINDOWS = (0.95, 0.9, 0.85)  # shares of the sides of an image, in which copies that were cut to them are sought
STEPS = 5  # places of a window along a side
BATCH = 1024  # images that are decoded at once

Kind = Literal["exact", "near", "cropped", "one word"]
KINDS: tuple[Kind, ...] = ("exact", "near", "cropped", "one word")


@dataclass(frozen=True, eq=False)
class Leaks:
    """Items of a part that are copies of items of another.

    Attributes:
        kinds: `(Q,)` one of `KINDS`, or "" for an item that is no copy. "exact": equal texts, numbers or bytes; "near":
            texts that differ in case, punctuation, white space or Unicode form, images that were resized, compressed
            or mirrored, vectors that are nearer than other items; "cropped": a cut-out of an image; "one word": texts
            that differ by one word, which is no copy where texts follow a template.
        original: `(Q,)` the position of the item of the other part; -1 for none.
        notes: on what could not be compared, in sentences.
    """

    kinds: npt.NDArray[np.str_]
    original: Integers
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class NamedItems:
    """Items under the name that messages have for them, and the level at which their classes are read."""

    name: str
    dataset: Dataset
    level: str

    @property
    def classes(self) -> list[str]:
        """Class name of each item; without labels "" each."""
        if self.level not in self.dataset.labels:
            return [""] * len(self.dataset)
        names = self.dataset.names[self.level]
        return [names[label] for label in self.dataset.labels[self.level].tolist()]


def find_leaks(items: NamedItems, searched: NamedItems, content: Content, *, crops: bool = False) -> Leaks:
    """Find the items of a part that are copies of items of another.

    Args:
        content: what the items are; texts are those that they show.
        crops: whether cut-outs of images are sought, too, 75 windows of each.
    """
    sides = items.dataset, searched.dataset
    keys = content_keys([sides[1], sides[0]], texts=content == "texts")
    first: dict[Hashable, int] = {}
    for i, key in enumerate(keys[: len(sides[1])]):
        first.setdefault(key, i)
    original = np.array([first.get(key, -1) for key in keys[len(sides[1]) :]], np.int64)
    kinds = np.where(original >= 0, "exact", "").astype("<U8")
    left = np.flatnonzero(original < 0)
    if not len(left):
        return Leaks(kinds, original)
    notes: tuple[str, ...] = ()
    if content == "texts":
        texts = [[str(side.show(i)) for i in range(len(side))] for side in sides]
        twins = near_texts([texts[0][i] for i in left.tolist()], texts[1])
        for row, (kind, twin) in zip(left.tolist(), twins, strict=True):
            kinds[row], original[row] = kind, twin
        return Leaks(kinds, original)
    numbers = _numbers(items, searched)
    for kind, views in _views(sides[0].inputs, sides[1].inputs, left, content, crops=crops):
        near = find_near_copies(views, numbers[0][left], numbers[1])
        called = near.copy & (original[left] < 0)
        kinds[left[called]], original[left[called]] = kind, near.original[called]
        if not any(near.limits) and not notes:
            notes = (
                f"{searched.name} has too few items to tell how near items come by chance: near copies are not judged.",
            )
    return Leaks(kinds, original, notes)


def _numbers(items: NamedItems, searched: NamedItems) -> tuple[Integers, Integers]:
    """Class numbers of both parts, by name; -1 without labels."""
    number: dict[str, int] = {}
    sides = [
        np.array([number.setdefault(name, len(number)) if name else -1 for name in side.classes], np.int64)
        for side in (items, searched)
    ]
    return sides[0], sides[1]


def near_texts(texts: Sequence[str], searched: Sequence[str]) -> Iterator[tuple[Kind | Literal[""], int]]:
    """The kind of each text that equals none of those searched, and the position of the one it is near to.

    Two texts differ by one word if one is the other without a word, or both are alike but for the word at one place and
    no third text of the parts is: many would be a template.
    """
    first: dict[tuple[str, ...], int] = {}
    for i, text in enumerate(searched):
        first.setdefault(normalised_words(text), i)
    wanted = [normalised_words(text) for text in texts]
    holes: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    shorter: dict[tuple[str, ...], int] = {}
    for words in {*first, *wanted}:
        if len(words) > 1:
            for i in range(len(words)):
                holes[(*words[:i], "", *words[i + 1 :])].add(words)
    for words, i in first.items():
        if len(words) > 1:
            for k in range(len(words)):
                shorter.setdefault((*words[:k], *words[k + 1 :]), i)
    for words in wanted:
        if words in first:
            yield "near", first[words]
        else:
            twin = shorter.get(words, -1)
            for k in range(len(words) if len(words) > 1 and twin < 0 else 0):
                twin = first.get((*words[:k], *words[k + 1 :]), -1)
                alike = holes[(*words[:k], "", *words[k + 1 :])]
                if twin < 0 and len(alike) == 2:
                    (other,) = alike - {words}
                    twin = first.get(other, -1)
                if twin >= 0:
                    break
            yield ("one word" if twin >= 0 else ""), twin


def _views(
    inputs: Inputs, searched: Inputs, rows: Integers, content: Content, *, crops: bool
) -> Iterator[tuple[Kind, Callable[[Integers | None], Iterable[View]]]]:
    """Pairs of rows by which the items at some positions are compared, for each kind of copy."""
    if content == "vectors":
        directions, others = _directions(inputs, rows), _directions(searched, np.arange(len(searched)))
        yield "near", lambda sample: [((directions if sample is None else others[sample]), others)]
        return
    images, pixels = _pixels(inputs, rows), _pixels(searched, np.arange(len(searched)))
    signatures = image_signatures(pixels)

    def queries(sample: Integers | None) -> Tensor:
        return images if sample is None else pixels[sample]

    def complete(sample: Integers | None) -> Iterator[View]:
        yield image_signatures(queries(sample)), signatures
        yield image_signatures(queries(sample).flip(-1)), signatures

    def windows(sample: Integers | None) -> Iterator[View]:
        left = image_signatures(queries(sample), WINDOW_SIDE)
        for share in WINDOWS:
            side = round(share * DECODED)
            starts = np.linspace(0, DECODED - side, STEPS).round().astype(int).tolist()
            for top in starts:
                for across in starts:
                    yield left, image_signatures(pixels[:, top : top + side, across : across + side], WINDOW_SIDE)

    yield "near", complete
    if crops:
        yield "cropped", windows


def _directions(inputs: Inputs, rows: Integers) -> Tensor:
    """Unit rows `(n, d)` of vectors; in one dimension the numbers themselves."""
    vectors = vector_rows(inputs, rows)
    return vectors if vectors.shape[1] == 1 else unit_rows(vectors)


def vector_rows(inputs: Inputs, rows: Integers) -> Tensor:
    """Inputs at some positions as rows `(n, d)` float32."""
    vectors = torch.empty(len(rows), math.prod(inputs.shape))
    for start in range(0, len(rows), BATCH):
        vectors[start : start + BATCH] = inputs.batch(rows[start : start + BATCH]).flatten(1)
    return vectors


def _pixels(inputs: Inputs, rows: Integers) -> Tensor:
    """The images `(n, DECODED, DECODED)` in grey, float32."""
    if isinstance(inputs, FileInputs):
        inputs = FileInputs(inputs.sources, Frame(1, (DECODED, DECODED)), inputs.rows, inputs.boxes)
    grey = torch.empty(len(rows), DECODED, DECODED)
    for start in range(0, len(rows), BATCH):
        images = inputs.batch(rows[start : start + BATCH]).to(torch.float32).mean(dim=1, keepdim=True)
        grey[start : start + BATCH] = adaptive_avg_pool2d(images, DECODED)[:, 0]
    return grey


def image_signatures(pixels: Tensor, side: int = SIDE) -> Tensor:
    """Means of side x side pixels of grey images `(N, H, W)`, less their mean, of length 1: `(N, side^2)`; or zeros."""
    signatures = adaptive_avg_pool2d(pixels[:, None], side).flatten(1)
    signatures -= signatures.mean(dim=1, keepdim=True)
    return torch.nn.functional.normalize(signatures, eps=1e-3)
