"""Vectors of texts against the definition; an encoder that cannot be had is one sentence."""

from __future__ import annotations

import json
import math
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet.models import encoder_vectors, ngram_vectors

TEXTS = [
    "my card is lost", "where is my card?", "Card lost", "top up failed", "the top-up has failed", "a",
    "naïve café",
]  # fmt: skip


def runs(text: str) -> list[str]:
    """Runs of 2 to 5 characters of each word with a space around it; a word that is shorter than a run is one."""
    found = []
    for word in text.lower().split():
        padded = f" {word} "
        for length in range(2, 6):
            found += [padded[start : start + length] for start in range(max(1, len(padded) - length + 1))]
            if length >= len(padded):
                break
    return found


def weighted(texts: list[str]) -> list[dict[str, float]]:
    """(1 + log n) * (1 + log((1 + N) / (1 + texts with the run))), divided by the norm."""
    counts = [Counter(runs(text)) for text in texts]
    held = Counter(run for one in counts for run in one)
    rows = []
    for one in counts:
        row = {run: (1 + math.log(n)) * (1 + math.log((1 + len(texts)) / (1 + held[run]))) for run, n in one.items()}
        norm = math.sqrt(sum(value**2 for value in row.values()))
        rows.append({run: value / norm for run, value in row.items()})
    return rows


def test_few_texts_keep_the_similarities_of_their_runs() -> None:
    rows = weighted(TEXTS)
    expected = [[sum(value * other.get(run, 0.0) for run, value in one.items()) for other in rows] for one in rows]
    vectors = ngram_vectors(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors @ vectors.T == pytest.approx(np.array(expected), abs=1e-5)


def test_many_texts_have_256_dimensions_and_the_seed_repeats_them() -> None:
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefgh "))
    texts = ["x" + "".join(random.choice(letters, 30)) for _ in range(300)]
    vectors = ngram_vectors(texts, seed=3)
    assert vectors.shape == (300, 256)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(300), abs=1e-5)
    assert (ngram_vectors(texts, seed=3) == vectors).all()


def test_equal_texts_have_one_vector_and_blank_ones_none() -> None:
    same = ngram_vectors(["card", "card"])
    assert same[0] @ same[1] == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match=r"none of them blank: text 1 \(from 0\) is"):
        ngram_vectors(["card", " "])
    with pytest.raises(ValueError, match=r"at least two texts are needed, .* got 1"):
        ngram_vectors(["card"])


def test_an_encoder_must_be_installed_and_loadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ModuleNotFoundError, match=r"run pip install 'trivet\[text\]'"):
        encoder_vectors(["a"], "small")

    class Encoder:
        def __init__(self, name: str, model_kwargs: dict[str, Any]) -> None:
            if name == "gone":
                raise OSError("no such model\nmore")
            assert model_kwargs == {"use_safetensors": True}

        def encode(self, texts: list[str], show_progress_bar: bool) -> np.ndarray[Any, Any]:
            return np.array([[float(len(text))] for text in texts])

    library = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = Encoder
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    assert encoder_vectors(["a", "bcd"], "small").tolist() == [[1.0], [3.0]]
    lengths = [(7 * i) % 600 + 1 for i in range(600)]
    said: list[tuple[int, int]] = []
    vectors = encoder_vectors(["x" * n for n in lengths], "small", lambda *done: said.append(done))
    assert vectors[:, 0].tolist() == lengths  # in their order, though the longest are embedded first
    assert said == [(256, 600), (512, 600), (600, 600)]
    with pytest.raises(ValueError, match=r"gone could not be loaded \(OSError: no such model\)"):
        encoder_vectors(["a"], "gone")


@pytest.mark.parametrize(
    "files",
    [
        {"modules.json": [{"path": "", "type": "own.Network"}]},
        {"modules.json": [{"path": "", "type": "sentence_transformers_own.Network"}]},
        {
            "modules.json": [{"path": "a", "type": "sentence_transformers.models.Asym"}],
            "a/config.json": {"types": {"query": "own.Network"}, "structure": {}},
        },
        {
            "modules.json": [{"path": "", "type": "sentence_transformers.models.Router"}],
            "router_config.json": {"types": {"query": "own.Network"}, "structure": {}},
        },
    ],
    ids=["a module", "a name that begins alike", "a module of two networks", "a module of a router"],
)
def test_no_code_of_a_model_folder_is_run(
    files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    library = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = lambda *_, **__: pytest.fail("the library was asked")
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    with pytest.raises(ValueError, match=r"as the code of others would run: .*modules\.json leads to \w*own\.Network"):
        encoder_vectors(["a"], str(tmp_path))
    (tmp_path / "modules.json").write_text("[3]")
    with pytest.raises(ValueError, match=r"modules\.json must list the modules"):
        encoder_vectors(["a"], str(tmp_path))
