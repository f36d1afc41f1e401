"""`trivet train` of images beside captions: an encoder of each, heads, fine-tuning, and a search across."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tests.commands.conftest import Call
from tests.small_texts import WORDS, text_network

from trivet.commands.train import candidates as recipes
from trivet.commands.train import sided_candidates
from trivet.commands.train.run import resume, train
from trivet.models import Towers, load_model
from trivet.training.config import RunConfig
from trivet.training.run_folder import RunFolder

pytestmark = pytest.mark.usefixtures("undiagnosed")
NETWORK = "timm:test_resnet"


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    """48 images of a colour and a place, with words for both."""
    folder, rows, draw = tmp_path / "data", [], np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    for colour in range(8):
        for row in range(6):
            pixels = draw.integers(0, 30, (16, 16, 3)).astype(np.uint8)
            pixels[2 * row : 2 * row + 6, 4:12] = [255 * (colour >> bit & 1) for bit in range(3)]
            pixels[2 * row : 2 * row + 2, 4:12] = 128
            name = f"images/{colour}-{row}.png"
            Image.fromarray(pixels).save(folder / name)
            rows.append(f"{name},{WORDS[4 + colour]} {WORDS[12 + row % 6]} {WORDS[10 + row // 2]}")
    (folder / "captions.csv").write_text("\n".join(["image,caption", *rows]) + "\n")
    return folder / "captions.csv"


def test_images_on_both_sides_are_trained_from_nothing(
    run_command: Call, captions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "SCRATCH_STEPS", (8, 8))
    names = [line.partition(",")[0] for line in captions.read_text().splitlines()[1:]]
    for name in names:  # the other side: the same images, upside down
        with Image.open(captions.parent / name) as image:
            image.transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(captions.parent / f"{name[:-4]}-turned.png")
    table = captions.parent / "turned.csv"
    table.write_text("\n".join(["anchor,positive", *(f"{name},{name[:-4]}-turned.png" for name in names)]) + "\n")
    run = tmp_path / "run"
    code, _, error = run_command(
        "train", table, "--pairs", "-o", run, "--minutes", 9, "--set=ladder.rungs=['encoder', 'scratch']"
    )
    assert code == 0, error
    tried = json.loads((run / "ladder.json").read_text())["candidates"]
    assert [each["name"] for each in tried] == ["the pixels", "conv4 from scratch"]


def weights(folder: Path) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_file(
            timm.create_model(NETWORK.removeprefix("timm:"), num_classes=0).state_dict(), folder / "w.safetensors"
        )
    return folder / "w.safetensors"


def settings(captions: Path, folder: Path, **sections: object) -> RunConfig:
    if not (folder / "network").exists():
        text_network(folder / "network", length=9)
        weights(folder)
    values = {
        "data": {"name": "pairs", "path": str(captions), "images": "left", "image_size": 32, "augment": "crop-flip"},
        "model": {
            "name": "towers",
            "embedding_dim": 8,
            "left": {"name": NETWORK, "weights": str(folder / "w.safetensors")},
            "right": {"name": f"text:{folder / 'network'}", "head": "linear"},
        },
        "loss": {"name": "supcon", "temperature": 0.1},
        "batch": {"size": 16},
        "training": {"steps": 4, "backbone_learning_rate": 1e-4, "checkpoint_every": 1, "accelerator": "cpu"},
        "evaluation": {"distance": "cosine"},
    }
    return RunConfig.parse({**values, **sections}, source="x")


def test_encoders_of_both_are_compared_and_search_goes_across(
    run_command: Call, captions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sided_candidates, "HEAD_STEPS", {4: 1e-2})
    monkeypatch.setattr(recipes, "LEAST_SIDE", 32)
    run, index = tmp_path / "run", tmp_path / "index"
    text_network(tmp_path / "network")
    code, output, error = run_command(
        "train", captions, "--pairs", "--weights", f"{NETWORK}={weights(tmp_path)}", "--start", tmp_path / "network",
        "-o", run, "--minutes", 9, "--set=ladder.rungs=['encoder', 'head']",
    )  # fmt: skip
    assert code == 0, error
    assert "images and texts" in error
    ladder = json.loads((run / "ladder.json").read_text())
    tried = [each["name"] for each in ladder["candidates"]]
    assert [name for name in tried if "heads" not in name] == [
        "test_resnet.r160_in1k beside network",
        "pixels beside network",
        "test_resnet.r160_in1k beside n-grams",
        "pixels beside n-grams",
    ]
    assert sum("heads of 4 steps" in name for name in tried) == 4
    record = json.loads((run / "record.json").read_text())
    assert [row["name"] for row in record["evaluation"]["test"]] in (
        ["trained"],
        ["trained", "untrained network"],
    )  # no raw inputs: an image and a text have no space in common

    texts = tmp_path / "texts.csv"
    texts.write_text("text\ncard is up\nlost where my\n")
    assert run_command("embed", run, texts, "-o", tmp_path / "texts.parquet")[0] == 0
    assert run_command("embed", run, captions.parent / "images", "-o", tmp_path / "images.parquet")[0] == 0
    model = load_model(run)
    assert isinstance(model, Towers)
    images = np.stack(pq.read_table(tmp_path / "images.parquet")["embedding"].to_numpy())
    first = sorted((captions.parent / "images").iterdir())[0]
    np.testing.assert_allclose(images[0], model.left.embed([first])[0], atol=1e-5)

    assert run_command("index", tmp_path / "images.parquet", "--run", run, "-o", index)[0] == 0
    code, output, _ = run_command("search", index, "--text", "card is up", "--k", 1, "--json")
    assert code == 0
    text = np.stack(pq.read_table(tmp_path / "texts.parquet")["embedding"].to_numpy())[0]
    (found,) = json.loads(output)["queries"][0]["neighbours"]
    assert found["row"] == int(np.argmax(images @ text))
    assert run_command("search", index, first, "--k", 1)[0] == 0  # an image among images
    assert run_command("index", tmp_path / "texts.parquet", "--run", run, "-o", index, "--force")[0] == 0
    code, output, _ = run_command("search", index, first, "--k", 1, "--json")
    (found,) = json.loads(output)["queries"][0]["neighbours"]
    assert found["distance"] == pytest.approx(1 - float((text_rows(tmp_path) @ images[0]).max()), abs=1e-5)


def text_rows(folder: Path) -> np.ndarray:
    rows: np.ndarray = np.stack(pq.read_table(folder / "texts.parquet")["embedding"].to_numpy())
    return rows


def test_both_networks_are_fine_tuned_and_resume_bit_for_bit(
    captions: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = settings(captions, tmp_path)
    train(config, tmp_path / "long")
    request.getfixturevalue("unevaluated")
    short = config.model_copy(update={"training": config.training.model_copy(update={"steps": 2})})
    train(short, tmp_path / "short")
    resume(tmp_path / "short", changes=["training.steps=4"])
    begun = load_file(tmp_path / "w.safetensors")
    for side in ("left", "right"):
        one, other = (load_file(tmp_path / run / "model" / side / "model.safetensors") for run in ("long", "short"))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one), side
    left = load_file(tmp_path / "long" / "model" / "left" / "model.safetensors")
    assert any(not torch.equal(left[f"body.0.{name}"], values) for name, values in begun.items() if "conv" in name)
    last = [RunFolder(tmp_path / run).checkpoints()[-1] for run in ("long", "short")]
    assert load_file(last[0]).keys() == load_file(last[1]).keys()


def test_settings_that_do_not_fit_images_and_texts(captions: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"images on the left and texts on the right need a network each: got model"):
        settings(captions, tmp_path, model={"name": "conv4"})
    left, right = ({"name": f"text:{tmp_path / 'network'}"}, {"name": NETWORK})
    with pytest.raises(ValueError, match=r"model\.left\.name = 'text:.*needs texts: the left side has images"):
        settings(captions, tmp_path, model={"name": "towers", "left": left, "right": right})
    with pytest.raises(ValueError, match=r"x: unknown setting 'model\.middle'"):
        settings(captions, tmp_path, model={"name": "towers", "left": right, "right": left, "middle": left})


def test_columns_that_hold_no_images_are_texts(run_command: Call, captions: Path, tmp_path: Path) -> None:
    assert run_command("init", captions, "--pairs", "-o", tmp_path / "x.toml")[0] == 0
    assert 'images = "left"' in (tmp_path / "x.toml").read_text()
    assert run_command("init", captions, "--left", "caption", "--right", "image", "-o", tmp_path / "y.toml")[0] == 0
    assert 'images = "right"' in (tmp_path / "y.toml").read_text()
    captions.write_text(captions.read_text().replace("images/0-0.png", "images/none.png"))
    code, _, error = run_command("init", captions, "--pairs", "-o", tmp_path / "z.toml")
    assert code == 2
    assert "1 of 48 are not, first 'images/none.png'" in error


def test_an_image_of_several_captions_is_offered_as_pairs(run_command: Call, captions: Path, tmp_path: Path) -> None:
    lines = captions.read_text().splitlines()
    header, words = lines[:1], [f"{line.partition(',')[0]},{WORDS[row % 4]}" for row, line in enumerate(lines[1:])]
    for more, message in (
        ([*lines[1:], *(f"{line} again" for line in lines[1:])], "needs a column of labels that items share: "),
        (words * 2, "must be in one row, or have an id: lines 2, 50 of"),
    ):
        captions.write_text("\n".join([*header, *more]) + "\n")
        code, _, error = run_command("init", captions, "-o", tmp_path / "x.toml")
        assert code == 2
        assert message in error
        assert error.rstrip().endswith("or train on 'image' and 'caption' as pairs with --pairs.")
    assert run_command("init", captions, "--pairs", "-o", tmp_path / "x.toml")[0] == 0
