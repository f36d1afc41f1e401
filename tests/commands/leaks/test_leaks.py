"""`trivet leaks`: the answer on the console, as JSON and on the page, for each form of data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t
from tests.commands.conftest import Call

from trivet.commands.leaks.run import recall_without

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
