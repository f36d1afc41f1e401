"""Texts and images that are copies of others: each kind is called by its name, and others are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from trivet.datasets import leaks as searches
from trivet.datasets.dataset import Dataset, Splits
from trivet.datasets.equal_items import normalised_words
from trivet.datasets.inputs import FileInputs, in_memory
from trivet.datasets.leaks import LEARNED, NamedItems, find_leaks, image_signatures, leak_warning, leak_warnings
from trivet.datasets.vectors import VectorInputs
from trivet.io.image_file import Frame
from trivet.training.run_log import first_record

KNOWN = [
    "Where is my card?",
    "I lost my new card",
    "Pay by phone",
    "book a table in Rome",
    "book a table in Oslo",
    "naïve",
]


@pytest.mark.parametrize(
    ("text", "kind", "original"),
    [
        ("where is my card", "near", 0),
        ("  Where is, my CARD!!", "near", 0),
        ("nai\u0308ve", "near", 5),
        ("I lost my card", "one word", 1),
        ("I lost my new blue card", "one word", 1),
        ("I lost my old card", "one word", 1),
        ("book a table in Paris", "", -1),  # one of three: a template
        ("my card is where", "", -1),
        ("Pay", "", -1),
        ("!!!", "", -1),
    ],
)
def test_texts(text: str, kind: str, original: int) -> None:
    leaks = find_leaks(of_texts("new", [text]), of_texts("known", KNOWN), "texts")
    assert (leaks.kinds.tolist(), leaks.original.tolist()) == ([kind], [original])


def test_what_equals_several_is_a_copy_of_one_of_its_class() -> None:
    known = of_texts("train", ["a b", "A b", "a b", "c", "d"], [0, 1, 1, 0, 0])
    leaks = find_leaks(of_texts("test", ["a b", "a B", "C", "e"], [1, 1, 2, 0]), known, "texts")
    assert leaks.kinds.tolist() == ["exact", "near", "near", ""]
    assert leaks.original.tolist() == [2, 1, 3, -1]
    assert leaks.other_class.tolist() == [False, False, True, False]


def test_words_of_a_text_without_any_are_its_characters() -> None:
    assert normalised_words("?! …") != normalised_words("?? …")
    assert normalised_words("") == ()


@pytest.mark.parametrize(("text", "other"), [("what is C++?", "what is C#?"), ("over 5 %", "over 5"), ("£ 3", "$ 3")])
def test_signs_count(text: str, other: str) -> None:
    assert normalised_words(text) != normalised_words(other)


def of_texts(name: str, texts: list[str], labels: list[int] | None = None) -> NamedItems:
    rows = np.arange(len(texts))
    inputs = VectorInputs(np.empty((len(texts), 0)), texts, rows, Path(name))
    numbers = {"class": np.array(labels or [0] * len(texts))}
    return NamedItems(name, Dataset(name, inputs, numbers, {"class": ("x", "y", "z")}, tuple(map(str, rows))), "class")


def scene(draw: np.random.Generator) -> np.ndarray:
    """Smooth colours with some detail, 96 pixels a side."""
    coarse = Image.fromarray(draw.integers(0, 255, (12, 12, 3), np.uint8)).resize((96, 96), Image.Resampling.BICUBIC)
    return np.asarray(coarse)


def items(name: str, images: list[np.ndarray], labels: list[int]) -> NamedItems:
    pixels = np.stack(images).transpose(0, 3, 1, 2)
    ids = tuple(f"{name}{i}" for i in range(len(images)))
    classes = tuple(f"c{i}" for i in range(4))
    return NamedItems(
        name, Dataset(name, in_memory(pixels), {"class": np.array(labels)}, {"class": classes}, ids), "class"
    )


def resized(image: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((48, 48)).resize((96, 96)))


def cut(image: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(image[4:90, 6:92]).resize((96, 96)))


def test_images() -> None:
    draw = np.random.default_rng(0)
    known = [scene(draw) for _ in range(240)]
    new = [scene(draw) for _ in range(20)]
    new += [known[0], *(resized(image) for image in known[1:4]), *(image[:, ::-1] for image in known[4:7])]
    new += [cut(image) for image in known[7:10]]
    sides = items("new", new, [i % 4 for i in range(len(new))]), items("known", known, [i % 4 for i in range(240)])
    leaks = find_leaks(*sides, "images")
    assert leaks.kinds[:27].tolist() == [""] * 20 + ["exact"] + ["near"] * 6
    assert leaks.original[20:27].tolist() == list(range(7))
    with_crops = find_leaks(*sides, "images", crops=True)
    assert with_crops.kinds.tolist()[:27] == leaks.kinds.tolist()[:27]
    assert set(with_crops.kinds[27:].tolist()) <= {"near", "cropped"}
    assert with_crops.original[27:].tolist() == [7, 8, 9]
    few = items("few", known[:30], [i % 4 for i in range(30)])
    assert "near copies are not judged" in find_leaks(sides[0], few, "images").notes[0]


def test_a_signature_has_length_1_and_none_of_one_grey() -> None:
    pixels = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0)) * 255
    pixels[2] = 7
    assert image_signatures(pixels).norm(dim=1).tolist() == pytest.approx([1, 1, 0], abs=1e-5)
    brighter = image_signatures(pixels * 0.5 + 20)
    assert torch.allclose(brighter, image_signatures(pixels), atol=1e-5)


def of_vectors(name: str, points: np.ndarray) -> NamedItems:
    ids = tuple(map(str, range(len(points))))
    inputs = VectorInputs(points.astype(np.float32), ids, np.arange(len(points)), Path(name))
    labels = {"class": np.arange(len(points)) % 3}
    return NamedItems(name, Dataset(name, inputs, labels, {"class": ("x", "y", "z")}, ids), "class")


def planted(near: int, items: int = 1600) -> tuple[np.ndarray, np.ndarray]:
    """Points of which the first 10 are exact copies of others, and so many after them near copies."""
    draw = np.random.default_rng(0)
    known, new = draw.normal(size=(900, 12)), draw.normal(size=(items, 12))
    new[:10] = known[:10]
    new[10 : 10 + near] = known[10 : 10 + near] + 0.01 * new[10 : 10 + near]
    return new, known


def test_the_quick_form_compares_some_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    new, known = planted(300)
    sides = of_vectors("seen", new), of_vectors("train", known)
    complete = find_leaks(*sides, "vectors")
    quick = find_leaks(*sides, "vectors", quick=True)
    assert (quick.kinds == "exact").sum() == 10
    assert quick.compared == 1000
    assert set(np.flatnonzero(quick.kinds == "near")) < set(np.flatnonzero(complete.kinds == "near"))
    near = int((quick.kinds == "near").sum())
    assert 150 < near < 230
    text = leak_warning(*sides, "vectors", LEARNED)
    assert text.startswith(
        f"seen: at least {10 + near} of 1,600 items are copies of training items: 10 exact, {near} near of 1,000 that "
        "were compared. These are "
    )
    assert (
        f"'0' (training item 0), '1' (training item 1), '2' (training item 2) and {7 + near} more. A trained net"
        in text
    )
    monkeypatch.setattr(searches, "SEARCHED", 300)
    fewer = find_leaks(*sides, "vectors", quick=True)
    assert fewer.searched == 300
    assert "near of 1,000 that were compared with 300 of 900" in leak_warning(*sides, "vectors", LEARNED)
    assert 0 < (fewer.kinds == "near").sum() < near / 2


@pytest.mark.parametrize(("steps", "learned"), [(0, ""), (20, f" {LEARNED}")])
def test_only_a_network_that_is_trained_knows_copies_by_heart(steps: int, learned: str) -> None:
    new, known = planted(5)
    (of_new, of_known) = (side.dataset for side in (of_vectors("seen", new), of_vectors("train", known)))
    splits = Splits(of_known, {"seen": of_new}, "class")
    splits = replace(splits, warnings=leak_warnings(splits, "vectors"))
    (warning,) = first_record("run", splits, "", {"training": {"steps": steps}}, []).warnings
    assert warning.endswith(f" more.{learned}")


@pytest.mark.parametrize(("near", "called"), [(2, 0), (6, 6)])
def test_near_copies_no_more_than_come_by_chance_are_none_in_the_quick_form(near: int, called: int) -> None:
    new, known = planted(near, 500)
    sides = of_vectors("seen", new), of_vectors("train", known)
    leaks = find_leaks(*sides, "vectors", quick=True)
    assert (leaks.kinds[10:] == "near").sum() == called
    assert (leaks.original >= 0).sum() == 10 + called
    complete = find_leaks(*sides, "vectors")
    assert (complete.kinds[10 : 10 + near] == "near").all()
    assert any("(near: " in note and "may come by chance" in note for note in complete.notes) == (not called)


def test_vectors_of_many_bytes_have_no_exact_copies_in_the_quick_form(monkeypatch: pytest.MonkeyPatch) -> None:
    new, known = planted(300)
    sides = of_vectors("seen", new), of_vectors("train", known)
    monkeypatch.setattr(searches, "COMPARED", sides[0].dataset.inputs.vectors.nbytes - 1)  # type: ignore[attr-defined]
    kinds = find_leaks(*sides, "vectors", quick=True).kinds
    assert set(kinds) == {"", "near"}


def test_images_that_cannot_be_read_are_no_copies(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    files = []
    for i in range(260):
        files.append(tmp_path / f"{i}.png")
        Image.fromarray(scene(draw)).save(files[-1])
    for i in range(6):
        files.append(tmp_path / f"copy{i}.jpg")
        Image.open(files[i]).save(files[-1], quality=60)
    files[40].write_bytes(b"broken")
    files[-1].write_bytes(b"broken too")
    rows = np.arange(len(files))
    listed = FileInputs(files, Frame(3, (32, 32)), rows)
    labels = {"class": rows % 2}
    every = Dataset("files", listed, labels, {"class": ("x", "y")}, tuple(path.name for path in files))
    splits = Splits(every.subset(rows[:240]), {"seen": every.subset(rows[240:])}, "class")
    (warning,) = leak_warnings(splits, "images")
    assert warning.startswith(
        "seen: at least 5 of 26 items are copies of training items: 5 near of 25 that were compared with 239 of 240"
    )
    assert "'copy0.jpg' (training item 0.png), " in warning


def test_vectors_that_are_not_finite_are_no_near_copies() -> None:
    new, known = planted(300, 500)
    new[40], known[50] = np.nan, np.inf
    leaks = find_leaks(of_vectors("test", new), of_vectors("train", known), "vectors")
    assert (leaks.compared, leaks.searched) == (489, 899)
    assert leaks.kinds[[39, 40, 41, 50]].tolist() == ["near", "", "near", ""]
    new[40] = 1
    nothing = find_leaks(of_vectors("test", new), of_vectors("train", known * np.nan), "vectors")
    assert not nothing.copies.any()
