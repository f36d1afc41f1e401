from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.miniatures import cars196, cub, market1501, sop

from trivet.reports.figure import style
from trivet_papers.experiment import Arm, Drawing, Experiment, Results, Size, Verdict, judge
from trivet_papers.runs import Runner, planned, results
from trivet_papers.xu2024.experiments import EXPERIMENTS
from trivet_papers.xu2024.experiments.common import items

pytestmark = pytest.mark.usefixtures("rough_evaluation")

KNOWN = {one.key.partition("-")[2]: one for one in EXPERIMENTS}
SIZES: tuple[Size, Size] = ("here", "paper")


@pytest.mark.parametrize("size", SIZES)
def test_arms_make_runs(size: Size, tmp_path: Path) -> None:
    configs = {run.key: run.config(tmp_path) for one in EXPERIMENTS for run in planned(one, size, 1)}
    assert not any(config.model.normalize or config.model.pretrained for config in configs.values())
    assert all(config.loss.positives == config.loss.negatives == "hard" for config in configs.values())
    assert len({config.batch.batch_size for config in configs.values()}) > 10


@pytest.mark.parametrize("size", SIZES)
def test_the_grid_of_the_paper(size: Size) -> None:
    shapes = {(arm.factors["P"], arm.factors["K"]) for arm in KNOWN["A"].recipe(size).arms}
    assert len(shapes) == 20
    assert {p for p, _ in shapes} == {2, 4, 8, 18}
    assert [arm.factors["d"] for arm in KNOWN["B"].recipe(size).arms] == [2**n for n in range(2, 11)]


def test_shared_arms_are_run_once() -> None:
    keys = {name: {run.key for run in planned(KNOWN[name], "here", 1)} for name in KNOWN}
    assert len(keys["A"] & keys["B"]) == 1  # 8 x 4 at d = 128
    assert keys["A"] < keys["C"]


def kept_as_claimed(arm: Arm) -> float:
    """Falls with the batch, and rises with the dimension, less so where P and K are not fixed."""
    power = 0.5 if "P" in arm.factors else 0.1
    return float(1.2 * (items(arm.factors) / 4) ** -1 * (float(arm.factors["d"]) / 128) ** power)


def kept_against(arm: Arm) -> float:
    """Rises with the batch, falls with the dimension and the margin."""
    margin = float(arm.factors.get("margin", 0))
    return float(
        0.03 * (items(arm.factors) / 4) ** 0.5 * (float(arm.factors["d"]) / 128) ** -0.5 * 2 ** (-100 * margin)
    )


def made_up(
    one: Experiment, size: Size, kept: Callable[[Arm], float], loss: float, wider: float = 0.0
) -> dict[str, Verdict]:
    """The verdict on each claim where the diameter was 10 and the loss of the first batch is given."""
    recipe = one.recipe(size)

    def values(arm: Arm, step: int) -> dict[str, float]:
        share = kept(arm) if step else 1.0
        diameter = 10 * share * (1 + wider * float(arm.factors.get("margin", 0)))
        return {"distance mean": 4 * share, "diameter": diameter, "first loss max": loss, "sample recall@1": 0.5}

    rows = {
        number: {seed: {step: values(arm, step) for step in arm.steps} for seed in range(3)}
        for number, arm in enumerate(recipe.arms)
    }
    return {claim.sentence: judge(claim, Results(rows, recipe.arms)).verdict for claim in recipe.claims}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_hold_where_it_is_as_they_say(name: str, size: Size) -> None:
    assert set(made_up(KNOWN[name], size, kept_as_claimed, loss=5, wider=1).values()) == {"holds"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_fall_where_it_is_not(name: str, size: Size) -> None:
    verdicts = made_up(KNOWN[name], size, kept_against, loss=0.1)
    undefined = {sentence for sentence in verdicts if sentence.startswith("The batch from which on it collapses")}
    assert all(verdicts[sentence] == "cannot tell" for sentence in undefined)  # where nothing collapses
    assert {verdicts[sentence] for sentence in verdicts.keys() - undefined} == {"does not hold"}


@pytest.mark.parametrize(("share", "down"), [(0.049, True), (0.051, False)])
def test_collapse_is_to_keep_less_than_five_percent(share: float, down: bool) -> None:
    verdicts = made_up(KNOWN["A"], "here", lambda arm: share, loss=5)
    collapses = verdicts["The largest batch, 18 x 20 = 360, collapses."]
    survives = verdicts["Batches of 4 and 8 items do not collapse."]
    assert (collapses, survives) == (("holds", "does not hold") if down else ("does not hold", "holds"))


@pytest.mark.parametrize("d", [4, 1024])
def test_collapse_at_one_end_is_not_collapse_at_both(d: int) -> None:
    def kept(arm: Arm) -> float:
        return 0.2 if arm.factors["d"] == d else 0.01

    verdicts = made_up(KNOWN["D"], "here", kept, loss=5)
    told = {value for sentence, value in verdicts.items() if "it collapses at 4 and at 1,024" in sentence}
    assert told == {"does not hold"}


def test_the_bound_is_broken_by_one_run_alone() -> None:
    def one_falls(arm: Arm) -> float:
        return 0.5 if (arm.factors["P"], arm.factors["K"]) == (4, 4) else 0.9

    verdicts = made_up(KNOWN["A"], "here", one_falls, loss=2)
    assert (
        verdicts[
            "The diameter stays above that before training less twice the loss of the first batch, at each batch size."
        ]
        == "does not hold"
    )


SMALL = ["training.steps=2", "training.accelerator=cpu", "model.embedding_dim=4"]


def smaller(one: Experiment, *factors: dict[str, object]) -> Experiment:
    """The experiment with its paper-size arms that have these factors."""
    arms = tuple(
        arm for arm in one.paper.arms if any(all(arm.factors[k] == v for k, v in few.items()) for few in factors)
    )
    assert arms
    return replace(one, paper=replace(one.paper, arms=arms))


def run_paper(one: Experiment, root: Path, folder: Path, *changes: str) -> Results:
    Runner(folder, data_root=root, models=None, report=lambda _: None).run_all([one], "paper", 1, [*SMALL, *changes])
    found, lines = results(one, "paper", folder, 1, [*SMALL, *changes])
    assert len(lines) == len(one.paper.arms)
    assert not any(line["failed"] for line in lines)
    return found


def test_the_published_market_runs(tmp_path: Path) -> None:
    market1501(tmp_path / "data" / "market1501")
    one = smaller(KNOWN["A"], {"P": 2, "K": 2})
    found = run_paper(one, tmp_path / "data", tmp_path / "out", "data.image_size=[24, 12]")
    (arm,) = one.paper.arms
    before, after = (found.get(0, "distance mean", step, **arm.factors) for step in (0, 40_000))
    assert before > 0
    assert before != after


def test_other_networks_run(tmp_path: Path) -> None:
    market1501(tmp_path / "data" / "market1501")
    one = smaller(KNOWN["E"], {"P": 2, "K": 2, "network": "two convolutions"})
    run_paper(one, tmp_path / "data", tmp_path / "out", "data.image_size=[24, 12]")


def test_the_other_published_sets_run(tmp_path: Path) -> None:
    for name, make in (("sop", sop), ("cub", cub), ("cars196", cars196)):
        make(tmp_path / "data" / name)
    one = smaller(KNOWN["D"], {"N": 4, "d": 128})
    assert len(one.paper.arms) == 3
    changes = ["data.image_size=12", "data.resize=12", "model.name=conv2"]
    run_paper(one, tmp_path / "data", tmp_path / "out", *changes)


def of(arm: Arm, seed: int, step: int) -> dict[str, float]:
    share = kept_as_claimed(arm) * (1 + 0.2 * seed) if step else 1.0
    return {"distance mean": 4 * share, "diameter": 10 * share, "first loss max": items(arm.factors) ** 0.2}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_figures_draw_each_run(name: str, size: Size) -> None:
    recipe = KNOWN[name].recipe(size)
    rows = {
        number: {seed: {step: of(arm, seed, step) for step in arm.steps} for seed in range(2)}
        for number, arm in enumerate(recipe.arms)
    }
    drawings = [shown for shown in recipe.shows if isinstance(shown, Drawing)]
    assert drawings
    for shown in drawings:
        with style():
            figure = shown.draw(Results(rows, recipe.arms))
        assert len(figure.numbers["kept"]) % 2 == 0
        marks = sum(len(axes.lines) for axes in figure.picture.axes)
        assert marks >= len(figure.numbers["kept"])
        assert max(figure.numbers["bound"]) < 10


def test_a_figure_without_runs_is_empty() -> None:
    recipe = KNOWN["A"].here
    shown = next(shown for shown in recipe.shows if isinstance(shown, Drawing))
    with style():
        assert shown.draw(Results({}, recipe.arms)).numbers["kept"] == []
