"""`trivet migrate`: the answer on the console, as JSON and on the page, for each kind of relation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands.conftest import Call

from trivet.commands.migrate.items import SearchTask, read_items
from trivet.commands.migrate.maps import _halves
from trivet.commands.migrate.options import MigrateOptions
from trivet.training import compatible_head

pytestmark = pytest.mark.usefixtures("few_pairs")

CLASSES, EACH = 12, 15
COLUMNS = {"old": "reference", "new": "value"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def short_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 steps: none of these tests asks how good they are."""
    monkeypatch.setattr(compatible_head, "STEPS", 25)


@pytest.fixture
def spaces() -> dict[str, np.ndarray]:
    """Items of twelve classes in a noisy embedding, and in a less noisy one of another length."""
    draw = np.random.default_rng(0)
    label = np.repeat(np.arange(CLASSES), EACH)
    means = draw.normal(size=(CLASSES, 10))[label]
    return {
        "label": np.array([f"class {number}" for number in label]),
        "old": (means + draw.normal(scale=1.4, size=means.shape)).astype(np.float32),
        "new": (means @ draw.normal(size=(10, 16)) + draw.normal(scale=2.0, size=(len(label), 16))).astype(np.float32),
        "id": np.array([f"item {number}" for number in range(len(label))]),
    }


def save(name: str, spaces: dict[str, np.ndarray], *columns: str, rows: Any = slice(None)) -> None:
    np.savez(f"{name}.npz", embeddings=spaces[name][rows], **{column: spaces[column][rows] for column in columns})


def ranked(points: np.ndarray, query: int, among: Sequence[int]) -> list[int]:
    """The others by cosine similarity, by its definition."""
    rows = points.astype(np.float64)
    similarities = (rows @ rows[query] / np.linalg.norm(rows, axis=1)).tolist()
    return sorted((i for i in among if i != query), key=similarities.__getitem__, reverse=True)


def test_counts_equal_their_definitions(spaces: dict[str, np.ndarray], run_command: Call) -> None:
    mixed = np.random.default_rng(1).permutation(len(spaces["id"]))
    save("old", spaces, "label", "id")
    save("new", spaces, "label", "id", rows=mixed)  # in another order: ids match them
    code, out, _ = run_command("migrate", "old.npz", "new.npz", "--labels", "label", "--k", 5, "--json")
    record = json.loads(out)
    labels, every = spaces["label"].tolist(), range(len(spaces["id"]))
    orders = [[ranked(spaces[name], query, every) for query in every] for name in ("old", "new")]
    shared = [len({*a[:5]} & {*b[:5]}) / 5 for a, b in zip(*orders, strict=True)]
    (agreement,) = record["agreements"]
    assert agreement["count"] == len(every)
    assert agreement["overlap"] == pytest.approx(sum(shared) / len(shared))
    assert agreement["first_changed"] == pytest.approx(np.mean([a[0] != b[0] for a, b in zip(*orders, strict=True)]))
    assert agreement["none_shared"] == pytest.approx(np.mean([share == 0 for share in shared]))
    right = [[labels[order[0]] == labels[query] for query, order in enumerate(of)] for of in orders]
    (level,) = record["levels"]
    recall = level["measures"][0]
    assert (recall["measure"], recall["outcome"]) == ("recall@1", "better")
    assert [recall["reference"], recall["value"]] == pytest.approx([np.mean(of) for of in right])
    assert recall["interval"][0] < recall["difference"] < recall["interval"][1]
    assert level["gained"] == sum(new > old for old, new in zip(*right, strict=True))
    assert level["lost"] == sum(new < old for old, new in zip(*right, strict=True))
    examples = record["examples"]
    assert [query["change"] for query in examples] == ["lost"] * 4 + ["gained"] * 4
    for query in examples:
        assert query[{"lost": "old", "gained": "new"}[query["change"]]][0]["right"]
        assert not query[{"lost": "new", "gained": "old"}[query["change"]]][0]["right"]
        position = int(query["id"].split()[1])
        for name, order in zip(("old", "new"), orders, strict=True):
            assert [near["id"] for near in query[name]] == [f"item {i}" for i in order[position][:4]]
            assert [near["right"] for near in query[name]] == [
                labels[i] == labels[position] for i in order[position][:4]
            ]
    assert code == 0


def test_the_answer_comes_first_and_decides_the_exit_code(spaces: dict[str, np.ndarray], run_command: Call) -> None:
    save("old", spaces, "label", "id")
    save("new", spaces, "id")  # without labels: those of the other are taken
    code, out, _ = run_command("migrate", "old.npz", "new.npz", "--report", "page.html", "--fail-on", "not-better")
    answer = " ".join(out.split())
    assert code == 0
    assert answer.startswith("Yes: new.npz finds more than old.npz by label: ")
    page = Path("page.html").read_text()
    assert "Yes: new.npz finds more than old.npz by label: " in page
    assert page.index("Yes: ") < page.index("Right at the first place in the old embedding alone")
    code, out, _ = run_command("migrate", "new.npz", "old.npz", "--fail-on", "worse")
    assert (code, out[:39]) == (1, "No: old.npz finds less than new.npz by ")
    for reason, expected in (("worse", 0), ("not-better", 1)):
        code, out, _ = run_command("migrate", "old.npz", "old.npz", "--fail-on", reason, "--json")
        record = json.loads(out)
        assert (code, record["agreements"][0]["overlap"]) == (expected, 1.0)
        assert record["levels"][0]["measures"][0]["difference"] == 0
        assert record["outcome"] in ("no gain", "open")


def test_without_labels_nothing_is_judged(spaces: dict[str, np.ndarray], run_command: Call) -> None:
    save("old", spaces, "id")
    save("new", spaces, "id", rows=slice(20, None))
    code, out, _ = run_command("migrate", "old.npz", "new.npz", "--report", "page.html", "--fail-on", "worse")
    text = " ".join(out.split())
    assert code == 0
    assert text.startswith("Warning: 160 items are in both: 20 of old.npz and 0 of new.npz were left out. No judgement")
    assert "No judgement without labels" in Path("page.html").read_text()
    code, out, _ = run_command("migrate", "old.npz", "new.npz", "--json", "--fail-on", "not-better")
    record = json.loads(out)
    assert (code, record["outcome"], record["levels"]) == (1, "no labels", [])
    assert {query["change"] for query in record["examples"]} == {"changed"}
    assert record["examples"][0]["old"][0]["right"] is None


def test_queries_of_one_split_search_another(spaces: dict[str, np.ndarray], run_command: Call) -> None:
    spaces["split"] = np.where(np.arange(len(spaces["id"])) % 5, "gallery", "query")
    save("old", spaces, "label", "split", "id")
    save("new", spaces, "label", "split", "id")
    options = ("--query", "query", "--gallery", "gallery", "--json", "--labels", "label")
    record = json.loads(run_command("migrate", "old.npz", "new.npz", *options)[1])
    queries, gallery = (np.flatnonzero(spaces["split"] == name).tolist() for name in ("query", "gallery"))
    labels, recall = spaces["label"].tolist(), record["levels"][0]["measures"][0]
    for name in ("old", "new"):
        right = [labels[ranked(spaces[name], query, gallery)[0]] == labels[query] for query in queries]
        assert recall[COLUMNS[name]] == pytest.approx(np.mean(right))
        for query in record["examples"]:
            order = ranked(spaces[name], int(query["id"].split()[1]), gallery)
            assert [near["id"] for near in query[name]] == [f"item {i}" for i in order[:4]]
    assert record["agreements"][0]["count"] == len(queries)


def test_tags_are_judged_by_what_belongs_together(spaces: dict[str, np.ndarray], run_command: Call) -> None:
    numbers = np.repeat(np.arange(CLASSES), EACH)
    spaces["tags"] = np.array([f"t{number};u{number // 2}" for number in numbers])  # pairs of classes share a tag
    save("old", spaces, "tags", "id")
    save("new", spaces, "tags", "id")
    options = ("--labels", "tags", "--separator", ";", "--json")
    record = json.loads(run_command("migrate", "old.npz", "new.npz", *options)[1])
    every, recall = range(len(numbers)), record["levels"][0]["measures"][0]
    for name in ("old", "new"):
        right = [numbers[ranked(spaces[name], query, every)[0]] // 2 == numbers[query] // 2 for query in every]
        assert recall[COLUMNS[name]] == pytest.approx(np.mean(right))
    for near in (near for query in record["examples"] for near in query["new"]):
        assert isinstance(near["right"], bool)


def _searches(options: Sequence[object]) -> list[SearchTask]:
    """Searches of left sides in right sides within each half."""
    left, right = ([Path(str(file)) for file in options[start::4]] for start in (1, 3))
    items = read_items(MigrateOptions(embeddings=[Path("pairs.csv")], left_vectors=left, right_vectors=right))
    tasks = [items.tasks[0].within(half) for half in _halves(items.groups, np.random.default_rng(0))]
    for task in tasks:
        left, right = ([items.ids[i].partition("-")[2] for i in rows] for rows in (task.queries, task.gallery))
        assert left == right
    return tasks


def test_pairs_are_judged_from_either_side(spaces: dict[str, np.ndarray], run_command: Call) -> None:
    rows = ["query,answer", *(f"q{i},a{i}" for i in range(40))]
    Path("pairs.csv").write_text("\n".join(rows) + "\n")
    draw, options = np.random.default_rng(0), list[object]()
    sides = {}
    for name, noise in (("old", 1.5), ("new", 0.5)):
        meaning = draw.normal(size=(40, 8))
        for side, letter in (("left", "q"), ("right", "a")):
            sides[name, side] = points = (meaning + noise * draw.normal(size=(40, 8))).astype(np.float32)
            ids = np.array([f"{letter}{i}" for i in range(40)])
            np.savez(f"{name}-{side}.npz", embeddings=points, id=ids)
            options += [f"--{side}-vectors", f"{name}-{side}.npz"]
    code, out, err = run_command("migrate", "pairs.csv", *options, "--json", "--head")
    assert code == 0, err
    record = json.loads(out)
    assert [level["level"] for level in record["levels"]] == ["left to right", "right to left"]
    assert [agreement["queries"] for agreement in record["agreements"]] == ["left to right", "right to left"]
    for level, way in zip(record["levels"], (("left", "right"), ("right", "left")), strict=True):
        for name in ("old", "new"):
            both = np.concatenate([sides[name, side] for side in way])
            right = [ranked(both, query, range(40, 80))[0] == query + 40 for query in range(40)]
            assert level["measures"][0][COLUMNS[name]] == pytest.approx(np.mean(right))
    assert record["outcome"] == "better"
    assert [len(of.queries) for of in _searches(options)] == [20, 20]  # no pair is divided


def test_maps_are_measured_on_items_that_they_were_not_fitted_on(
    spaces: dict[str, np.ndarray], run_command: Call
) -> None:
    draw = np.random.default_rng(2)
    spaces["new"] = draw.normal(size=(len(spaces["id"]), 120)).astype(np.float32)  # says nothing of the old
    for name in ("old", "new"):
        save(name, spaces, "label", "id")
    record = json.loads(run_command("migrate", "old.npz", "new.npz", "--json")[1])
    overlaps = {(row["queries"], row["gallery"]): row["overlap"] for row in record["linear_map"]["searches"]}
    assert overlaps["old", "old"] == overlaps["new", "new"] == 1
    # Half of 180 items: by chance 10 of the 89 others. A map of 120 numbers fits 90 items without an error.
    for pair in (("new", "old, mapped"), ("new, mapped", "old"), ("old, mapped", "new")):
        assert overlaps[pair] < 0.25
    assert record["outcome"] == "worse"


def test_a_map_that_is_a_rotation_suffices(run_command: Call) -> None:
    draw = np.random.default_rng(0)
    label = np.repeat(np.arange(30), 40)
    old = draw.normal(size=(30, 12))[label] + 0.9 * draw.normal(size=(1200, 12))
    turn = np.linalg.qr(draw.normal(size=(12, 12)))[0]
    columns = {
        "label": np.array([f"c{number}" for number in label]),
        "id": np.array([f"item {i}" for i in range(1200)]),
    }
    np.savez("old.npz", embeddings=old.astype(np.float32), **columns)
    np.savez("new.npz", embeddings=(old @ turn).astype(np.float32), **columns)
    code, out, _ = run_command("migrate", "old.npz", "new.npz", "--json", "--report", "page.html")
    record = json.loads(out)["linear_map"]
    assert (code, record["outcome"], record["gain_retained"]) == (0, "suffices", None)
    assert {name for names in record["fitted"].values() for name in names} == {"rotation"}
    rows = {(row["queries"], row["gallery"]): row for row in record["searches"]}
    halves = _halves(np.arange(1200), np.random.default_rng(0))
    right = [
        label[ranked(old, query, half)[0]] == label[query]
        for half in halves
        for query in half.tolist()
        if query % 9 == 0
    ]
    for row in rows.values():
        assert row["overlap"] == pytest.approx(1, abs=2e-3)
        assert row["from_old"][0]["value"] == pytest.approx(np.mean(right), abs=0.05)
        assert row["from_new"][0]["difference"] == pytest.approx(0, abs=2e-3)
    assert "Mapping suffices: an index of mapped old items loses no point" in Path("page.html").read_text()


def test_queries_with_nothing_to_find_in_their_half_do_not_count(run_command: Call) -> None:
    draw = np.random.default_rng(0)
    label = np.repeat(np.arange(60), 2)
    for name in ("old", "new"):
        points = draw.normal(size=(60, 12))[label] + 1e-3 * draw.normal(size=(120, 12))
        np.savez(f"{name}.npz", embeddings=points.astype(np.float32), label=label.astype(np.str_))
    record = json.loads(run_command("migrate", "old.npz", "new.npz", "--json", "--labels", "label")[1])
    for row in record["linear_map"]["searches"][:2]:
        assert row["queries"] == row["gallery"]
        assert row["from_old"][0]["value"] == 1


def test_a_head_is_measured_in_the_old_index_and_in_one_of_its_outputs(
    spaces: dict[str, np.ndarray], run_command: Call
) -> None:
    save("old", spaces, "label", "id")
    save("new", spaces, "label", "id")
    options = ("--labels", "label", "--head", "--report", "page.html", "--json")
    record = json.loads(run_command("migrate", "old.npz", "new.npz", *options)[1])["linear_map"]
    assert [(row["queries"], row["gallery"]) for row in record["searches"][5:]] == [
        ("new, head", "old"),
        ("new, head", "new, head"),
    ]
    assert [name.startswith("head of ") for name in record["fitted"]["new, head"]] == [True, True]
    there, alone = record["searches"][5]["from_old"][0], record["searches"][6]["from_new"][0]
    assert [there["reference"], alone["reference"]] == [row["from_old"][0]["value"] for row in record["searches"][:2]]
    assert there["value"] != alone["value"]
    assert "A head that is trained to search the old index finds there" in Path("page.html").read_text()
    save("old", spaces, "id")
    save("new", spaces, "id")
    code, _, err = run_command("migrate", "old.npz", "new.npz", "--head")
    assert (code, "--head trains by labels: the items have none" in err) == (2, True)


def test_halves_divide_no_group() -> None:
    groups = np.random.default_rng(0).integers(0, 40, 300)
    first, second = _halves(groups, np.random.default_rng(1))
    assert sorted([*first, *second]) == list(range(300))
    assert not {*groups[first].tolist()} & {*groups[second].tolist()}
    assert abs(len({*groups[first].tolist()}) - 20) <= 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["old.npz"], "takes two embeddings: got 1; give the old one"),
        (["old.npz", "other.npz"], "other.npz has 0 ids of the 180 of old.npz, such as 'item 0'"),
        (["old.npz", "wrong.npz"], "compared embeddings must have the same labels"),
        (["old.npz", "short.npz"], "old.npz has 180 queries and short.npz 9"),
        (["old.npz", "new.npz", "--head", "--distance", "euclidean"], "--head trains for cosine distance: got euclid"),
        (["old.npz", "protocol.npz"], "protocol.npz says which items are queries, old.npz does not"),
    ],
)
def test_mistakes(arguments: list[str], sentence: str, spaces: dict[str, np.ndarray], run_command: Call) -> None:
    save("old", spaces, "label", "id")
    save("new", spaces, "label", "id")
    points, label, ids = spaces["new"], spaces["label"], spaces["id"]
    np.savez("other.npz", embeddings=points, label=label, id=np.char.add("other ", ids))
    np.savez("wrong.npz", embeddings=points, label=label[::-1], id=ids)
    np.savez("short.npz", embeddings=points[:9], label=label[:9])
    flags = np.arange(len(ids)) % 2
    np.savez("protocol.npz", embeddings=points, label=label, id=ids, is_query=flags, is_gallery=1 - flags)
    code, out, err = run_command("migrate", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
