from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.trivet_papers.made_results import verdicts

import trivet
from trivet.datasets import load
from trivet.metrics import nearest_pairs
from trivet.training.components import begun
from trivet.training.config import RunConfig
from trivet_papers import measured
from trivet_papers.experiment import Arm, ResultTable, Size, Verdict
from trivet_papers.measured import MeasuredModel
from trivet_papers.measures import MEASURES
from trivet_papers.runs import planned
from trivet_papers.xuan2020 import measures
from trivet_papers.xuan2020.dynamics import DIRECTIONS
from trivet_papers.xuan2020.experiments import EXPERIMENTS
from trivet_papers.xuan2020.experiments.common import BEFORE, EPSHN, FIRST, SECOND

pytestmark = pytest.mark.usefixtures("rough_evaluation")

KNOWN = {one.key.partition("-")[2]: one for one in EXPERIMENTS}
LAST = {"Omniglot": 400, "CUB": 150, "Cars": 2920, "Cars (ResNet-18)": 2920}
SIZES: tuple[Size, Size] = ("here", "paper")
RECALLS = [f"unseen/{level}/recall@1" for level in ("character", "class", "intent", "item")]


@pytest.mark.parametrize("size", SIZES)
def test_arms_make_runs(size: Size, tmp_path: Path) -> None:
    configs = {run.key: run.config(tmp_path) for one in EXPERIMENTS for run in planned(one, size, 1)}
    for config in configs.values():
        on_cub = config.data.name.endswith("last_stage_maps")
        assert config.batch.batch_size == (48 if on_cub else 128)
        assert config.loss.name in ("nca", "second-order")
        assert config.loss.positives == "easy"
        assert config.loss.model_dump()["reduction"] == ("sum" if size == "paper" else "mean")
        assert config.model.pretrained is (size == "paper")


def test_the_published_rates_and_lengths() -> None:
    config = planned(KNOWN["table1"], "paper", 1)[0].config(None)
    assert (config.training.learning_rate, config.training.steps) == (0.0025, 40 * 46)
    assert config.training.milestones == (20 * 46, 30 * 46)
    cars = next(run for run in planned(KNOWN["table1"], "paper", 1) if run.arm.factors["set"] == "Cars")
    assert (cars.config(None).training.learning_rate, cars.config(None).batch.samples_per_class) == (0.005, 16)
    assert cars.config(None).training.learning_rate / measures.SLOWER == pytest.approx(1e-5)


def test_shared_arms_are_run_once() -> None:
    for size in SIZES:
        table, figure = ({run.key for run in planned(KNOWN[name], size, 1)} for name in ("table1", "fig4"))
        assert table < figure


@pytest.mark.parametrize(
    ("before", "gain", "verdict"),
    [
        (0.1, 0.1, "holds"),
        (0.1, -0.1, "does not hold"),
        (0.1, 0.0, "cannot tell"),
        (0.595, 0.1, "cannot tell"),  # it makes the network no better than it was
        (0.495, -0.1, "cannot tell"),
    ],
)
def test_table_1_where_training_helps(before: float, gain: float, verdict: Verdict) -> None:
    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        recall = before if arm.factors["order"] == BEFORE else 0.5 + (arm.factors["order"] == SECOND) * gain
        return {f"unseen/{level}/recall@1": recall for level in ("character", "class", "intent")}

    told = verdicts(KNOWN["table1"], "here", values)
    assert {value for sentence, value in told.items() if "than any" not in sentence} == {verdict}


def test_the_figures_are_of_both_networks() -> None:
    names = {
        key: {run.config(None).model.name.partition(".")[0] for run in planned(one, "paper", 1)}
        for key, one in KNOWN.items()
    }
    both = {"timm:resnet18", "timm:resnet50"}
    assert names == {"table1": {"timm:resnet50"}, "fig3": both, "fig4": both, "fig6": both}


# Table 1, on the printed numbers


def printed(*, swap: bool = False, factor: float = 1.0) -> dict[str, Verdict]:
    tables = [part for part in KNOWN["table1"].paper.shows if isinstance(part, ResultTable)]
    known = {
        (factors["set"], factors["order"]): {
            column.measure: factor * float(table.printed[head][column.head]) / 100 for column in table.columns
        }
        for table in tables
        for head, factors in table.rows
        if head in table.printed
    }
    other = {FIRST: SECOND, SECOND: FIRST} if swap else {}

    def values(arm: Arm, seed: int, step: int) -> Mapping[str, Any]:
        order = str(arm.factors["order"])
        return known.get((arm.factors["set"], other.get(order, order)), {})

    return verdicts(KNOWN["table1"], "paper", values)


def test_claims_hold_on_the_printed_numbers() -> None:
    assert set(printed().values()) == {"holds"}


def test_no_gain_holds_with_the_orders_exchanged() -> None:
    told = printed(swap=True)
    assert [verdict for sentence, verdict in told.items() if "than any" not in sentence] == ["does not hold"] * 4


def test_the_best_of_all_methods_depends_on_the_numbers() -> None:
    told = printed(factor=0.95)
    assert [verdict for sentence, verdict in told.items() if "than any" in sentence] == ["does not hold"] * 2


# The figures, on made-up numbers


def recalls(arm: Arm, *, gain: float, fallen: bool) -> dict[str, Any]:
    """Second order has `gain` more, EPSHN as much less, and with a small n first order falls or does not.

    There EPSHN has as much more.
    """
    factors = arm.factors
    if factors["order"] == BEFORE:
        return dict.fromkeys(RECALLS, 0.1)
    first = factors["order"] == FIRST
    n, hard = factors.get("n", 0), factors.get("mined") != EPSHN
    small = 2 if str(factors["set"]).startswith("CUB") else 4
    there = first and isinstance(n, int) and 0 < n <= small
    value = 0.5 - (2 * gain if there and hard else gain if first or not hard else 0)
    place = 0.99 if (there and hard) is fallen else 0.6
    return dict.fromkeys(RECALLS, value) | {"train/s_ap": place, "train/s_an": place}


@pytest.mark.parametrize("size", SIZES)
def test_claims_by_group(size: Size) -> None:
    assert set(verdicts(KNOWN["fig4"], size, lambda arm, *_: recalls(arm, gain=0.1, fallen=True)).values()) == {"holds"}
    against = verdicts(KNOWN["fig4"], size, lambda arm, *_: recalls(arm, gain=-0.1, fallen=False))
    assert set(against.values()) == {"does not hold"}


@pytest.mark.parametrize(
    ("gains", "each", "most"),  # with n = 2, 4, 8 and 16; CUB has no 16
    [
        ((0.1, 0.1, 0.1, 0.1), "holds", "holds"),
        ((9.0, 0.1, -0.1, -0.1), "does not hold", "does not hold"),  # the mean is above 0
        ((-9.0, 0.1, 0.1, 0.1), "does not hold", "holds"),  # below
        ((0.1, 0.0, 0.1, 0.0), "cannot tell", "cannot tell"),
    ],
)
def test_gaps_with_each_and_with_most_n(gains: tuple[float, ...], each: Verdict, most: Verdict) -> None:
    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        factors = arm.factors
        if factors["order"] == BEFORE:
            return dict.fromkeys(RECALLS, -9.0)
        n = factors["n"]
        gain = gains[(2, 4, 8, 16).index(n if isinstance(n, int) else 0)]
        return dict.fromkeys(RECALLS, gain * (factors["order"] == SECOND and factors["mined"] != EPSHN))

    told = verdicts(KNOWN["fig4"], "here", values)
    of_four = {
        sentence: verdict for sentence, verdict in told.items() if "Omniglot" in sentence or "CLINC150" in sentence
    }
    assert {verdict for sentence, verdict in of_four.items() if "with each n" in sentence} == {each}
    assert {verdict for sentence, verdict in of_four.items() if "with most n" in sentence} == {most}


def test_what_figure_4_does_not_say_is_ours() -> None:
    ours = [claim.sentence for claim in KNOWN["fig4"].here.claims if claim.ours]
    some = ("CLINC150", "CUB with n = 4 ", "semi-hard than")
    assert ours == [one.sentence for one in KNOWN["fig4"].here.claims if any(words in one.sentence for words in some)]


def test_gaps_where_training_does_not_help() -> None:
    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        return dict.fromkeys(
            RECALLS, 0.495 if arm.factors["order"] == BEFORE else 0.4 + 0.1 * (arm.factors["order"] == SECOND)
        )

    told = verdicts(KNOWN["fig4"], "here", values)
    assert {verdict for sentence, verdict in told.items() if "with each n" in sentence} == {"cannot tell"}


def course(arm: Arm, seed: int, step: int, *, falls: bool) -> dict[str, Any]:
    """As the paper says, or the other way round: second order falls, first order leaves the start at once."""
    rise = 0.0 if step == 0 else 0.3 if (arm.factors["order"] == FIRST) is falls else -0.1
    if step == LAST[str(arm.factors["set"])] and arm.factors["n"] == 8:
        rise = 0.0
    return {"train/s_ap": 0.65 + rise, "train/s_an": 0.65 + rise}


@pytest.mark.parametrize("size", SIZES)
def test_claims_on_the_course(size: Size) -> None:
    assert set(verdicts(KNOWN["fig6"], size, partial(course, falls=True)).values()) == {"holds"}
    told = verdicts(KNOWN["fig6"], size, partial(course, falls=False))
    assert {"recovers" in sentence: verdict for sentence, verdict in told.items()} == {
        False: "does not hold",
        True: "cannot tell",  # what has not risen cannot return
    }


@pytest.mark.parametrize(
    ("highest", "end", "verdict"),
    [(0.3, 0.1, "holds"), (0.3, 0.2, "does not hold"), (0.3, 0.15, "cannot tell"), (-0.1, -0.3, "cannot tell")],
)
def test_recovery_is_to_come_half_way_back_from_a_rise(highest: float, end: float, verdict: Verdict) -> None:
    def values(arm: Arm, seed: int, step: int) -> dict[str, Any]:
        rise = 0.0 if step == 0 else end if step == LAST[str(arm.factors["set"])] else highest
        return {"train/s_ap": 0.6 + rise, "train/s_an": 0.6 + rise}

    told = verdicts(KNOWN["fig6"], "here", values)
    assert {value for sentence, value in told.items() if "recovers" in sentence} == {verdict}


MOST = {  # the direction of most triplets; of the second order late, of several
    (FIRST, True): ("top-right",),
    (SECOND, True): ("bottom-right",),
    (FIRST, False): ("bottom-right",),
    (SECOND, False): DIRECTIONS[:3],
}


def ways(arm: Arm, seed: int, step: int, *, swap: bool = False) -> dict[str, float]:
    """Shares as the paper says, or with the orders exchanged and all else to the top left."""
    order = str(arm.factors["order"])
    most = MOST[{FIRST: SECOND, SECOND: FIRST}[order] if swap else order, step == 0]
    shares = {way: 0.7 / len(most) if way in most else 0.0 for way in DIRECTIONS}
    shares["top-left" if swap else most[0]] += 0.3
    return {f"{mined}/{way}": share for mined in ("HPHN", "EPEN") for way, share in shares.items()}


@pytest.mark.parametrize("size", SIZES)
def test_claims_on_directions(size: Size) -> None:
    assert set(verdicts(KNOWN["fig3"], size, ways).values()) == {"holds"}
    assert set(verdicts(KNOWN["fig3"], size, partial(ways, swap=True)).values()) == {"does not hold"}


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [(0.3, 0.6, "holds"), (0.3, 0.4, "does not hold"), (0.7, 0.6, "does not hold"), (0.6, 0.6, "cannot tell")],
)
def test_second_order_moves_more_to_the_bottom_right(first: float, second: float, verdict: Verdict) -> None:
    """Of both kinds together: of easy triplets more go there, of hard ones less."""

    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        share = second if arm.factors["order"] == SECOND else first
        shares = {f"{mined}/{way}": 0.0 for mined in ("HPHN", "EPEN") for way in DIRECTIONS}
        for mined, more in (("HPHN", -0.25), ("EPEN", 0.25)):
            shares |= {f"{mined}/bottom-right": share + more, f"{mined}/top-right": 1 - share - more}
        return shares

    told = verdicts(KNOWN["fig3"], "here", values)
    assert {value for sentence, value in told.items() if "more than first order" in sentence} == {verdict}


def test_the_top_left_of_one_strategy_is_seen() -> None:
    def values(arm: Arm, seed: int, step: int) -> dict[str, float]:
        late = arm.factors == {"set": "Cars", "order": SECOND} and step > 0
        return ways(arm, seed, step) | ({"EPEN/top-left": 0.06} if late else {})

    told = verdicts(KNOWN["fig3"], "paper", values)
    assert [sentence for sentence, verdict in told.items() if verdict != "holds"] == [next(iter(told))]


# The measures, on digits


def subject(loss: str, step: int = 1, model: str = "linear", **training: Any) -> MeasuredModel:
    config = RunConfig.parse(
        {
            "data": {"name": "digits", "level": "digit"},
            "batch": {"num_classes": 4, "samples_per_class": 4},
            "model": {"name": model, "embedding_dim": 8},
            "loss": {"name": loss, "positives": "easy", "negatives": "hard"},
            "training": {"steps": 4, "accelerator": "cpu", "optimizer": "sgd", **training},
        },
        source="a test",
    )
    splits = load(config.data, Path())
    return MeasuredModel(begun(config, splits)[0], config, splits, step)


def test_the_whole_set_against_the_definition() -> None:
    one = subject("nca")
    points, labels = one.embeddings("train").astype(np.float64), one.items("train").labels["digit"]
    similar = points @ points.T
    np.fill_diagonal(similar, -np.inf)
    same = labels[:, None] == labels
    s_ap, s_an = (np.where(where, similar, -np.inf).max(axis=1) for where in (same, ~same))
    found = MEASURES["whole-set-points"](one)
    assert found["train/s_ap"] == pytest.approx(s_ap.mean(), abs=1e-6)
    assert found["train/s_an"] == pytest.approx(s_an.mean(), abs=1e-6)
    assert found["train/hard share"] == pytest.approx((s_an > s_ap).mean(), abs=0.005)
    assert np.shape(found["train/points"]) == (2, 400)
    assert "train/points" not in MEASURES["whole-set"](one)


def test_the_published_size_leaves_no_training_item_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = subject("nca")
    right = MEASURES["whole-set-points"](one)
    monkeypatch.setattr(measured, "MOST", 300)
    few, every = (MEASURES[name](subject("nca")) for name in ("whole-set-points", "whole-set-published-points"))
    assert every == right
    assert few["train/s_an"] < every["train/s_an"] - 0.001


def test_the_whole_set_of_a_random_network_has_its_own_statistics() -> None:
    one = subject("nca", model="conv4")
    model = measured.calibrated(one.model, one.splits)
    plain, expected = (
        nearest_pairs(of.embeddings("train"), of.items("train").labels["digit"]).s_an.mean()
        for of in (one, MeasuredModel(model, one.config, one.splits, 1))
    )
    found = MEASURES["whole-set"](one)["train/s_an"]
    assert found == pytest.approx(expected, abs=1e-9)
    assert abs(found - plain) > 0.01


@pytest.mark.parametrize("loss", ["nca", "second-order"])
def test_steps_follow_disjoint_triplets_and_lower_the_loss(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = subject(loss, learning_rate=0.5)
    seen: list[torch.Tensor] = []
    mine = trivet.mine

    def spied(*args: Any, **options: Any) -> Any:
        seen.append(torch.cat(list(triplets := mine(*args, **options))))
        return triplets

    monkeypatch.setattr("trivet_papers.xuan2020.measures.mine", spied)
    before = [parameter.clone() for parameter in one.model.parameters()]
    own, other = measures._followed(one, "hard", "hard", 3, fresh_batch=True)
    assert all(torch.equal(*pair) for pair in zip(before, one.model.parameters(), strict=True))
    assert len(seen) == 6
    assert all(len(set(rows.tolist())) == len(rows) for rows in seen)
    assert other is not None
    assert len(own.direction) == sum(len(rows) // 3 for rows in seen[::2])
    assert len(other.direction) == sum(len(rows) // 3 for rows in seen[1::2])

    def value(places: np.ndarray) -> float:
        s_ap, s_an = places.T
        exponent = s_an - s_ap if loss == "nca" else s_an**2 / 2 - s_ap + s_ap**2 / 2
        return float(np.log1p(np.exp(exponent)).mean())

    fall = value(own.before) - value(own.after)
    assert 0 < fall < 0.01
    assert measures._followed(one, "hard", "hard", 1, fresh_batch=False)[1] is None


def test_the_rate_is_a_five_hundredth_of_that_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []

    class Spied(torch.optim.SGD):
        def __init__(self, parameters: Any, lr: float) -> None:
            super().__init__(parameters, lr=lr)
            rates.append(lr)

    monkeypatch.setattr(torch.optim, "SGD", Spied)
    measures._followed(subject("nca", learning_rate=0.005), "easy", "easy", 1, fresh_batch=False)
    assert rates == [pytest.approx(1e-5)]


def test_shares_of_directions() -> None:
    found = measures.step_movement(subject("second-order", learning_rate=0.5), steps=2)
    for name in ("HPHN", "HPHN of another batch", "EPEN"):
        assert math.fsum(found[f"{name}/{way}"] for way in DIRECTIONS) == pytest.approx(1)
    s_ap, s_an, direction = found["EPEN/points"]
    assert len(s_ap) == len(s_an) == len(direction) <= measures.FOLLOWED
    assert found["HPHN/s_an"] - found["EPEN/s_an"] > 0.2
    assert found["EPEN/s_ap"] - found["HPHN/s_ap"] > 0.1
