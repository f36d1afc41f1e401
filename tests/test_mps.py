"""MPS, which has no float64, as `pretended_mps.py` pretends it: what is computed there is what the CPU computes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests import small_sweep
from tests.programs import Programs


def on_mps(programs: Programs, folder: Path, *lines: str) -> str:
    """Standard output of `pretended_mps_worker`, or of commands there, one after another."""
    cache = {"TRIVET_CACHE": str(folder / "cache")}
    run = programs.run("tests.pretended_mps_worker:main", *lines, folder=folder, environment=cache)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode()


def test_losses_mining_memory_and_monitor_are_those_of_the_cpu(programs: Programs, tmp_path: Path) -> None:
    assert json.loads(on_mps(programs, tmp_path)) == {}


@pytest.mark.parametrize("resumed", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_run_trains_there_without_being_told(programs: Programs, tmp_path: Path, resumed: bool) -> None:
    import tomli_w

    settings = small_sweep.settings(tmp_path)
    del settings["sweep"]
    settings["loss"] = {"name": "margin"}
    settings["training"].update(accelerator="auto", ema=0.9)
    (tmp_path / "run.toml").write_text(tomli_w.dumps(settings))
    on_mps(programs, tmp_path, "train run.toml -o run", "train run.toml -o cpu --set training.accelerator=cpu")
    here, cpu = (
        np.stack(pq.read_table(tmp_path / name / "embeddings" / "unseen.parquet")["embedding"].to_numpy())
        for name in ("run", "cpu")
    )
    np.testing.assert_allclose(here, cpu, rtol=1e-4, atol=1e-6)
    assert json.loads((tmp_path / "run" / "record.json").read_text())["environment"]["device"] == "pretended"
    if resumed:
        on_mps(programs, tmp_path, "train --resume run --set training.steps=30")
