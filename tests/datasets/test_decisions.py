"""A decision file changes the training labels of the trained level as it says, or is refused in one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.run import resume, train
from trivet.datasets import DataConfig, Splits, load, noise_summary
from trivet.io.label_decisions import write_decisions
from trivet.training import RunConfig
from trivet.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("digits_read_once", "undiagnosed")


def digits(decisions: Path | None = None, **given: Any) -> Splits:
    values = {"name": "digits", "level": "digit", **given} | ({} if decisions is None else {"decisions": decisions})
    return load(DataConfig.parse(values, source="data"), None)


def labelled(splits: Splits) -> dict[str, str]:
    names = splits.train.names[splits.level]
    return {name: names[label] for name, label in zip(splits.train.ids, splits.train.labels[splits.level], strict=True)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """One decision of each kind, on items of different classes, in the way of a spreadsheet."""
    items = labelled(digits())
    first = {label: name for name, label in reversed(items.items())}
    path = tmp_path / "decisions.csv"
    rows = [
        f'{first["0"]},relabel,3,"no zero, a three"',
        f"{first['1']},drop,,",
        f"{first['2']},keep,5,",
        f"{first['3']},,5,",
        f"{first['4']}, relabel ,5,",
    ]
    path.write_text("\ufeffid,decision,label,note\r\n" + "\r\n".join(rows) + "\r\n")
    return path


def test_only_what_is_decided_changes(file: Path) -> None:
    before, after = digits(), digits(file)
    was, now = labelled(before), labelled(after)
    zero, one, four = (next(name for name in was if was[name] == label) for label in "014")
    expected = was | {zero: "3", four: "5"}
    del expected[one]
    assert now == expected
    assert list(now) == [name for name in was if name != one]
    assert after.decisions == {"keep": 1, "relabel": 2, "drop": 1, "add": 0, "undecided": 1}
    assert before.decisions is None
    # The images and the other level are those of the items that are left.
    place = [before.train.ids.index(name) for name in after.train.ids]
    np.testing.assert_array_equal(after.train.labels["parity"], before.train.labels["parity"][place])
    rows = np.arange(len(after.train))
    np.testing.assert_array_equal(after.train.inputs.batch(rows), before.train.inputs.batch(np.array(place)))
    for split in before.evaluation:
        np.testing.assert_array_equal(before.evaluation[split].labels["digit"], after.evaluation[split].labels["digit"])


def test_decisions_come_after_noise_and_the_noise_that_is_left_is_known(tmp_path: Path) -> None:
    noise = {"kind": "symmetric", "rate": 0.3, "exact": True}
    clean, noisy = labelled(digits()), labelled(digits(noise=noise))
    wrong = [name for name in clean if clean[name] != noisy[name]]
    rows = [(name, "relabel", clean[name]) for name in wrong[:100]] + [(name, "drop", "") for name in wrong[100:150]]
    file = tmp_path / "decisions.csv"
    file.write_text(write_decisions(rows))
    after = digits(file, noise=noise)
    assert after.noise is not None
    truth = [clean[name] for name in after.train.ids]
    assert [after.train.names["digit"][label] for label in after.noise.true_labels] == truth
    summary = noise_summary(after)
    assert summary is not None
    assert (summary["items"], summary["wrong"]) == (649 - 50, len(wrong) - 150)


def test_of_a_fold_that_is_held_out(file: Path) -> None:
    clean = labelled(digits())
    for fold in range(3):
        before, after = digits(folds=3, fold=fold), digits(file, folds=3, fold=fold)
        trained = set(labelled(before).values())
        zero, one, four = (next(name for name in clean if clean[name] == label) for label in "014")
        expected = labelled(before)
        for name, label in ((zero, "3"), (one, None), (four, "5")):
            if name in expected and label in trained:
                expected[name] = label
            else:  # left out, or given a class that is held out, or held out itself
                expected.pop(name, None)
        assert labelled(after) == expected
        held_out = (splits.evaluation["validation"].labels["digit"] for splits in (before, after))
        np.testing.assert_array_equal(*held_out)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,label\na,3\n", "must have the columns id, decision, label: it has no 'decision'"),
        ("", "it has no 'id'"),
        ("id,decision,label\n,keep,\n", "that of line 2 has none"),
        ("id,decision,label\ndigits/0000,relable,3\n", "line 2 of .* has 'relable'; did you mean 'relabel'"),
        ("id,decision,label\ndigits/0000,relabel,\n", "line 2 of .* has none for 'digits/0000'"),
        ("id,decision\ndigits/0000,relabel\n", "relabel needs a label"),
        ("id,decision,label\nx,keep,\ny,,\nx,drop,\n", "lines 2 and 4 both have 'x'"),
        ("id,decision,label\ndigit/0000,keep,\n", "none of the 649 training items has it; did you mean 'digits/0"),
        ("id,decision,label\n{zero},add,3\n", "add is for tags and pairs: line 2 of .* adds '3' to .*; write relabel"),
        ("id,decision,label\n{zero},add,\n", "add needs a label: line 2 of"),
        (
            "id,decision,label\n{zero},relabel,11\n",
            "one of the 6 classes trained on at level 'digit': line 2 .* has '11'",
        ),
        (
            "id,decision,label\n{zero},relabel,0\n",
            "relabel needs a label that .digits/.* does not have yet: line 2 of .* has '0'",
        ),
        ('id,decision,label\n"x,keep,\n', "must be a csv file"),
        ("id,decision,label\n\udcff,keep,\n", "has 'ÿ', and none of the 649 training items has it"),  # read as latin-1
        (None, "a decision file must exist: .* does not exist"),
    ],
    ids=lambda value: "" if value is None else repr(value)[:40],
)
def test_a_file_that_cannot_be_used_is_refused(text: str | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "decisions.csv"
    if text is not None:
        zero = next(name for name, label in labelled(digits()).items() if label == "0")
        file.write_bytes(text.replace("{zero}", zero).encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=sentence) as error:
        digits(file)
    assert "\n" not in str(error.value)


def test_a_class_keeps_two_items_or_none(tmp_path: Path) -> None:
    items, file = labelled(digits()), tmp_path / "decisions.csv"
    threes = [name for name in items if items[name] == "3"]

    def drop(names: list[str]) -> Path:
        file.write_text(write_decisions((name, "drop", "") for name in names))
        return file

    with pytest.raises(ValueError, match=r"leave '3' one \(1 of 6 classes at level 'digit'\)"):
        digits(drop(threes[1:]))
    assert set(labelled(digits(drop(threes))).values()) == set("01245")
    with pytest.raises(ValueError, match="training needs at least two classes"):
        digits(drop([name for name in items if items[name] != "3"]))


def test_decisions_on_all_items_of_a_file(tmp_path: Path) -> None:
    """Those on items that are evaluated change nothing, and an item that is given a class held out is left out."""
    before, file = digits(), tmp_path / "decisions.csv"
    items = labelled(before)
    held_out = before.evaluation["unseen"].ids
    zero, one, two = (next(name for name in items if items[name] == label) for label in "012")
    rows = [(id, "relabel", "3") for id in held_out[:5]] + [
        (id, "drop", "") for id in before.evaluation["seen"].ids[:2]
    ]
    rows += [(id, "keep", "") for id in held_out[5:]] + [
        (zero, "relabel", "1"),
        (one, "relabel", "7"),
        (two, "drop", ""),
    ]
    file.write_text(write_decisions(rows))
    after = digits(file)
    assert labelled(after) == {name: label for name, label in (items | {zero: "1"}).items() if name not in (one, two)}
    for split, data in before.evaluation.items():
        assert data.ids == after.evaluation[split].ids
        np.testing.assert_array_equal(data.labels["digit"], after.evaluation[split].labels["digit"])
    assert after.decisions == {"keep": 0, "relabel": 1, "drop": 2, "add": 0, "undecided": 0}
    assert after.warnings == (
        *before.warnings,
        "7 decisions of decisions.csv would change items that are evaluated, which stay as they are: runs before and "
        "after are measured by the same labels.",
        "1 item is left out of the training: decisions.csv gives it a class that is not trained on.",
    )


@pytest.fixture
def photos(tmp_path: Path) -> RunConfig:
    """A run on four classes of eight pictures; three pictures of two others are evaluated."""
    random = np.random.default_rng(0)
    for name in ("train/a", "train/b", "train/c", "train/d", "test/e", "test/f"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(8 if name.startswith("train") else 3):
            pixels = random.integers(0, 255, (8, 8)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return RunConfig.parse(
        {
            "data": {"name": "folder", "root": str(tmp_path / "photos"), "image_size": 8, "channels": 1},
            "batch": {"num_classes": 2, "samples_per_class": 4},
            "model": {"name": "linear", "embedding_dim": 2},
            "loss": {"name": "triplet"},
            "training": {"steps": 4, "checkpoint_every": 2, "accelerator": "cpu"},
            "evaluation": {"map_points": 10, "sample": 6, "nmi_plus": 1, "k": [1]},
        },
        source="test",
    )


def decided(config: RunConfig, file: Path) -> RunConfig:
    return config.model_copy(update={"data": config.data.model_copy(update={"decisions": file})})


def test_a_run_keeps_its_decisions_whatever_becomes_of_the_file(
    photos: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b, *_ = load(photos.data, None).train.ids[::8]
    whole = write_decisions([(a, "relabel", "b"), (b, "drop", "")])
    Path("given.csv").write_text(whole)
    record = train(decided(photos, Path("given.csv")), tmp_path / "run")
    assert record.data.decisions == {"keep": 0, "relabel": 1, "drop": 1, "add": 0, "undecided": 0}
    assert record.data.train.items == 31
    assert record.settings["data"]["decisions"] == str(tmp_path.resolve() / "given.csv")
    Path("given.csv").unlink()
    moved, again = tmp_path / "moved", tmp_path / "again"
    (tmp_path / "run").rename(moved)
    assert (moved / "applied_decisions.csv").read_text() == whole
    assert RunFolder.open(moved).config().data.decisions == moved / "applied_decisions.csv"
    shutil.copytree(moved, again)
    (again / "checkpoints" / "step-00000004.safetensors").unlink()
    (again / "record.json").unlink()
    resumed = resume(again)
    assert resumed.data == record.data
    assert resumed.evaluation == record.evaluation
    before, after = (load_file(run / "model" / "model.safetensors") for run in (moved, again))
    for key in before:
        np.testing.assert_array_equal(before[key], after[key], err_msg=key)
    assert evaluate_run(moved).evaluation == record.evaluation

    # Its own copy can be trained on anew in its place, and another one is not gone on with.
    own = decided(photos, again / "applied_decisions.csv")
    assert train(own, again, force=True).evaluation == record.evaluation
    (again / "applied_decisions.csv").write_text(whole.replace("relabel,b", "relabel,c"))
    with pytest.raises(ValueError, match="was written with other settings or data"):
        resume(again)
