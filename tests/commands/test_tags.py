"""Commands on a file whose items have tags: diagnosis, mining, and what needs classes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.commands.conftest import Call

import trivet
from trivet.collapse import diagnose
from trivet.metrics import retrieve

TAGS = [sorted({("red", "blue", "green")[i % 3], *("round", "flat")[: i % 3 % 2 + (i % 5 == 0)]}) for i in range(90)]
OPTIONS = ("--labels", "tags", "--separator", ";", "--distance", "euclidean")


@pytest.fixture
def embeddings() -> np.ndarray:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(90, 8)) + 2 * np.eye(8)[np.arange(90) % 3]
    return points.astype(np.float32)


@pytest.fixture
def file(tmp_path: Path, embeddings: np.ndarray) -> Path:
    np.savez(tmp_path / "v.npz", embeddings=embeddings, tags=np.array([";".join(tags) for tags in TAGS]))
    return tmp_path / "v.npz"


def test_a_diagnosis_is_that_of_the_tags(file: Path, embeddings: np.ndarray, run_command: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "raw.npz", embeddings=embeddings + 1, tags=np.load(file)["tags"])
    page = tmp_path / "d.html"
    code, out, err = run_command(
        "diagnose", file, *OPTIONS, "--reference", tmp_path / "raw.npz", "--json", "--report", page
    )
    assert code == 0, err
    found = json.loads(out)
    found = found["results"][0] if "results" in found else found
    wanted = diagnose(embeddings, trivet.Tags(TAGS), {"raw.npz": embeddings + 1}, level="tags").as_json()
    assert found["verdicts"] == json.loads(json.dumps(wanted["verdicts"]))
    for name in ("recall", "chance", "chance_high", "class_spread", "classes"):
        assert found["measures"][name] == pytest.approx(wanted["measures"][name])
    text = page.read_text()
    assert "The nearest item is one that belongs to it" in text or "closer than the nearest that belongs to it" in text
    assert "for the nearest of another class" not in text


def test_finer_classes_inside_tags(file: Path, run_command: Call, tmp_path: Path) -> None:
    """They are classes inside the sets of items with equal tags; a column that is inside these is found by itself."""
    sets = ["+".join(tags) for tags in TAGS]
    halves = np.array([f"{name}, {i % 2}" for i, name in enumerate(sets)])
    np.savez(tmp_path / "both.npz", **np.load(file), half=halves, set=np.array([f"set {name}" for name in sets]))
    measures = []
    for options in (OPTIONS, (*OPTIONS, "--fine", "half"), ("--labels", "set", *OPTIONS[4:], "--fine", "half")):
        code, out, err = run_command("diagnose", tmp_path / "both.npz", *options, "--json")
        assert (code, err) == (0, "")
        found = json.loads(out)
        measures.append((found["results"][0] if "results" in found else found)["measures"]["fine"])
    assert measures[0] == measures[1] == measures[2]
    assert measures[0]["half"]["split"] == 1


def test_mined_negatives_share_no_tag(file: Path, run_command: Call, tmp_path: Path) -> None:
    output = tmp_path / "m.parquet"
    code, _, err = run_command("mine", file, *OPTIONS, "-o", output, "--kind", "exact")
    assert code == 0, err
    mined = pq.read_table(output).to_pydict()
    rows = list(zip(mined["anchor_row"], mined["positive_row"], mined["negative_row"], strict=True))
    assert rows
    assert all(not set(TAGS[anchor]) & set(TAGS[negative]) for anchor, _, negative in rows)
    assert all(set(TAGS[anchor]) & set(TAGS[positive]) for anchor, positive, _ in rows)


@pytest.mark.parametrize("command", ["diagnose", "mine", "audit", "evaluate"])
def test_cells_of_several_labels_are_asked_about(command: str, file: Path, run_command: Call, tmp_path: Path) -> None:
    output = ["-o", tmp_path / "out.parquet"] if command == "mine" else []
    code, _, err = run_command(command, file, "--labels", "tags", *output)
    assert code == 2
    assert "read them as tags with --separator" in err
    help_text = run_command(command, "--help")[1]
    assert "--separator" in help_text


def test_runs_are_compared_by_their_tags(tmp_path: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        "tags,text",
        *(
            f"{';'.join(tags)},{i * 7919 % 1009} is the number of {tags[i % len(tags)][0]}"
            for i, tags in enumerate(TAGS)
        ),
    ]
    Path("t.csv").write_text("\n".join(rows))
    for seed in (0, 1):
        settings = f"""
seed = {seed}
data = {{ name = "texts", path = "t.csv", levels = ["tags"], separator = ";", match = 0.5 }}
model = {{ name = "residual", embedding_dim = 4 }}
loss = {{ name = "multi-similarity" }}
batch = {{ num_classes = 8, samples_per_class = 2 }}
training = {{ steps = 2 }}
evaluation = {{ nmi_plus = 1, map_points = 5 }}
"""
        Path(f"r{seed}.toml").write_text(settings)
        assert run_command("train", f"r{seed}.toml", "-o", f"r{seed}")[0] == 0
    code, out, err = run_command("compare", "r0", "r1", "--json")
    assert code == 0, err
    for seed in (0, 1):
        seen = pq.read_table(f"r{seed}/embeddings/seen.parquet").to_pydict()
        tags = trivet.Tags([cell.split(";") for cell in seen["tags"]], 0.5)
        wanted = retrieve(np.array(seen["embedding"]), tags, measures=("map@r",), distance="cosine").mean()
        assert wanted["map@r"] < 0.99
        values = [float(text) for text in re.findall(r"\d\.\d+", out)]
        assert any(abs(value - wanted["map@r"]) < 1e-6 for value in values)


def test_proposed_settings_count_no_clusters_of_tags(file: Path, run_command: Call, tmp_path: Path) -> None:
    code, _, err = run_command("init", file, *OPTIONS[:4], "-o", tmp_path / "settings.toml")
    assert code == 0, err
    assert "nmi_plus" not in (tmp_path / "settings.toml").read_text()
