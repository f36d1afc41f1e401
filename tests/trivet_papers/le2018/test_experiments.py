from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trivet_papers.made_results import verdicts

from trivet_papers.experiment import Arm, Experiment, Size, Verdict
from trivet_papers.le2018.experiments import EXPERIMENTS
from trivet_papers.le2018.experiments.common import HUMAN, RATES, SOURCES
from trivet_papers.le2018.noise_figures import METHODS
from trivet_papers.runs import ArmRun, planned

pytestmark = pytest.mark.usefixtures("rough_evaluation")

KNOWN = {one.key.partition("-")[2]: one for one in EXPERIMENTS}
SIZES: tuple[Size, Size] = ("here", "paper")
CURVES = ("sop", "cub", "flowers")
PRETRAINED = ("CUB-50", "BANKING77", "CUB", "Flowers-102")


@pytest.mark.parametrize("size", SIZES)
def test_arms_make_runs(size: Size, tmp_path: Path) -> None:
    for name in ("clustering", "human"):  # the first has the runs of the three others
        kinds = {
            tuple(run.arm.factors[key] for key in ("data", "method", "labels")): run
            for run in planned(KNOWN[name], size, 1)
        }
        for run in kinds.values():
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
    steep = {"random": 0.6, "fixed": 1.2, "marginal": 1.5}[method]
    if data in PRETRAINED:
        steep = {"random": 0.6, "fixed": 1.2, "marginal": 0.62}[method]
        if method == "marginal":  # breaks somewhat earlier
            return 1 - steep * math.pow(p, 1.8)
    return 1 - steep * math.pow(p, 1.5 if method == "fixed" and data in PRETRAINED else 2)


def against(data: str, method: str, p: float) -> float:
    if data in PRETRAINED:
        return 1 - {"random": 0.6, "fixed": 0.3, "marginal": 0.1}[method] * (p * p * p if method == "marginal" else p)
    return 1 - 1.2 * p if method == "random" else 1 - {"fixed": 0.6, "marginal": 0.3}[method] * math.sqrt(p)


def marginal_is_worst(data: str, method: str, p: float) -> float:
    return 1 - {"random": 0.4, "fixed": 0.6, "marginal": 0.8}[method] * p


def unhurt(data: str, method: str, p: float) -> float:
    return 1 - {"random": 0.15, "fixed": 0.3, "marginal": 0.17}[method] * p


def made_up(one: Experiment, size: Size, level: Level, sign: int, untrained: float = 0.2) -> dict[str, Verdict]:
    """The verdict on each claim; without noise fixed is better for a positive sign, as is the fall of toplines."""
    sources = {source.name: source for source in SOURCES[size].values()}

    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        data, method, kind, p = (arm.factors[key] for key in ("data", "method", "labels", "p"))
        if kind == "none":
            return {sources[str(data)].recall: untrained, sources[str(data)].nmi: untrained}
        best = 0.8 + sign * 0.02 * (method == "fixed")
        topline = best - (0.1 + sign * 0.04 * (method == "marginal")) * float(p)
        ratio = 1.0 if kind == "topline" else level(str(data), str(method), float(p))
        if kind in HUMAN and sign < 0:  # the more labels are wrong, the better
            ratio = 1 + {"random": 1.0, "fixed": 2.0, "marginal": 3.0}[str(method)] * float(p)
        return {sources[str(data)].recall: topline * ratio, sources[str(data)].nmi: topline * (1 + ratio) / 2}

    return verdicts(one, size, values)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_hold_where_it_is_as_they_say(name: str, size: Size) -> None:
    told = made_up(KNOWN[name], size, as_claimed, 1)
    assert [sentence for sentence, verdict in told.items() if verdict != "holds"] == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_fall_where_it_is_not(name: str, size: Size) -> None:
    told = made_up(KNOWN[name], size, against, -1)
    robust = {sentence for sentence in told if sentence.startswith("From a pretrained network the marginal loss")}
    assert {told[sentence] for sentence in told.keys() - robust} == {"does not hold"}
    told = made_up(KNOWN[name], size, marginal_is_worst, 1)
    assert all(told[sentence] == "does not hold" for sentence in robust)
    assert len(robust) == (2 if name in ("cub", "flowers") else 0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("level", "untrained"), [(unhurt, 0.2), (as_claimed, 0.9)])
@pytest.mark.parametrize(("name", "others"), [("sop", 1), ("cub", 1), ("flowers", 2), ("clustering", 0)])
def test_robustness_is_judged_where_training_helps_and_noise_hurts(
    name: str, others: int, level: Level, untrained: float, size: Size
) -> None:
    told = made_up(KNOWN[name], size, level, 1, untrained)
    assert len([sentence for sentence, verdict in told.items() if verdict == "cannot tell"]) == len(told) - others


@pytest.mark.parametrize(
    ("fixed", "random", "verdict"), [(2, 1, "holds"), (1, 1, "cannot tell"), (1, 2, "does not hold")]
)
def test_the_gap_that_widens_is_that_beyond_random_negatives(fixed: int, random: int, verdict: Verdict) -> None:
    def level(data: str, method: str, p: float) -> float:
        return 1 - 0.9 * float(p**fixed if method == "fixed" else p**random)

    told = made_up(KNOWN["sop"], "here", level, 1)
    assert {value for sentence, value in told.items() if "widens more" in sentence} == {verdict}
