from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trivet_papers.drawn_figures import rows, sound
from tests.trivet_papers.made_results import filled, verdicts

from trivet_papers.experiment import Arm, Cell, Experiment, Size, Verdict
from trivet_papers.runs import planned
from trivet_papers.xu2024.collapse_figures import length_figure
from trivet_papers.xu2024.experiments import EXPERIMENTS
from trivet_papers.xu2024.experiments.common import by_dimension, items

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
    arms = KNOWN["A"].recipe("paper").arms if size == "paper" else KNOWN["C"].recipe("here").arms
    shapes = {(arm.factors["P"], arm.factors["K"]) for arm in arms}
    assert len(shapes) == 20
    assert {p for p, _ in shapes} == {2, 4, 8, 18}
    assert [arm.factors["d"] for arm in KNOWN["B"].recipe(size).arms] == [2**n for n in range(2, 11)]


def test_shared_arms_are_run_once() -> None:
    keys = {name: {run.key for run in planned(KNOWN[name], "here", 1)} for name in KNOWN}
    assert len(keys["A"] & keys["B"]) == 1  # 8 x 4 at d = 128
    assert not keys["A"] & keys["C"]  # of fewer steps
    of_paper = [{run.key for run in planned(KNOWN[name], "paper", 1)} for name in ("A", "C")]
    assert of_paper[0] < of_paper[1]


def kept_as_claimed(arm: Arm) -> float:
    """Falls with the batch, and rises with the dimension, hardly so where classes are few."""
    power = 0.1 if arm.factors.get("data", "SOP") not in ("SOP", "Omniglot") else 1 if "N" in arm.factors else 0.5
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
        recall = 0.5 if step == 0 else 0.2 if share < 0.05 else 0.6 + items(arm.factors) / 1000
        return {"distance mean": 4 * share, "diameter": diameter, "first loss max": loss, "sample recall@1": recall}

    return verdicts(one, size, values)


def of_trends(one: Experiment, size: Size) -> set[str]:
    """Sentences of the paper on batch, dimension and margin; the others are tested below."""
    others = ("GoogLeNet collapses at some", "Hard negatives fail where")
    claims = [claim for claim in one.recipe(size).claims if not claim.ours and not claim.not_comparable]
    return {claim.sentence for claim in claims if not claim.sentence.startswith(others)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_hold_where_it_is_as_they_say(name: str, size: Size) -> None:
    told = made_up(KNOWN[name], size, kept_as_claimed, loss=5, wider=1)
    assert {told[sentence] for sentence in of_trends(KNOWN[name], size)} == {"holds"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", KNOWN)
def test_claims_fall_where_it_is_not(name: str, size: Size) -> None:
    told = made_up(KNOWN[name], size, kept_against, loss=0.1)
    told = {sentence: told[sentence] for sentence in of_trends(KNOWN[name], size)}
    told = {sentence: verdict for sentence, verdict in told.items() if "The fewer dimensions" not in sentence}
    of_collapse = ("The batch from which on it collapses", "Collapse costs retrieval", "No collapse does not promise")
    undefined = {sentence for sentence in told if any(words in sentence for words in of_collapse)}
    assert all(told[sentence] == "cannot tell" for sentence in undefined)  # where nothing collapses
    assert {told[sentence] for sentence in told.keys() - undefined} == {"does not hold"}


@pytest.mark.parametrize(("share", "down"), [(0.049, True), (0.051, False)])
def test_collapse_is_to_keep_less_than_five_percent(share: float, down: bool) -> None:
    told = made_up(KNOWN["A"], "here", lambda arm: share, loss=5)
    collapses = told["The largest batch, 18 x 20 = 360, collapses."]
    survives = told["Batches of up to 72 items do not collapse."]
    assert (collapses, survives) == (("holds", "does not hold") if down else ("does not hold", "holds"))


def by_step(name: str, values: Callable[[Cell, int], tuple[float, float]]) -> dict[str, Verdict]:
    """The verdict on each claim where these are kept of the mean distance, and recall@1, after a step."""

    def of_arm(arm: Arm, seed: int, step: int) -> dict[str, float]:
        kept, recall = values(arm.factors, step)
        return {"distance mean": kept, "diameter": kept, "first loss max": 1.0, "sample recall@1": recall}

    return verdicts(KNOWN[name], "here", of_arm)


@pytest.mark.parametrize(
    ("end", "collapses", "survives"),
    [(0.01, "holds", "does not hold"), (0.1, "cannot tell", "cannot tell"), (0.2, "does not hold", "holds")],
)
def test_where_the_stop_decides_nobody_can_tell(end: float, collapses: Verdict, survives: Verdict) -> None:
    """From 0.3 half way; as fast a fall again would be to 0.03 from 0.1, and to 0.13 from 0.2."""
    told = by_step("D", lambda cell, step: ({0: 1.0, 250: 0.3}.get(step, end), 0.5))
    assert told["Fashion-MNIST: with batches of 144 it collapses at 4 and at 1,024 dimensions."] == collapses
    assert told["CUB-50: with batches of 4 it does not collapse, at 4 or at 1,024 dimensions."] == survives
    told = by_step("E", lambda cell, step: ({0: 1.0, 250: 0.3}.get(step, end), 0.5))
    assert told["conv3: the largest batch collapses."] == collapses


@pytest.mark.parametrize(
    ("kept", "collapses", "survives"),
    [
        ((0.04, 0.03, 0.02), "holds", "does not hold"),
        ((0.2, 0.06, 0.03), "cannot tell", "cannot tell"),
        ((0.2, 0.15, 0.1), "does not hold", "holds"),
    ],
)
def test_collapse_is_judged_after_each_length(
    kept: tuple[float, float, float], collapses: Verdict, survives: Verdict
) -> None:
    after = {0: 1.0, **dict(zip((500, 1000, 2000), kept, strict=True))}
    told = by_step("B", lambda cell, step: (after[step], 0.5))
    assert told["At 4 dimensions, the fewest, the embedding collapses."] == collapses
    assert told["At 1,024 dimensions, the most, it does not collapse."] == survives
    told = by_step("A", lambda cell, step: (after[step], 0.5))
    assert told["The largest batch, 18 x 20 = 360, collapses."] == collapses
    assert told["Batches of up to 72 items do not collapse."] == survives


@pytest.mark.parametrize(
    ("kept", "others", "recall", "verdict"),
    [
        (0.01, 0.5, 0.4, "holds"),
        (0.01, 0.5, 0.6, "does not hold"),
        (0.01, 0.5, 0.5, "cannot tell"),
        (0.2, 0.5, 0.4, "cannot tell"),
        (0.01, 0.01, 0.4, "cannot tell"),
    ],
)
def test_what_collapse_costs_is_retrieval_beside_a_batch_that_stands(
    kept: float, others: float, recall: float, verdict: Verdict
) -> None:
    def values(cell: Cell, step: int) -> tuple[float, float]:
        largest = items(cell) == (144 if cell.get("data") in ("CUB-50", "Fashion-MNIST") else 360)
        return (1.0, 0.5) if step == 0 else (kept, recall) if largest else (others, 0.5)

    for name in ("A", "D", "E"):
        told = by_step(name, values)
        assert {told[sentence] for sentence in told if "Collapse costs retrieval" in sentence} == {verdict}


@pytest.mark.parametrize(("recall", "verdict"), [(0.6, "holds"), (0.4, "does not hold"), (0.5, "cannot tell")])
def test_retrieval_is_kept_whatever_the_scale(recall: float, verdict: Verdict) -> None:
    for name in ("A", "B"):
        told = by_step(name, lambda cell, step: (0.01, recall) if step else (1.0, 0.5))
        assert {told[sentence] for sentence in told if "recall@1 does not fall below" in sentence} == {verdict}


@pytest.mark.parametrize(
    ("scale", "power", "verdict"),
    [(0.5, 0.2, "holds"), (0.5, -0.2, "does not hold"), (0.5, 0.0, "cannot tell"), (0.01, 0.2, "cannot tell")],
)
def test_dimensions_decide_where_the_most_do_not_collapse(scale: float, power: float, verdict: Verdict) -> None:
    for name, size in (("B", "here"), ("C", "paper"), ("D", "paper"), ("E", "paper")):
        told = made_up(KNOWN[name], size, lambda arm: scale * (float(arm.factors["d"]) / 1024) ** power, loss=5)
        assert {told[sentence] for sentence in told if "The fewer dimensions" in sentence} == {verdict}


@pytest.mark.parametrize(
    ("many", "few", "verdict"),
    [(0.01, 0.5, "holds"), (0.2, 0.5, "does not hold"), (0.01, 0.01, "does not hold"), (0.01, 0.05, "cannot tell")],
)
def test_the_batch_beside_the_dimension(many: float, few: float, verdict: Verdict) -> None:
    def kept(arm: Arm) -> float:
        n, d = items(arm.factors), float(arm.factors["d"])
        return many if n >= 16 * d else few if n < d else 0.2

    told = made_up(KNOWN["D"], "here", kept, loss=5)
    assert [told[sentence] for sentence in told if sentence.startswith("Hard negatives fail where")] == [verdict]


@pytest.mark.parametrize(
    ("kept", "recall", "verdict"),
    [(0.5, 0.6, "holds"), (0.5, 0.4, "does not hold"), (0.5, 0.5, "cannot tell"), (0.01, 0.6, "cannot tell")],
)
def test_what_does_not_collapse_need_not_retrieve(kept: float, recall: float, verdict: Verdict) -> None:
    def values(cell: Cell, step: int) -> tuple[float, float]:
        of_network = recall if cell["network"] in ("conv4", "conv3") else 0.4  # one network is enough
        return kept if step else 1.0, of_network if items(cell) == 32 else 0.5

    for name in ("A", "E"):
        told = by_step(name, values)
        assert [told[sentence] for sentence in told if "No collapse does not promise" in sentence] == [verdict]


@pytest.mark.parametrize(
    ("kept", "verdict"),
    [
        ({512: 0.01}, "holds"),
        ({256: 0.01}, "does not hold"),
        ({512: 0.05, 1024: 0.01}, "holds"),
        ({512: 0.05}, "cannot tell"),
    ],
)
def test_outliers_of_googlenet(kept: dict[int, float], verdict: Verdict) -> None:
    def share(arm: Arm) -> float:
        return kept.get(int(arm.factors["d"]), 0.2)

    told = made_up(KNOWN["E"], "paper", share, loss=5)
    assert told["GoogLeNet collapses at some dimension above 256, which the authors lay to memory."] == verdict
    told = made_up(KNOWN["E"], "here", share, loss=5)
    assert told["GoogLeNet collapses at some dimension above 256, which the authors lay to memory."] == "not comparable"


@pytest.mark.parametrize("d", [4, 1024])
def test_collapse_at_one_end_is_not_collapse_at_both(d: int) -> None:
    def kept(arm: Arm) -> float:
        return 0.2 if arm.factors["d"] == d else 0.01

    told = made_up(KNOWN["D"], "here", kept, loss=5)
    ends = {value for sentence, value in told.items() if "it collapses at 4 and at 1,024" in sentence}
    assert ends == {"does not hold"}


@pytest.mark.parametrize("name", ["C", "D", "E"])
def test_one_short_length_says_nothing_of_dimensions(name: str) -> None:
    told = made_up(KNOWN[name], "here", kept_as_claimed, loss=5)
    assert {told[sentence] for sentence in told if "The fewer dimensions" in sentence} == {"not comparable"}


def test_the_bound_is_broken_by_one_run_alone() -> None:
    def one_falls(arm: Arm) -> float:
        return 0.5 if (arm.factors["P"], arm.factors["K"]) == (4, 2) else 0.9

    told = made_up(KNOWN["A"], "here", one_falls, loss=2)
    assert (
        told[
            "The diameter stays above that before training less twice the loss of the first batch, at each batch size."
        ]
        == "does not hold"
    )


def test_scale_and_retrieval_are_drawn_by_the_steps() -> None:
    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        return {"distance mean": 8 / (1 + step / 500), "sample recall@1": 0.1 * seed + step / 1e4}

    runs = [(by_dimension(arm.factors), arm.factors) for arm in KNOWN["B"].here.arms]
    figure = length_figure("steps", runs[1::3]).draw(filled(KNOWN["B"].here.arms, values))
    sound(figure)
    assert len(rows(figure)) == 3 * 4 * 3
    found = {(row["step"], row["seed"]): (row["kept"], row["recall"]) for row in rows(figure, run="d = 512")}
    assert found[0, 1] == (1.0, 0.1)
    assert found[2000, 2] == (pytest.approx(0.2), pytest.approx(0.4))
    scale, retrieval = figure.picture.axes
    assert scale.lines[0].get_ydata() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 5])
    assert retrieval.lines[0].get_ydata() == pytest.approx([0.1, 0.15, 0.2, 0.3])
