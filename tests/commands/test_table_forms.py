"""Tables of texts and of images in the forms that people keep: every command that takes them reads all alike."""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image, features
from tests import miniatures
from tests.commands.conftest import Call
from tests.nightly import sampled

from trivet.commands.train import candidates
from trivet.io.image_file import SUFFIXES, UNREAD

pytestmark = pytest.mark.usefixtures("undiagnosed")

WORDS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")
ROWS = [{"id": i, "text": f"where is the {WORDS[i % 8]} number {i}?", "label": WORDS[i % 8]} for i in range(48)]
FEW = ['--set=ladder.rungs=["encoder"]', "--set=evaluation.nmi_plus=1", "--set=evaluation.map_points=5"]


def written(path: Path, rows: Sequence[dict[str, Any]], mark: str = ",") -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=mark)
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")
    return str(path)


def lines(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def excel(folder: Path) -> str:
    body = Path(written(folder / "t.csv", ROWS, ";")).read_text()
    (folder / "t.csv").write_bytes(b"sep=;\r\n" + f"{body};;\r\n;;\r\n".replace("where", "wäre").encode("cp1252"))
    return str(folder / "t.csv")


def prodigy(folder: Path) -> str:
    rows = [
        {"id": row["id"], "text": row["text"], "options": [{"id": w, "text": w} for w in WORDS], "_input_hash": i}
        | {"accept": [row["label"]], "answer": "accept", "_task_hash": -i, "_view_id": "choice"}
        for i, row in enumerate(ROWS)
    ]
    return lines(folder / "t.jsonl", [*rows, {**rows[0], "id": 99, "accept": [], "answer": "ignore"}])


def label_studio(folder: Path) -> list[dict[str, Any]]:
    more = {"annotator": 1, "created_at": "2024-01-10T10:00:00.000Z", "updated_at": "2024-01-11T10:00:00.000Z"}
    return [{**row, "annotation_id": i, "lead_time": i % 7 + 0.5, **more} for i, row in enumerate(ROWS)]


def json_min(folder: Path) -> str:
    (folder / "t.json").write_text(json.dumps(label_studio(folder), indent=2))
    return str(folder / "t.json")


def json_array(folder: Path) -> str:
    (folder / "t.json").write_text(json.dumps(ROWS))
    return str(folder / "t.json")


def parquet(folder: Path) -> str:
    pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), folder / "t.parquet")
    return str(folder / "t.parquet")


def saved(folder: Path) -> str:
    columns = {name: [row[name] for row in ROWS] for name in ("id", "text")}
    numbers = [WORDS.index(str(row["label"])) for row in ROWS]
    miniatures.hugging_face(folder / "t", {**columns, "label": numbers}, label=WORDS)
    return str(folder / "t")


TEXTS: dict[str, Callable[[Path], str]] = {
    "csv": lambda folder: written(folder / "t.csv", ROWS),
    "tsv": lambda folder: written(folder / "t.tsv", ROWS, "\t"),
    "excel": excel,
    "json lines": lambda folder: lines(folder / "t.jsonl", ROWS),
    "json array": json_array,
    "prodigy": prodigy,
    "label studio csv": lambda folder: written(folder / "t.csv", label_studio(folder)),
    "label studio json-min": json_min,
    "lists of one": lambda folder: lines(folder / "t.jsonl", [{**row, "label": [row["label"]]} for row in ROWS]),
    "parquet": parquet,
    "hugging face": saved,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(candidates, "SCRATCH_STEPS", (2, 2))
    return tmp_path


def answer(run_command: Call, *arguments: object) -> dict[str, Any]:
    code, out, err = run_command(*arguments, "--json")
    assert code == 0, err
    made: dict[str, Any] = json.loads(out)
    return made


@pytest.mark.parametrize("form", sampled(TEXTS, 3))
def test_texts_of_every_form_through_every_command(form: str, folder: Path, run_command: Call) -> None:
    path = TEXTS[form](folder)
    made = answer(run_command, "init", path)
    assert (made["kind"], made["items"], made["classes"]) == ("texts", 48, 8)
    assert (made["chosen"]["data"]["levels"], made["chosen"]["data"].get("text")) == (["label"], None)
    answer(run_command, "train", path, "--labels", "label", "-o", "run", *FEW)
    audited = answer(run_command, "audit", path, "--level", "label")
    assert (audited["items"], audited["classes"]) == (48, 8)
    embedded = answer(run_command, "embed", "run", path, "-o", "e.parquet")
    assert embedded["items"] == 48
    assert answer(run_command, "diagnose", "e.parquet", "--labels", "label")
    for command in (("evaluate", "e.parquet", "--labels", "label"), ("index", "e.parquet", "-o", "index")):
        assert answer(run_command, *command)["items"] == 48
    for command in ("evaluate", "diagnose"):  # no encoder, no vectors
        code, _, err = run_command(command, path)
        assert (code, err.count("\n")) == (2, 1), err
        assert "embeddings" in err


def pictures(ending: str = ".png", folder: str = "photos", mark: str = "/") -> list[dict[str, Any]]:
    rows = []
    for i in range(32):
        path = Path(folder, f"{i}{ending}")
        path.parent.mkdir(exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 255, (12, 12, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(path, {".jfif": "JPEG"}.get(ending))
        rows.append({"path": f"{folder}{mark}{path.name}", "label": WORDS[i // 4]})
    return rows


def in_parquet(cell: Callable[[bytes], Any]) -> str:
    rows = [{"image": cell(Path(row.pop("path")).read_bytes()), **row} for row in pictures()]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), "t.parquet")
    return "t.parquet"


def from_windows() -> str:
    return written(Path("t.csv"), pictures(mark="\\"), ";")


IMAGES: dict[str, Callable[[], str]] = {
    "csv": lambda: written(Path("t.csv"), pictures()),
    "json lines": lambda: lines(Path("t.jsonl"), pictures()),
    "json array": lambda: str(Path("t.json").write_text(json.dumps(pictures())) and "t.json"),
    "from windows": from_windows,
    "bytes and paths": lambda: in_parquet(lambda data: {"bytes": data, "path": "x.png"}),
    "bytes": lambda: in_parquet(lambda data: data),
    "jfif": lambda: written(Path("t.csv"), pictures(".jfif")),
    "avif": lambda: written(Path("t.csv"), pictures(".avif")),
}


@pytest.mark.parametrize("form", sampled(IMAGES, 3))
def test_images_of_every_form_through_every_command(form: str, run_command: Call) -> None:
    if form == "avif" and not features.check("avif"):
        pytest.skip("this Pillow reads no AVIF")
    path = IMAGES[form]()
    made = answer(run_command, "init", path, "-o", "own.toml")
    assert (made["kind"], made["items"], made["classes"]) == ("table", 32, 8)
    answer(run_command, "train", "own.toml", "-o", "run", *FEW)
    assert answer(run_command, "embed", "run", path, "-o", "e.parquet")["items"] == 32
    for command in (("evaluate", "e.parquet", "--labels", "label"), ("index", "e.parquet", "-o", "index")):
        assert answer(run_command, *command)["items"] == 32
    assert answer(run_command, "audit", "e.parquet", "--level", "label")["items"] == 32


def test_images_that_are_not_read_are_counted_by_their_ending(run_command: Call) -> None:
    assert not SUFFIXES & UNREAD
    for i in range(32):
        miniatures.picture(Path(f"photos/{WORDS[i // 4]}/{i}.png"), 5 * i)
    for i in range(80):
        Path(f"photos/{WORDS[i % 8]}/{i}.HEIC").write_bytes(b"....ftypheic")
    Path("photos/ant/1.dng").write_bytes(b"raw")
    sentence = "Files of photos that are not read, and left out: 80 .heic, 1 .dng. Convert them to jpg or png."
    made = answer(run_command, "init", "photos")
    assert sentence in made["findings"]
    _, out, _ = run_command("train", "trivet.toml", "-o", "run", *FEW)
    assert "80 .heic, 1 .dng" in " ".join(out.split())
    assert "80 .heic, 1 .dng" in Path("run/report.html").read_text(encoding="utf-8")
    for path in Path("photos").rglob("*.png"):
        path.unlink()
    code, _, err = run_command("init", "photos", "-o", "other.toml")
    assert (code, "has only 80 .heic, 1 .dng, which are not read; convert them" in err) == (2, True)
    rows = [{"path": f"{WORDS[i % 8]}/{i}.HEIC", "label": WORDS[i % 8]} for i in range(80)]
    written(Path("photos/t.csv"), rows)
    code, _, err = run_command("init", "photos/t.csv", "-o", "other.toml")
    assert (code, ".HEIC files are not read; convert it to jpg or png" in err) == (2, True)


@pytest.mark.parametrize("address", ["https://a.org/p/{}.jpg", "https://a.org/photos/{}/medium.jpeg?17", "s3://b/{}"])
def test_addresses_are_named_as_what_they_are(address: str, run_command: Call) -> None:
    rows = [{"image": address.format(i), "label": WORDS[i // 4]} for i in range(32)]
    code, _, err = run_command("init", written(Path("t.csv"), rows))
    assert code == 2
    assert f"'image' of t.csv holds 32 addresses, such as '{address.format(0)}', and nothing is downloaded" in err
    with_texts = [{"text": f"a nice {row['label']} {i}", **row} for i, row in enumerate(rows)]
    made = answer(run_command, "init", written(Path("t.csv"), with_texts))
    assert made["kind"] == "texts"


GAPS = [
    {**row, "label": "" if i in (3, 7) else row["label"], "text": "" if i == 5 else row["text"]}
    for i, row in enumerate(ROWS)
]


def test_rows_with_gaps_are_left_out_where_asked(folder: Path, run_command: Call) -> None:
    path = written(folder / "t.csv", GAPS)
    calls: dict[str, list[str]] = {
        "init": [path],
        "train": [path, "--labels", "label", "-o", "run", *FEW],
        "audit": [path, "--level", "label"],
    }
    for command, arguments in calls.items():
        code, _, err = run_command(command, *arguments)
        assert code == 2, command
        assert "2 of 48 have no class name of level 'label', lines 5, 9" in err, command
        assert "1 of 48 have no text" in err, command
        assert ", line 7; fill them in, or go on without these rows: --skip-empty" in err
        code, out, err = run_command(command, *arguments, "--skip-empty")
        assert code == 0, err
        assert "3 of 48 rows of t.csv were left out" in " ".join(out.split()), command
    assert tomllib.loads(Path("trivet.toml").read_text())["data"]["skip_empty"] is True
    assert run_command("train", "trivet.toml", "-o", "other", *FEW)[0] == 0
    code, _, err = run_command("embed", "run", path, "-o", "e.parquet")
    assert (code, "--" in err) == (2, False), err  # an option that `embed` does not have is not offered
    rows = np.random.default_rng(0).normal(size=(48, 6)).astype(np.float32)
    pyarrow.parquet.write_table(
        pa.table({"label": [row["label"] or None for row in GAPS], "embedding": list(rows)}), "v.parquet"
    )
    for arguments in (["evaluate", "v.parquet"], ["diagnose", "v.parquet"], ["index", "v.parquet", "-o", "index"]):
        code, _, err = run_command(*arguments)
        assert (code, "rows 3, 7 counted from 0; fill them in, or go on without" in err) == (2, True), err
        code, out, err = run_command(*arguments, "--skip-empty")
        assert (code, "2 of 48 rows of v.parquet were left out" in " ".join(out.split())) == (0, True), err


def test_labels_that_look_alike_are_noted_by_every_command(folder: Path, run_command: Call) -> None:
    alike = [
        {**row, "label": f"{row['label'].title()} " if i in (8, 16) else row["label"]} for i, row in enumerate(ROWS)
    ]
    path = written(folder / "t.csv", alike)
    calls = [["init", path], ["train", path, "--labels", "label", "-o", "run", *FEW]]
    calls += [["audit", path, "--level", "label"], ["embed", "run", path, "-o", "e.parquet"]]
    calls += [["evaluate", "e.parquet"], ["diagnose", "e.parquet"], ["index", "e.parquet", "-o", "index"]]
    for arguments in calls:
        code, out, err = run_command(*arguments)
        assert code == 0, err
        if arguments[0] != "embed":
            assert "'ant' (4) and 'Ant ' (2)" in " ".join(out.split()), arguments[0]
    assert "&#39;Ant &#39; (2)" in Path("run/report.html").read_text(encoding="utf-8")


def open_question() -> str:
    rows = [{"text": row["text"], "city": f"c{i % 5}", "mood": f"m{i % 4}"} for i, row in enumerate(ROWS)]
    return written(Path("t.csv"), rows)


def dates_only() -> str:
    rows = [{"text": row["text"], "posted": f"2024-05-0{i % 9 + 1}"} for i, row in enumerate(ROWS)]
    return written(Path("t.csv"), rows)


def several_labels() -> str:
    rows = [{"text": row["text"], "tags": f"{row['label']};{WORDS[i % 2]}"} for i, row in enumerate(ROWS)]
    return written(Path("t.csv"), rows)


def lists_of_labels() -> str:
    rows = [{"text": row["text"], "tags": [row["label"], *["x"][i % 2 :]]} for i, row in enumerate(ROWS)]
    return lines(Path("t.jsonl"), rows)


def choices() -> str:
    choices_of = [[row["label"], *["x"][i % 2 :]] for i, row in enumerate(ROWS)]
    rows = [
        {"text": row["text"], "topic": json.dumps({"choices": each})}
        for row, each in zip(ROWS, choices_of, strict=True)
    ]
    return written(Path("t.csv"), rows)


# What makes the table -> what `init` asks, and the label that answers it, if one can.
QUESTIONS: dict[Callable[[], str], tuple[str, str | None]] = {
    open_question: (
        "the column of labels must be named with --labels, as it is open which one is meant: t.csv has 'city' (5 "
        "classes), 'mood' (4 classes).",
        "mood",
    ),
    dates_only: ("as it is open whether the only one is meant: t.csv has 'posted' (9 classes).", "posted"),
    several_labels: ("t.csv has none (tags holds several labels in a cell, such as 'ant;ant'); add one", "tags"),
    lists_of_labels: ("t.jsonl has none (tags holds lists, such as ['ant', 'x']); add one, or name it", "tags"),
    choices: ('topic holds several labels in a cell, such as \'{"choices": ["ant", "x"]}\'', "topic"),
}


# What makes a table with several labels in a cell -> the separator that the question offers.
SEPARATORS = {several_labels: ";", lists_of_labels: "list", choices: "list"}


@pytest.mark.parametrize("make", QUESTIONS, ids=lambda make: make.__name__)
def test_what_is_open_is_asked_and_the_answer_is_taken(make: Callable[[], str], run_command: Call) -> None:
    question, label = QUESTIONS[make]
    path = make()
    code, _, err = run_command("init", path)
    assert code == 2
    assert question in err
    assert not Path("trivet.toml").exists()
    if make is open_question:  # whoever trains at once is asked as well
        code, _, err = run_command("train", path, "-o", "run", *FEW)
        assert (code, question in err) == (2, True), err
        assert run_command("train", path, "--labels", label, "-o", "run", "--set=data.split=in-class", *FEW)[0] == 0
    separator = SEPARATORS.get(make)
    if separator is not None:  # cells of several labels are asked about once more
        code, _, err = run_command("init", path, "--labels", label)
        assert (code, f"read them as tags with --separator {separator}" in err.replace('"', "")) == (2, True), err
        made = answer(run_command, "init", path, "--labels", label, "--separator", separator)
        assert made["chosen"]["data"]["separator"] == separator
        assert any(re.search(rf"{label}: [89] tags", finding) for finding in made["findings"]), made["findings"]
        Path("trivet.toml").unlink()
        if make is not lists_of_labels:
            made = answer(run_command, "init", path, "--labels", label, "--separator", "none")
            assert made["chosen"]["data"]["levels"] == [label]
        return
    made = answer(run_command, "init", path, "--labels", label)
    assert made["chosen"]["data"]["levels"] == [label]


def test_a_sentence_offers_only_options_that_the_command_has(folder: Path, run_command: Call) -> None:
    answer(run_command, "train", written(folder / "t.csv", ROWS), "-o", "run", *FEW)
    written(folder / "renamed.csv", [{"utterance": row["text"], "label": row["label"]} for row in ROWS])
    written(folder / "gaps.csv", GAPS)
    written(folder / "tags.csv", [{**row, "label": f"{row['label']};{WORDS[i % 2]}"} for i, row in enumerate(ROWS)])
    lines(folder / "lists.jsonl", [{**row, "label": [row["label"], "x"]} for row in ROWS])
    calls = {
        "init": lambda path: [path],
        "train": lambda path: [path, "-o", "other", *FEW],
        "audit": lambda path: [path],
        "embed": lambda path: ["run", path, "-o", "e.parquet"],
        "evaluate": lambda path: [path],
        "diagnose": lambda path: [path],
        "index": lambda path: [path, "-o", "index"],
    }
    refused = 0
    for command, arguments in calls.items():
        options = set(re.findall("--[a-z-]+", run_command(command, "--help")[1]))
        for path in ("renamed.csv", "gaps.csv", "tags.csv", "lists.jsonl"):
            code, _, err = run_command(command, *arguments(path))
            refused += code
            own = err.replace("trivet encoders --download", "")  # of another command
            assert set(re.findall("--[a-z-]+", own)) <= options, (command, path, err)
    assert refused >= 30
