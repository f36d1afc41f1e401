"""`trivet init`: what it finds in data of each kind, what it chooses, and that `trivet train` takes what it writes."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from jsonschema import Draft7Validator
from PIL import Image
from tests import miniatures
from tests.commands.conftest import Call

from trivet.commands.init import run as init
from trivet.commands.init.data import detect
from trivet.commands.init.run import Proposal, as_toml, propose, propose_ladder
from trivet.commands.settings.run import settings_schema
from trivet.commands.train import candidates
from trivet.datasets import load
from trivet.io.parquet_files import write_embeddings
from trivet.io.shards import Manifest, ShardMark, write_manifest, write_shard
from trivet.reports.ladder_record import LadderRecord
from trivet.training.ladder_config import RUNGS, LadderSettings

pytestmark = pytest.mark.usefixtures("undiagnosed")

DRAWS = np.random.default_rng(0)


@cache
def schema() -> Draft7Validator:
    """Of all settings, which takes a while to make."""
    return Draft7Validator(settings_schema())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIVET_DATA", str(tmp_path / "data"))
    return tmp_path


def proposed(path: str, labels: Sequence[str] | None = None, text: str | None = None) -> Proposal:
    return propose(Path(path), detect(Path(path), labels, text))


def pictures(paths: list[str]) -> None:
    for value, path in enumerate(paths):
        miniatures.picture(Path(path), value % 200)


def folder_of_classes() -> str:
    pictures([f"photos/k{i}/{j}.png" for i in range(10) for j in range(4)])
    return "photos"


def few_classes() -> str:
    pictures([f"photos/k{i}/{j}.png" for i in range(3) for j in range(20)])
    return "photos"


def nested() -> str:
    pictures([f"photos/around/c{i}/f{j}/{k}.png" for i in range(3) for j in range(3) for k in range(3)])
    return "photos"


def given_parts() -> str:
    pictures([f"photos/{part}/{c}/{k}.png" for part in ("train", "test") for c in "abc" for k in range(3)])
    return "photos"


def flat_with_a_table() -> str:
    names = [f"{i:02d}.png" for i in range(32)]
    pictures([f"photos/{name}" for name in names])
    rows = "".join(f"{name};{'abcdefgh'[i // 4]};{'xy'[i // 16]};{i % 3}\n" for i, name in enumerate(names))
    Path("photos/list.csv").write_text(f"picture;species;family;hour\n{rows}")
    return "photos"


def paths_from_here() -> str:
    pictures([f"photos/{i}.png" for i in range(16)])
    Path("lists").mkdir()
    rows = "".join(f"photos/{i}.png,{i // 2}\n" for i in range(16))
    Path("lists/items.csv").write_text(f"path,label\n{rows}")
    return "lists/items.csv"


def vectors(each: int = 4) -> dict[str, Any]:
    kinds = np.repeat([f"k{i:02d}" for i in range(24)], each)
    rows = DRAWS.standard_normal((len(kinds), 6)).astype(np.float32)
    return {"embeddings": rows, "kind": kinds, "group": np.array([f"g{int(k[1:]) // 6}" for k in kinds])}


def npz() -> str:
    np.savez("named.npz", **vectors())
    return "named.npz"


def npy() -> str:
    made = vectors()
    np.save("rows.npy", made["embeddings"])
    lines = zip(made["kind"], made["group"], strict=True)
    Path("rows.csv").write_text("kind,group\n" + "".join(f"{k},{g}\n" for k, g in lines))
    return "rows.csv"


def parquet() -> str:
    made = vectors()
    ids = tuple(map(str, range(len(made["kind"]))))
    columns = {"kind": made["kind"], "split": np.where(np.arange(len(ids)) % 4 < 2, "train", "test")}
    write_embeddings(Path("made.parquet"), made["embeddings"], ids, columns, model="0" * 64)
    return "made.parquet"


def texts() -> str:
    words = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")
    rows = [f"what is {word} {i},{word},{'pqrs'[i % 4]}" for i in range(3) for word in words]
    Path("asked.csv").write_text("utterance,intent,unlike\n" + "".join(f"{row}\n" for row in rows))
    return "asked.csv"


def equal_texts() -> str:
    words = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kiwi", "lynx")
    rows = [f"what is {word} {i * (word != 'cat')},{word}" for i in range(3) for word in words]
    Path("asked.csv").write_text("text,intent\n" + "".join(f"{row}\n" for row in rows))
    return "asked.csv"


def images_in_parquet() -> str:
    cells = []
    for i in range(32):
        file = io.BytesIO()
        Image.fromarray(np.full((9, 9, 3), 7 * i, np.uint8)).save(file, "PNG")
        cells.append({"bytes": file.getvalue(), "path": f"{i}.png"})
    table = pa.table({"image": cells, "label": [i // 4 for i in range(32)]})
    pyarrow.parquet.write_table(table, "images.parquet")
    return "images.parquet"


def shards() -> str:
    made = vectors()
    manifest = Manifest(
        key="k",
        trivet="0",
        model="0" * 64,
        data="",
        inputs="",
        items=96,
        rows_per_shard=96,
        dimension=6,
        columns=["kind", "group"],
        levels=["kind", "group"],
    )
    Path("embedded").mkdir()
    write_manifest(Path("embedded"), manifest)
    columns = {name: made[name] for name in manifest.columns}
    mark = ShardMark(key=manifest.key, number=0, skipped=[])
    write_shard(Path("embedded"), manifest, mark, made["embeddings"], [str(i) for i in range(96)], columns)
    return "embedded"


def json_lines() -> str:
    rows = [
        {"text": f"where is the {w} number {i}", "about": w} for i in range(4) for w in ("ant", "bee", "cat", "dog")
    ]
    Path("asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "asked.jsonl"


def paths_from_a_folder_below(table: str = "list/items.csv", folders: Sequence[str] = ("pictures",)) -> str:
    pictures([f"list/{folder}/{i}.png" for folder in folders for i in range(16)])
    Path(table).write_text("path,label\n" + "".join(f"{i}.png,{i // 2}\n" for i in range(16)))
    return table


def single_items() -> str:
    made = vectors()
    made["kind"] = np.array([f"alone{i}" if i % 4 == 0 else k for i, k in enumerate(made["kind"].tolist())])
    np.savez("named.npz", embeddings=made["embeddings"], kind=made["kind"])
    return "named.npz"


def grey_and_broken() -> str:
    for i in range(40):
        path = Path(f"scans/k{i // 4}/{i}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(DRAWS.integers(0, 255, (40, 20)).astype(np.uint8)).save(path)
    Path("scans/k3/12.png").write_bytes(b"broken")
    return "scans"


# What makes the data -> the settings that must come of them, and what must be said.
KINDS: dict[Callable[[], str], tuple[dict[str, Any], str]] = {
    folder_of_classes: (
        {"data.name": "folder", "data.split": "class-disjoint", "data.image_size": 12, "ladder.rungs": [*RUNGS]},
        "class: 10 classes of 4 items.",
    ),
    few_classes: ({"data.split": "in-class"}, "too few"),
    nested: ({"data.root": "photos/around", "data.level": "level2"}, "level1 > level2, coarse first"),
    given_parts: ({"data.split": "auto"}, "train/, test/ and val/ say what is trained on"),
    flat_with_a_table: (
        {"data.name": "table", "data.path": "photos/list.csv", "data.image": "picture", "data.level": "species"}
        | {"data.levels": ["family", "species"]},
        "Not taken: 'hour' (3 classes)",
    ),
    paths_from_here: ({"data.root": ".", "data.levels": ["label"]}, "the paths start there, not at the table"),
    paths_from_a_folder_below: ({"data.root": "list/pictures", "data.levels": ["label"]}, "the paths start there"),
    npz: (
        {"data.name": "vectors", "data.level": "kind", "data.levels": ["group", "kind"], "data.image_size": None},
        "kind: 24 classes of 4 items.",
    ),
    npy: ({"data.path": "rows.npy", "data.levels": ["group", "kind"]}, "96 vectors"),
    parquet: ({"data.levels": ["kind"], "data.split": "auto"}, "a column says what is trained on"),
    texts: ({"data.name": "texts", "data.text": "utterance", "data.levels": ["intent"]}, "by its name"),
    json_lines: ({"data.name": "texts", "data.text": None, "data.levels": ["about"]}, "as the only one"),
    equal_texts: ({"data.levels": ["intent"]}, "36 texts in asked.csv."),
    images_in_parquet: ({"data.name": "table", "data.image": None, "data.levels": ["label"]}, "9 pixels"),
    shards: ({"data.path": "embedded", "data.levels": ["group", "kind"]}, "96 vectors in embedded."),
    single_items: ({"data.levels": ["kind"]}, "24 of a single item"),
    grey_and_broken: (
        {"data.channels": 1, "data.image_size": [40, 20], "data.allow_corrupt": 0.05},
        "1 image of 40 cannot be read and will be left out, first k3/12.png",
    ),
}


def setting(values: dict[str, Any], key: str) -> Any:
    section, _, name = key.partition(".")
    return values.get(section, {}).get(name)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_it_writes_suits_the_data(make: Callable[[], str], run_command: Call) -> None:
    code, out, err = run_command("init", make())
    assert (code, err) == (0, "")
    expected, said = KINDS[make]
    text = Path("trivet.toml").read_text()
    values = tomllib.loads(text)
    assert {key: setting(values, key) for key in expected} == expected
    assert said in out
    assert said in " ".join(line.strip("# ") for line in text.splitlines())
    assert out.endswith("Written to trivet.toml. Next:\n  trivet train trivet.toml\n")
    schema().validate(values)
    assert load(LadderSettings.read(Path("trivet.toml")).data, None).evaluation
    assert all(len(line) <= 120 for line in text.splitlines() if line.startswith("#"))


@pytest.mark.parametrize(
    ("make", "rungs", "result"),
    [
        (folder_of_classes, ["encoder"], "the pixels"),  # without an encoder at hand
        (flat_with_a_table, ["encoder"], "the pixels"),
        (npz, ["encoder"], "the vectors"),
        (texts, ["encoder"], "character n-grams"),
        (single_items, ["head"], ""),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_next_command_ends_with_a_report(
    make: Callable[[], str], rungs: list[str], result: str, run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "HEAD_STEPS", {2: 1e-3})
    monkeypatch.setattr(candidates, "SCRATCH_STEPS", (2, 2))
    code, out, _ = run_command("init", make(), "--json", "-o", "own.toml")
    made = json.loads(out)
    assert (code, made["settings"], made["next"]) == (0, "own.toml", "trivet train own.toml")
    assert made["chosen"] == {k: v for k, v in tomllib.loads(Path("own.toml").read_text()).items() if k != "seed"}
    few = [f"--set=ladder.rungs={json.dumps(rungs)}", "--set=evaluation.map_points=10"]
    code, _, err = run_command(*made["next"].split()[1:], *few)
    assert code == 0, err
    assert Path("runs/own/report.html").is_file()
    ladder = LadderRecord.read(json.loads(Path("runs/own/ladder.json").read_text()))
    assert [each.reason for each in ladder.candidates] == [""] * len(ladder.candidates)
    assert ladder.result == result or rungs == ["head"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["empty"], "empty has none."),
        (["loose"], "make one folder per class and move the images there."),
        (["loose/0.png"], "needs a folder of images, or a table that lists them: got the image loose/0.png."),
        (["notes.md"], "data must be a folder of images, a table"),
        (["numbers.csv"], "a table must have a column of image paths or of texts beside its labels"),
        (["gone.csv"], "must lie where its list names them"),
        (["unlabelled.csv"], "training needs a column of labels that items share: unlabelled.csv has none"),
        (["asked.csv", "--labels", "intnt"], "did you mean 'intent'?"),
        (["asked.csv", "--text", "utterence"], "did you mean 'utterance'?"),
        (["named.npz", "--text", "caption"], "--text names the column of texts of a table: named.npz holds vectors"),
        (["loose", "--text", "caption"], "--text names the column of texts of a table: loose holds a folder of images"),
        (["tables"], "or give a table: tables holds one.csv, two.csv."),
        (["run"], "run is a run, whose settings are in run/config.toml."),
        (["equal.csv"], "of texts with two that differ: got 0 in 'kind'"),
        (["asked.csv", "-o", "asked.csv"], "--output must not name what is read"),
        (["asked.csv", "-o", "my.toml"], "replaces only a file that it wrote itself: my.toml exists"),
        (["asked.csv", "-o", "my.toml", "--force"], "replaces only a file that it wrote itself: my.toml exists"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(arguments: list[str], sentence: str, run_command: Call) -> None:
    npz(), texts(), pictures([f"loose/{i}.png" for i in range(3)])
    for name in ("empty", "tables", "run"):
        Path(name).mkdir()
    files = {
        "notes.md": "words",
        "numbers.csv": "a,b\n" + "1,2\n" * 30,
        "gone.csv": "path,label\n" + "".join(f"{i}.png,{i % 4}\n" for i in range(20)),
        "unlabelled.csv": "text\n" + "".join(f"text number {i}\n" for i in range(30)),
        "equal.csv": "text,kind\n" + "".join(f"a thing {i % 7},{'ab'[i % 2]}\n" for i in range(40)),
        "tables/one.csv": "text,label\nx,y\n",
        "tables/two.csv": "text,label\nx,y\n",
        "run/config.toml": "",
        "my.toml": "seed = 1\n",
    }
    for name, text in files.items():
        Path(name).write_text(text)
    code, out, err = run_command("init", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert sentence in err
    assert not Path("trivet.toml").exists()
    assert Path("my.toml").read_text() == "seed = 1\n"


def test_its_own_file_is_replaced_with_force_only(run_command: Call) -> None:
    path = texts()
    assert run_command("init", path)[0] == 0
    before = Path("trivet.toml").read_text()
    Path("trivet.toml").write_text(before + "# mine\n")
    code, _, err = run_command("init", path)
    assert (code, "or add --force" in err) == (2, True)
    assert run_command("init", path, "--force")[0] == 0
    assert Path("trivet.toml").read_text() == before


def test_a_schema_is_named_if_it_is_there_or_asked_for(run_command: Call) -> None:
    path = texts()
    run_command("init", path)
    assert "#:schema" not in Path("trivet.toml").read_text()
    Path("trivet.schema.json").write_text("{}")
    run_command("init", path, "--force")
    # Taplo: a header directive, before which comments alone may stand; relative to the settings.
    assert Path("trivet.toml").read_text().splitlines()[1] == "#:schema ./trivet.schema.json"
    Path("far").mkdir()
    run_command("init", path, "-o", "far/own.toml", "--schema", "trivet.schema.json")
    named = Path("far/own.toml").read_text().splitlines()[1]
    assert named == f"#:schema {Path('trivet.schema.json').resolve().as_uri()}"


def test_named_labels_take_the_place_of_guesses() -> None:
    assert proposed(npz(), ["group"]).values["data"]["levels"] == ["group"]
    values = proposed(texts(), ["unlike"], "utterance").values["data"]
    assert (values["levels"], values["split"]) == (["unlike"], "in-class")
    values = proposed(f"{nested()}/around", ["make", "model"]).values["data"]
    assert (values["levels"], values["level"]) == (["make", "model"], "model")


def test_the_encoders_that_will_be_compared_are_named(run_command: Call) -> None:
    path = folder_of_classes()
    assert "No pretrained encoder is on this machine. trivet encoders --download" in proposed(path).findings[-1]
    Path("dino.pt").touch()
    code, out, _ = run_command("init", path, "--weights", "dinov2-vits14=dino.pt", "--minutes", "2.5")
    assert (code, "Encoders to compare: dinov2-vits14." in out) == (0, True)
    ladder = LadderSettings.read(Path("trivet.toml")).ladder
    assert (ladder.weights, ladder.minutes) == ({"dinov2-vits14": Path("dino.pt")}, 2.5)
    assert "--weights must be NAME=FILE" in run_command("init", path, "--force", "--weights", "dino.pt")[2]


def test_copies_and_columns_that_say_the_same_are_seen() -> None:
    made = vectors()
    made["embeddings"][5] = made["embeddings"][2]
    np.savez("named.npz", **made, number=np.repeat(np.arange(24), 4))
    proposal = proposed("named.npz")
    assert "Copies of other vectors, number for number: 1 of 96." in proposal.findings
    assert any(note.startswith("A copy is found first") for note in proposal.findings)
    assert proposal.values["data"]["levels"] == ["group", "kind"]
    pictures(["photos/a/0.png", "photos/a/1.png"])
    for one in "bcd":
        pictures([f"photos/{one}/0.png", f"photos/{one}/1.png"])
    assert "Copies of other images, byte for byte: 6." in proposed("photos").findings


@pytest.mark.parametrize("value", ['a "b"\n\x7f\\', 3e-5, 1, True, ["a", "b"], [40, 20], {"class x": 2}, "é"])
def test_values_read_back(value: Any) -> None:
    line = as_toml(value)
    assert "\n" not in line
    assert tomllib.loads(f"x = {line}")["x"] == value


def test_names_with_line_breaks_stay_in_their_comment() -> None:
    Path("odd").mkdir()
    pictures([f"odd/a\nseed = 3\x1b/{c}/{i}.png" for c in "abcdefgh" for i in range(2)])
    proposal = proposed("odd/a\nseed = 3\x1b")
    text = init.as_text(proposal, Path("odd/a\nseed = 3\x1b"), Path("trivet.toml"), None)
    values = tomllib.loads(text)
    assert (values["seed"], values["data"]["root"]) == (0, "odd/a\nseed = 3\x1b")


def test_a_table_beside_a_folder_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Call) -> None:
    """Each sentence names what works; what it names is done."""
    monkeypatch.chdir(tmp_path)
    paths_from_a_folder_below()
    code, _, err = run_command("init", "list", "-o", "one.toml")
    assert code == 0, err
    assert tomllib.loads(Path("one.toml").read_text())["data"]["root"] == "list/pictures"
    paths_from_a_folder_below("list/more.csv")
    code, _, err = run_command("init", "list", "-o", "two.toml")
    assert code == 2
    assert "all lie in 'pictures'; or give a table: list holds items.csv, more.csv." in " ".join(err.split())
    paths_from_a_folder_below(folders=["pictures", "thumbnails"])
    code, _, err = run_command("init", "list/items.csv", "-o", "three.toml")
    assert code == 2
    assert "0.png and others are in list/pictures, list/thumbnails; name it with --data-root" in " ".join(err.split())
    code, _, err = run_command("init", "list/items.csv", "-o", "three.toml", "--data-root", "list/thumbnails")
    assert code == 0, err
    assert tomllib.loads(Path("three.toml").read_text())["data"]["root"] == "list/thumbnails"


def test_data_are_read_as_changes_say(folder: Path) -> None:
    labels = np.array([f"k{number % 9}" for number in range(27)])
    np.savez(folder / "few.npz", embeddings=DRAWS.normal(size=(27, 3)).astype(np.float32), kind=labels)
    detected = detect(Path("few.npz"), None, None)
    settings, _ = propose_ladder(Path("few.npz"), detected)
    assert settings.data.split == "class-disjoint"
    with pytest.raises(ValueError, match='split = "in-class" needs classes of at least four items'):
        propose_ladder(Path("few.npz"), detected, changes=["data.split=in-class"])
