"""Shorter forms of embeddings are measured as they would be used, and the page names the smallest that is good."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trivet.commands.evaluate.embedding_sizes import embedding_sizes
from trivet.commands.train.outcome import size_line
from trivet.datasets import DigitsConfig, load
from trivet.metrics import retrieve
from trivet.reports.run_record import EmbeddingSize, EmbeddingSizes
from trivet.training.embed_dataset import raw_inputs

SPLITS = load(DigitsConfig(), None)
SEEN, TRAIN = (split.subset(np.arange(200)) for split in (SPLITS.evaluation["seen"], SPLITS.train))
ROWS, TRAINED = (raw_inputs(split.inputs).astype(np.float32) for split in (SEEN, TRAIN))


def sizes(**changes: Any) -> EmbeddingSizes:
    options: dict[str, Any] = {"prefixes": (), "normalize": True, "known_classes": True, "seed": 0} | changes
    return embedding_sizes(ROWS, SEEN, TRAINED, split="seen", level="digit", distance="euclidean", **options)


def measured(rows: np.ndarray) -> dict[str, float]:
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return retrieve(rows, SEEN.labels["digit"], measures=["recall@1", "map@r"]).mean()


def test_fewer_numbers_and_fewer_bits_are_measured_by_their_definitions() -> None:
    _, _, directions = np.linalg.svd(TRAINED.astype(np.float64), full_matrices=False)
    scale, means = np.abs(TRAINED).max() / 127, TRAINED.mean(axis=0)
    wanted = {
        (64, "float32", 256): ROWS,
        (64, "float16", 128): ROWS.astype(np.float16).astype(np.float64),
        (64, "int8", 64): np.rint(ROWS / scale).clip(-127, 127),
        (64, "binary", 8): np.where(means < ROWS, 1.0, -1.0),
        **{(width, "float32", 4 * width): ROWS @ directions[:width].T for width in (32, 16, 8)},
    }
    forms = sizes().sizes
    assert [size.bytes for size in forms] == sorted((size.bytes for size in forms), reverse=True)
    measures = {(size.numbers, size.kind, size.bytes): (size.recall, size.map_at_r) for size in forms}
    for key, rows in wanted.items():
        assert measures.pop(key) == pytest.approx((*measured(rows).values(),), abs=0.006), key
    ((numbers, kind, _),) = measures  # the fewest good ones in int8
    assert kind == "int8"
    assert numbers < 64


def test_a_network_trained_at_prefixes_is_cut_there() -> None:
    cut = {size.numbers: size.recall for size in sizes(prefixes=(20, 40)).sizes if size.kind == "float32"}
    assert cut == {width: measured(ROWS[:, :width])["recall@1"] for width in (64, 40, 20)}


def test_the_smallest_that_loses_less_than_half_a_point_is_named_with_its_interval() -> None:
    def line(*losses: tuple[int, float], low: float = -0.02) -> str | None:
        form = {"kind": "float32", "low": low, "high": 0.01}
        forms = [(64, 0.0), *losses]
        return size_line(
            EmbeddingSizes(sizes=[EmbeddingSize(numbers=n, bytes=4 * n, difference=d, **form) for n, d in forms])
        )

    doubtful, sure = line((32, -0.004), (16, -0.006)), line((32, -0.004), low=-0.0049)
    assert doubtful is not None
    assert sure is not None
    assert doubtful.startswith(
        "32 numbers in float32 did as well here, which may be chance: 128 bytes an item in place of 256, -0.4 points "
        "of recall@1 (-2.0 to +1.0)."
    )
    assert sure.startswith("32 numbers in float32 are enough: 128 bytes")
    assert line((16, -0.006)) == "Each shorter form loses half a point of recall@1 or more."
    assert size_line(None) is None
