"""Passages of the other documents, made from the committed results."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from tests.committed import BENCHMARKS, STUDIES, figures, flat, percent, program, quoted, results, row
from tests.passages_of_results import COMMON, strategies

from trivet_papers.catalogue import experiments
from trivet_papers.runs import results as measured


def diagnosis() -> Iterator[str]:
    parts = results(STUDIES / "diagnosis.json")["parts"]
    half = [each for each in parts["verdicts"]["rows"] if each["half"] == "second"]
    healthy = [each for each in half if each["kind"] == "healthy"]
    assert not any(each["called_collapsed"] for each in healthy)
    yield (
        f"held-out half of {len(parts['verdicts']['rows'])} cases of known condition | the kind was right for "
        f"{sum(each['right'] for each in half)} of {len(half)}, none of {len(healthy)} healthy ones was called "
        "collapsed"
    )

    def first(rows: list[dict[str, Any]], fate: str, verdict: str, key: str = "with") -> str:
        some = [each[key][0] for each in rows if each["fate"] == fate]
        return f"{some.count(verdict)} of {len(some)}"

    real = parts["real-verdicts"]["rows"]
    assert all(each["right"] for each in real)
    yield (
        f"| {len(real)} heads on features of CUB, CIFAR-10, Fashion-MNIST, CLINC150 and BANKING77, with the features "
        f"as reference | {first(real, 'good', 'healthy')} good ones healthy; "
        f"{first(real, 'worse', 'worse-than-reference')} that lost 10 points or more worse than the reference; "
        f"{first(real, 'slightly worse', 'worse-than-reference')} that lost 1 to 10 points, "
        f"{first(real, 'slightly worse', 'spread-out').partition(' ')[0]} left open; "
        f"{first(real, 'chance', 'no-better-than-chance')} at chance |"
    )
    twins, encoders = (parts[name]["rows"] for name in ("equal-twins", "equal-encoders"))
    pairs, told = (sum(each[key] for each in twins) for key in ("pairs", "told"))
    yield (
        f"{pairs:,} pairs of embeddings that are as good as each other | {told} called worse than their twin "
        f"({100 * told / pairs:.1f} %); of {sum(each['pairs'] for each in encoders)} pairs of different encoders "
        f"{sum(each['told'] for each in encoders)} |"
    )
    runs = [each for each in parts["run-verdicts"]["rows"] if each["half"] == "second"]
    right = {
        fate: (sum(each["right"] for each in runs if each["fate"] == fate), sum(each["fate"] == fate for each in runs))
        for fate in ("good", "worse", "slightly worse")
    }
    yield (
        f"| {len(runs)} whole runs on other data than the rules were chosen on | "
        "{} of {} good ones not accused, {} of {} that lost 10 points called worse, {} of {} that lost less not called "
        "healthy;".format(*(number for fate in right.values() for number in fate))
    )
    (accused,) = [each for each in runs if each["fate"] == "good" and not each["right"]]
    assert accused["verdicts"] == ["worse-than-reference"]
    yield (
        f"the good one that is called worse lost {100 * accused['lost']:.1f} points of recall@1 on other items, and "
        f"{100 * accused['rank_biased_lost']:.1f} of rank-biased precision |"
    )
    page = (STUDIES / "diagnosis.md").read_text()
    causes = re.findall(r"^\| second \| (?:slightly )?worse .*\| (\d+) of (\d+) \| (\d+) \|$", page, re.MULTILINE)
    named, asked, another = (sum(map(int, column)) for column in zip(*causes, strict=True))
    yield f"the cause that was provoked named in {named} of {asked}, another one in {another}"
    inside = [each for each in parts["inside-verdicts"]["rows"] if each["split"] == "train"]
    accused = [each for each in inside if "class-collapse" in each["verdicts"]]
    assert all(each["inside"] != "kept" for each in accused)
    lost = [each for each in inside if each["inside"] == "lost" and each["way"] == "groups, all positives"]
    yield (
        f"| {len(inside)} heads trained on groups of classes or on the classes, without a finer label | each of "
        f"{len(accused)} accusations was right; {sum(each['verdicts'] == ['healthy'] for each in lost)} of "
        f"{len(lost)} heads"
    )
    trained = parts["trained-verdicts"]["rows"]

    def called(given: str, data: str, arm: str = "usual") -> tuple[int, int]:
        some = [each["found"] for each in trained if (each["given"], each["data"], each["arm"]) == (given, data, arm)]
        return sum("class-collapse" in found for found in some), len(some)

    sets = ("digits", "mnist", "omniglot")
    for title, given in {
        "finer label": "fine label",
        "raw inputs as reference": "raw inputs",
        "untrained network as reference": "untrained network",
        "nothing": "nothing",
    }.items():
        yield row(title, *("{} of {}".format(*called(given, data)) for data in sets))
    easy = [called(given, data, "easy") for given in ("nothing", "raw inputs", "fine label") for data in sets]
    fine = [called("nothing", data, "fine") for data in (*sets, "fashion-mnist")]
    assert not any(hits for hits, _ in (*easy, *fine))
    easy_count, fine_count = sum(count for _, count in easy[:3]), sum(count for _, count in fine)
    yield (
        f"None of {easy_count} networks trained with easy positives was called collapsed, and none of {fine_count} "
        "trained"
    )
    large = parts["large"]
    yield f"takes {statistics.median(large['seconds']):.1f} s and {large['peak_mib'] / 1024:.1f} GiB"


def shapes() -> Iterator[str]:
    everything = results(STUDIES / "shape_fates.json")["broad"]

    def of(seed: int) -> list[dict[str, Any]]:
        return [one for one in everything if one["seed"] in (seed, seed + 1)]

    def count(rows: list[dict[str, Any]], outcome: str, fate: str | None = None) -> int:
        return sum(one["outcome"] == outcome and fate in (None, one["fate"]) for one in rows)

    rows = of(26)
    yield f"{len(rows)} shifted, scaled, rounded"
    alone = sum(one["outcome"] == "open" and one["reference_recall"] is None for one in rows)
    yield (
        f"{count(rows, 'accused')} accused falsely, {count(rows, 'cleared')} falsely called healthy, "
        f"{count(rows, 'open')} left open ({alone} as"
    )
    inside = sum(one["fate"] == "inside" for one in rows)
    yield (
        f"{count(rows, 'right', 'collapsed')} of 24 network collapses, {count(rows, 'right', 'slight')} of 24 with "
        f"1.5 % of the items moved and {count(rows, 'right', 'inside')} of {inside} that lost"
    )
    accused, cleared, opened = (
        "{}, {} and {}".format(*(count(of(seed), outcome) for seed in (20, 22, 24)))
        for outcome in ("accused", "cleared", "open")
    )
    yield f"before had accused {accused}, cleared {cleared} and left {opened} open"
    rows = of(16)
    yield (
        f"no rule had seen: {count(rows, 'accused')} accused, {count(rows, 'cleared')} called healthy, "
        f"{count(rows, 'open')} open"
    )


def relations() -> Iterator[str]:
    rows = results(STUDIES / "relation_fates.json")["rows"]
    for what, fate in (("pairs", "collapsed"), ("tags", "inside")):
        some = [row for row in rows if f" {what}" in row["data"]]
        accused, cleared, opened = (
            sum(row["outcome"] == one for row in some) for one in ("accused", "cleared", "open")
        )
        called = [row["outcome"] == "right" for row in some if row["fate"] == fate]
        yield f"{len(some)} embeddings of {what}"
        yield f"of {what} {accused} accused falsely, {cleared} falsely called healthy, {opened} left open, "
        yield f"{sum(called)} of {len(called)} {'network' if what == 'pairs' else 'class'} collapses called"


def watched_runs() -> Iterator[str]:
    found = results(STUDIES / "watched_runs.json")
    batches, guest, strict, strict_guest = (
        found["counts"][f"{name}{more}"] for more in ("", ", strictly") for name in ("with batches", "guest")
    )
    called = [each["lost"] - each["silent"] for each in (strict, strict_guest)]
    yield f"{len(found['runs'])} small networks"
    yield (
        f"{called[0]} of {strict['lost']} runs that lost 3 points or more were called, {strict['right']} by the right "
        f"kind, as a guest without batches {called[1]} and {strict_guest['right']}. {batches['next to another']} of "
        f"these fates"
    )
    yield f"the judgement was for {batches['right']} and {guest['right']} of {batches['lost']}"
    assert not batches["closing wrong"] + guest["closing wrong"] + batches["false kind"] + guest["false kind"]
    assert {each["accused"] for each in (batches, guest)} == {0}
    yield f"None of {batches['healthy']} healthy ones was accused"
    yield (
        f"{strict['false kind']} runs, as a guest {strict_guest['false kind']}, were called a kind that they never "
        "were, all by no more than sampling error"
    )
    right = batches["closing right"]
    yield f"right for {right}, wrong for none, and left {batches['closed'] - right} open"
    ranked = [run for run in found["runs"] if "rank-biased" in run["called"]["with batches"]["closing"]]
    assert all({"harm", "class-collapse", "network-collapse"} & {*[*run["fates"].values()][-1]} for run in ranked)
    yield f"{len(ranked)} of these runs end below their start by rank-biased precision alone; all had lost"
    second, first = (found["earlier"][f"{name} draw"]["counts"] for name in ("Second", "First"))
    strict, first = second["with batches, strictly"], first["with batches"]
    yield (
        f"of {strict['lost']} and {first['lost']} runs that lost, had {strict['right']} and {first['right']} of the "
        f"right kind, and {strict['accused']} of {strict['healthy']} and {first['accused']} of {first['healthy']} "
        "healthy ones accused"
    )


def _of(counts: dict[str, Any], part: str, whole: str) -> str:
    return f"{counts[part]} of {counts[whole]}" if counts[whole] else "none"


def guard() -> Iterator[str]:
    found = results(STUDIES / "guard.json")
    now, odd = [found["watch"][name] for name in ("test", "later")], found["watch"]["odd"]["replayed"]
    then = [found["before"]["watch"][name]["replayed"] for name in ("test", "later")]

    def pair(part: str, whole: str) -> list[str]:
        return [f"{_of(each['replayed'], part, whole)} ({_of(each['before'], part, whole)})" for each in now]

    yield row("harmed or collapsed runs called (goal: 95 %)", *pair("called", "harmed"))
    yield row("false alarms (5 %)", *pair("false", "healthy"))
    yield row("right kind, of those called", *pair("right_kind", "called"))
    yield " ".join(("of the steps (80 %) |", " | ".join(pair("in_time", "slow")), "|"))
    closed = [[each["replayed"][f"closing_{name}"] for name in ("right", "wrong")] for each in now]
    yield row(
        "closing sentence right, wrong",
        *(
            f"{right}, {wrong} of {each['replayed']['closed']}"
            for (right, wrong), each in zip(closed, now, strict=True)
        ),
    )
    yield row(
        "cost of the calls over that of the steps, which are 70 to 300 (2 %)",
        *(f"{100 * each['replayed']['cost']:.1f} %" for each in now),
    )
    yield row(
        "AUROC of the risk of batches after 5 % of the steps, at least 20 (0.93), of all",
        *(f"{each['auroc']:.3f}" for each in then),
    )
    done = [f"{len(new['replayed']['runs'])} of {len(old['runs'])}" for new, old in zip(now, then, strict=True)]
    yield f"{' and '.join(done)} runs"
    yield f"{odd['false']} of {odd['healthy']} healthy but odd runs"
    beside = [each["replayed"]["beside_start"] for each in now]
    lost, named, kinds, accused, fine = (
        sum(each[key] for each in beside) for key in ("harmed", "called", "right_kind", "false", "healthy")
    )
    yield f"{named} of {lost} were called, {kinds} by the right kind, and {accused} of {fine} others"
    foretold = []
    for name, each in zip(("test", "later"), then, strict=True):
        warned = {one["number"] for one in found["before"]["foretold"][name] if one["sentence"]}
        ends = {one["number"]: one["fate"] for one in each["runs"]}
        harmed = sum(ends[number] not in ("healthy", "harmless") for number in warned)
        healthy = sum(ends[number] == "healthy" for number in warned)
        foretold.append(f"{harmed} of {each['harmed']}, {healthy} of {each['healthy']}")
    yield row(
        "warned of before the first step by `guard.forecast`, by the forecast of then, of all: harmed, healthy",
        *foretold,
    )
    counts = [each["replayed"] for each in now] + [odd]
    called, false, harmed, healthy = (
        sum(each[key] for each in counts) for key in ("called", "false", "harmed", "healthy")
    )
    yield (
        f"{called} of {called + false} calls were right, and {harmed - called} of "
        f"{harmed + healthy - called - false} silent runs were harmed"
    )
    wrong = [run["task"].split(",")[0] for each in counts for run in each["runs"] if run["closing_is"] == "wrong"]
    assert {*wrong} == {"clinc", "cub-50"}
    yield (
        f"{len(wrong)} closing sentences are wrong, odd runs included, {wrong.count('clinc')} of them on CLINC150 and "
        f"{wrong.count('cub-50')} on CUB"
    )
    gains = found["gains_by_halves"]
    yield f"of {gains['said']} sentences that said so by halves, {gains['wrong']} did not hold"


def forecasts() -> Iterator[str]:
    found = results(STUDIES / "forecast_fates.json")
    new, old, shapes = (found["sets"][name] for name in ("later", "test", "map"))
    unlikely, unclear, likely = ((points, count) for _, _, count, points, _ in new["bins"])
    yield (
        f"of {new['runs']} runs that were written down before they were trained, {new['point']} ended as a point, "
        f"{new['slow']} of them later than at a quarter of the steps: AUROC {new['auroc']:.3f}, of the late ones "
        f"{new['auroc_slow']:.3f}. Of the {likely[1]} for which a point was likely {likely[0]} ended as one, of the "
        f"{unclear[1]} open ones {unclear[0]}, of the {unlikely[1]} unlikely ones {unlikely[0]}. {new['collapsed']} "
        f"were network collapses: AUROC {new['auroc_collapsed']:.3f}"
    )
    missed = [found["first"][name]["bins"][0][3] for name in ("map", "test")]
    yield (
        f"A first rule, by doubling alone, was judged before on the collapse map and on {old['runs']} other runs: it "
        f"called {missed[0]} of {shapes['point']} and {missed[1]} of {old['point']} points unlikely. The present one "
        f"has an AUROC of {shapes['auroc']:.3f} and {old['auroc']:.3f} there"
    )


def gauntlet() -> Iterator[str]:
    found = results(STUDIES / "gauntlet.json")
    test = found["watch"]["test"]
    yield (
        f"on {len(test['runs'])} test runs of small networks: {test['called']} of {test['collapsed']} collapses "
        f"called, {test['false_alarms']} of {test['healthy']} others too; {test['before_5_points']} of "
        f"{test['called']} before 5 points of recall@1 were lost, as {test['lost_within_5_percent']} of the "
        f"{test['collapsed']} lost them within 5 % of the steps; AUROC of the risk after 5 % of the steps "
        f"{test['auroc']:.3f}"
    )
    cost = found["overhead"]
    (short,) = (each for each in cost["short"] if round(each["step_ms"], 1) == 4.2)
    first, *rest = short["shares"]
    whole = (10 * first + 290 * rest[0] + 300 * sum(rest[1:])) / 900
    yield (
        f"takes {cost['step_ms']:.0f} ms on two threads; an update of the monitor {cost['update_ms']:.2f} ms. Of 900 "
        f"steps of {short['step_ms']:.1f} ms it takes {100 * whole:.1f} %"
    )


def worked_example() -> Iterator[str]:
    found = quoted("wrong labels")
    labels = found["labels"]

    def recalls(run: str, form: str = "{} and {} %") -> str:
        return form.format(
            *(percent(found[run][f"trained, {split}, digit"]["recall@1"]) for split in ("seen", "unseen"))
        )

    items, wrong = found["audit"]["items"], labels["wrong"]
    yield f"Of the {items} training labels {wrong} ({percent(wrong / items)} %) are wrong"
    spelled = "{} % on new images of the trained digits and {} % on unseen digits"
    yield f"Recall@1 by digit is {recalls('noisy', spelled)}."
    rate = found["audit"]["noise_rate"]
    low, high = map(percent, rate["interval"])
    yield f"here {percent(rate['estimate'])} % (95 % interval: {low} to {high} %)"
    agreeing = re.findall(
        r"([\d.]+) % of the labels agree with the networks, ([\d.]+) % with", *found["audit"]["notes"]
    )
    yield "({1} % of the labels agree with the pixels, {0} % with the networks)".format(*agreeing[0])
    relabelled, right, spoiled = (labels[key] for key in ("relabelled", "made right", "spoiled"))
    yield (
        f"{relabelled} labels change here: {right} become right, {relabelled - right - spoiled} go from one wrong "
        f"label to another, and {spoiled} right one is spoiled"
    )
    left = wrong - right + spoiled
    yield f"Now {left} labels ({percent(left / items)} %) are wrong"
    yield f"and recall@1 is {recalls('mended', '{} % and {} %')}."
    picture = ("noisy", "mended", "topline", "clean")
    yield ", ".join(f"{run} {recalls(run)}" for run in picture)
    yield (
        f"In the end {labels['cleaned, dropped']} items are left out, {labels['cleaned, dropped and wrong']} of them "
        f"among the {wrong} wrong ones. Recall@1 is "
        f"{recalls('cleaned', '{} % on the trained digits and {} % on unseen digits')}."
    )
    assert labels["cleaned late, dropped"] == 0
    yield f"it leaves out none, and recall@1 is {recalls('cleaned late', '{} and {} %, as without')}."
    tolerated = found["tolerance"]
    low, high = tolerated["interval"]
    yield f"tolerates about p = {tolerated['value']:.2f} [{low:.2f}, {high:.2f}] of wrong labels"


AGAIN = [
    *("clinc150, within domains 20", "banking77, symmetric 20", "cifar-10n, worse"),
    *("clinc150, right", "banking77, right", "cifar-10n, right"),
]


def _weak(cells: dict[str, Any]) -> Iterator[str]:
    """The row on weak vectors."""
    recalls = [float(name.partition("recall@1 ")[2].partition(",")[0]) for name in cells]
    told = [cell for cell in cells.values() if cell["interval"] and cell["interval"][0] > 0]
    held = sum(cell["interval"][0] <= cell["wrong"] <= cell["interval"][1] for cell in told)
    yield (
        f"three data sets, recall@1 {min(recalls):.2f} to {max(recalls):.2f}, with 10 or 20 % wrong: "
        f"{len(cells) - len(told)} of {len(cells)} ranges begin at 0, "
        f"{'all' if held == len(told) else f'{held} of the'} others hold the share"
    )
    right = [cell["called_wrong"] / cell["called"] for cell in told]
    errors, before = ([cell[f"calibration_error{more}"] for cell in told] for more in ("", "_without"))
    yield (
        f"of labels called wrong {100 * min(right):.0f} to {100 * max(right):.0f} % are, and probabilities are "
        f"{min(errors):.3f} to {max(errors):.3f} off, {sum(error <= 0.05 for error in errors)} of {len(told)} by 0.05 "
        f"or less ({sum(error <= 0.05 for error in before)} without"
    )


def audits() -> Iterator[str]:
    cells = results(STUDIES / "label_noise.json")["cells"]
    summary = flat((STUDIES / "label_noise.md").read_text())
    (counts,) = re.findall(
        r"Of (19) cases with wrong labels, AUROC is at least that of the best other in (\d+), precision@100 in (\d+).*?"
        r"largest shortfalls are [\d.]+ and ([\d.]+)\. The interval contains the true share in (\d+ of \d+) cells",
        summary,
    )
    yield (
        "a softmax layer in {1} of {0} cases; precision among the first 100 in {2}, at most {3:.2f} lower in the rest"
    ).format(*counts[:3], float(counts[3]))
    yield f"the range held the truth in {counts[4]} runs"
    asked = {
        tuple(key.split(" | ")[1:3]): [
            cell for other, cell in cells.items() if other.rpartition(" | ")[0] == key.rpartition(" | ")[0]
        ]
        for key in cells
        if key.startswith("case | ") and "chosen on" not in key and "random vectors" not in key
    }
    people = [
        cell for (data, kind), some in asked.items() if data.startswith("cifar") and kind != "right" for cell in some
    ]

    def ends(values: Sequence[float], form: str = "{:.0f} to {:.0f} %") -> str:
        return form.format(100 * min(values), 100 * max(values))

    lows, highs = ([cell["interval"][side] for cell in people] for side in (0, 1))
    yield (
        f"with {ends([cell['rate'] for cell in people], '{:.1f} to {:.1f} %')} wrong, it begins at {ends(lows)} and "
        f"ends at {ends(highs)}"
    )
    right = [cell for (_, kind), some in asked.items() if kind == "right" for cell in some]
    assert not any(cell["interval"][0] for cell in right)
    assert len(right) == 5
    assert not any(cell["named_wrong"] for cell in right)
    yield f"for all five sets; of {sum(cell['items'] for cell in right):,} right labels none is called wrong"
    (worst,) = (cell for cell in people if cell["rate"] == max(one["rate"] for one in people))
    assert worst["named_wrong"] == worst["interval"][0] == 0
    yield f"Of the {100 * worst['rate']:.1f} % none is called wrong"
    yield from _weak(results(STUDIES / "right_labels.json")["weak"])
    errors: dict[str, list[float]] = {"plain": [], "boundary": [], "people": []}
    for (data, kind), some in asked.items():
        if "calibration" in some[0] and "known errors" not in kind:
            group = "people" if data.startswith("cifar") else "boundary" if kind.startswith("boundary") else "plain"
            errors[group].append(statistics.fmean(cell["calibration"]["error"] for cell in some))
    near, people_off = (f"{min(errors[key]):.2f} to {max(errors[key]):.2f}" for key in ("boundary", "people"))
    yield (
        f"within {max(errors['plain']):.3f} of the share that is wrong with noise put in, but {near} off for "
        f"mistakes near another class, and {people_off} too low for labels of people"
    )
    again = {name: [cells[f"retrain | {name} | {seed}"] for seed in (9, 10, 11)] for name in AGAIN}

    def gains(name: str, decided: str, against: str = "as given") -> float:
        return 100 * statistics.fmean(cell[decided] - cell[against] for cell in again[name])

    dropped, doubtful, over = (
        [gains(name, *sides) for name in AGAIN[:3]]
        for sides in (
            ("trivet, dropped",),
            ("trivet, doubtful dropped",),
            ("trivet, doubtful dropped", "cleanlab, dropped"),
        )
    )
    change = [gains(name, "trivet, doubtful dropped") for name in AGAIN[3:]]
    yield (
        'gains {:.1f}, {:.1f} and {:.1f} points of recall@1 on CLINC150, BANKING77 and CIFAR-10N "worse" '
        "without what is called wrong; {:.1f}, {:.1f} and {:.1f} with `--drop-above 0.5`, {:.1f} to {:.1f} more "
        "than after cleanlab's decisions. Where all labels are right it changes by {:.1f}, {:.1f} and {:+.1f}"
    ).format(*dropped, *doubtful, min(over), max(over), *change)
    large = cells["large | 60,000 x 512, 100 classes"]
    yield f"take {large['judged_seconds']:.0f} s and at most {large['peak_gib']:.1f} GiB on two cores"
    rare = [
        [float(cell) for cell in line.strip("| ").split(" | ")[4:6]]
        for line in (STUDIES / "label_noise.md").read_text().splitlines()
        if "| symmetric 10 | " in line and ("digits in parity" in line or "characters in alphabets" in line)
    ]
    yield f"up to {100 * max(each[0] for each in rare):.0f} % were called wrong with 10 % noise, none without"
    found = [cell["symmetric 10"]["recall"] for key, cell in cells.items() if key.startswith("rare")]
    yield f"in {found.count(0)} of {len(found)} such sets with noise no label was called wrong at all"


def robust() -> Iterator[str]:
    found = results(STUDIES / "robust_training.json")

    def mean(data: str, strategy: str, rate: str, seeds: Sequence[int] = (3, 4, 5)) -> float:
        return 100 * statistics.fmean(found[data][strategy][rate]["noise"][str(seed)] for seed in seeds)

    places = [("fashion-mnist", rate) for rate in ("0.0", "0.2", "0.4", "0.6")]
    places += [("cifar-10n", rate) for rate in ("0.0", "0.17", "0.4")]
    for title in (
        *("margin, all, violating, drop", "margin, all, violating", "triplet, all, violating"),
        *("triplet, easy, violating", "triplet, random, violating"),
    ):
        strategy = title.replace("drop", "drop from 30%")
        yield row(title, *(f"{mean(data, strategy, rate):.1f}" for data, rate in places))
    best = "margin, all, violating, drop from 30%"
    behind = max(
        mean(data, strategy, rate) - mean(data, best, rate)
        for data, rate in places
        for strategy, rates in found[data].items()
        if "3" in rates.get(rate, {}).get("noise", {})
    )
    yield f"it is at most {behind:.1f} points of recall@1 below the best"
    chosen = (0, 1, 2)
    fashion = found["fashion-mnist"]
    cleaned = [name for name in fashion if name.endswith(", drop from 30%")]
    dropping, relabelling = (
        {
            (strategy, rate): mean("fashion-mnist", f"{base}{ending}", rate, chosen)
            - mean("fashion-mnist", than, rate, chosen)
            for strategy in cleaned
            for base in [strategy.removesuffix(", drop from 30%")]
            for than in [f"{base}{other}"]
            for rate in ("0.0", "0.2", "0.4", "0.6")
        }
        for ending, other in ((", drop from 30%", ""), (", relabel from 30%", ", drop from 30%"))
    )
    assert min(gain for (_, rate), gain in dropping.items() if rate != "0.0") > 0
    assert min(gain for (_, rate), gain in dropping.items() if rate == "0.0") > -1
    yield f"helps all {'five' if len(cleaned) == 5 else len(cleaned)} strategies"
    yield f"by up to {max(gain for (_, rate), gain in dropping.items() if rate == '0.6'):.0f} points at 0.6"
    yield f"Relabelling is at most {max(relabelling.values()):.1f} points better"
    beyond = [
        mean("fashion-mnist", f"{kind}, {positives}, violating", rate, chosen)
        - mean("fashion-mnist", f"{kind}, {positives}, semihard-hardest", rate, chosen)
        for kind in ("triplet", "selectively-contrastive")
        for positives in ("easy", "random", "all")
        for rate in ("0.4", "0.6")
    ]
    yield f"by {min(beyond):.0f} to {max(beyond):.0f} points at p = 0.4 and 0.6 with triplet losses"
    triplets, margin = ("triplet, all, violating", "margin, all, violating")
    yield (
        "reach {:.1f} % with right labels and {:.1f} % at p = 0.4; the margin loss, the same otherwise, {:.1f} and "
        "{:.1f} %; triplets without dropping {:.1f} and {:.1f} %"
    ).format(
        *(
            mean("omniglot", strategy, rate)
            for strategy in (f"{triplets}, drop from 30%", f"{margin}, drop from 30%", triplets)
            for rate in ("0.0", "0.4")
        )
    )


def first_steps() -> Iterator[str]:
    recall = results(STUDIES / "fine_tuning_cub_pretrained.json")["runs"]["triplet-easy-0"]["recall@1"]
    yield f"the features of the backbone have a recall@1 of {percent(recall['zero-shot backbone'])} %"
    yield f"the network before its first step has {percent(recall['untrained network'])} %"


def texts() -> Iterator[str]:
    runs = results(STUDIES / "fine_tuning_texts_finetuned.json")["runs"]
    three = [runs[f"triplet-random-{seed}"] for seed in range(3)]
    measures = ("recall@1", "map@r")
    yield row("character n-grams", *(percent(three[0][measure]["raw inputs"]) for measure in measures))
    zero = [percent(three[0][measure]["zero-shot backbone"]) for measure in measures]
    yield row("all-MiniLM-L6-v2 as it is (zero-shot)", *zero)
    tuned = (statistics.fmean(run[measure]["trained"] for run in three) for measure in measures)
    yield row(
        "trained end to end, 60 steps: [results](results.md#pretrained-networks-fine-tuned)", *map(percent, tuned)
    )


def scale() -> Iterator[str]:
    micro = results(BENCHMARKS / "scale_micro.json")
    mib = {(each["case"], each["items"], each["micro"]): f"{each['mib']:.0f} MiB" for each in micro["memory"]}
    ratio = {(each["case"], each["items"], each["micro"]): f"{each['ratio']:.2f}" for each in micro["times"]}
    small, batch = ("conv4", 64, None), ("resnet18", 64, None)
    yield row("conv4, 28", "1,024", mib[small], "–", "–", ratio["conv4", 1024, 64])
    pieces = (mib["conv4", 4096, 64], mib["conv4", 4096, None])
    yield row("conv4, 28", "4,096", mib[small], *pieces, ratio["conv4", 4096, 64])
    pieces = (mib["resnet18", 256, 64], mib["resnet18", 256, None])
    yield row("ResNet-18, 64", 256, mib[batch], *pieces, ratio["resnet18", 256, 64])
    for title, key, large in (
        ("ResNet-18, 28 | 256", ("resnet18-28", 256), 128),
        ("conv4, 14 | 2,048", ("conv4-14", 2048), 512),
    ):
        yield f"| {title} | – | – | – | {ratio[*key, 64]}; in pieces of {large}: {ratio[*key, large]} |"
    processes = results(BENCHMARKS / "scale_processes.json")
    rows = {
        kind: [each for each in processes["same"]["rows"] if each["dtype"] == f"torch.{kind}"]
        for kind in ("float32", "float64")
    }
    alike = sum(each["chosen alike"] for each in rows["float32"])
    near = sum(each["weights"] < 1e-4 for each in rows["float32"])
    assert all(each["chosen alike"] and each["weights"] <= 1e-13 for each in rows["float64"])
    yield (
        f"In float32 {alike} of {len(rows['float32'])} trainings choose the same; {near} differ by less than 1e-4 of "
        f"the norm of the weights, the others by at most {max(each['weights'] for each in rows['float32']):.2f}, as "
        "rounding decided otherwise on the way"
    )
    kills = processes["kills"]
    assert kills["finished after that"]
    yield (
        f"{len(kills['rows'])} times SIGKILL at a random moment. All processes had ended after "
        f"{kills['slowest end, seconds']:.0f} seconds at most"
    )
    waits = [each for each in processes["waits"]["rows"] if each["processes"] == 2]
    yield "waits for {:.0f} % of a step of {:.0f} ms and {:.0f} % of one of {:.0f} ms".format(
        *(value for each in waits for value in (100 * each["waits"], each["ms a step"]))
    )
    step = results(BENCHMARKS / "scale_step.json")
    conv4, resnet = (step["networks"][name]["milliseconds_per_item"] for name in ("conv4", "timm:resnet18"))
    yield f"takes {conv4['64']:.2f} ms an item for conv4 at 28 pixels and {resnet['64']:.0f} ms for ResNet-18 at 64"
    paper = program("benchmarks/scale_step.py")["paper"]
    shares = []
    for count, each in ((8, 1024), (64, 256)):
        times = paper(count, each, 512, micro=each > 256)
        parts = [times[part] for part in ("loss", "gather", "network", "gradient")]
        shares.append(f"{100 * sum(parts[:2]) / sum(parts):.0f} %")
    yield f"take {shares[0]} of a step of 8,192 items on 8 GPUs, and {shares[1]} of one of 16,384 items on 64"
    exchange = step["exchange"]["2"]
    yield (
        f"is gathered among 2 processes in {exchange['gather']['milliseconds']['2097152']:.0f} ms, the gradient of "
        f"ResNet-18 averaged in {exchange['average']['milliseconds']['44000000']:.0f} ms"
    )
    vectors = {(each["part"], each["items"]): each for each in results(BENCHMARKS / "scale_vectors.json")["rows"]}
    for title, part in {
        "`trivet embed` into 4 and 16 shards, by a linear head": "embed",
        "reading the shards, mapped; ids and labels are held": "read, mapped",
        "the same without `vectors.npy`, held in memory": "read into memory",
        "`trivet evaluate --sample 2000`, exact": "evaluate",
        "`trivet index --kind ivf-pq`, recall@10 of at least 0.95": "ivf-pq",
    }.items():
        digits = 0 if part == "ivf-pq" else 1
        few, many = (f"{vectors[part, items]['seconds']:.{digits}f} s" for items in (250_000, 1_000_000))
        yield row(title, few, many, f"{vectors[part, 1_000_000]['own_mib']:.0f}")
    for kind, first, second in (("ivf-pq", 250_000, 1_000_000), ("hnsw", 250_000, None)):
        query = [f"{vectors[f'search {kind}', items]['ms_per_query']:.1f} ms" for items in (first, second) if items]
        recall = [f", recall {vectors[kind, items]['recall']:.3f}" for items in (first, second) if items]
        parts = ["".join(pair) for pair in zip(query, recall, strict=True)] if second else query
        yield "| a query of it, k = 10 | " + " | ".join(parts) + " |"
    graph = vectors["hnsw", 250_000]
    yield f"--kind hnsw` | {graph['seconds']:.0f} s, recall {int(1000 * graph['recall'] + 0.5) / 1000:.3f} |"


def others() -> Iterator[str]:
    vectors = results(BENCHMARKS / "data.json")["vectors"]
    yield f"are ready after {vectors['open_seconds']:.1f} s, in {vectors['open_own_mib']:.0f} MiB for their ids"


def coverage() -> Iterator[str]:
    designs = [*results(STUDIES / "intervals.json")["designs"].values()]

    def found(over: str, key: str, *starts: str) -> list[float]:
        """The values of the measures whose names begin so, of all designs, in per cent."""
        rows = (row for design in designs for name, row in design.get(over, {}).items() if name.startswith(starts))
        return [100 * row[key] for row in rows]

    retrieval, clusters = ("recall", "precision", "r-precision", "map", "mrr", "rbp"), ("nmi", "ami")
    verification, rates = ("roc", "verification"), ("tar",)
    items, classes = (found(over, "coverage", *retrieval) for over in ("queries", "classes"))
    yield (
        f"retrieval {fmean(items):.0f} % on average for other items ({min(items):.0f} to {max(items):.0f} %) and "
        f"{fmean(classes):.0f} % for other classes ({min(classes):.0f} to {max(classes):.0f} %)"
    )
    ends = [
        f"{min(values):.0f} to {max(values):.0f} %"
        for kind in (clusters, verification, rates)
        for values in (found("queries", "coverage", *kind), found("classes", "coverage", *kind))
    ]
    yield (
        f"NMI and AMI {ends[0]}, and {ends[1]}; ROC AUC and accuracy {ends[2]}, and {ends[3]}; TAR {ends[4]}, and "
        f"{ends[5]}"
    )
    values = [value for over in ("queries", "classes") for value in found(over, "coverage", "")]
    above, below = sum(value > 97 for value in values), sum(value < 93 for value in values)
    yield (
        f"Of all {len(values)}, {len(values) - above - below} lie within 93 to 97 %, {above} above and {below} below"
    )
    chance = 200 * (0.93 * 0.07 / 400) ** 0.5  # two standard deviations of a share of 93 %
    lower = sum(value < 93 - chance for value in values)
    yield f"{['None', 'One', 'Two', 'Three'][lower]} are lower than 400 draws explain"
    names = sorted({name for design in designs for rows in design.values() for name in rows})
    means = [
        fmean([100 * design[over][name]["coverage"] for design in designs if name in design.get(over, {})])
        for over in ("queries", "classes")
        for name in names
    ]
    yield f"Each measure has {min(means):.0f} to {max(means):.0f} % on average over the populations"
    different = [found(over, "called_different", *retrieval) for over in ("queries", "classes")]
    few = [
        fmean(found(over, "called_different", name))
        for over in ("queries", "classes")
        for name in names
        if name.startswith((*clusters, *rates))
    ]
    yield (
        f"called different in {fmean(different[0]):.0f} % (retrieval, other items; at most {max(different[0]):.0f} %) "
        f"and {fmean(different[1]):.0f} % (other classes); by NMI, AMI and TAR in {min(few):.0f} to {max(few):.0f} %"
    )


def coverage_of_relations() -> Iterator[str]:
    designs = results(STUDIES / "relation_intervals.json")["designs"].values()
    for over in ("queries", "classes"):
        rows = [row for design in designs if design["over"] == over for row in design["measures"].values()]
        held, called = ([100 * row[key] for row in rows] for key in ("coverage", "called_different"))
        yield f"{fmean(held):.0f} % ({min(held):.0f} to {max(held):.0f} %)"
        yield f"{fmean(called):.0f} % ({min(called):.0f} to {max(called):.0f} %)"


def of_the_readme() -> Iterator[str]:
    rows = [
        each for each in results(BENCHMARKS / "core.json")["rows"] if each["part"] == "named" and each["case"] in COMMON
    ]
    large = [each["ratio"] for each in rows if each["anchors"] == 4096]
    small = [1 / each["speedup"] for each in rows if each["anchors"] == 64]
    yield (
        f"a step with 4096 embeddings takes {min(large):.1f} to {max(large):.1f} times as long as its bare matrix "
        f"products, one with 64 takes {min(small):.1f} to {max(small):.1f} times as long as pytorch-metric-learning's"
    )


def semihard_miner() -> Iterator[str]:
    rows = [each for each in results(BENCHMARKS / "core.json")["rows"] if each["case"] == "all semi-hard"]
    times = {
        each["anchors"]: figures(each["speedup"])
        for each in rows
        if (each["part"], each["dimension"], each["samples"]) == ("named", 128, 4) and "speedup" in each
    }
    yield (
        f'take {times[64]} times as long as those of "all-semihard" with N = 64, {times[128]} times with 128, '
        f"{times[256]} with 256, {times[512]} with 512 and {times[1024]} with 1,024"
    )


def coarse_labels() -> Iterator[str]:
    """Sentences of docs/coming_from.md that cite docs/results.md; a third one is in tests/test_coming_from.py."""
    (table,) = (one for one in experiments("levi2021") if one.key == "levi2021-table3")
    found, _ = measured(table, "here", STUDIES / "reproduce")
    gains = []
    for loss in ("triplet", "margin", "MS"):
        usual, easy = (
            statistics.fmean(found.numbers("unseen/character/recall@1", loss=loss, positives=positives))
            for positives in ("usual", "easy")
        )
        gains.append(100 * (easy - usual))
    yield f"it gains {min(gains):.0f} to {max(gains):.0f} points of recall@1 by character"
    yield (
        next(passage for passage in strategies() if "on pretrained features" in passage)
        .replace("on p", "On p")
        .replace("all lie", "all strategies lie")
    )


def tag_mistakes() -> Iterator[str]:
    """Tags that an audit calls wrong, and how many of them are."""
    found = results(STUDIES / "tag_noise.json")
    known = {(row["data"], row["rate"], row["kind"]): row for row in found["rows"] if row["seed"] == 2}
    missing, superfluous = (known["texts", 0.02, kind] for kind in ("missing", "superfluous"))
    yield (
        f"{missing['right']} of {missing['called']} called missing and {superfluous['right']} of "
        f"{superfluous['called']} called superfluous are planted, of {missing['planted']} each"
    )
    missing, superfluous = (known["birds", 0.02, kind] for kind in ("missing", "superfluous"))
    counts = (f"{row['right']} of {row['called']}" for row in (missing, superfluous))
    yield f"tagged by class, family and order, {' and '.join(counts)}, of {missing['planted']} each"
    called = {
        data: sum(known[data, 0.0, kind]["called"] for kind in ("missing", "superfluous"))
        for data in ("texts", "birds")
    }
    assert called["birds"] == 0
    yield f"{called['texts']} of 15,000 tags of the texts are called wrong, and none of the birds"
    few = [row for row in found["few"] if row["least"] is not None]
    right = [row for row in few if row["rate"] == 0]
    given = sum(row["given_judged"] for row in right if row["kind"] == "missing")
    yield f"{sum(row['called'] for row in right)} of {given:,} right tags are called wrong"
    wrong = [row for row in few if row["rate"] == 0.02]
    calls, hits, planted = (sum(row[key] for row in wrong) for key in ("called", "right", "planted_judged"))
    yield (
        f"with 2 % wrong {hits:,} of {calls:,} calls are right, and {100 * hits / planted:.0f} % of the mistakes are "
        "found"
    )
    above = sum(row["least"] * row["given_judged"] > row["planted_judged"] + 0.5 for row in few)
    yield f"A range begins too high in {above} of {len(few)}"


def pair_mistakes() -> Iterator[str]:
    """Pairs that an audit calls wrong or missing, and how many of them are."""
    rows = [row for row in results(STUDIES / "pair_noise.json")["rows"] if row["verdict"] == "judged"]

    def total(key: str, some: Iterable[dict[str, Any]]) -> int:
        return sum(row[key] for row in some)

    texts = [row for row in rows if row["data"].startswith(("CLINC150", "BANKING77"))]
    images = [row for row in rows if row not in texts]
    of_texts, of_images = ([row for row in some if row["rate"] == 0.05] for some in (texts, images))
    yield (
        f"of pairs of texts of an intent {total('right', of_texts):,} of {total('called', of_texts):,} that are called "
        f"wrong are, of {total('exchanged', of_texts):,}; of halves of images {total('right', of_images):,} of "
        f"{total('called', of_images):,}, of {total('exchanged', of_images):,}"
    )
    holds = [row["least"] - 0.5 <= row["exchanged"] <= row["most"] + 0.5 for row in rows]
    fashion = [not inside for row, inside in zip(rows, holds, strict=True) if row["data"].startswith("fashion")]
    yield f"{sum(holds)} of {len(rows)} runs; {sum(fashion)} others are of Fashion-MNIST, where it begins too high"
    right = [row for row in rows if row["rate"] == 0]
    clothes = [row for row in right if row["data"].startswith("fashion")]
    words = total("called", [each for each in right if each in texts])
    yield (
        f"{total('pairs', right):,} right pairs {total('called', right)} are called wrong, {total('called', clothes)} "
        f"of them of Fashion-MNIST and {words or 'none'} of the texts"
    )
    above = []
    for number in (3, 4, 5, 6):  # from 30 % on
        counts, means, wrong = zip(*(row["bins"][number] for row in rows if row["rate"]), strict=True)
        above.append((sum(wrong) - sum(means)) / sum(counts))
    points = f"{100 * min(above):.0f} to {100 * max(above):.0f} points"
    yield f"of those with a probability from 30 % on, {points} more are wrong than it says"
    yield f"{100 * total('missing_right', texts) / total('missing', texts):.0f} % are of one intent"


def fewer_bits() -> Iterator[str]:
    """What embeddings in fewer bits lose of recall@1, alone and rescored."""
    sizes = [size for sizes in results(STUDIES / "codes.json")["sets"].values() for size in sizes]
    rescored = [-100 * size["difference"] for size in sizes if size["kind"].startswith("rescored")]
    binary = [-100 * size["difference"] for size in sizes if size["kind"] == "binary"]
    assert len(binary) == 4
    yield (
        f"no rescored form loses more than {max(0, *rescored):.1f} points of recall@1; a bit for each number alone "
        f"costs {min(binary):.1f} to {max(binary):.1f} points"
    )


def post_processing() -> Iterator[str]:
    """What whitening, expansion and re-ranking gain, and how often their intervals hold the mean gain."""
    record = results(STUDIES / "postprocessing.json")
    gains = {
        way: {
            name: 100 * row["gains"]["map@r"]["difference"]
            for name, rows in record["sets"].items()
            for row in rows
            if row["way"] == way
        }
        for way in ("whitening", "expansion", "reciprocal")
    }
    omniglot, *_ = (name for name in gains["reciprocal"] if name.startswith("Omniglot"))
    reranked = [gain for name, gain in gains["reciprocal"].items() if name != omniglot]
    assert gains["reciprocal"][omniglot] <= 0
    assert all(gain < gains["reciprocal"][name] for name, gain in gains["expansion"].items() if name != omniglot)
    assert max(gains["whitening"].values()) < 0
    coverage = [100 * each["coverage"] for each in record["coverage"]]
    yield f"of three populations {min(coverage):.0f} to {max(coverage):.0f} % held the mean gain"
    yield (
        f"re-ranking gained {min(reranked):.1f} to {max(reranked):.1f} points of MAP@R on four and nothing on "
        "Omniglot, expansion less, and whitening lost everywhere"
    )


SOURCES = {
    "README.md": (of_the_readme,),
    "docs/collapse_method.md": (diagnosis, shapes, relations, watched_runs, guard, forecasts, gauntlet),
    "docs/label_noise.md": (worked_example, audits, robust, tag_mistakes, pair_mistakes),
    "docs/networks.md": (first_steps, texts),
    "docs/scale.md": (scale,),
    "docs/data.md": (others,),
    "docs/evaluation.md": (coverage, coverage_of_relations, fewer_bits),
    "docs/coming_from.md": (coarse_labels, semihard_miner),
}
