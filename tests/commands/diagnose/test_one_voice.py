"""All that shows a verdict shows the same: the function, the command, its exit code and its page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call

import trivet

LABELS = np.repeat(np.arange(8), 30)
RANDOM = np.random.default_rng(0)
START = RANDOM.standard_normal((8, 12))[LABELS] + 0.6 * RANDOM.standard_normal((240, 12))
MEANS = np.stack([START[label == LABELS].mean(0) for label in range(8)])[LABELS]
NOISE = RANDOM.standard_normal(START.shape)
COLLAPSED = {"network-collapse", "class-collapse"}
FATES: dict[str, tuple[np.ndarray, str]] = {
    "hardly moved": (START + 1e-9 * NOISE, "healthy"),
    "shifted": (START + 50, "healthy"),
    "small": (1e-3 * START, "healthy"),
    "half precision": (START.astype(np.float16), "healthy"),
    "point": (np.ones_like(START), "network-collapse"),
    "line": (NOISE[:, :1] * START[:1] + 1e-3 * NOISE, "network-collapse"),
    "spots": (START[RANDOM.integers(0, 3, 240)] + 1e-3 * NOISE, "network-collapse"),
    "moved": (np.where(np.arange(240)[:, None] % 120 == 0, 9, START), "displaced-items"),
    "class means": (MEANS + 0.5 * NOISE, "spread-out"),
    "noise": (1e-3 * (START + 4 * NOISE), "worse-than-reference"),
    "another order": (RANDOM.permutation(START), "no-better-than-chance"),
    "classes on points": (MEANS + 1e-3 * NOISE, "class-collapse"),
}


@pytest.mark.parametrize("fate", FATES)
def test_a_verdict_is_the_same_wherever_it_is_shown(fate: str, tmp_path: Path, run_command: Call) -> None:
    points, kind = FATES[fate]
    for name, rows in {"points": points, "start": START}.items():
        np.savez(tmp_path / f"{name}.npz", embeddings=rows, label=LABELS)
    kinds = [verdict.kind for verdict in trivet.diagnose(points, LABELS, START).verdicts]
    assert kind in kinds
    assert not COLLAPSED & {*kinds} - {kind}
    files = [tmp_path / "points.npz", "--reference", tmp_path / "start.npz", "--distance", "euclidean"]
    report = tmp_path / "page.html"
    code, out, err = run_command("diagnose", *files, "--fail-on", "collapse", "--json", "--report", report)
    assert out, err
    assert [verdict["kind"] for verdict in json.loads(out)["verdicts"]] == kinds
    assert code == bool(COLLAPSED & {*kinds})
    text = report.read_text().lower()
    assert all(kind.replace("-", " ") in text for kind in kinds)
