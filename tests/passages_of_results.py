"""Passages of docs/results.md, made from the committed results."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import Any

from tests.committed import BENCHMARKS, STUDIES, around, figures, percent, percents, program, quoted, results, row

from trivet.collapse import Forecast
from trivet_papers.catalogue import experiments
from trivet_papers.runs import results as measured


def easy_positives() -> Iterator[str]:
    tables = {one.key: measured(one, "here", STUDIES / "reproduce")[0] for one in experiments("levi2021")}

    def of(table: str, measure: str, **factors: str) -> list[float]:
        found = tables[f"levi2021-{table}"]
        return found.numbers(measure, **factors) if any(arm.factors == factors for arm in found.arms) else []

    losses = {
        "triplet, semi-hard": "triplet",
        "margin, distance-weighted": "margin",
        "multi-similarity, lambda 0.5": "MS",
        "multi-similarity, lambda 1": "MS, lambda 1",
        "proxy-NCA": "proxy-NCA",
        "untrained network": "none",
        "images as they are, cosine": "none, inputs",
    }
    for name, loss in losses.items():
        cells = [
            of("table3", f"unseen/{level}/recall@1", loss=loss, positives=positives)
            for level in ("character", "alphabet")
            for positives in ("usual", "easy")
        ]
        yield row(name, *(around(values) if values else "" for values in cells)).replace("|  |", "| |")
    for name, positives in {
        "random positives": "usual",
        "easy positives": "easy",
        "untrained network": "before",
        "images as they are, cosine": "inputs",
    }.items():
        splits = ("seen", "unseen")
        cells = [of("table1", f"{split}/digit/recall@1", positives=positives) for split in splits]
        yield row(name, *map(around, cells))


def strategies() -> Iterator[str]:
    lines = (STUDIES / "strategies.md").read_text().splitlines()[2:]
    spans = []
    for line in lines:
        name, *cells, rank = line.strip("| ").split(" | ")
        means = [cell.split()[0] for cell in cells]
        yield row(name, *map(", ".join, zip(means[::2], means[1::2], strict=True)), rank).replace("| – |", "| |")
        spans.append([float(mean) for mean in means[2::2]])
    widest = max(max(each) - min(each) for each in zip(*spans[1:], strict=True))
    yield f"on pretrained features all lie within {widest:.1f} points of recall@1"
    yield f"{len(results(STUDIES / 'strategies-here.jsonl'))} runs."
    study = program("studies/strategies.py")
    yield f"the critical difference is {study['critical_difference'](len(study['DATA'])):.1f} (Nemenyi, 5 %)"


def digits() -> Iterator[str]:
    demo = quoted("demo")

    def spread(level: str, split: str, side: str, measure: str = "recall@1") -> str:
        rows = [
            each
            for each in (*demo["results"], *demo["references"])
            if side in (each.get("positives"), each.get("name"))
        ]
        (values,) = (each[measure]["values"] for each in rows if (each["split"], each["level"]) == (split, level))
        return around(values)

    sides = {"random positives": "random", "easy positives": "easy", "untrained network": "untrained network"}
    for name, side in (sides | {"raw pixels": "raw pixels"}).items():
        cells = [spread(*place, side) for place in (("digit", "seen"), ("digit", "unseen"), ("parity", "seen"))]
        index = demo["collapse"].get(side)
        yield row(name, *cells, f"{index['mean']:.2f} ± {index['std']:.2f}" if index else "").replace("|  |", "| |")
    falls = [spread("parity", "seen", side, "nmi").split()[0] for side in ("random", "easy")]
    yield "NMI of two clusters with parity falls from {} to {},".format(*falls)


def shapes() -> Iterator[str]:
    lines = results(STUDIES / "collapse_map.jsonl")

    def pair(rows: list[dict[str, Any]]) -> tuple[str, str, str, str]:
        rows = sorted(rows, key=lambda line: line["seed"])
        width = 3 if rows[0]["kept"] < 0.2 else 2
        kept = ", ".join(f"{line['kept']:.{width}f}" for line in rows)
        ends = [line["collapse"] for line in rows]
        end = ends[0] if ends[0] == ends[1] else None
        assert end or not any(ends)
        alarms = (
            ", ".join(str(line["alarm"]) for line in sorted(rows, key=lambda line: line["alarm"] or 0))
            if rows[0]["alarm"]
            else "–"
        )
        return kept, percents([line["recall"] for line in rows]), end or "no", alarms

    def of(**factors: Any) -> list[dict[str, Any]]:
        return [
            line
            for line in lines
            if line["data"] == "omniglot" and line["model"] == "conv4" and factors.items() <= line.items()
        ]

    for classes, samples in (
        (2, 2),
        (8, 2),
        (8, 4),
        (32, 2),
        (8, 16),
        (32, 4),
        (128, 2),
        (32, 16),
        (128, 4),
        (128, 16),
    ):
        kept, recall, end, alarms = pair(of(strategy="batch-hard", margin=0.0, classes=classes, samples=samples))
        yield row(f"{classes} x {samples}", f"{classes * samples:,}", kept, recall, end, alarms)
    untrained = sorted(of(strategy="batch-hard", margin=0.0, classes=2, samples=2), key=lambda line: line["seed"])
    yield f"recall@1, % (untrained {percents([line['untrained_recall'] for line in untrained])})"
    for name, factors in {
        "batch-hard, margin 0.01": {"strategy": "batch-hard", "margin": 0.01},
        "easy positives, margin 0": {"strategy": "easy"},
        "first-order NCA, easy positives, unit rows": {"strategy": "first-order"},
        "second-order loss, easy positives, unit rows": {"strategy": "second-order"},
    }.items():
        yield row(name, *pair(of(classes=128, samples=16, **factors))[:3])
    mnist = {
        items: statistics.fmean(
            line["kept"]
            for line in lines
            if (line["data"], line["strategy"], line["margin"], line["items"]) == ("mnist", "batch-hard", 0.0, items)
        )
        for items in (4, 2046)
    }
    yield f"it shrinks too (kept {mnist[4]:.2f} at N = 4, {mnist[2046]:.2f} at N = 2,046)"
    survive, fall = (
        statistics.fmean(line["recall"] for line in of(classes=128, samples=16, strategy=strategy, margin=0.0))
        for strategy in ("easy", "batch-hard")
    )
    yield f"with {100 * survive:.0f} % where batch-hard has {100 * fall:.0f} %"
    points = [line for line in lines if line["collapse"] == "full"]
    others = [line for line in lines if line["collapse"] != "full"]
    assert not any(line["alarm"] for line in others)
    alarms = [line["alarm"] for line in points]
    yield f"{len(lines)} runs;"
    outlooks = [[Forecast(**line["forecast"]).outlook for line in some] for some in (points, others)]
    open_points, open_others = (some.count("open") for some in outlooks)
    assert outlooks[0].count("likely") == 0
    yield (
        f"After 20 steps it is open for {open_points} of the {len(points)} runs that ended as a point, and for "
        f"{open_others} of the {len(others)} others. The monitor reported all {len(points)}, at steps {min(alarms)} to "
        f"{max(alarms)}, and none of the other {len(others)}, of which "
        f"{sum(line['collapse'] == 'partial' for line in others)} collapsed in part."
    )


def fine_tuned() -> Iterator[str]:
    gains, above = [], {}
    for file, level in (("cub_pretrained", "CUB"), ("texts_finetuned", "CLINC150")):
        runs = results(STUDIES / f"fine_tuning_{file}.json")["runs"]
        zero = runs["triplet-random-0"]
        shot = [percent(zero[measure]["zero-shot backbone"]) for measure in ("recall@1", "map@r")]
        yield "| {}, zero-shot {}, MAP@R {} | recall@1, three seeds".format(level, *shot)
        above[level] = 0
        for loss in ("triplet", "margin", "multi-similarity"):
            for positives in ("random", "easy"):
                three = [runs[f"{loss}-{positives}-{seed}"] for seed in range(3)]
                better = 0
                for run in three:
                    (compared,) = (
                        one
                        for one in run["compared"]
                        if one["reference"] == "zero-shot backbone"
                        and one["level"] == ("class" if level == "CUB" else "intent")
                    )
                    better += compared["low"] > 0
                    gains.append(compared["difference"])
                above[level] += better
                yield row(
                    f"{loss}, {positives} positives",
                    percents([run["recall@1"]["trained"] for run in three]),
                    f"{better} of 3",
                    percent(statistics.fmean(run["map@r"]["trained"] for run in three)),
                )
    yield f"fine-tuning gains {percent(min(gains))} to {percent(max(gains))} points"
    yield f"CUB only {above['CUB']} of 18 lie above 0; on CLINC150, with 75, {above['CLINC150']} of 18"


SPEED = {
    "EPHN": "EPHN",
    "batch-hard": "batch-hard",
    "semi-hard, all positives": "semi-hard",
    "all triplets": "all triplets",
    "distance-weighted margin": "distance-weighted margin",
    "contrastive": "contrastive",
    "multi-similarity": "multi-similarity",
    "proxy-NCA": "proxy-NCA",
}
COMMON = ("EPHN", "batch-hard", "semi-hard", "all triplets", "distance-weighted margin")  # of the README
FOUR_SHAPES = [(128, 4), (128, 16), (512, 4), (512, 16)]


def speed() -> Iterator[str]:
    rows = results(BENCHMARKS / "core.json")["rows"]
    named = {
        (each["case"], each["anchors"], each["dimension"], each["samples"]): each
        for each in rows
        if each["part"] == "named"
    }
    for title, case in SPEED.items():
        cells = []
        for anchors in (64, 128, 256, 512, 1024, 4096):
            found = named[case, anchors, 128, 4]
            cells += [figures(found["speedup"])] if anchors <= 1024 else []
            cells += [figures(found["ratio"])] if anchors >= 1024 else []
        yield row(title, *cells)
    fast = {}
    for anchors in (64, 256, 1024):
        times = [each["speedup"] for each in named.values() if each["anchors"] == anchors and each.get("speedup")]
        fast[anchors] = (sum(time >= 1 for time in times), len(times))
    yield "Trivet is at least as fast in {} of {} cases at N = 64, {} of {} at 256 and {} of {} at 1024".format(
        *(number for anchors in fast for number in fast[anchors])
    )
    slower = [key for key, each in named.items() if key[1] == 1024 and each.get("speedup", 1) < 1]
    others = [f"{case} with d = {d} and {samples} per class" for case, _, d, samples in slower if case != "proxy-NCA"]
    yield f"Slower at N = 1024 are proxy-NCA, which has no pairs to save, and {', '.join(others)}"
    one_each = [[named[case, 4096, *shape]["ratio"] for case in ("batch-hard", "EPHN")] for shape in FOUR_SHAPES]
    yield row("batch-hard, EPHN", *(", ".join(f"{ratio:.2f}" for ratio in pair) for pair in one_each))
    slowest, trimmed = [], []
    for shape in FOUR_SHAPES:
        some = [each for key, each in named.items() if key[1:] == (4096, *shape)]
        worst = max((each for each in some if each["case"] != "contrastive, trimmed"), key=lambda each: each["ratio"])
        slowest.append(f"{worst['ratio']:.1f} ({worst['case']})")
        trimmed.append(f"{named['contrastive, trimmed', 4096, *shape]['ratio']:.1f}")
    yield row("slowest named case without trimming over pairs", *slowest)
    yield row("contrastive, trimmed over all pairs", *trimmed)
    bank = {each["case"]: f"{each['ratio']:.1f}" for each in rows if each["part"] == "bank"}
    yield (
        f"takes {bank['EPHN']} x floor with EPHN, {bank['batch-hard']} with batch-hard, "
        f"{bank['distance-weighted margin']} with distance-weighted negatives, {bank['contrastive']} contrastive, "
        f"{bank['semi-hard']} semi-hard and {bank['all triplets']} with all triplets"
    )
    large = {key[0]: f"{each['ratio']:.1f}" for key, each in named.items() if key[1] == 16384}
    yield (
        f"At N = 16,384 batch-hard takes {large['batch-hard']} x floor, multi-similarity {large['multi-similarity']} "
        f"and all triplets {large['all triplets']}"
    )
    gains = [
        f"{statistics.median(each['gain'] for key, each in named.items() if key[1] == anchors and 'gain' in each):.2f}"
        for anchors in (64, 256, 512, 1024)
    ]
    yield "a step of 64 embeddings took {} times as long before, of 256 {}, of 512 {}, of 1,024 {}".format(*gains)
    product = results(BENCHMARKS / "core_products.json")["rows"]
    single, rest = ([each["ratio"] for each in product if each["one_each"] == one] for one in (True, False))
    yield (
        f"{len(product)} in all, at N = 4096 with d = 128 and 4 per class: the {len(single)} with one positive and "
        f"one negative per anchor take at most {max(single):.1f} x floor; of the other {len(rest)}, "
        f"{sum(ratio <= 2.5 for ratio in rest)} take at most 2.5 x floor, and none more than {max(rest):.1f}."
    )


def busy_machine() -> Iterator[str]:
    lines = (BENCHMARKS / "busy.md").read_text().splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if " | trivet | " in line]
    assert {each[2] for each in cells} == {"64", "256", "1024"}
    yield (
        "Beside two spinning processes on the same two cores a step takes up to "
        f"{max(float(each[-1]) for each in cells):.1f} times as long as without them"
    )


def steps() -> Iterator[str]:
    found = results(BENCHMARKS / "training.json")
    for name, key, digits in (("ResNet-18, 64 px", "resnet18", 0), ("conv2, 8 px", "conv2", 2)):
        each = found[key]
        yield row(
            name,
            *(f"{1000 * each[side]:.{digits}f}" for side in ("bare", "trivet")),
            f"{each['ratio']:.2f} ({min(each['ratios']):.2f} to {max(each['ratios']):.2f})",
            f"{each['peak']['trivet']:,.0f} MiB",
        )
    wait = results(BENCHMARKS / "waiting.json")["results"]["omniglot"]
    yield f"to the report {wait['cold']['wait']:.0f} s, and {wait['warm']['wait']:.0f} s where"


def evaluation() -> Iterator[str]:
    found = {each["part"]: each for each in results(BENCHMARKS / "evaluation.json")["rows"]}
    for part in ("clusters", "random directions"):
        each = found[part]
        times = [f"{each[key]:.1f} s" for key in ("floor_seconds", "seconds", "peer_seconds", "faiss_seconds")]
        times.insert(2, f"{each['ratio']:.2f}")
        yield row(f"{part}, recall@1 {100 * each['measures']['recall@1']:.0f} %", *times, f"{each['peak_mib']:.0f} MiB")
    stream, means = found["stream"], found["k-means"]
    yield (
        f"take {stream['seconds']:.1f} s (bare products in memory {stream['floor_seconds']:.1f} s) and "
        f"{stream['peak_mib'] / 1024:.1f} GiB beyond the program"
    )
    yield f"with ten restarts takes {means['seconds']:.1f} s"


def suspects() -> Iterator[str]:
    text = (STUDIES / "banking77_suspects.md").read_text()
    judged = [line.split(" | ")[4] for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    yield "{} wrong, {} of no class, {} doubtful".format(*map(judged.count, ("wrong", "no class", "doubtful")))


SOURCES = (easy_positives, strategies, digits, shapes, fine_tuned, speed, busy_machine, steps, evaluation, suspects)
