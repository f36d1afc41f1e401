"""`trivet forecast`: the forecast and the bound in words, a map, JSON of a stated form, one sentence for a mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands.conftest import Call

from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.run import resume, train
from trivet.reports.forecast_record import ForecastRecord
from trivet.training import RunConfig

pytestmark = pytest.mark.usefixtures("few_digits", "undiagnosed")

SETTINGS = """
[data]
name = "digits"
level = "digit"
[batch]
num_classes = 2
samples_per_class = 4
[model]
name = "mlp"
width = 16
embedding_dim = 4
[loss]
name = "triplet"
negatives = "hard"
[training]
steps = 200
accelerator = "cpu"
"""
GRID = ("classes=2,99", "samples=3", "dim=2,5")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SETTINGS)
    return tmp_path


def test_json_of_one_run(folder: Path, heard: list[tuple[str, float, float]], run_command: Call) -> None:
    code, out, _ = run_command("forecast", "small.toml", "--steps", "8", "--seeds", "2", "--json")
    assert code == 0
    assert ("probing", 16, 16) in heard
    found: dict[str, Any] = json.loads(out)
    assert found.keys() == {
        "steps", "of", "forecast", "outlook", "verdict", "changes", "bound", "seeds", "seconds",
    }  # fmt: skip
    assert found["forecast"].keys() == {
        "probability", "shrinkage", "interval", "evidence", "step", "end", "until",
    }  # fmt: skip
    assert found["bound"].keys() == {"items", "diameter", "loss", "bound", "vacuous", "sentence"}
    assert [one.keys() for one in found["seeds"]] == [{"seed", "forecast", "bound", "events", "series"}] * 2
    low, high = found["forecast"]["interval"]
    assert 0 < low <= found["forecast"]["shrinkage"] <= high
    assert found["forecast"]["end"] == 200
    assert found["bound"]["vacuous"] == (found["bound"]["bound"] <= 0)
    assert (found["steps"], found["of"], found["bound"]["items"]) == (8, 200, 8)
    assert [path.name for path in folder.iterdir()] == ["small.toml"]


def test_one_run_in_words(run_command: Call) -> None:
    code, out, _ = run_command("forecast", "small.toml", "--set", "training.steps=60", "--report", "page.html")
    assert code == 0
    verdict, evidence, *rest = out.splitlines()
    assert "fter 20 steps" in verdict
    assert "at step 60" in verdict
    assert evidence.startswith("  Evidence: ")
    assert "(ICLR 2024, equation 17)" in rest[-2]
    assert rest[-1] == "Report: page.html"
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")
    changes = [line for line in rest if line.startswith("  Change ")]
    assert bool(changes) == ("Nothing points to" not in verdict)


def test_a_grid_is_written_as_the_axes_of_one_option_or_of_several(run_command: Call) -> None:
    ways = [("--grid", *GRID), ("--grid", " ".join(GRID)), [word for axis in GRID for word in ("--grid", axis)]]
    found = []
    for way in ways:
        code, out, _ = run_command("forecast", "small.toml", *way, "--steps", "5", "--json")
        assert code == 0
        found.append(json.loads(out))
        del found[-1]["seconds"]
    assert found[0] == found[1] == found[2]
    assert found[0].keys() == {"steps", "of", "axes", "here", "cells"}
    assert found[0]["steps"] == 5
    assert found[0]["axes"] == {"classes": [2, 99], "samples": [3], "dim": [2, 5]}
    assert [cell["forecast"] is None for cell in found[0]["cells"]] == [False, False, True, True]


def test_a_map_in_words(run_command: Call) -> None:
    code, out, _ = run_command("forecast", "small.toml", "--steps", "5", "--report", "map.html", "--grid", *GRID)
    assert code == 0
    (known,) = (line for line in out.splitlines() if "2 × 3" in line)
    (unknown,) = (line for line in out.splitlines() if "99 × 3" in line)
    assert known.count("(") == 2
    assert unknown.count("–") == 2
    assert "is vacuous (it excludes nothing) in " in out
    assert "Left out, 2 shapes: a batch of num_classes = 99 needs as many training classes" in out
    assert out.endswith("Report: map.html\n")
    assert Path("map.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(("high", "named"), [(0.9, True), (0.15, False)])
def test_the_surest_shape_is_named_unless_all_are_sure(
    high: float, named: bool, monkeypatch: pytest.MonkeyPatch, run_command: Call
) -> None:
    def map_of_two(*_: object, **__: object) -> ForecastRecord:
        found = [
            {"probability": high, "interval": [0.0, 1.0], "evidence": {}, "step": 4},
            {"probability": 0.1, "interval": [0.2, 0.4], "evidence": {}, "step": 4},
        ]
        bound = {"items": 8, "diameter": 1.0, "loss": 1.0, "bound": -1.0, "vacuous": True, "sentence": "Vacuous."}
        shape = {"classes": 2, "samples": 4, "bound": bound}
        cells = [
            shape
            | {
                "dim": dim,
                "forecast": told,
                "outlook": "open" if told["probability"] > 0.2 else "unlikely",
                "reason": None,
            }
            for dim, told in zip((2, 7), found, strict=True)
        ]
        axes = {"classes": [2], "samples": [4], "dim": [2, 7]}
        return ForecastRecord.read({"steps": 5, "of": 200, "axes": axes, "here": {}, "cells": cells})

    monkeypatch.setattr("trivet.commands.forecast.run.forecast_grid", map_of_two)
    code, out, err = run_command("forecast", "small.toml", "--grid", "dim=2,7")
    assert (code, err) == (0, "")
    assert ("Least likely to shrink to a point: batches of 2 x 4, 7 dimensions" in out) == named
    assert ("Least likely" in out) == named


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Missing argument"),
        (["gone.toml"], "gone.toml does not exist"),
        (["small.toml", "--set", "loss.negatives=hrad"], "did you mean 'hard'?"),
        (["small.toml", "--steps", "4"], "must be a whole number from 5 to training.steps = 200: got 4"),
        (["small.toml", "--steps", "201"], "got 201"),
        (["small.toml", "--seeds", "0"], "seeds must be a whole number of at least 1: got 0"),
        (["small.toml", "--grid", "clases=2,4"], "'clases' is not known; did you mean 'classes'?"),
        (["small.toml", "--grid", "classes"], "needs axis=value,value,...: got 'classes'"),
        (["small.toml", "--grid", "classes=2", "classes=4"], "got classes twice"),
        (["small.toml", "--grid", "dim=4,,8"], "whole numbers above 0: got ''"),
        (["small.toml", "--grid", "dim=-4"], "whole numbers above 0: got '-4'"),
        (["small.toml", "--grid", "dim=4.5"], "whole numbers above 0: got '4.5'"),
        (["small.toml", "--grid", "dim=4,0"], "dim of the grid must be whole numbers of at least 1: got 0"),
        (["small.toml", "--grid", "classes=1,4"], "classes of the grid must be whole numbers of at least 2: got 1"),
        (["small.toml", "--grid", "samples=1"], "samples of the grid must be whole numbers of at least 2: got 1"),
        (["small.toml", "other.toml"], "takes one settings file: got small.toml other.toml"),
        (["small.toml", "--report", "nowhere/page.html"], "make the folder first"),
        (["small.toml", "--set", "batch.num_classes=99"], "needs as many training classes"),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments: list[str], sentence: str, run_command: Call) -> None:
    code, out, err = run_command("forecast", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_a_run_keeps_the_forecast_that_was_made_of_it(folder: Path, run_command: Call) -> None:
    settings = RunConfig.read(folder / "small.toml", ["training.steps=8", "evaluation.map_points=10"])
    train(settings, folder / "tiny")
    assert '<table class="heat">' not in (folder / "tiny" / "report.html").read_text()
    code, out, _ = run_command("forecast", "tiny", "--grid", *GRID, "--steps", "5", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["report"] == str(Path("tiny") / "report.html")
    assert (found["of"], len(found["cells"])) == (8, 4)

    def kept() -> dict[str, Any]:
        record: dict[str, Any] = json.loads((folder / "tiny" / "record.json").read_text())
        assert record["status"] == "finished"
        assert '<table class="heat">' in (folder / "tiny" / "report.html").read_text()
        forecast: dict[str, Any] = record["forecast"]
        return forecast

    assert kept()["cells"] == found["cells"]
    assert kept()["command"] == "trivet forecast tiny --grid classes=2,99 samples=3 dim=2,5 --steps 5 --json"
    evaluate_run(folder / "tiny")
    assert kept()["cells"] == found["cells"]
    (folder / "tiny" / "checkpoints" / "step-00000008.safetensors").unlink()
    resume(folder / "tiny")
    assert kept()["cells"] == found["cells"]
    # The probe of a run is that of its settings, and takes the place of the map.
    code, out, _ = run_command("forecast", "tiny", "--steps", "5")
    assert code == 0
    assert out.splitlines()[-1] == "Report: tiny/report.html"
    record = json.loads((folder / "tiny" / "record.json").read_text())
    assert record["forecast"]["verdict"] == out.splitlines()[0]
    assert record["forecast"]["seeds"][0]["seed"] == settings.seed


def test_a_folder_that_cannot_keep_a_forecast_is_said(folder: Path, run_command: Call) -> None:
    (folder / "empty").mkdir()
    assert run_command("forecast", "empty") == (
        2,
        "",
        "trivet: a run folder must hold config.toml: empty does not; give the folder `trivet train` made.\n",
    )
    (folder / "empty" / "config.toml").write_text(SETTINGS)
    code, _, said = run_command("forecast", "empty")
    assert (code, said) == (
        2,
        "trivet: a run has a record once training has ended: empty has none; resume with trivet train --resume "
        "empty.\n",
    )
    (folder / "empty" / "record.json").write_text(json.dumps({"run": "empty"}))
    code, _, said = run_command("forecast", "empty", "--report", "empty/report.html")
    assert (code, said) == (
        2,
        "trivet: --report must lie outside of what is read: empty/report.html lies in empty; choose another place.\n",
    )
    assert not (folder / "empty" / "report.html").exists()
    code, _, said = run_command("forecast", "empty", "--set", "training.steps=9")
    assert (code, said) == (
        2,
        "trivet: a run is forecast with its own settings: leave out --set, or give a settings file.\n",
    )
