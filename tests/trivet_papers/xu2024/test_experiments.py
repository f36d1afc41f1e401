from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trivet_papers.made_results import verdicts

from trivet_papers.experiment import Arm, Experiment, Size, Verdict
from trivet_papers.runs import planned
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

    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        share = kept(arm) if step else 1.0
        diameter = 10 * share * (1 + wider * float(arm.factors.get("margin", 0)))
        recall = 0.5 if step == 0 else 0.2 if share < 0.05 else 0.6
        return {"distance mean": 4 * share, "diameter": diameter, "first loss max": loss, "sample recall@1": recall}

    return verdicts(one, size, values)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_hold_where_it_is_as_they_say(name: str, size: Size) -> None:
    assert set(made_up(KNOWN[name], size, kept_as_claimed, loss=5, wider=1).values()) == {"holds"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_fall_where_it_is_not(name: str, size: Size) -> None:
    told = made_up(KNOWN[name], size, kept_against, loss=0.1)
    of_collapse = ("The batch from which on it collapses", "recall@1 falls below")
    undefined = {sentence for sentence in told if any(words in sentence for words in of_collapse)}
    assert all(told[sentence] == "cannot tell" for sentence in undefined)  # where nothing collapses
    assert {told[sentence] for sentence in told.keys() - undefined} == {"does not hold"}


@pytest.mark.parametrize(("share", "down"), [(0.049, True), (0.051, False)])
def test_collapse_is_to_keep_less_than_five_percent(share: float, down: bool) -> None:
    told = made_up(KNOWN["A"], "here", lambda arm: share, loss=5)
    collapses = told["The largest batch, 18 x 20 = 360, collapses."]
    survives = told["Batches of 4 and 8 items do not collapse."]
    assert (collapses, survives) == (("holds", "does not hold") if down else ("does not hold", "holds"))


@pytest.mark.parametrize(
    ("end", "collapses", "survives"),
    [(0.01, "holds", "does not hold"), (0.1, "cannot tell", "cannot tell"), (0.2, "does not hold", "holds")],
)
def test_where_the_stop_decides_nobody_can_tell(end: float, collapses: Verdict, survives: Verdict) -> None:
    """From 0.3 half way; as fast a fall again would be to 0.03 from 0.1, and to 0.13 from 0.2."""

    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        kept = {0: 1.0, arm.steps[1]: 0.3}.get(step, end)
        return {"distance mean": kept, "diameter": kept, "first loss max": 1.0, "sample recall@1": 0.5}

    of_dimension, of_data = (verdicts(KNOWN[name], "here", values) for name in ("B", "D"))
    assert of_dimension["From 256 dimensions on it does not collapse."] == survives
    assert of_data["Fashion-MNIST: with batches of 144 it collapses at 4 and at 1,024 dimensions."] == collapses


@pytest.mark.parametrize(
    ("kept", "recall", "verdict"), [(0.01, 0.4, "holds"), (0.01, 0.6, "does not hold"), (0.2, 0.4, "cannot tell")]
)
def test_what_collapse_costs_is_retrieval_where_it_collapses(kept: float, recall: float, verdict: Verdict) -> None:
    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        share = kept if step else 1.0
        return {"distance mean": share, "diameter": share, "first loss max": 1.0} | {
            "sample recall@1": recall if step else 0.5
        }

    for name in ("A", "D", "E"):
        told = verdicts(KNOWN[name], "here", values)
        assert {value for sentence, value in told.items() if "recall@1 falls below" in sentence} == {verdict}


@pytest.mark.parametrize("d", [4, 1024])
def test_collapse_at_one_end_is_not_collapse_at_both(d: int) -> None:
    def kept(arm: Arm) -> float:
        return 0.2 if arm.factors["d"] == d else 0.01

    told = made_up(KNOWN["D"], "here", kept, loss=5)
    ends = {value for sentence, value in told.items() if "it collapses at 4 and at 1,024" in sentence}
    assert ends == {"does not hold"}


def test_the_bound_is_broken_by_one_run_alone() -> None:
    def one_falls(arm: Arm) -> float:
        return 0.5 if (arm.factors["P"], arm.factors["K"]) == (4, 4) else 0.9

    told = made_up(KNOWN["A"], "here", one_falls, loss=2)
    assert (
        told[
            "The diameter stays above that before training less twice the loss of the first batch, at each batch size."
        ]
        == "does not hold"
    )
