"""A model with broken weights and a `metrics.csv` that was cut short are refused, and say what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.commands.conftest import Call

from trivet.models.config import ModelConfig
from trivet.models.networks import build
from trivet.models.store import save
from trivet.training.config import RunConfig
from trivet.training.run_folder import Metrics

COLUMNS = ["loss", "recall@1/digit"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run with a model, as far as `trivet embed` reads it."""
    path = tmp_path / "run"
    path.mkdir()
    settings = RunConfig.parse(
        {"data": {"name": "digits"}, "model": {"name": "linear"}, "loss": {"name": "nca"}}, source=""
    )
    (path / "config.toml").write_text(settings.to_toml())
    config = ModelConfig(name="linear", embedding_dim=3)
    save(build(config, (1, 8, 8), seed=0), config, (1, 8, 8), path / "model")
    return path


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize("number", [float("nan"), float("inf"), 3e38])
def test_broken_weights_are_named_and_nothing_is_written(
    number: float, run: Path, tmp_path: Path, run_command: Call
) -> None:
    weights = next((run / "model").glob("*.safetensors"))
    values = load_file(weights)
    name = next(name for name in values if name.endswith("weight"))
    values[name][1] = number
    save_file(values, weights)
    output = tmp_path / "all.parquet"
    code, _, said = run_command("embed", run, "digits", "--output", output)
    assert code == 2
    assert not output.exists()
    what = "embeddings must be finite" if torch.isfinite(torch.tensor(number)) else f"must be finite: {name} in"
    assert what in said


def rows_of(path: Path, *, known: list[int] | None = None) -> list[dict[str, float]]:
    return Metrics(path, COLUMNS, upto=9, known=known or []).rows


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.csv"
    started = Metrics(path, COLUMNS)
    for step in (2, 4, 6):
        started.add(step, {"loss": 0.25, "recall@1/digit": 0.5})
    return path


def test_a_file_of_metrics_that_was_cut_within_a_row_is_refused(metrics: Path) -> None:
    whole = metrics.read_bytes()
    assert len(rows_of(metrics)) == 3
    assert metrics.read_bytes() == whole
    last = whole.rstrip().rindex(b"\n") + 1
    for length in range(last + 1, len(whole)):
        metrics.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut short, its last row is not whole \(2 rows are whole\)"):
            rows_of(metrics)
        assert metrics.read_bytes() == whole[:length]  # nothing is written over it


def test_a_file_of_metrics_that_lacks_rows_the_record_has_is_refused(metrics: Path) -> None:
    lines = metrics.read_text().splitlines(keepends=True)
    known = [2, 4, 6, 12]  # of step 12, which comes later, nothing is asked
    assert len(rows_of(metrics, known=known)) == 3
    for kept, missing in ((3, 6), (2, 4), (1, 2)):
        metrics.write_text("".join(lines[:kept]))
        with pytest.raises(ValueError, match=rf"cut short, the row of step {missing} is missing \({kept - 1} rows are"):
            rows_of(metrics, known=known)
