"""Drift: how often `find_drift` alarms where nothing has changed, and which planted changes it finds.

    .venv/bin/python studies/drift.py --encoder all-MiniLM-L6-v2    # writes studies/results/drift.md and .json

Written down before it was run: draw i of a part has seed i. Data: CLINC150, texts by the encoder, and Fashion-MNIST,
pixels, of both 2,000 items as reference and 1,000 as new ones; Omniglot, pixels, for groups, the twenty people who drew
each character. BANKING77 and CUB served to build the test, and are not here. 200 halves, 100 of each of the first two,
at 5 %: an alarm is an answer "differs". 20 changes, each drawn 20 times.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from readers import Array, encoded, idx, texts
from trivet.collapse.significance import compare_values
from trivet.datasets.download import find_root
from trivet.drift import Drift, find_drift
from trivet.drift.changes import Question
from trivet.drift.permutation import holm
from trivet.metrics import evaluate

RESULTS = Path(__file__).parent / "results"
REFERENCE, NOW = 2000, 1000
HALVES, DRAWS, GROUPED = 100, 20, 100
LEVEL = 0.05

Sides = tuple[Array, Array, list[str], list[str]]  # vectors of the reference and of the new items, and their labels
Change = Callable[["Items", np.random.Generator], tuple[Sides, float]]


class Items:
    """Labelled vectors, and others that are out of scope."""

    def __init__(self, rows: Array, labels: Array, others: Array) -> None:
        self.rows, self.labels, self.others = rows, labels.astype(str), others

    def sides(self, reference: Array, now: Array) -> Sides:
        return self.rows[reference], self.rows[now], self.labels[reference].tolist(), self.labels[now].tolist()

    def halves(self, draw: np.random.Generator) -> tuple[Array, Array]:
        order = draw.permutation(len(self.rows))
        return order[:REFERENCE], order[REFERENCE : REFERENCE + NOW]


def new_class(share: float) -> Change:
    """A class that the reference lacks."""

    def change(items: Items, draw: np.random.Generator) -> tuple[Sides, float]:
        name = str(draw.choice(np.unique(items.labels)))
        order = draw.permutation(len(items.rows))
        inside, outside = (order[(items.labels[order] == name) == wanted] for wanted in (True, False))
        count = min(len(inside), round(share * NOW))
        now = np.concatenate([inside[:count], outside[REFERENCE : REFERENCE + NOW - count]])
        return items.sides(outside[:REFERENCE], now), count / NOW

    return change


def grown_class(points: float) -> Change:
    """A class whose share of the new items is larger by so much."""

    def change(items: Items, draw: np.random.Generator) -> tuple[Sides, float]:
        reference, now = items.halves(draw)
        rest = np.setdiff1d(np.arange(len(items.rows)), np.concatenate([reference, now]))
        name = str(draw.choice(np.unique(items.labels)))
        more = draw.permutation(rest[items.labels[rest] == name])[: round(points * NOW)]
        return items.sides(reference, np.concatenate([more, now[len(more) :]])), 0.0

    return change


def out_of_scope(share: float) -> Change:
    """Items of no class, scattered."""

    def change(items: Items, draw: np.random.Generator) -> tuple[Sides, float]:
        reference, now = items.halves(draw)
        before, after, labels, new = items.sides(reference, now)
        count = round(share * NOW)
        others = items.others[draw.permutation(len(items.others))[:count]]
        return (before, np.concatenate([others, after[count:]]), labels, ["none"] * count + new[count:]), share

    return change


def blurred(size: float) -> Change:
    """Noise on every new item, of so many lengths of a vector, as of another camera, a rounding or another release."""

    def change(items: Items, draw: np.random.Generator) -> tuple[Sides, float]:
        before, after, labels, new = items.sides(*items.halves(draw))
        noise = draw.normal(size=after.shape).astype(np.float32)
        lengths = np.linalg.norm(after, axis=1, keepdims=True)
        return (before, after + size * lengths * noise / np.linalg.norm(noise, axis=1, keepdims=True), labels, new), 0.0

    return change


def moved_class(size: float) -> Change:
    """One class of the new items moved in one direction, by so many lengths of a vector."""

    def change(items: Items, draw: np.random.Generator) -> tuple[Sides, float]:
        before, after, labels, new = items.sides(*items.halves(draw))
        names, counts = np.unique(new, return_counts=True)
        name = str(draw.choice(names[counts >= 5]))
        direction = draw.normal(size=after.shape[1]).astype(np.float32)
        direction *= size * np.linalg.norm(after, axis=1).mean() / np.linalg.norm(direction)
        return (before, after + np.where(np.array(new)[:, None] == name, direction, 0), labels, new), 0.0

    return change


CHANGES: dict[str, tuple[Change, Question]] = {
    "a new class, 2 % of the items": (new_class(0.02), "items"),
    "a new class, 5 %": (new_class(0.05), "items"),
    "a new class, 10 %": (new_class(0.1), "items"),
    "a class larger by 3 points": (grown_class(0.03), "shares"),
    "a class larger by 6 points": (grown_class(0.06), "shares"),
    "out of scope, 3 %": (out_of_scope(0.03), "scope"),
    "out of scope, 8 %": (out_of_scope(0.08), "scope"),
    "noise on all items, 0.1": (blurred(0.1), "items"),
    "noise on all items, 0.3": (blurred(0.3), "items"),
    "one class moved, 0.5": (moved_class(0.5), "classes"),
}


def clinc(encoder: Path, work: Path | None) -> Items:
    """CLINC150: the training texts, and the test texts out of scope."""
    cached = None if work is None else work / "drift-clinc150.npz"
    labelled = texts("clinc150")
    if cached is not None and cached.is_file():
        with np.load(cached) as file:
            rows, others = file["rows"], file["others"]
    else:
        rows = encoded(encoder, [text for text, _ in labelled])
        others = encoded(encoder, [text for text, _ in texts("clinc150", "oos_test")])
        if cached is not None:
            np.savez(cached, rows=rows, others=others)
    return Items(rows, np.array([label for _, label in labelled]), others)


def fashion() -> Items:
    """Fashion-MNIST: the test images as pixels less their mean, and digits of MNIST."""
    images, labels = idx("fashion-mnist")
    digits, _ = idx("mnist")
    rows, others = (each.reshape(len(each), -1).astype(np.float32) for each in (images, digits[:2000]))
    centre = rows.mean(axis=0)
    return Items(rows - centre, labels, others - centre)


def omniglot() -> tuple[Array, Array]:
    """Characters of Omniglot as pixels `(N, 784)`, less their mean, and who drew each."""
    archive = zipfile.ZipFile(find_root(None) / "omniglot" / "images_evaluation.zip")
    names = sorted(name for name in archive.namelist() if name.endswith(".png"))[:6000]
    rows = np.stack(
        [np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("L").resize((28, 28))) for name in names]
    )
    pixels = rows.reshape(len(names), -1).astype(np.float32)
    return pixels - pixels.mean(axis=0), np.array([int(Path(name).stem.split("_")[-1]) for name in names])


def compared(sides: Sides, seed: int) -> Drift:
    before, after, labels, new = sides
    return find_drift(before, after, labels=(labels, new), level=LEVEL, seed=seed)


def unlabelled(drift: Drift) -> bool:
    """Whether the answer without labels is that the sets differ."""
    return (
        min(holm({name: p for name, p in drift.p.items() if name in ("items", "scope", "clusters")}).values()) <= LEVEL
    )


def halves(items: Items) -> dict[str, Any]:
    """Alarms where nothing has changed."""
    counts: dict[str, int] = dict.fromkeys(["with labels", "without labels", "new clusters"], 0)
    alone: dict[str, int] = {}
    for seed in range(HALVES):
        drift = compared(items.sides(*items.halves(np.random.default_rng(seed))), seed)
        counts["with labels"] += drift.answer == "differs"
        counts["without labels"] += unlabelled(drift)
        counts["new clusters"] += bool(drift.clusters)
        for question, p in drift.p.items():
            alone[question] = alone.get(question, 0) + (p <= LEVEL)
    return {"draws": HALVES, "alarms": counts, "each question alone": alone}


def changes(items: Items) -> dict[str, Any]:
    """Planted changes that come to light."""
    results = {}
    for name, (change, question) in CHANGES.items():
        rows = []
        for seed in range(DRAWS):
            sides, share = change(items, np.random.default_rng(seed))
            drift = compared(sides, seed)
            new = np.array(sides[3])
            known = {*sides[2]}
            called = np.concatenate([each.rows for each in drift.clusters]) if drift.clusters else np.empty(0, int)
            assert drift.scope is not None
            rows.append(
                {
                    "share": share,
                    "with": drift.answer == "differs",
                    "without": unlabelled(drift),
                    "question": drift.changed(question),
                    "excess": drift.scope.excess,
                    "low": drift.scope.interval.low,
                    "clusters": len(drift.clusters),
                    "called": len(called),
                    "right": int(sum(label not in known for label in new[called].tolist())),
                    "stated": float(np.interp(share, [*drift.power], [*drift.power.values()])),
                    "items": drift.p["items"] <= LEVEL / len(drift.p),
                }
            )
            print(name, seed, rows[-1], flush=True)
        results[name] = {"question": question, "draws": rows}
    return results


def groups() -> dict[str, Any]:
    """Alarms where people are divided at random, with their drawings as groups, and with each drawing by itself."""
    rows, people = omniglot()
    alarms = {"by person": 0, "without groups": 0}
    for seed in range(GROUPED):
        draw = np.random.default_rng(seed)
        some = draw.permutation(len(rows))[:2000]
        now = np.isin(people[some], draw.permutation(np.unique(people))[:8])
        names = np.char.mod("person %d", people[some])
        sides = rows[some[~now]], rows[some[now]]
        both = names[~now].tolist(), names[now].tolist()
        alarms["by person"] += find_drift(*sides, groups=both, level=LEVEL, seed=seed).answer == "differs"
        alarms["without groups"] += find_drift(*sides, level=LEVEL, seed=seed).answer == "differs"
    return {"draws": GROUPED, "alarms": alarms}


def canaries(items: Items) -> dict[str, Any]:
    """How often recall of 300 canaries is called fallen or risen, in halves of the same data."""
    fell = rose = 0
    classes = np.unique(items.labels, return_inverse=True)[1]
    for seed in range(HALVES):
        order = np.random.default_rng(seed).permutation(len(items.rows))
        queries, *galleries = order[:300], order[300:1300], order[1300:2300]
        values = []
        for gallery in galleries:
            result = evaluate(
                items.rows[queries],
                {"class": classes[queries]},
                gallery=items.rows[gallery],
                gallery_labels={"class": classes[gallery]},
                measures=["recall@1"],
                distance="cosine",
            )["class"].retrieval
            assert result is not None
            values.append(np.nan_to_num(result.values[:, 0]))
        judged = compare_values(values[1], values[0], classes[queries], reference="", level="class")
        fell += judged.worse
        rose += judged.better
    return {"draws": HALVES, "fell": fell, "rose": rose}


def report(record: dict[str, Any]) -> str:
    lines = [
        "# Drift",
        "",
        "`TRIVET_DATA=... .venv/bin/python studies/drift.py --encoder all-MiniLM-L6-v2`",
        "",
        f"{record['date']}, {record['machine']}, {record['seconds']} s. 2,000 items as reference, 1,000 new ones, a "
        "false-alarm rate of 5 %.",
        "",
        "## Halves of the same data: alarms",
        "",
        "| data | halves | with labels | without labels | new clusters | each question alone, at 5 % |",
        "|---|---|---|---|---|---|",
    ]
    for data, each in record["halves"].items():
        alone = ", ".join(f"{question} {count}" for question, count in each["each question alone"].items())
        alarms = each["alarms"]
        lines.append(
            f"| {data} | {each['draws']} | {alarms['with labels']} | {alarms['without labels']} | "
            f"{alarms['new clusters']} | {alone} |"
        )
    by_group = record["groups"]
    lines += [
        "",
        f"Omniglot, {by_group['draws']} divisions of its twenty people at random into twelve and eight: "
        f"{by_group['alarms']['by person']} alarms with the people as groups, {by_group['alarms']['without groups']} "
        "without.",
        "",
        f"Recall@1 of 300 canaries of CLINC150 in two halves of 1,000 items, {record['canaries']['draws']} draws: fell "
        f"{record['canaries']['fell']}, rose {record['canaries']['rose']}.",
        "",
        "## Planted changes",
        "",
        'Of 20 draws each: answered "differs" with labels and without; the question that the change is about, after '
        'Holm\'s procedure. The stated power is that of the question "items" for a cluster of the same share. Out of '
        "scope: the mean excess share; its interval reaches down to the true share or below in so many draws. New "
        "clusters: draws with any, and which share of their items is of the new class.",
        "",
        "| data | change | with labels | without | question | stated power | items alone | excess, % | low end below | "
        "clusters | right, % |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for data, kinds in record["changes"].items():
        for name, each in kinds.items():
            rows = each["draws"]
            planted = rows[0]["share"] > 0
            called = sum(row["called"] for row in rows)
            cells = [
                data,
                name,
                str(sum(row["with"] for row in rows)),
                str(sum(row["without"] for row in rows)),
                f"{each['question']} {sum(row['question'] for row in rows)}",
                f"{100 * np.mean([row['stated'] for row in rows]):.0f} %" if "new class" in name else "",
                str(sum(row["items"] for row in rows)),
                f"{100 * np.mean([row['excess'] for row in rows]):.1f}",
                str(sum(row["low"] <= row["share"] for row in rows)) if planted else "",
                str(sum(row["clusters"] > 0 for row in rows)),
                f"{100 * sum(row['right'] for row in rows) / called:.0f}" if called else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path, required=True, help="folder of sentence-transformers")
    parser.add_argument("--work", type=Path, help="folder in which vectors of texts are kept")
    options = parser.parse_args()
    start = time.perf_counter()
    data = {"CLINC150": clinc(options.encoder, options.work), "Fashion-MNIST": fashion()}
    record = {
        "date": str(datetime.now(UTC).date()),
        "machine": f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()} CPU",
        "halves": {name: halves(items) for name, items in data.items()},
        "groups": groups(),
        "canaries": canaries(data["CLINC150"]),
        "changes": {name: changes(items) for name, items in data.items()},
    }
    record["seconds"] = round(time.perf_counter() - start)
    (RESULTS / "drift.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "drift.md").write_text(report(record))


if __name__ == "__main__":
    main()
