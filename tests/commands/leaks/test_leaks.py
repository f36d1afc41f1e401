"""`trivet leaks`: the answer on the console, as JSON and on the page, for each form of data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from scipy.stats import t
from tests.commands.conftest import Call

from trivet.commands.leaks.run import recall_without
from trivet.datasets.leaks import image_signatures

QUICK = [f"--set={one}" for one in ('ladder.rungs=["encoder"]', "evaluation.map_points=20", "evaluation.k=[1]")]
WORDS = ["lost", "blocked", "late", "refund", "phone", "abroad"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def vectors() -> dict[str, np.ndarray]:
    """400 training vectors of two classes, and 40 others: 6 exact copies, one with another label, and 4 near ones."""
    draw = np.random.default_rng(0)
    points = draw.normal(size=(440, 16)).astype(np.float32)
    label = np.array(["a", "b"])[np.arange(440) % 2]
    points[400:406] = points[10:16]
    points[406:410] = points[20:24] * 1.01
    label[405] = "a"
    camera = np.array([f"cam{i % 3}" for i in range(400)] + ["cam1"] * 20 + ["cam9"] * 20)
    return {"embeddings": points, "label": label, "split": np.repeat(["train", "test"], [400, 40]), "camera": camera}


def test_vectors(vectors: dict[str, np.ndarray], run_command: Call) -> None:
    np.savez("v.npz", **vectors)
    options = ("v.npz", "--labels", "label", "--group", "camera", "--report", "page.html")
    code, out, _ = run_command("leaks", *options, "--fail-on", "near")
    text = " ".join(out.split())
    assert code == 1
    answer = "seen: 10 of 40 items (25.0 %) are copies of training items: 6 exact, 4 near; 1 of another class."
    assert text.startswith(answer)
    crossing = "seen: 1 of 2 groups by camera has training items, too, such as 'cam1'."
    assert crossing in text
    page = Path("page.html").read_text()
    assert answer in page
    assert "&#39;cam1&#39;" in page
    assert "another class" in page
    code, out, _ = run_command("leaks", *options, "--json", "--fail-on", "group")
    record = json.loads(out)
    assert code == 1
    (counts,) = record["comparisons"]
    assert [counts[key] for key in ("copies", "exact", "near", "other_class")] == [10, 6, 4, 1]
    assert [leak["id"] for leak in counts["leaks"]] == [str(i) for i in range(400, 410)]
    assert [leak["original"] for leak in counts["leaks"]] == [*map(str, range(10, 16)), *map(str, range(20, 24))]
    assert counts["recall"]["interval"][0] < counts["recall"]["difference"] < counts["recall"]["interval"][1]
    vectors["embeddings"][400:410] = np.random.default_rng(1).normal(size=(10, 16))
    np.savez("v.npz", **vectors)
    code, out, _ = run_command("leaks", "v.npz", "--labels", "label", "--fail-on", "near", "--fail-on", "exact")
    assert (code, out.split("\n")[0]) == (0, "seen: none of 40 items is a copy of training items.")


def test_several_files_and_queries_of_a_gallery(vectors: dict[str, np.ndarray], run_command: Call) -> None:
    for name, some in (("gallery", slice(0, 400)), ("queries", slice(400, 440))):
        np.savez(f"{name}.npz", **{key: vectors[key][some] for key in ("embeddings", "label")})
    code, out, _ = run_command("leaks", "gallery.npz", "queries.npz", "--labels", "label", "--json")
    assert code == 0
    (counts,) = json.loads(out)["comparisons"]
    assert counts["sentence"].startswith("queries.npz: 10 of 40 items (25.0 %) are copies of items of gallery.npz")
    # Every copy finds its original, whose class it has but for one.
    copies, rest = 10 * [True] + 30 * [False], counts["recall"]["without"]
    assert counts["recall"]["recall"] == pytest.approx((9 + rest * 30) / len(copies))


def test_texts(run_command: Call) -> None:
    rows = [f"my {word} card number {i},{word},train" for word in WORDS for i in range(5)]
    rows += ["My lost card number 1!,lost,test", "my late card number 2,refund,test", "nothing like it,late,test"]
    rows += [f"{word} again and {i} more,{word},test" for word in WORDS for i in range(2)]
    Path("t.csv").write_text("\n".join(["text,label,split", *rows]) + "\n")
    code, out, _ = run_command("leaks", "t.csv", "--labels", "label", "--report", "page.html", "--fail-on", "exact")
    text = " ".join(out.split())
    assert code == 1
    answer = "2 of 15 items (13.3 %) are copies of training items: 1 exact, 1 near; 1 of another class."
    assert answer in text
    assert "near: 'My lost card number 1!' (lost) is 'my lost card number 1' (lost)" in text
    assert "my late card number 2" in Path("page.html").read_text()
    assert run_command("init", "t.csv", "--labels", "label")[0] == 0
    assert answer in " ".join(run_command("leaks", "trivet.toml")[1].split())
    assert json.loads(run_command("leaks", "trivet.toml", "--json")[1])["comparisons"][0]["recall"] is None
    assert run_command("train", "trivet.toml", "-o", "run", *QUICK)[0] == 0
    (counts,) = json.loads(run_command("leaks", "run", "--json")[1])["comparisons"]
    trained = json.loads(Path("run/record.json").read_text())["evaluation"][counts["split"]][0]
    assert counts["recall"]["recall"] == pytest.approx(trained["levels"]["label"]["recall@1"])
    assert counts["recall"]["without"] != counts["recall"]["recall"]


def test_texts_by_an_encoder_are_alike_and_no_copies(
    folder: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    rows = {f"{name} text {i} of {i % 7} and {i % 11} more": draw.normal(size=8) for name in "ab" for i in range(150)}
    texts = [*rows]
    rows |= {"quite another wording": rows[texts[3]] * 1.001 + 1e-3, texts[4].upper(): draw.normal(size=8)}
    rows |= {f"new words {i} in {i % 5} places {i % 3}": draw.normal(size=8) for i in range(30)}
    monkeypatch.setattr(
        "trivet.commands.diagnose.encoders.encoder_vectors",
        lambda some, *_: np.array([rows[text] for text in some], np.float32),
    )
    queries = [texts[8], *[*rows][300:]]
    for name, some in (("train", texts), ("test", queries)):
        lines = [f"{text},{'ab'[number % 2]}" for number, text in enumerate(some)]
        Path(f"{name}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    (folder / "encoder").mkdir()
    (folder / "encoder" / "config.json").write_text("{}")
    options = ("train.csv", "test.csv", "--labels", "label", "--encoder", "encoder")
    code, out, _ = run_command("leaks", *options, "--report", "page.html", "--fail-on", "near")
    answer = "test.csv: 2 of 33 items (6.1 %) are copies of items of train.csv: 1 exact, 1 near. 1 more is alike by the"
    assert code == 1
    assert answer in " ".join(out.split())
    assert f"alike: 'quite another wording' (b) is '{texts[3]}' (b)" in " ".join(out.split())
    assert "are not counted as copies" in Path("page.html").read_text()
    (counts,) = json.loads(run_command("leaks", *options, "--json")[1])["comparisons"]
    assert (counts["copies"], counts["alike"], counts["by_encoder"]) == (2, 1, 0)
    nearest = np.array([rows[text] for text in texts])
    nearest /= np.linalg.norm(nearest, axis=1, keepdims=True)
    right = [("ab"[i % 2] == "ab"[(nearest @ rows[text]).argmax() % 2]) for i, text in enumerate(queries)]
    assert counts["recall"]["recall"] == pytest.approx(np.mean(right))
    assert counts["recall"]["without"] == pytest.approx(np.mean([right[1], *right[3:]]))


class Outlines(torch.nn.Module):
    """An encoder that does not tell an image from its negative."""

    input_shape, resize, device = (3, 16, 16), None, torch.device("cpu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return image_signatures(images.float().mean(dim=1)).abs()


def test_images_by_an_encoder(run_command: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    for i in range(300):
        coarse = Image.fromarray(draw.integers(0, 255, (10, 10, 3), np.uint8))
        path = Path(f"photos/{'train' if i < 270 else 'test'}/{'ab'[i % 2]}/{i}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((64, 64), Image.Resampling.BICUBIC).save(path)
    for i in range(4):
        ImageOps.invert(Image.open(f"photos/train/{'ab'[i % 2]}/{i}.png")).save(
            f"photos/test/{'ab'[i % 2]}/copy{i}.png"
        )
    monkeypatch.setattr("trivet.commands.leaks.sides.image_encoder", lambda *_: Outlines())
    (counts,) = json.loads(run_command("leaks", "photos", "--json")[1])["comparisons"]
    assert (counts["copies"], counts["recall"]) == (0, None)
    Path("photos/train/a/broken.png").write_bytes(b"no image")
    code, out, _ = run_command("leaks", "photos", "--encoder", "photos", "--json", "--report", "page.html")
    (counts,) = json.loads(out)["comparisons"]
    assert code == 0
    assert (counts["copies"], counts["by_encoder"], counts["alike"]) == (4, 4, 0)
    assert "4 near by the encoder" in counts["sentence"]
    assert [leak["original"] for leak in counts["leaks"]] == [f"train/{'ab'[i % 2]}/{i}.png" for i in (0, 2, 1, 3)]
    assert 0 <= counts["recall"]["without"] <= 1
    assert "Near by the encoder" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("options", "remedy"),
    [(["--encoder", "."], "the items are vectors; leave it out"), (["--network", "x"], "give the file with --encoder")],
)
def test_encoders_that_embed_nothing_are_refused(
    options: list[str], remedy: str, vectors: dict[str, np.ndarray], run_command: Call
) -> None:
    np.savez("v.npz", **vectors)
    code, _, error = run_command("leaks", "v.npz", "--labels", "label", *options)
    assert code == 2
    assert remedy in " ".join(error.split())


@pytest.mark.usefixtures("few_digits")
def test_images_in_memory_of_another_size_than_an_encoder_takes(
    run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("digits.toml").write_text('[data]\nname = "digits"\n')
    monkeypatch.setattr("trivet.commands.leaks.sides.image_encoder", lambda *_: Outlines())
    code, _, error = run_command("leaks", "digits.toml", "--encoder", ".")
    assert code == 2
    assert "--encoder takes images of 3 x 16 x 16: those of digits are in memory as 1 x 8 x 8" in " ".join(
        error.split()
    )


def test_the_interval_of_what_copies_add_is_paired() -> None:
    draw = np.random.default_rng(0)
    values, copies = (draw.random(300) < 0.6).astype(float), draw.random(300) < 0.3
    values[:5] = np.nan
    result = recall_without(values, copies)
    assert result is not None
    used = [(v, c) for v, c in zip(values.tolist(), copies.tolist(), strict=True) if v == v]
    mean = sum(v for v, _ in used) / len(used)
    left = [v for v, c in used if not c]
    rest = sum(left) / len(left)
    assert (result.recall, result.without) == (pytest.approx(mean), pytest.approx(rest))
    variance = sum(((v - mean) / len(used) - (not c) * (v - rest) / len(left)) ** 2 for v, c in used)
    half = t.ppf(0.975, len(used) - 1) * (variance + (0.25 / len(used)) ** 2) ** 0.5
    assert result.interval == pytest.approx([mean - rest - half, mean - rest + half], rel=1e-3)
    assert recall_without(np.ones(3), np.ones(3, bool)) is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["u.npz"], "nothing in u.npz says what is"),
        (["v.npz", "--group", "place"], "--group must name a column: train has no 'place'; it has label"),
        (["u.npz", "short.npz"], "vectors must be of one length to be compared"),
        (["u.npz", "u.npz"], "each path must be named once: got u.npz twice."),
        (["u.npz", "s.toml"], "s.toml holds settings; give it alone"),
        (["p.toml"], "leaks compares single items: p.toml holds pairs"),
    ],
)
def test_mistakes(arguments: list[str], sentence: str, vectors: dict[str, np.ndarray], run_command: Call) -> None:
    np.savez("v.npz", **{key: vectors[key] for key in ("embeddings", "label", "split")})
    np.savez("u.npz", embeddings=vectors["embeddings"], label=vectors["label"])
    np.savez("short.npz", embeddings=vectors["embeddings"][:, :4], label=vectors["label"])
    Path("s.toml").write_text("[data]\nname = 'digits'\n")
    Path("p.csv").write_text("query,answer\n" + "".join(f"q{i},a{i}\n" for i in range(9)))
    Path("p.toml").write_text("[data]\nname = 'pairs'\npath = 'p.csv'\n")
    code, out, err = run_command("leaks", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_the_remedy_for_data_without_splits_works(vectors: dict[str, np.ndarray], run_command: Call) -> None:
    np.savez("u.npz", embeddings=vectors["embeddings"], label=vectors["label"])
    assert "trivet init u.npz" in run_command("leaks", "u.npz")[2]
    assert run_command("init", "u.npz", "--labels", "label")[0] == 0
    assert run_command("leaks", "trivet.toml")[0] == 0


def test_a_data_set_of_the_user(run_command: Call) -> None:
    Path("own.py").write_text(
        "import numpy as np\nimport torch\nfrom trivet.datasets import Dataset, Splits, in_memory\n\n"
        "def data() -> Splits:\n"
        "    items = np.random.default_rng(0).integers(0, 255, (40, 1, 4, 4)).astype(np.uint8)\n"
        "    items[30:33] = items[:3]\n"
        "    ids = tuple(f'item-{row}' for row in range(40))\n"
        "    kinds = {'kind': np.repeat(np.arange(4), 10)}, {'kind': tuple('abcd')}\n"
        "    whole = Dataset('own', in_memory(items), *kinds, ids)\n"
        "    return Splits(whole.subset(np.arange(30)), {'test': whole.subset(np.arange(30, 40))}, 'kind')\n"
    )
    Path("own.toml").write_text('[data]\nname = "python:own.py:data"\n')
    code, out, err = run_command("leaks", "own.toml", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["content"], found["comparisons"][0]["exact"]) == ("images", 3)
