from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.miniatures import cifar10, cub, flowers102, sop

from trivet.reports.figure import style
from trivet_papers.experiment import Arm, Drawing, Experiment, Results, Size, Verdict, judge
from trivet_papers.le2018.experiments import EXPERIMENTS
from trivet_papers.le2018.experiments.common import HUMAN, RATES, SOURCES
from trivet_papers.le2018.noise_figures import METHODS
from trivet_papers.runs import ArmRun, Runner, planned, results

pytestmark = pytest.mark.usefixtures("rough_evaluation")

KNOWN = {one.key.partition("-")[2]: one for one in EXPERIMENTS}
SIZES: tuple[Size, Size] = ("here", "paper")
CURVES = ("sop", "cub", "flowers")
PRETRAINED = ("CUB-50", "BANKING77", "CUB", "Flowers-102")


@pytest.mark.parametrize("size", SIZES)
def test_arms_make_runs(size: Size, tmp_path: Path) -> None:
    for name in ("clustering", "human"):  # the first has the runs of the three others
        for run in planned(KNOWN[name], size, 1):
            config, factors = run.config(tmp_path), run.arm.factors
            assert config.training.optimizer == "rmsprop"
            assert config.batch.batch_size == 60
            noise = config.data.noise
            assert (noise is not None and noise.topline) is (factors["labels"] == "topline")
            if noise is not None:
                assert noise.rate == factors["p"]
            if factors["labels"] in HUMAN:
                assert config.data.level == factors["labels"]
            if size == "paper":
                assert config.model.pretrained is (factors["data"] in PRETRAINED)


def test_each_seed_has_noise_of_its_own() -> None:
    arm = next(arm for arm in KNOWN["sop"].here.arms if arm.factors["labels"] == "topline")
    assert [ArmRun(arm, seed).settings["data"]["noise"]["seed"] for seed in (0, 7)] == [0, 7]
    assert ArmRun(arm, 0).key != ArmRun(arm, 7).key


def test_each_method_has_each_rate_with_its_topline() -> None:
    for name in CURVES:
        found = {(arm.factors["method"], arm.factors["labels"], arm.factors["p"]) for arm in KNOWN[name].here.arms}
        wanted = {(method, kind, p) for method in METHODS for kind in ("noise", "topline") for p in RATES if p}
        wanted |= {(method, "noise", 0.0) for method in METHODS}
        assert wanted < found
        assert {labels for _, labels, _ in found - wanted} == {"none"}


def test_the_figure_on_clusters_adds_no_run() -> None:
    def keys(*names: str) -> set[str]:
        return {run.key for name in names for run in planned(KNOWN[name], "here", 1)}

    assert keys("clustering") == keys(*CURVES)


# The paper prints curves only: made-up numbers that are as its sentences say, and others that are not.

Level = Callable[[str, str, float], float]  # data, method, p -> the ratio to the topline


def as_claimed(data: str, method: str, p: float) -> float:
    steep = {"random": 0.25, "fixed": 0.6, "marginal": 1.0}[method]
    if data in PRETRAINED:
        steep = {"random": 0.25, "fixed": 0.6, "marginal": 0.27}[method]
        if method == "marginal":  # breaks somewhat earlier
            return 1 - steep * math.pow(p, 1.8)
    return 1 - steep * math.pow(p, 1.5 if method == "fixed" and data in PRETRAINED else 2)


def against(data: str, method: str, p: float) -> float:
    steep = {"random": 0.95, "fixed": 0.6, "marginal": 0.3}[method]
    if data in PRETRAINED:
        return 1 - {"random": 0.95, "fixed": 0.6, "marginal": 0.1}[method] * (p * p * p if method == "marginal" else p)
    return 1 - steep * math.sqrt(p)


def marginal_is_worst(data: str, method: str, p: float) -> float:
    return 1 - {"random": 0.2, "fixed": 0.4, "marginal": 0.6}[method] * p


def made_up(one: Experiment, size: Size, level: Level, sign: int) -> dict[str, Verdict]:
    """The verdict on each claim; without noise fixed is better for a positive sign, as is the fall of toplines."""
    recipe = one.recipe(size)
    sources = {source.name: source for source in SOURCES[size].values()}

    def values(arm: Arm) -> dict[str, float]:
        data, method, kind, p = (arm.factors[key] for key in ("data", "method", "labels", "p"))
        if kind == "none":
            return {sources[str(data)].recall: 0.2, sources[str(data)].nmi: 0.3}
        best = 0.8 + sign * 0.02 * (method == "fixed")
        topline = best - (0.1 + sign * 0.04 * (method == "marginal")) * float(p)
        ratio = 1.0 if kind == "topline" else level(str(data), str(method), float(p))
        if kind in HUMAN and sign < 0:  # the more labels are wrong, the better
            ratio = 1 + {"random": 1.0, "fixed": 2.0, "marginal": 3.0}[str(method)] * float(p)
        return {sources[str(data)].recall: topline * ratio, sources[str(data)].nmi: topline * (1 + ratio) / 2}

    rows = {
        number: {seed: {step: values(arm) for step in arm.steps} for seed in range(3)}
        for number, arm in enumerate(recipe.arms)
    }
    return {claim.sentence: judge(claim, Results(rows, recipe.arms)).verdict for claim in recipe.claims}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_hold_where_it_is_as_they_say(name: str, size: Size) -> None:
    verdicts = made_up(KNOWN[name], size, as_claimed, 1)
    assert [sentence for sentence, verdict in verdicts.items() if verdict != "holds"] == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_fall_where_it_is_not(name: str, size: Size) -> None:
    verdicts = made_up(KNOWN[name], size, against, -1)
    robust = {sentence for sentence in verdicts if sentence.startswith("From a pretrained network the marginal loss")}
    assert {verdicts[sentence] for sentence in verdicts.keys() - robust} == {"does not hold"}
    verdicts = made_up(KNOWN[name], size, marginal_is_worst, 1)
    assert all(verdicts[sentence] == "does not hold" for sentence in robust)
    assert len(robust) == (2 if name in ("cub", "flowers") else 0)


def smaller(name: str) -> Experiment:
    """Each kind of label of one method, and what is not trained."""
    one = KNOWN[name]
    arms = [
        arm
        for arm in one.paper.arms
        if arm.factors["labels"] == "none" or (arm.factors["method"] == "marginal" and float(arm.factors["p"]) <= 0.1)
    ]
    return replace(one, paper=replace(one.paper, arms=tuple(arms)))


TINY = [
    *("training.steps=2", "training.milestones=[1]", "training.accelerator=cpu"),
    *("batch.num_classes=2", "batch.samples_per_class=2", "data.augment=none"),
    *("model.name=conv2", "model.pretrained=false", "model.embedding_dim=4"),
]


def run_paper(one: Experiment, root: Path, folder: Path, *changes: str) -> Results:
    Runner(folder, data_root=root, models=None, report=lambda _: None).run_all([one], "paper", 1, [*TINY, *changes])
    found, lines = results(one, "paper", folder, 1, [*TINY, *changes])
    assert len(lines) == len(one.paper.arms)
    assert not any(line["failed"] for line in lines)
    return found


@pytest.mark.parametrize(
    ("name", "folder", "make"), [("sop", "sop", sop), ("cub", "cub", cub), ("flowers", "flowers102", flowers102)]
)
def test_the_published_layouts_run(name: str, folder: str, make: Callable[[Path], Path], tmp_path: Path) -> None:
    make(tmp_path / "data" / folder)
    one = smaller(name)
    found = run_paper(one, tmp_path / "data", tmp_path / "out", "data.image_size=12", "data.resize=12")
    assert {arm.factors["labels"] for arm in one.paper.arms} == {"none", "noise", "topline"}
    source = SOURCES["paper"][{"sop": "SOP", "cub": "CUB", "flowers": "Flowers"}[name]]
    for arm in one.paper.arms:
        assert found.get(0, source.recall, None, **arm.factors) is not None
        assert found.get(0, source.nmi, None, **arm.factors) is not None


def test_labels_of_people_run(tmp_path: Path) -> None:
    root = tmp_path / "data" / "cifar10"
    clean = cifar10(root)
    levels = ("aggre_label", "random_label1", "worse_label")
    people: dict[str, Any] = {f"c10_{level}": np.roll(clean, place) for place, level in enumerate(levels, 1)}
    np.savez(root / "cifar_n_labels.npz", c10_clean_label=clean, **people)
    one = smaller("human")
    run_paper(one, tmp_path / "data", tmp_path / "out")
    assert {"aggregate", "topline"} < {arm.factors["labels"] for arm in one.paper.arms}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_figures_draw_each_run(name: str, size: Size) -> None:
    recipe = KNOWN[name].recipe(size)
    measures = {measure: 0.5 for source in SOURCES[size].values() for measure in (source.recall, source.nmi)}
    rows = {
        number: {seed: dict.fromkeys(arm.steps, measures) for seed in range(2)}
        for number, arm in enumerate(recipe.arms)
    }
    drawings = [shown for shown in recipe.shows if isinstance(shown, Drawing)]
    assert drawings
    for shown in drawings:
        for given in (rows, {}):
            with style():
                figure = shown.draw(Results(given, recipe.arms))
            assert set(figure.numbers["noise"]) == ({0.5} if given else set())
