"""Copies across the parts of a data set: items of one part that another has as well, letter for letter or nearly."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from trivet.datasets.dataset import Dataset, Inputs, RowInputs, Splits
from trivet.datasets.equal_items import COMPARED, content_keys, normalised_words, shortened
from trivet.datasets.inputs import FileInputs
from trivet.datasets.splitting import TRAIN
from trivet.datasets.vectors import VectorInputs
from trivet.distances import unit_rows
from trivet.io.image_file import Frame
from trivet.label_noise.near_copies import View, find_near_copies, more_than_chance
from trivet.runtime.arrays import Booleans, Integers
from trivet.runtime.progress import work
from trivet.runtime.text import abbreviated, noun

Content = Literal["images", "texts", "vectors"]
DECODED = 64  # pixels a side of what signatures are made of
SIDE, WINDOW_SIDE = 16, 8  # pixels a side of the signature of an image, and of a window, of which there are many
WINDOWS = (0.95, 0.9, 0.85)  # shares of the sides of an image, in which copies that were cut to them are sought
STEPS = 5  # positions of a window along a side
BATCH = 1024  # items that are read at once
DRAWN = 1000  # items of a part of which the quick form tells whether they are near copies
SEARCHED, UNDECODED = 10_000, 2000  # items that it compares them with, at most; of images that are in files only
LISTED = 3  # copies in a warning

Kind = Literal["exact", "near", "cropped", "by encoder", "alike", "one word"]
KINDS: tuple[Kind, ...] = ("exact", "near", "cropped", "by encoder", "alike", "one word")
# The kinds of copies, in a sentence.
COPIES: dict[Kind, str] = {"exact": "exact", "near": "near", "cropped": "cut out", "by encoder": "near by the encoder"}
LEARNED = "A trained network knows them by heart: leave them out of one part to measure what it makes of others."


@dataclass(frozen=True, eq=False)
class NamedItems:
    """Items under the name that messages have for them.

    Attributes:
        level: at which their classes are read.
        embeddings: `(N, d)` of the items by an encoder or a trained network; None without.
    """

    name: str
    dataset: Dataset
    level: str
    embeddings: npt.NDArray[np.floating] | None = None

    @property
    def classes(self) -> list[str]:
        """Class name of each item; without labels "" each."""
        if self.level not in self.dataset.labels:
            return [""] * len(self.dataset)
        names = self.dataset.names[self.level]
        return [names[label] for label in self.dataset.labels[self.level].tolist()]


@dataclass(frozen=True, eq=False)
class Leaks:
    """Items of a part that are copies of items of another.

    Attributes:
        kinds: `(Q,)` one of `KINDS`, or "" for an item that is no copy. "exact": equal texts, numbers or bytes; "near":
            texts that differ in case, punctuation, white space or Unicode form, images that were resized, compressed
            or mirrored, vectors that are nearer than other items; "cropped": a cut-out of an image; "by encoder":
            images whose embeddings are nearer than those of others. Texts whose embeddings are, "alike", may mean
            another thing, and those that differ by one word, "one word", may follow a template: neither is a copy.
        original: `(Q,)` the position of the item of the other part; -1 for none.
        other_class: `(Q,)` whether a copy has another class than its original, and than all that equal it.
        notes: on what could not be compared, in sentences.
        compared, searched: how many of the items that are no exact copies were compared, and with how many of the
            others.
    """

    kinds: npt.NDArray[np.str_]
    original: Integers
    other_class: Booleans
    notes: tuple[str, ...]
    compared: int
    searched: int

    @property
    def copies(self) -> Booleans:
        """Mask `(Q,)` of the copies, of any kind."""
        return np.isin(self.kinds, [*COPIES])


def find_leaks(
    items: NamedItems, searched: NamedItems, content: Content, *, crops: bool = False, quick: bool = False
) -> Leaks:
    """Find the items of a part that are copies of items of another.

    Args:
        content: what the items are; texts are those that they show.
        crops: whether cut-outs of images are sought, too, 75 windows of each.
        quick: whether near copies of images and vectors are sought among 1,000 items at random, in at most 10,000 of
            the others (2,000 where images are in files only), and are none unless they are more than come by chance;
            vectors of more than 1 GiB have no exact ones, and texts that differ by one word are not sought.
    """
    sides, numbers = (items.dataset, searched.dataset), _numbers(items, searched)
    count = len(sides[0])
    large = quick and any(isinstance(side.inputs, VectorInputs) and _bytes(side.inputs) > COMPARED for side in sides)
    keys = [] if large and content == "vectors" else content_keys(sides, texts=content == "texts")
    original = _equal(keys, numbers) if keys else np.full(count, -1)
    kinds = np.where(original >= 0, "exact", "").astype("<U10")
    left, notes = np.flatnonzero(original < 0), list[str]()
    compared, others = len(left), len(sides[1])
    words: list[tuple[str, ...]] = []
    if content == "texts":
        words = [normalised_words(str(text)) for text in keys]
        equal = _equal(words, numbers)[left]
        kinds[left[equal >= 0]], original[left] = "near", equal
    for each in _near_searches(items, searched, content, left, crops=crops, quick=quick) if len(left) else ():
        if each.kind == "near":
            compared, others = len(each.rows), len(each.others)
        if not len(each.rows) or not len(each.others):  # none can be read
            continue
        near = find_near_copies(each.views, numbers[0][each.rows], numbers[1][each.others])
        called = near.copy & (original[each.rows] < 0)
        number, enough = int(called.sum()), more_than_chance(int(called.sum()), len(each.rows))
        if enough or not quick:
            kinds[each.rows[called]], original[each.rows[called]] = each.kind, each.others[near.original[called]]
        if number and not enough and not quick:
            notes.append(
                f"{items.name}: so few near each other ({each.kind}: {number:,} of {len(each.rows):,}) may come by "
                "chance; judge for yourself whether they are copies."
            )
        if not any(near.limits):
            notes.append(
                f"{searched.name} has too few items to tell how near items come by chance: near copies are not judged."
            )
    if words and not quick:
        rest = np.flatnonzero(original < 0)
        twins = word_twins([words[i] for i in rest.tolist()], words[count:])
        kinds[rest[twins >= 0]], original[rest] = "one word", twins
    its, classes = numbers[0], numbers[1][original]
    torn = (original >= 0) & (its >= 0) & (classes >= 0) & (its != classes)
    return Leaks(kinds, original, torn, tuple(dict.fromkeys(notes)), compared, others)


def _bytes(inputs: VectorInputs) -> int:
    return len(inputs) * inputs.vectors[:1].nbytes


def _numbers(items: NamedItems, searched: NamedItems) -> tuple[Integers, Integers]:
    """Class numbers of both parts, by name; -1 without labels."""
    number: dict[str, int] = {}
    sides = [
        np.array([number.setdefault(name, len(number)) if name else -1 for name in side.classes], np.int64)
        for side in (items, searched)
    ]
    return sides[0], sides[1]


def _drawn(rows: Integers, most: int) -> Integers:
    """At most so many of the rows, at random, in order."""
    return rows if len(rows) <= most else np.sort(np.random.default_rng(0).permutation(rows)[:most])


def _equal(keys: Sequence[Hashable], numbers: tuple[Integers, Integers]) -> Integers:
    """Position of the first searched item with the key of each item, of its class if there is one; -1 for none.

    Args:
        keys: of the items, and after them of those that are searched.
        numbers: class numbers of both.
    """
    count, none = len(numbers[0]), dict[int, int]()
    first = defaultdict[Hashable, dict[int, int]](dict)
    for i, (key, number) in enumerate(zip(keys[count:], numbers[1].tolist(), strict=True)):
        first[key].setdefault(number, i)
    positions = [
        equal.get(number, min(equal.values(), default=-1))
        for equal, number in zip((first.get(key, none) for key in keys[:count]), numbers[0].tolist(), strict=True)
    ]
    return np.array(positions, np.int64)


def word_twins(texts: Sequence[tuple[str, ...]], searched: Sequence[tuple[str, ...]]) -> Integers:
    """Position of a searched text that differs from each text by one word, `(Q,)`; -1 for none.

    Two texts differ by one word if one is the other without a word, or both are alike but for the word in one position
    and no third text of either is: many would be a template.

    Args:
        texts, searched: their `normalised_words`; no text equals one that is searched.
    """
    first: dict[tuple[str, ...], int] = {}
    for i, words in enumerate(searched):
        first.setdefault(words, i)
    holes: dict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    shorter: dict[tuple[str, ...], int] = {}
    for words in {*first, *texts}:
        if len(words) > 1:
            for i in range(len(words)):
                holes[(*words[:i], "", *words[i + 1 :])].add(words)
    for words, i in first.items():
        if len(words) > 1:
            for k in range(len(words)):
                shorter.setdefault((*words[:k], *words[k + 1 :]), i)
    twins = np.full(len(texts), -1)
    for row, words in enumerate(texts):
        twin = shorter.get(words, -1)
        for k in range(len(words) if len(words) > 1 and twin < 0 else 0):
            twin = first.get((*words[:k], *words[k + 1 :]), -1)
            alike = holes[(*words[:k], "", *words[k + 1 :])]
            if twin < 0 and len(alike) == 2:
                (other,) = alike - {words}
                twin = first.get(other, -1)
            if twin >= 0:
                break
        twins[row] = twin
    return twins


class NearSearch(NamedTuple):
    """Items at some positions that are compared with others, by pairs of rows as `find_near_copies` takes them."""

    kind: Kind
    rows: Integers
    others: Integers
    views: Callable[[Integers | None], Iterable[View]]


class ItemRows(NamedTuple):
    """Rows by which items are compared.

    Attributes:
        rows: `(n,)` the positions of the items.
        compared: `(n, d)` of length 1; of vectors in one dimension their numbers.
        pixels: `(n, DECODED, DECODED)` of images where windows of them are compared, too; else `(0, ...)`.
    """

    rows: Integers
    compared: Tensor
    pixels: Tensor


def _read(items: Dataset, rows: Integers, content: Content, *, pixels: bool = False) -> ItemRows:
    """Rows by which the items at some positions are compared, without images that cannot be read and NaN."""
    none = torch.empty(0, DECODED, DECODED)
    if content == "vectors":
        if isinstance(items.inputs, VectorInputs):
            stored, numbers = items.inputs.vectors, items.inputs.rows[rows].tolist()
            rows = rows[np.array([np.isfinite(stored[number]).all() for number in numbers], bool)]
        vectors = vector_rows(items.inputs, rows)
        return ItemRows(rows, vectors if vectors.shape[1] == 1 else unit_rows(vectors), none)
    readable, signatures, images = [], [], [none]
    for start in range(0, len(rows), BATCH):
        some, grey = _grey_images(items.inputs, rows[start : start + BATCH], enlarge=pixels)
        readable.append(some)
        signatures.append(image_signatures(grey))
        images += [grey] if pixels else []
    return ItemRows(np.concatenate(readable), torch.cat(signatures), torch.cat(images))


def vector_rows(inputs: Inputs, rows: Integers) -> Tensor:
    """Inputs at some positions as rows `(n, d)` float32."""
    vectors = torch.empty(len(rows), math.prod(inputs.shape))
    for start in range(0, len(rows), BATCH):
        vectors[start : start + BATCH] = inputs.batch(rows[start : start + BATCH]).flatten(1)
    return vectors


def _grey_images(inputs: Inputs, rows: Integers, *, enlarge: bool) -> tuple[Integers, Tensor]:
    """The images at some positions `(n, DECODED, DECODED)` in grey, float32, and which could be read.

    Args:
        enlarge: also images whose sides divide `DECODED`, whose signatures are the same as they are.
    """
    positions = rows
    if isinstance(inputs, FileInputs) and inputs.decoded is None:
        files = FileInputs(inputs.sources, Frame(1, (DECODED, DECODED)), inputs.rows[rows], inputs.boxes)
        inputs, broken = files.decode_all(1, None)
        positions = np.setdiff1d(np.arange(len(rows)), np.array([*broken], np.int64))
        rows = rows[positions]
    images = inputs.batch(positions).to(torch.float32).mean(dim=1)
    resized = enlarge or any(DECODED % side for side in images.shape[1:])
    return rows, adaptive_avg_pool2d(images, DECODED) if resized else images


def image_signatures(pixels: Tensor, side: int = SIDE) -> Tensor:
    """Means of side x side pixels of grey images `(N, H, W)`, less their mean, of length 1: `(N, side^2)`; or zeros."""
    signatures = adaptive_avg_pool2d(pixels[:, None], side).flatten(1)
    signatures -= signatures.mean(dim=1, keepdim=True)
    return torch.nn.functional.normalize(signatures, eps=1e-3)


def _near_searches(
    items: NamedItems, searched: NamedItems, content: Content, left: Integers, *, crops: bool, quick: bool
) -> Iterator[NearSearch]:
    """Comparisons of the items that are left, for each kind of copy that is near."""
    sides, others = (items.dataset, searched.dataset), np.arange(len(searched.dataset))
    if content != "texts":
        rows = left
        if quick:
            files = any(isinstance(side.inputs, FileInputs) and side.inputs.decoded is None for side in sides)
            rows, others = _drawn(left, DRAWN), _drawn(others, UNDECODED if files else SEARCHED)
        first, second = (_read(side, of, content, pixels=crops) for side, of in zip(sides, (rows, others), strict=True))

        def complete(sample: Integers | None) -> Iterator[View]:
            queries = first.compared if sample is None else second.compared[sample]
            yield queries, second.compared
            if content == "images":
                yield queries.reshape(-1, SIDE, SIDE).flip(-1).flatten(1), second.compared

        def windows(sample: Integers | None) -> Iterator[View]:
            pixels = image_signatures(first.pixels if sample is None else second.pixels[sample], WINDOW_SIDE)
            for share in WINDOWS:
                side = round(share * DECODED)
                starts = np.linspace(0, DECODED - side, STEPS).round().astype(int).tolist()
                for top in starts:
                    for across in starts:
                        window = second.pixels[:, top : top + side, across : across + side]
                        yield pixels, image_signatures(window, WINDOW_SIDE)

        yield NearSearch("near", first.rows, second.rows, complete)
        if crops and content == "images":
            yield NearSearch("cropped", first.rows, second.rows, windows)
    if items.embeddings is not None and searched.embeddings is not None:
        others = np.arange(len(searched.dataset))
        directions = [unit_rows(torch.from_numpy(side.embeddings)) for side in (items, searched)]

        def embedded(sample: Integers | None) -> Iterator[View]:
            yield directions[0][left] if sample is None else directions[1][sample], directions[1]

        yield NearSearch("alike" if content == "texts" else "by encoder", left, others, embedded)


def copies_sentence(items: NamedItems, searched: NamedItems, leaks: Leaks) -> str:
    """A sentence on how many items are copies, of which kinds, and how many have another class."""
    counts, copies, count = Counter(leaks.kinds.tolist()), int(leaks.copies.sum()), len(leaks.kinds)
    what = "training items" if searched.name == TRAIN else f"items of {searched.name}"
    if not copies:
        return f"{items.name}: none of {count:,} {noun(count, 'item')} is a copy of {what}."
    kinds = [f"{counts[kind]:,} {name}" for kind, name in COPIES.items() if counts[kind]]
    total = len(searched.dataset)
    drawn = leaks.compared < count - counts["exact"] or leaks.searched < total
    if drawn and counts["near"]:
        fewer = f" with {leaks.searched:,} of {total:,}" if leaks.searched < total else ""
        kinds[-1] += f" of {leaks.compared:,} that were compared{fewer}"
    torn = int((leaks.other_class & leaks.copies).sum())
    share = "" if drawn else f" ({100 * copies / count:.1f} %)"
    return (
        f"{items.name}: {'at least ' if drawn else ''}{copies:,} of {count:,} {noun(count, 'item')}{share} "
        f"{'is a copy' if copies == 1 else 'are copies'} of {what}: {', '.join(kinds)}"
        f"{f'; {torn:,} of another class' if torn else ''}."
    )


def leak_warning(items: NamedItems, searched: NamedItems, content: Content, advice: str) -> str:
    """Sentences of the quick form of `find_leaks` on items that are copies of others; empty if there are none."""
    leaks = find_leaks(items, searched, content, quick=True)
    if not leaks.copies.any():
        return ""
    original = "training item" if searched.name == TRAIN else "gallery item"
    rows = [i for kind in COPIES for i in np.flatnonzero(leaks.kinds == kind).tolist()]
    pairs = [
        f"{shortened(str(items.dataset.show(i)) if content == 'texts' else items.dataset.ids[i])} "
        f"({original} {searched.dataset.ids[leaks.original[i]]})"
        for i in rows
    ]
    sentence = copies_sentence(items, searched, leaks)
    return f"{sentence} {'This is' if len(rows) == 1 else 'These are'} {abbreviated(pairs, LISTED)}. {advice}"


def leak_warnings(splits: Splits, content: Content) -> tuple[str, ...]:
    """Sentences on the items of each evaluation split that are copies of training items; none where there are none.

    Inputs of your own code are not compared.
    """
    if not isinstance(splits.train.inputs, RowInputs):
        return ()
    trained = NamedItems(TRAIN, splits.train, splits.level)
    with work("looking for copies of training items"):
        messages = [
            leak_warning(NamedItems(name, data, splits.level), trained, content, LEARNED)
            for name, data in splits.evaluation.items()
        ]
    return tuple(message for message in messages if message)
