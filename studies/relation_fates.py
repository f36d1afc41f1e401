"""Verdicts on embeddings of pairs and of tags: what was harmed is accused, and nothing else.

    TRIVET_DATA=... python studies/relation_fates.py ENCODER     # ten minutes on one core

ENCODER is all-MiniLM-L6-v2, a folder of sentence-transformers, whose embeddings of requests are the reference.

Pairs are two requests of an intent of CLINC150 and of BANKING77: 60 of as many intents, or 300 that share them. A case
changes both sides, or one, and its fate is known: good, as the order of distances is the same or other pairs of the
same intents lose less than a point of recall@1; worse or slightly worse, as those say; gap, where the mean of each side
is moved and centring the sides brings back what other pairs lost; chance; collapsed, where the items of both sides, or
of one, lie on a point, a line or three spots. Heads are trained on yet other pairs, by a softmax in both directions.
Tags are the intent and the domain of requests of CLINC150; inside: recall@1 by the intents alone fell by 10 points or
more where what tells the intents of a domain apart was taken away.

Right are: of good ones healthy, or spread out, which is open; of others no network collapse but of those that are, a
class collapse of those inside, and healthy for none.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import pages
import trivet
from readers import clinc_domains, texts
from shape_fates import known_fate
from trivet import Pairs, Tags
from trivet.collapse import diagnose
from trivet.metrics import retrieve
from trivet.models import encoder_vectors

Array = np.ndarray[Any, np.dtype[Any]]
Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results" / "relation_fates.json"
MOST = 9000  # requests that are embedded
TRUTH = 900  # other pairs, by which a fate is measured
PARTS = ("pairs", "tags")
OUTCOMES = ("right", "open", "accused", "cleared")


def both(pairs: Array, rows: Array) -> Array:
    """The rows of the left side, then those of the right one."""
    return np.concatenate([rows[pairs[:, 0]], rows[pairs[:, 1]]])


def hits(points: Array, distance: Any) -> Array:
    """Recall@1 of each item of pairs."""
    relation = Pairs(len(points) // 2, len(points) // 2)
    values: Array = retrieve(points, relation, measures=("recall@1",), distance=distance).values[:, 0]
    return values


def drawn(labels: Array, count: int, random: np.random.Generator, *, distinct: bool) -> list[Array]:
    """Groups of pairs `(count, 2)` of two requests of an intent; no request is in two pairs.

    Args:
        distinct: each pair of a group is of another intent.
    """
    members = [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    of_intents = [of[: len(of) // 2 * 2].reshape(-1, 2) for of in members]
    if not distinct:
        every = random.permutation(np.concatenate(of_intents))
        return [every[start : start + count] for start in range(0, len(every) - count + 1, count)]
    least = min(map(len, of_intents))
    return [
        np.stack([of_intents[intent][turn] for intent in random.permutation(len(of_intents))[:count]])
        for turn in range(least)
    ]


def lost(change: Callable[[Array], Array], groups: Sequence[Array], distance: Any) -> Array:
    """What recall@1 loses by a change, on groups of other pairs as large as those that are diagnosed."""
    return np.concatenate([hits(rows, distance) - hits(change(rows), distance) for rows in groups])


def trained(rows: Array, *, separate: bool, seed: int) -> Callable[[Array], Array]:
    """A linear head of both sides, or one of each, trained on pairs."""
    torch.manual_seed(seed)
    width, half = rows.shape[1], len(rows) // 2
    left = nn.Linear(width, 64, bias=False)
    right = nn.Linear(width, 64, bias=False) if separate else left
    loss = trivet.SymmetricLoss(trivet.SupConLoss(temperature=0.07))
    optimizer = torch.optim.Adam(dict.fromkeys([*left.parameters(), *right.parameters()]), lr=1e-3)
    relation, inputs = Pairs(half, half), torch.from_numpy(rows.astype(np.float32))
    for _ in range(200):
        batch = torch.randperm(half)[:128]
        sides = [
            nn.functional.normalize(head(part[batch])) for head, part in ((left, inputs[:half]), (right, inputs[half:]))
        ]
        value = loss(sides[0], relation.left[batch], references=sides[1], reference_labels=relation.right[batch])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    @torch.no_grad()
    def apply(points: Array) -> Array:
        parts = torch.from_numpy(points.astype(np.float32)).chunk(2)
        made: Array = torch.cat([left(parts[0]), right(parts[1])]).numpy()
        return made

    return apply


def pair_cases(
    rows: Array, distance: Any, seed: int, other: Array
) -> Iterator[tuple[str, str | None, Callable[[Array], Array]]]:
    """Name, fate (None where it is measured) and change of rows of both sides."""
    random = np.random.default_rng((seed, 1))
    width, size = rows.shape[1], float(np.sqrt(((rows - rows.mean(0)) ** 2).sum(1).mean()))
    rotation = np.linalg.qr(random.standard_normal((width, width)))[0]
    axes = np.linalg.svd(rows - rows.mean(0), full_matrices=False)[2]
    direction = random.standard_normal(width) / np.sqrt(width)

    def noise(points: Array) -> Array:
        return size * random.standard_normal(points.shape) / np.sqrt(width)

    def sign(points: Array) -> Array:
        return np.repeat([[1.0], [-1.0]], len(points) // 2, axis=0)

    def left_is(points: Array, others: Array) -> Array:
        return np.where(np.arange(len(points))[:, None] < len(points) // 2, others, points)

    def unit(points: Array) -> Array:
        return points / np.linalg.norm(points, axis=1, keepdims=True)

    def apart(points: Array, gap: float) -> Array:
        """Sides in two cones, of which each keeps its order."""
        return np.concatenate([unit(points), gap * sign(points)], axis=1)

    def line(points: Array) -> Array:
        along = random.standard_normal((len(points), 1)) * random.standard_normal(width)
        return along + 0.01 * random.standard_normal(points.shape)

    def spots(points: Array) -> Array:
        chosen = random.standard_normal((3, width))[random.integers(0, 3, len(points))]
        return chosen + 0.01 * random.standard_normal(points.shape)

    def shuffled(points: Array) -> Array:
        half = len(points) // 2
        return points[np.r_[np.arange(half), half + random.permutation(half)]]

    yield "the features", "good", lambda points: points
    yield "float16", "good", lambda points: points.astype(np.float16)
    yield "x 0.001", "good", lambda points: 1e-3 * points
    yield "rotated", "good", lambda points: points @ rotation
    if distance == "cosine":
        for gap in (1.0, 3.0, 30.0):
            yield f"two cones, {gap:g}", "good", lambda points, gap=gap: apart(points, gap)
        yield (
            "one cone, 30",
            "good",
            lambda points: np.concatenate([unit(points), np.full((len(points), 1), 30.0)], axis=1),
        )
    else:
        for shift in (3.0, 30.0):
            yield f"shifted, {shift:g}", "good", lambda points, shift=shift: points + shift * size * direction
    for gap in (1.0, 3.0, 30.0):
        yield (
            f"sides moved apart, {gap:g}",
            None,
            lambda points, gap=gap: points + gap * size * sign(points) * direction,
        )
    yield "a little noise", None, lambda points: points + 0.05 * noise(points)
    yield "noise, 0.3", None, lambda points: points + 0.3 * noise(points)
    yield "noise, 2", None, lambda points: points + 2 * noise(points)
    yield "noise on the left, 2", None, lambda points: left_is(points, points + 2 * noise(points))
    yield "64 main axes", None, lambda points: points @ axes[:64].T
    yield "16 main axes", None, lambda points: points @ axes[:16].T
    yield "head of both sides", None, trained(other, separate=False, seed=seed)
    yield "a head for each side", None, trained(other, separate=True, seed=seed)
    yield "right side in another order", "chance", shuffled
    yield "noise alone", "chance", noise
    yield "noise on the right", "chance", lambda points: left_is(noise(points), points)
    for name, made in (
        ("one point, and rounding", lambda points: (points.mean(0) + 1e-7 * noise(points)).astype(np.float32)),
        ("a point for each side", lambda points: sign(points) * size * direction + 1e-7 * noise(points)),
        ("a small ball for each side", lambda points: sign(points) * size * direction + 0.01 * noise(points)),
        ("a line", line),
        ("three spots", spots),
    ):
        yield name, "collapsed", made
        if "side" not in name:
            yield f"left: {name}", "collapsed", lambda points, made=made: left_is(points, made(points))


def tag_cases(rows: Array, intents: Array, domains: Array, seed: int) -> Iterator[tuple[str, str, Array]]:
    """Name, fate and embedding of requests whose tags are their intent and domain."""
    random = np.random.default_rng((seed, 2))
    width, size = rows.shape[1], float(np.sqrt(((rows - rows.mean(0)) ** 2).sum(1).mean()))
    noise = size * random.standard_normal(rows.shape) / np.sqrt(width)
    means = np.stack([rows[domains == domain].mean(0) for domain in range(domains.max() + 1)])[domains]
    of_intents = np.stack([rows[intents == intent].mean(0) for intent in range(intents.max() + 1)])[intents]
    yield "the features", "good", rows
    yield "float16", "good", rows.astype(np.float16)
    yield "x 0.001", "good", 1e-3 * rows
    yield "rotated", "good", rows @ np.linalg.qr(random.standard_normal((width, width)))[0]
    yield "a little noise", "good", rows + 0.05 * noise
    yield "half way to the means of intents", "good", (rows + of_intents) / 2
    yield "means of domains, and rounding", "inside", means + 1e-6 * noise
    yield "means of domains, and noise of 0.05", "inside", means + 0.05 * noise
    axes = np.linalg.svd(np.unique(means, axis=0) - means.mean(0), full_matrices=False)[2]
    yield "axes between domains", "inside", rows @ axes[:-1].T
    torch.manual_seed(seed)
    head, inputs = nn.Linear(width, 64), torch.from_numpy(rows.astype(np.float32))
    optimizer, labels = torch.optim.Adam(head.parameters(), lr=1e-2), torch.from_numpy(domains)
    loss = trivet.SupConLoss(temperature=0.1)
    for _ in range(400):
        value = loss(nn.functional.normalize(head(inputs)), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    yield "head trained on these domains", "inside", nn.functional.normalize(head(inputs)).detach().numpy()
    yield "rows in another order", "chance", rows[random.permutation(len(rows))]
    yield "one point, and rounding", "collapsed", (rows.mean(0) + 1e-7 * noise).astype(np.float32)
    yield "a line", "collapsed", random.standard_normal((len(rows), 1)) * random.standard_normal(width) + 1e-3 * noise


def outcome(fate: str, kinds: list[str]) -> str:
    """What the verdicts are beside the fate; "open" where they neither accuse nor clear."""
    if fate in ("good", "unsure"):
        return "right" if kinds == ["healthy"] else "open" if kinds == ["spread-out"] or fate == "unsure" else "accused"
    if kinds == ["healthy"]:
        return "open" if fate == "slightly worse" else "cleared"
    if fate == "collapsed":
        return "right" if "network-collapse" in kinds else "open"
    if "network-collapse" in kinds:
        return "accused"
    if fate == "inside":
        return "right" if "class-collapse" in kinds else "open"
    return "right" if {*kinds} & {"worse-than-reference", "no-better-than-chance"} else "open"


def measured(encoder: str, parts: Sequence[str]) -> Iterator[Row]:
    for name in ("clinc150", "banking77"):
        listed = texts(name, "train")
        listed = [listed[row] for row in np.random.default_rng(0).permutation(len(listed))[:MOST].tolist()]
        rows = encoder_vectors([row[0] for row in listed], encoder).astype(np.float64)
        names, labels = np.unique([row[-1] for row in listed], return_inverse=True)
        if "pairs" in parts:
            yield from of_pairs(name, rows, labels)
        if name == "clinc150" and "tags" in parts:
            domain_of = clinc_domains()
            yield from of_tags(name, rows, labels, np.array([domain_of[intent] for intent in names])[labels])


def of_pairs(name: str, rows: Array, labels: Array) -> Iterator[Row]:
    for count, seed in ((60, 0), (60, 1), (300, 0), (300, 1)):
        random = np.random.default_rng((count, seed))
        groups = [both(pairs, rows) for pairs in drawn(labels, count, random, distinct=count == 60)]
        asked, truth = groups[0], groups[1 : 1 + TRUTH // count]
        rest = groups[1 + TRUTH // count :]
        other = np.concatenate([of.reshape(2, -1, rows.shape[1]) for of in rest], axis=1).reshape(-1, rows.shape[1])
        for distance in ("cosine", "euclidean"):
            for case, fate, change in pair_cases(asked, distance, seed, other):
                known = known_fate(lost(change, truth, distance)) if fate is None else fate
                if case.startswith("sides moved") and known == "worse":
                    known = "gap"
                points = change(asked)
                relation = Pairs(len(points) // 2, len(points) // 2)
                found = diagnose(points, relation, {"features": asked}, distance=distance)
                yield row_of(f"{name}, {count} pairs", distance, seed, case, known, found)


def of_tags(name: str, rows: Array, labels: Array, domains: Array) -> Iterator[Row]:
    for seed in (0, 1):
        random = np.random.default_rng((7, seed))
        chosen = random.permutation(np.unique(labels))[:40]
        some = np.concatenate([random.permutation(np.flatnonzero(labels == label))[:12] for label in chosen])
        intents, groups = (np.unique(of[some], return_inverse=True)[1] for of in (labels, domains))
        lists = [[f"intent {a}", f"domain {b}"] for a, b in zip(intents, groups, strict=True)]
        for match in ("any", 0.5, "all"):
            for distance in ("cosine", "euclidean"):
                for case, fate, points in tag_cases(rows[some], intents, groups, seed):
                    if fate == "inside" and match != "any":  # by these, other intents of a domain are ignored
                        continue
                    if fate == "inside":
                        fate = inside_fate(rows[some], points, intents, distance)
                    found = diagnose(points, Tags(lists, match=match), {"features": rows[some]}, distance=distance)
                    yield row_of(f"{name}, tags, {match}", distance, seed, case, fate, found)


def inside_fate(rows: Array, points: Array, intents: Array, distance: Any) -> str:
    """Fate by what recall@1 of the intents loses: inside where that is 10 points or more."""
    before, after = (
        retrieve(each, intents, measures=("recall@1",), distance=distance).values[:, 0] for each in (rows, points)
    )
    fate = known_fate(before - after)
    return "inside" if fate == "worse" else fate


def row_of(data: str, distance: str, seed: int, case: str, fate: str, found: Any) -> Row:
    kinds = [verdict.kind for verdict in found.verdicts]
    compared = found.measures.comparisons[0]
    row = {
        "data": data,
        "distance": distance,
        "seed": seed,
        "case": case,
        "fate": fate,
        "recall": round(compared.score, 4),
        "reference_recall": round(compared.reference_score, 4),
        "verdicts": kinds,
        "outcome": outcome(fate, kinds),
    }
    print(json.dumps(row), flush=True)
    return row


def page(rows: list[Row]) -> str:
    lines = [
        "# Verdicts on pairs and tags",
        "",
        "`studies/relation_fates.py`; the method is described in that file.",
        "",
    ]
    for what, some in (
        ("Pairs", [row for row in rows if "pairs" in row["data"]]),
        ("Tags", [row for row in rows if "tags" in row["data"]]),
    ):
        found = [row["outcome"] for row in some]
        lines += [
            f"## {what}",
            "",
            f"{len(found)} cases: {found.count('accused')} accused falsely, {found.count('cleared')} cleared falsely, "
            f"{found.count('open')} left open.",
            "",
        ]
        fates = dict.fromkeys(row["fate"] for row in some)
        by_fate = {fate: [row["outcome"] for row in some if row["fate"] == fate] for fate in fates}
        lines += pages.table(
            ["fate", "cases", *OUTCOMES],
            [[fate, str(len(one)), *(str(one.count(kind)) for kind in OUTCOMES)] for fate, one in by_fate.items()],
        )
        cases = dict.fromkeys((row["case"], row["fate"]) for row in some)
        lines += pages.table(
            ["case", "fate", "cases", *OUTCOMES],
            [
                [case, fate, str(len(one)), *(str(one.count(kind)) for kind in OUTCOMES)]
                for case, fate in cases
                for one in [[row["outcome"] for row in some if (row["case"], row["fate"]) == (case, fate)]]
            ],
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    before = pages.read(arguments.output).get("rows", [])
    rows = [row for row in before if not any(f" {part}" in row["data"] for part in arguments.parts)]
    rows += measured(arguments.encoder, arguments.parts)
    body = ",\n".join(map(json.dumps, rows))
    versions = json.dumps(pages.versions("torch", "numpy"))
    arguments.output.write_text(f'{{"versions": {versions},\n"rows": [\n{body}\n]}}\n')
    arguments.output.with_suffix(".md").write_text(page(rows))


if __name__ == "__main__":
    main()
