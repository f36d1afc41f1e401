"""`trivet.train` of items in memory: the same as `trivet train` of files, and nothing is left beside its run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.commands.conftest import Call

import trivet
from trivet.commands.init.data import detect
from trivet.datasets.item_table import item_table
from trivet.io.pair_table import PairSides
from trivet.io.read_embeddings import read_vectors
from trivet.runtime.caller import in_python

pytestmark = pytest.mark.usefixtures("undiagnosed")

ROUGH = {"evaluation.map_points": 20, "evaluation.nmi_plus": 1, "evaluation.k": [1], "ladder.rungs": ["encoder"]}
KINDS = np.repeat([f"k{i:02d}" for i in range(16)], 4)
VECTORS = np.random.default_rng(0).standard_normal((len(KINDS), 6)).astype(np.float32)
TEXTS = [f"what is {kind} {'abcd'[i % 4]}" for i, kind in enumerate(KINDS.tolist())]
PIXELS = np.random.default_rng(1).integers(0, 255, (len(KINDS), 12, 12, 3), np.uint8)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _vectors() -> tuple[Any, Path]:
    np.savez("data.npz", embeddings=VECTORS, kind=KINDS)
    return VECTORS, Path("data.npz")


def _texts() -> tuple[Any, Path]:
    rows = "".join(f"{text},{kind}\n" for text, kind in zip(TEXTS, KINDS, strict=True))
    Path("data.csv").write_text(f"text,kind\n{rows}")
    return TEXTS, Path("data.csv")


def _paths() -> tuple[Any, Path]:
    Path("images").mkdir()
    paths = [Path("images") / f"{i:02d}.png" for i in range(len(KINDS))]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels).save(path)
    rows = "".join(f"{path},{kind}\n" for path, kind in zip(paths, KINDS, strict=True))
    Path("data.csv").write_text(f"image,kind\n{rows}")
    return paths, Path("data.csv")


def _images() -> tuple[Any, Path]:
    return [Image.fromarray(pixels) for pixels in PIXELS], _paths()[1]


@pytest.mark.parametrize("made", [_vectors, _texts, _paths, _images])
def test_it_does_what_the_command_does(made: Callable[[], tuple[Any, Path]], run_command: Call) -> None:
    items, path = made()
    options = [f"--set={key}={json.dumps(value)}" for key, value in ROUGH.items()]
    code, out, err = run_command("train", path, "--labels", "kind", "--json", *options)
    assert code == 0, err
    expected = json.loads(out)
    result = trivet.train(items, {"kind": KINDS}, out="mine", settings=ROUGH, progress=False)
    for record in (expected, got := result.record.as_json(unset=False)):
        del record["run"], record["report"], record["seconds"]
        del record["ladder"]["seconds"]
        for candidate in record["ladder"]["candidates"]:
            del candidate["seconds"]
    assert got == expected
    assert "on new classes (unseen by kind)" in repr(result)
    ours, theirs = (read_vectors(Path(run) / "embeddings" / "unseen.parquet") for run in ("mine", "runs/data"))
    np.testing.assert_array_equal(ours.embeddings, theirs.embeddings)


def test_a_result_is_a_network_a_page_and_a_run_of_which_nothing_is_left_without_a_name() -> None:
    result = trivet.train(TEXTS, KINDS, settings=ROUGH, progress=False)
    assert list(Path().iterdir()) == []
    rows = {(row["split"], row["level"], row["network"]): row["recall@1"] for row in result.rows()}
    assert rows["unseen", "label", "result"] == result.record.evaluation["label"]["recall@1"]
    assert str(result).splitlines()[-2] == f"Run: {result.folder}"
    assert str(result).splitlines()[-1].startswith("Next: ")
    assert in_python(str(result)) == str(result)
    assert in_python(record := json.dumps(result.record.as_json())) == record
    assert "<b>" in result._repr_html_()
    assert [axis.get_title(loc="left") for axis in result.figure().axes] == ["unseen: recall@1 by label"]
    for _ in range(2):
        assert "what is k" in result.save("page.html").read_text()
    run = result.folder
    del result
    assert not run.exists()


def test_other_items_are_embedded_as_by_the_command(run_command: Call) -> None:
    for run, (items, others) in enumerate(
        (
            (VECTORS, VECTORS[:3] + 1),
            (TEXTS, ["what is k00 z", "where"]),
            (_paths()[0], [Image.fromarray(pixels) for pixels in PIXELS[:2]]),
        )
    ):
        result = trivet.train(items, KINDS, out=f"run-{run}", settings=ROUGH, progress=False)
        item_table(others).write(Path("others.parquet"))
        code, _, err = run_command("embed", f"run-{run}", "others.parquet", "--output", f"{run}.parquet")
        assert code == 0, err
        np.testing.assert_array_equal(result.embed(others), read_vectors(Path(f"{run}.parquet")).embeddings)


@pytest.mark.parametrize(
    ("items", "labels", "options", "sentence"),
    [
        (VECTORS, KINDS[:5], {}, "labels of 'label' must be one for each embedding: got 5 for 64"),
        (VECTORS, [*KINDS[:63], None], {}, "every row of the items must have a class name of level 'label': 1 of 64"),
        (VECTORS, {"split": KINDS}, {}, "a label level must not be called 'split'"),
        (VECTORS, KINDS, {"split": ["train"] * 3}, "split must be one for each"),
        (VECTORS, KINDS, {"settings": {"ladder.minute": 3}}, "minute"),
        (VECTORS, KINDS, {"settings": {"model.name": "conv4"}}, r"the section \[model\] is of a single run"),
        (VECTORS, np.zeros(64, int), {}, "class"),
        ([*TEXTS[:-1], ""], KINDS, {}, "every row of the items must have a text: 1 of 64 have none, row 63"),
        ([*TEXTS[:-1], Path("a")], KINDS, {}, "items must be of one kind, .*: got PosixPath, str"),
        ("a text", KINDS, {}, "items must be several: got one str"),
        ([], [], {}, "items must be at least one"),
        ([Path("no.png")], [1], {}, r"items that are paths must be image files: .*no.png does not exist"),
        (PIXELS, KINDS, {}, r"items must be vectors \(N, d\), or a list of images: got an array of shape"),
        (5, [1], {}, "must be an array"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    items: Any, labels: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence) as error:
        trivet.train(items, labels, out="mine", **{"settings": ROUGH, "progress": False, **options})
    assert "\n" not in str(error.value)
    assert not list(Path().rglob("*.parquet"))
    assert not Path("mine/config.toml").exists()


def _pairs() -> tuple[tuple[list[str], list[str]], trivet.Pairs]:
    """Two sides of texts, of which equal ones are one item; and a table of them."""
    sides = [[f"{word} {kind}" for kind in KINDS[::2].tolist() for word in words] for words in ("ab", "xy")]
    rows = "".join(f"{left},{right}\n" for left, right in zip(*sides, strict=True))
    Path("data.csv").write_text(f"left,right\n{rows}")
    return (sides[0], sides[1]), trivet.Pairs(*([texts.index(text) for text in texts] for texts in sides))


def test_pairs_are_proposed_settings_as_those_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.commands.train.items.propose_ladder", _proposed)
    items, pairs = _pairs()
    with pytest.raises(ProposedError) as caught:
        trivet.train(items, pairs, progress=False)
    detected, expected = caught.value.args[1], detect(Path("data.csv"), pairs=PairSides("left", "right"))
    assert (detected.kind, detected.items, detected.guessed) == (expected.kind, expected.items, expected.guessed)
    assert detected.data | {"path": "data.csv"} == expected.data
    np.testing.assert_array_equal(detected.levels["pair"], expected.levels["pair"])


@pytest.mark.nightly
def test_pairs_are_trained_on_as_those_of_a_table(run_command: Call) -> None:
    items, pairs = _pairs()
    options = [f"--set={key}={json.dumps(value)}" for key, value in ROUGH.items()]
    code, out, err = run_command("train", "data.csv", "--pairs", "--json", *options)
    assert code == 0, err
    result = trivet.train(items, pairs, settings=ROUGH, progress=False)
    assert result.record.as_json()["evaluation"] == json.loads(out)["evaluation"]
    assert result.embed(items[0][:2]).shape[0] == 2


def test_pairs_of_images_and_texts_are_a_table_of_both() -> None:
    paths = _paths()[0][:3]
    table = item_table((paths, ["one", "two"]), trivet.Pairs(3, 2, [(0, 1), (1, 0), (2, 0)], aligned=False))
    assert (table.kind, table.root, table.levels) == ("images and texts", Path("images").resolve(), [])
    assert table.table.to_pylist() == [
        {"left": f"{row:02d}.png", "right": text} for row, text in enumerate(("two", "one", "one"))
    ]
    same = item_table((TEXTS[:3], TEXTS[3:6]), trivet.Pairs([7, 7, 8], 3)).table.to_pylist()
    expected = [(0, 3), (0, 4), (2, 5)]
    assert same == [{"left": TEXTS[left], "right": TEXTS[right]} for left, right in expected]


class ProposedError(Exception):
    """What the settings of a training are proposed by."""


def _proposed(path: Path, detected: Any, *, ladder: dict[str, Any], **_: object) -> None:
    raise ProposedError(ladder, detected)


def test_options_of_the_command_reach_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.commands.train.items.propose_ladder", _proposed)
    Path("start").mkdir()
    options = {"minutes": 3, "start": "start", "weights": {"mine": "a.safetensors"}, "accept_licence": "mine"}
    tags = [f"{kind};{kind[:2]}" for kind in KINDS.tolist()]
    with pytest.raises(ProposedError) as caught:
        trivet.train(TEXTS, tags, separator=";", progress=False, **options)
    ladder, detected = caught.value.args
    assert ladder == {"minutes": 3.0, "start": ["start"], "weights": {"mine": "a.safetensors"}}
    assert [*detected.tags] == ["label"]
    with pytest.raises(ValueError, match=r"^an input must exist: gone does not exist"):
        trivet.train(TEXTS, KINDS, start="gone", progress=False)
    with pytest.raises(ValueError, match=r"^download is for encoders of images or texts: the data are vectors"):
        trivet.train(VECTORS, KINDS, download="all", progress=False)


def test_a_run_is_replaced_only_if_that_is_said() -> None:
    trivet.train(VECTORS, KINDS, out="mine", settings=ROUGH, progress=False)
    before = Path("mine/items.parquet").read_bytes()
    with pytest.raises(ValueError, match="force"):
        trivet.train(TEXTS, KINDS, out="mine", settings=ROUGH, progress=False)
    with pytest.raises(ValueError, match="class"):
        trivet.train(TEXTS[:4], KINDS[:4], out="mine", settings=ROUGH, progress=False, force=True)
    assert Path("mine/items.parquet").read_bytes() == before
    trivet.train(TEXTS, KINDS, out="mine", settings=ROUGH, progress=False, force=True)
    assert 'name = "texts"' in Path("mine/config.toml").read_text()


def test_a_run_does_not_replace_its_own_items(run_command: Call) -> None:
    trivet.train(VECTORS, KINDS, out="mine", settings=ROUGH, progress=False)
    code, _, err = run_command("train", "mine/config.toml", "--force", "-o", "mine")
    assert (code, "a run must not replace what it is trained on" in err) == (2, True)
    assert Path("mine/items.parquet").is_file()
    assert run_command("train", "mine/config.toml", "-o", "again")[0] == 0


def test_the_next_commands_that_are_printed_work(run_command: Call) -> None:
    # Vectors and texts show the classes, as no such command follows a result of chance.
    vectors, words = np.repeat(VECTORS[:16], 4, axis=0) + 0.1 * VECTORS, ("card", "limit", "money", "rent")
    texts = [f"{words[i // 16]} of {words[i // 4 % 4]}, {'abcd'[i % 4]}" for i in range(len(KINDS))]
    rows = zip(texts, vectors.tolist(), KINDS.tolist(), strict=True)
    Path("both.json").write_text(
        json.dumps([dict(zip(("text", "embedding", "kind"), row, strict=True)) for row in rows])
    )
    options = [f"--set={key}={json.dumps(value)}" for key, value in ROUGH.items()]
    for choice in ("--text=text", "--embedding=embedding"):
        code, out, err = run_command("train", "both.json", "--labels", "kind", choice, "-o", choice[2:6], *options)
        assert code == 0, err
        following = re.search(r"(trivet index .*), then (trivet search .*)", " ".join(out.split()))
        assert following is not None
        for line in following.groups():
            code, _, err = run_command(*shlex.split(line)[1:])
            assert code == 0, (line, err)
