"""All that shows a verdict shows the same: functions, commands, exit codes, pages, results of runs, the monitor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call
from tests.made_runs import make_run
from tests.nightly import sampled

import trivet
from trivet.collapse.probe import ProbeTracker
from trivet.commands.compare.run import compare_runs
from trivet.commands.diagnose.causes import _comparisons
from trivet.commands.diagnose.inputs import DiagnosisInput
from trivet.commands.diagnose.run import diagnose_input
from trivet.commands.evaluate.trained_model import measure_split
from trivet.commands.train.page import write_run_report
from trivet.commands.train.printing import print_run
from trivet.datasets import Dataset
from trivet.datasets.vectors import VectorInputs
from trivet.reports.run_record import RunRecord
from trivet.training.config import EvaluationConfig

pytestmark = pytest.mark.usefixtures("few_pairs")

LABELS = np.repeat(np.arange(8), 30)
RANDOM = np.random.default_rng(0)
START = RANDOM.standard_normal((8, 12))[LABELS] + 0.6 * RANDOM.standard_normal((240, 12))
MEANS = np.stack([START[label == LABELS].mean(0) for label in range(8)])[LABELS]
NOISE = RANDOM.standard_normal(START.shape)
COLLAPSED = {"network-collapse", "class-collapse"}
FATES: dict[str, tuple[np.ndarray, str, str]] = {
    "hardly moved": (START + 1e-9 * NOISE, "healthy", "equal"),
    "shifted": (START + 50, "healthy", "equal"),
    "small": (1e-3 * START, "healthy", "equal"),
    "half precision": (START.astype(np.float16), "healthy", "equal"),
    "point": (np.ones_like(START), "network-collapse", "chance"),
    "line": (NOISE[:, :1] * START[:1] + 1e-3 * NOISE, "network-collapse", "chance"),
    "spots": (START[RANDOM.integers(0, 3, 240)] + 1e-3 * NOISE, "network-collapse", "chance"),
    "moved": (np.where(np.arange(240)[:, None] % 120 == 0, 9, START), "displaced-items", "equal"),
    "class means": (MEANS + 0.5 * NOISE, "spread-out", "equal"),
    "a little noise": (START + 0.45 * RANDOM.standard_normal(START.shape), "worse-than-reference", "lower"),
    "noise": (1e-3 * (START + 2 * NOISE), "worse-than-reference", "worse"),
    "noise, shifted": (50 + START + 2 * NOISE, "worse-than-reference", "worse"),
    "another order": (RANDOM.permutation(START), "no-better-than-chance", "chance"),
    "classes on points": (MEANS + 1e-3 * NOISE, "class-collapse", "equal"),
    "less noise": (START, "healthy", "better"),
}
REFERENCES = {"less noise": START + NOISE}
# What each shows of the outcome: the result of a run, `trivet compare`, the last sentence of the monitor.
SHOWN = {
    "equal": (
        r"points (over|below) the .*; (no difference of a point|less than a point|8 classes: too few)",
        "open",
        "ends as it began, as",
    ),
    "open": (r"points below the .*; 8 classes: too few to be sure", "open", "ends as it began or lower, as"),
    # Of two runs none is what the other began as, and rank-biased precision tells a loss since a start alone.
    "lower": (r"points below the [^;]*; of rank-biased precision [^;]*\)\.", "open", "below its start"),
    "worse": (r"points below the [^;]*\)\.", "worse", "below its start"),
    "chance": (r"No better than chance on ", "worse", "below its start"),
    "better": (r"points over the [^;]*\)\.", "better", "above its start"),
}


@pytest.mark.parametrize("fate", FATES)
def test_a_verdict_is_the_same_wherever_it_is_shown(fate: str, tmp_path: Path, run_command: Call) -> None:
    points, kind, _ = FATES[fate]
    start = REFERENCES.get(fate, START)
    for name, rows in {"points": points, "start": start}.items():
        np.savez(tmp_path / f"{name}.npz", embeddings=rows, label=LABELS)
    kinds = [verdict.kind for verdict in trivet.diagnose(points, LABELS, start, distance="euclidean").verdicts]
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


@pytest.mark.parametrize("fate", sampled(FATES, 3))
def test_runs_comparisons_and_the_monitor_show_the_outcome(
    fate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points, kind, outcome = FATES[fate]
    start = REFERENCES.get(fate, START)
    headline, compared, closing = SHOWN[outcome]
    names = np.array([f"c{label}" for label in range(8)])
    ids = tuple(f"item {row}" for row in range(240))
    dataset = Dataset(
        "made", VectorInputs(start, ids, np.arange(240), tmp_path), {"digit": LABELS}, {"digit": tuple(names)}, ids
    )
    references = {"untrained network": start}
    record = RunRecord(run="made", level="digit", settings={"data": {"level": "digit"}})
    config = EvaluationConfig(nmi_plus=1)
    measure_split(
        record, "unseen", dataset, points, references, config,
        level="digit", chosen_by=None, prefixes=(), normalize=False, seed=0,
    )  # fmt: skip
    subject = DiagnosisInput(
        ids=ids, labels={"digit": names[LABELS]}, name="made", split="unseen", level="digit", embeddings=points,
        distance="euclidean", references=references,
    )  # fmt: skip
    record.diagnosis = {"unseen": diagnose_input(subject).section(map_points=0)}
    assert kind in [verdict.kind for verdict in record.diagnosis["unseen"].verdicts]
    lost = [comparison.worse for comparison in _comparisons(record.diagnosis["unseen"], "digit")]
    assert lost == [outcome in ("lower", "worse", "chance")]  # as the causes of a worse result read it
    print_run(record, tmp_path)
    write_run_report(record, tmp_path / "report.html")
    for text in (capsys.readouterr().out, (tmp_path / "report.html").read_text()):
        answer = next(line for line in re.split("[\n<>]", text) if " recall@1" in line and "(unseen by digit)" in line)
        assert re.search(headline, answer)
        for collapse in COLLAPSED:
            assert (f"{collapse.replace('-', ' ').capitalize()}: unseen (" in text) == (kind == collapse)

    folders = [
        make_run(tmp_path / name, labels=LABELS, embeddings=rows, name=positives)
        for name, rows, positives in (("start", start, "easy"), ("end", points, "hard"))
    ]
    (change,) = [one for one in compare_runs(folders).tables[0].differences if one.measure == "recall@1"]
    assert change.outcome == compared

    probe = ProbeTracker()
    for step, rows in enumerate((start, points, points)):
        probe.measure(lambda rows=rows: (rows, LABELS), step)  # type: ignore[misc]  # rows are those of this step
    assert closing in str(probe.closing())
    assert (probe.collapse() is not None) == (kind == "network-collapse")
    assert bool(probe.stays_below(probe.reference)) == (outcome in ("lower", "worse", "chance"))
