"""A probe makes the first steps of the run it stands for, its bound is that of the theory, a grid is many of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from trivet.collapse.forecast import Forecast
from trivet.collapse.monitor import CollapseMonitor
from trivet.commands.forecast.run import bound_of, forecast_grid, forecast_run
from trivet.commands.train import run
from trivet.datasets import load
from trivet.models import build
from trivet.reports.forecast_record import ForecastRecord, GridAxes
from trivet.samplers import PKBatches
from trivet.training import RunConfig, guard

SETTINGS: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "digits", "augment": "crop-flip", "level": "digit"},
    "batch": {"num_classes": 3, "samples_per_class": 5},
    "model": {"name": "mlp", "embedding_dim": 4, "width": 16, "normalize": False},
    "loss": {"name": "triplet", "positives": "random", "negatives": "hard"},
    "training": {"steps": 14, "schedule": "cosine", "warmup_steps": 3, "optimizer": "sgd", "momentum": 0.9,
                 "learning_rate": 0.05, "accelerator": "cpu"},
    "evaluation": {"map_points": 20, "sample": 50, "nmi_plus": 2},
}  # fmt: skip


def config(**changes: Any) -> RunConfig:
    merged = {
        key: {**value, **changes.get(key, {})} if isinstance(value, dict) else changes.get(key, value)
        for key, value in SETTINGS.items()
    }
    return RunConfig.parse(merged, source="test")


@pytest.mark.usefixtures("unevaluated")
def test_the_probe_sees_the_first_steps_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "EVERY", 1)
    level = {"level": "parity"}  # inside which digits are seen too
    record = run.train(config(data=level, batch={"num_classes": 2}), tmp_path / "run")
    seen = record.monitor
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    found = forecast_run(config(data=level, batch={"num_classes": 2}), steps=10)
    assert sorted(tmp_path.rglob("*")) == before
    (probe,) = found.seeds
    assert seen.series["step"] == list(range(14))
    assert probe.series == {name: values[:10] for name, values in seen.series.items()}
    assert None not in probe.series["fine_recall"]
    assert None not in probe.series["loss"]
    assert found.forecast.step == 9
    assert found.forecast.shrinkage != seen.forecast.shrinkage  # which saw four steps more


def test_the_bound_is_that_of_the_theory_for_the_first_batch_before_any_step() -> None:
    settings = config(data={"augment": "none"})
    found = forecast_run(settings, steps=5).bound
    splits = load(settings.data, None)
    labels = splits.train.labels["digit"]
    rows = PKBatches(labels, num_classes=3, samples_per_class=5, seed=3).batch(0, 0)
    model = build(settings.model, splits.train.inputs.shape, 3)
    with torch.no_grad():
        points, own = model(splits.train.inputs.batch(rows)).tolist(), labels[rows].tolist()
    every = range(15)
    wide = max(math.dist(points[i], points[j]) for i in every for j in every)
    hardest = max(
        math.dist(points[a], points[p]) - math.dist(points[a], points[n])
        for a in every for p in every for n in every if own[a] == own[p] != own[n]
    )  # fmt: skip
    assert found.items == 15
    assert found.diameter == pytest.approx(wide, rel=1e-6)
    assert found.loss == pytest.approx(hardest, rel=1e-5)
    assert found.bound == pytest.approx(wide - 2 * hardest, rel=1e-4)


def test_a_bound_that_says_nothing_is_called_vacuous() -> None:
    line = torch.tensor([[0.0], [1.0], [5.0], [6.0]])
    apart = bound_of([(line, torch.tensor([0, 0, 1, 1]))])
    assert (apart.bound, apart.vacuous) == (6.0, False)
    assert "at least 6 wide" in apart.sentence
    mixed = bound_of([(line, torch.tensor([0, 1, 0, 1]))])
    assert (mixed.diameter, mixed.loss, mixed.bound, mixed.vacuous) == (6.0, 4.0, -2.0, True)
    assert "is vacuous: the diameter of" in mixed.sentence
    assert "is -2," in mixed.sentence
    both = bound_of([(line, torch.tensor([0, 0, 1, 1])), (line, torch.tensor([0, 1, 0, 1]))])
    assert (both.loss, both.bound, both.vacuous) == (2.0, 2.0, False)


def test_each_of_several_seeds_is_the_probe_of_that_seed() -> None:
    both, second = forecast_run(config(), steps=6, seeds=2), forecast_run(config(seed=4), steps=6)
    assert [one.seed for one in both.seeds] == [3, 4]
    assert both.seeds[1] == second.seeds[0]
    chances = [one.forecast.probability for one in both.seeds]
    assert both.forecast.probability == pytest.approx(sum(chances) / 2)
    assert both.bound.diameter == pytest.approx(sum(one.bound.diameter for one in both.seeds) / 2)


@pytest.mark.parametrize(
    ("whole", "taken"), [(5, 5), (19, 19), (100, 20), (400, 20), (800, 40), (1200, 60), (100_000, 60)]
)
def test_a_probe_takes_a_twentieth_of_the_run_within_limits(
    whole: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "trivet.commands.forecast.run._forecast",
        lambda _config, _splits, steps, *_: asked.append(steps) or ForecastRecord(),
    )
    forecast_run(config(training={"steps": whole, "warmup_steps": 0}))
    assert asked == [taken]


@pytest.mark.parametrize(
    ("probability", "outlook", "changes"), [(0.8, "likely", 3), (0.2, "unlikely", 0), (0.3, "open", 3)]
)
def test_the_verdict_is_that_of_the_forecast(
    probability: float, outlook: str, changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Forecast(probability, 0.1, (0.01, 1.0), 4, 14, 4, {"shrinkage": 0.5})
    monkeypatch.setattr(CollapseMonitor, "forecast", lambda _: ahead)
    found = forecast_run(config(), steps=5)
    assert found.outlook == outlook
    assert found.verdict == ahead.sentence
    assert len(found.changes) == changes
    if changes:
        assert "loss.negatives=semihard-hardest" in found.changes[0]
        assert "(now 3 x 5)" in found.changes[1]


@pytest.mark.parametrize("rate", [0.05, 1e30], ids=["all equal", "not finite"])
def test_embeddings_that_tell_nothing_give_no_forecast(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    if rate < 1:
        monkeypatch.setattr(CollapseMonitor, "forecast", lambda _: None)
    settings = config(training={"learning_rate": rate, "momentum": 0.0, "warmup_steps": 0})
    found = forecast_run(settings, steps=8, seeds=2)
    assert (found.forecast, found.outlook, found.changes) == (None, None, [])
    assert found.verdict.startswith(
        "No forecast: after the first 8 of 14 steps with each of 2 seeds the embeddings were"
    )
    assert found.bound.diameter > 0
    (cell,) = forecast_grid(settings, steps=8).cells
    assert cell.reason.startswith("No forecast")


def test_a_grid_holds_the_forecast_of_each_shape_or_why_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: list[tuple[str, float, float]]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = forecast_grid(config(), classes=(50, 2), samples=(3, 900), dims=(6,), steps=5)
    told = [one for one in heard if one[0] == "probing"]
    assert list(tmp_path.iterdir()) == []
    assert found.axes == GridAxes(classes=[2, 50], samples=[3, 900], dim=[6])
    assert found.here == {"classes": 3, "samples": 5, "dim": 4}
    assert (found.steps, found.of) == (5, 14)
    cells = {(cell.classes, cell.samples, cell.dim): cell for cell in found.cells}
    assert list(cells) == [(2, 3, 6), (2, 900, 6), (50, 3, 6), (50, 900, 6)]
    alone = forecast_run(config(batch={"num_classes": 2, "samples_per_class": 3}, model={"embedding_dim": 6}), steps=5)
    assert cells[2, 3, 6].forecast == alone.forecast
    assert cells[2, 3, 6].bound == alone.bound
    assert cells[2, 3, 6].outlook == alone.outlook
    assert cells[2, 3, 6].reason is None
    for shape, reason in {(50, 3, 6): "needs as many training classes", (2, 900, 6): "largest class"}.items():
        assert cells[shape].forecast is None
        assert reason in cells[shape].reason
    assert told[-1] == ("probing", 20, 20)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_an_axis_that_is_not_given_stays_as_it_is() -> None:
    (cell,) = forecast_grid(config(), steps=5).cells
    assert (cell.classes, cell.samples, cell.dim) == (3, 5, 4)
    assert cell.forecast == forecast_run(config(), steps=5).forecast


def test_a_model_that_cannot_have_a_dimension_is_a_reason() -> None:
    found = forecast_grid(config(model={"normalize": True}), dims=(1,), steps=5)
    assert "embedding_dim = 1 scaled to length 1" in found.cells[0].reason


def test_a_run_of_a_few_steps_cannot_be_foretold() -> None:
    with pytest.raises(ValueError, match="of at least 5 steps: got"):
        forecast_run(config(training={"steps": 4}))
