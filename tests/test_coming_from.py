"""The tables of docs/coming_from.md: names exist, and what is called equal is equal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import trivet
from trivet.metrics import retrieve

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coming_from.md"
OURS = {name: getattr(trivet, name) for name in trivet.__all__}
OURS |= {"PKBatches": trivet.samplers.PKBatches, "CrossBatchMemory": trivet.samplers.CrossBatchMemory}


def section(*heads: str) -> str:
    """The text below a heading of level 2, and below one of level 3 in it."""
    text = "\n" + PAGE.read_text()
    for level, head in zip(("##", "###"), heads, strict=False):
        text = text.split(f"\n{level} {head}\n")[1].split(f"\n{level} ")[0]
    return text


def rows(*heads: str) -> list[list[str]]:
    """The cells of the tables in a section, without their heads."""
    found = [line.strip("|").split(" | ") for line in section(*heads).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in found if not cells[0].startswith(" there")]


def whole(cell: str) -> str | None:
    """The code of a cell that is nothing else, and complete."""
    return cell[1:-1] if re.fullmatch(r"`[^`]+`", cell) and "..." not in cell else None


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 4
    centres = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    return 0.2 * centres[labels] + torch.randn(24, 6, generator=generator, dtype=torch.float64), labels


def theirs() -> dict[str, Any]:
    pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import distances, losses, miners, reducers

    return {**vars(distances), **vars(losses), **vars(miners), **vars(reducers)}


def test_losses_of_pytorch_metric_learning(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    embeddings, labels = batch
    compared = 0
    for there, here, value in rows("pytorch-metric-learning", "Losses"):
        loss, ours = eval(whole(there) or "", theirs()), eval(whole(here) or "", dict(OURS)).double()
        if value.startswith(("equal,", "differs")) and "NPairs" in there:
            continue  # of one pair of each class: tests/test_interoperability.py
        equal = loss.double()(embeddings, labels).item() == pytest.approx(ours(embeddings, labels).item(), rel=1e-7)
        assert equal == (value == "equal"), there
        compared += equal
    assert compared >= 7


def test_miners_of_pytorch_metric_learning(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    embeddings, labels = batch
    names = theirs()
    loss = names["TripletMarginLoss"](margin=0.2, reducer=names["MeanReducer"]())
    compared = 0
    for there, here, value in rows("pytorch-metric-learning", "Miners"):
        options = eval(f"dict({whole(here)})", dict(OURS))
        ours = trivet.TripletLoss(margin=0.2, distance="euclidean", normalize=True, **options).double()
        if value.startswith("equal pairs"):
            continue  # of a set: tests/test_interoperability.py
        found = loss(embeddings, labels, eval(whole(there) or "", names)(embeddings, labels))
        equal = found.item() == pytest.approx(ours(embeddings, labels).item(), rel=1e-7)
        assert equal == (value == "equal"), there
        compared += equal
    assert compared >= 5


def test_losses_with_miners_of_pytorch_metric_learning(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    embeddings, labels = batch
    names = theirs()
    table = rows("pytorch-metric-learning", "A loss with its miner")
    for there, here, value in table:
        loss, miner = eval(f"({there.replace('`', '')})", names)
        ours = eval(whole(here) or "", dict(OURS)).double()
        assert value == "equal"
        found = loss(embeddings, labels, miner(embeddings, labels)).item()
        assert found == pytest.approx(ours(embeddings, labels).item(), rel=1e-7), there
    assert len(table) == 2


def test_what_to_use_instead_is_said_once_and_is_the_default() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", section("What to use instead"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert isinstance(names["loss"], trivet.MultiSimilarityLoss)
    assert names["loss"].threshold == 0.5  # as in the table that is cited
    results = (PAGE.parent / "results.md").read_text()
    best, hard, easy = (
        re.search(rf"^\| {name} \| ([\d.]+), \**([\d.]+)", results, re.MULTILINE)
        for name in ("multi-similarity", "batch-hard", "triplet, easy positives")
    )
    assert best is not None
    assert hard is not None
    assert easy is not None
    said = " ".join(section("What to use instead").split())
    assert (
        "{} and {} %, where batch-hard has {} and {} % and triplets with easy positives {} and {} %".format(
            *best.groups(), *hard.groups(), *easy.groups()
        )
        in said
    )


def test_measures_of_pytorch_metric_learning(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    theirs()
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    embeddings, labels = batch
    pairs = [cells[:2] for cells in rows("pytorch-metric-learning", "AccuracyCalculator")]
    table = {whole(there) or "": whole(here) or "" for there, here in pairs}
    del table[""]  # NMI and AMI start at random
    calculator = AccuracyCalculator(include=tuple(table), k=23, device=torch.device("cpu"))
    found = calculator.get_accuracy(embeddings, labels)
    means = retrieve(embeddings, labels, measures=tuple(table.values())).mean()
    for there, here in table.items():
        assert means[here] == pytest.approx(found[there], abs=1e-6), there


def test_losses_of_sentence_transformers(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    embeddings, labels = batch
    names = {**vars(losses), "model": torch.nn.Identity()}
    names["cosine_distance"] = losses.BatchHardTripletLossDistanceFunction.cosine_distance
    values = {
        "BatchHardTripletLoss": "batch_hard_triplet_loss",
        "BatchHardSoftMarginTripletLoss": "batch_hard_triplet_soft_margin_loss",
        "BatchAllTripletLoss": "batch_all_triplet_loss",
        "BatchSemiHardTripletLoss": "batch_semi_hard_triplet_loss",
    }
    compared = 0
    for there, here, value in rows("sentence-transformers", "Losses"):
        name = there.strip("`").split("(")[0]
        if name in values:
            found = getattr(eval(whole(there) or "", names), values[name])(labels, embeddings).item()
            ours = eval(whole(here) or "", dict(OURS)).double()(embeddings, labels).item()
            assert (found == pytest.approx(ours, rel=1e-7)) == value.startswith("equal"), there
            compared += 1
    assert compared == 5


def test_what_stands_for_the_losses_of_others_exists() -> None:
    found = 0
    for heads in (("sentence-transformers", "Losses"), ("Open Metric Learning (OML)", "Losses and miners")):
        for _, here, _ in rows(*heads):
            for code in re.findall(r"`((?:\w+Loss)\([^`]*\))`", here):
                if "..." not in code:
                    assert isinstance(eval(code, dict(OURS)), trivet.EmbeddingLoss), code
                    found += 1
    assert found >= 10


def test_the_code_for_pytorch_metric_learning_runs() -> None:
    theirs()
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", section("pytorch-metric-learning"), re.DOTALL):
        exec(code, names)
        assert names["value"] > 0
