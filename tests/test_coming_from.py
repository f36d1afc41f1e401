"""The tables of docs/coming_from.md: names exist, and what is called equal is equal."""

from __future__ import annotations

import math
import re
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

import trivet
from trivet.metrics import retrieve
from trivet.runtime.counterparts import counterparts, foreign_names

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coming_from.md"
OURS = {name: getattr(trivet, name) for name in trivet.__all__} | {"math": math}
CALL = re.compile(r"[\w.]+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")


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
        if "NPairs" in there:
            continue  # of one pair of each class: tests/test_interoperability.py
        if hasattr(ours, "proxies"):
            ours.proxies.data = (loss.proxies if hasattr(loss, "proxies") else loss.W.T).detach().double()
        equal = loss.double()(embeddings, labels).item() == pytest.approx(ours(embeddings, labels).item(), rel=1e-7)
        assert equal == value.startswith("equal"), there
        compared += equal
    assert compared >= 14


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
    del table["NMI"], table["AMI"]  # which start at random
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
                    assert isinstance(eval(code, {**OURS, "loss": trivet.TripletLoss()}), torch.nn.Module), code
                    found += 1
    assert found >= 10


def test_the_code_for_pytorch_metric_learning_runs() -> None:
    theirs()
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", section("pytorch-metric-learning"), re.DOTALL):
        exec(code, names)
        assert names["value"] > 0


FOREIGN = sorted(name for name in foreign_names() if name[0].isupper() and not hasattr(trivet, name))
ROWS = torch.eye(12)
NUMBERS = {"m": 2, "batch_size": 4, "memory_size": 64, "embedding_size": 12, "n_labels": 2, "n_instances": 2}
BATCH = {"embeddings": ROWS, "other": ROWS, "vectors": ROWS, "labels": torch.arange(12) % 4, "rows": torch.arange(12)}
BATCH |= {"relation": trivet.Classes(torch.arange(12) % 4), "categories": torch.arange(12) % 2}
NONE = ("there is none", "SentenceLoss(...", "sentence_transformers.", "InformationRetrieval", "BinaryClass", "Cached")


class MeanReducer:
    """Stands for that of pytorch-metric-learning, which is known by its name."""


class CosineSimilarity(MeanReducer):
    """Likewise."""


class BatchHardMiner(MeanReducer):
    """Likewise."""


def follow(message: str) -> list[object]:
    """What the code in an error gives: calls as they are, options as those of a loss, measures as measured."""
    loss = trivet.TripletLoss(margin=0.2, distance="euclidean", positives="easy", negatives="hard")
    indices_tuple = tuple(trivet.mine(ROWS, torch.arange(12) % 4))
    names = {"trivet": trivet, "math": math, "torch": torch, "loss": loss, "indices_tuple": indices_tuple}
    names |= {**NUMBERS, **BATCH}
    values = []
    for code in re.findall(r" (?:use|pass) (?!the others)(.*?)(?:;|\.$|\. Allowed| \(\w)", message):
        if calls := [call for call in CALL.findall(code) if call.startswith(("trivet.", "loss("))]:
            values += [eval(call.replace(", gather=True", ""), names) for call in calls]
        elif "=" in code:
            options = eval(f"dict({re.split(': | of ', code)[0]})", names)
            values.append(trivet.TripletLoss(**{"margin": 0.2, "distance": "euclidean", **options}))
        elif code in ("nmi", "ami"):
            values.append(code)
        else:
            values.append(retrieve(ROWS, BATCH["labels"], measures=[code]).mean())
    return values


@pytest.mark.parametrize("name", FOREIGN)
def test_a_name_of_another_library_is_an_error_that_names_ours(name: str) -> None:
    for module in (trivet, trivet.losses, trivet.samplers, trivet.mining, trivet.metrics):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; a name of .*: for ") as caught:
            getattr(module, name)
    message = str(caught.value)
    row = next(row for row in counterparts() if any(re.search(rf"\b{name}\b", span) for span in row.there))
    assert f"a name of {row.library}: for " in message
    assert any(text in message for text in NONE) or follow(message)


def test_every_class_of_pytorch_metric_learning_has_a_row() -> None:
    theirs()
    from pytorch_metric_learning import distances, losses, miners, reducers, samplers

    internal = re.compile(r"Base\w*|\w*Mixin|EmbeddingsAlreadyPackagedAsTriplets")
    classes = {name for module in (distances, losses, miners, reducers, samplers) for name in dir(module)}
    classes = {name for name in classes if name[0].isupper() and not internal.fullmatch(name)}
    assert len(classes) > 60
    assert classes <= foreign_names()


def test_options_of_another_library_are_errors_that_name_ours() -> None:
    loss, (embeddings, labels) = trivet.TripletLoss(), (ROWS, BATCH["labels"])
    for call, message in (
        (lambda: trivet.TripletLoss(reducer=MeanReducer()), 'pass reduction="mean".'),
        (lambda: trivet.TripletLoss(distance=CosineSimilarity()), 'pass distance="cosine". Allowed: cosine'),
        (lambda: trivet.TripletLoss(negatives=BatchHardMiner()), 'pass positives="hard", negatives="hard" (equal)'),
        (lambda: trivet.TripletLoss(positives=BatchHardMiner()), 'pass positives="hard", negatives="hard" (equal)'),
        (lambda: trivet.TripletLoss(smooth_loss=True), "use trivet.TripletLoss(soft=True, "),
        (lambda: trivet.MultiSimilarityLoss(alpha=2), "use trivet.MultiSimilarityLoss(positive_scale=2, "),
        (lambda: trivet.ArcFaceLoss(num_classes=3, embedding_size=4), "pass embedding_dim."),
        (lambda: trivet.TripletLoss(embedding_size=4), "no argument 'embedding_size'; leave it out: elsewhere it is"),
        (lambda: trivet.MultiSimilarityLoss(distance=CosineSimilarity()), "which is always 'cosine': leave it out."),
        (lambda: trivet.NPairLoss(distance=CosineSimilarity()), "use trivet.NPairLoss(temperature=0.1, normalize=True"),
        (lambda: trivet.TripletLoss(miner=BatchHardMiner()), 'for BatchHardMiner() pass positives="hard", negatives='),
        (
            lambda: trivet.TripletLoss(miner=None),
            "for miner pass positives= and negatives= of a loss, and trivet.mine.",
        ),
        (lambda: trivet.TripletLoss(triplets_per_anchor=3), "pass positives=trivet.RandomPositive(k=3), negatives="),
        (lambda: trivet.ContrastiveLoss(pos_margin=0), "use trivet.ContrastiveLoss(positive_margin=0, margin=1, "),
        (lambda: trivet.PKBatches(labels, m=4, batch_size=8), "use trivet.PKBatches(labels, num_classes="),
        (lambda: trivet.CrossBatchMemory(loss, memory_size=8), "CrossBatchMemory takes nothing by position: got 1; "),
        (lambda: trivet.CrossBatchMemory(memory_size=8), "use trivet.CrossBatchMemory(size=memory_size - batch_size"),
        (lambda: trivet.MatryoshkaLoss(loss, matryoshka_dims=[3, 6]), "use trivet.MatryoshkaLoss(loss, prefixes="),
        (lambda: loss(embeddings, labels, ref_emb=embeddings), "for ref_emb pass references: "),
        (lambda: loss(embeddings, labels, indices_tuple=()), "for indices_tuple pass indices."),
        (lambda: loss(embeddings, labels, ()), "TripletLoss takes embeddings, labels by position: got 3; .* indices=,"),
        (lambda: loss(embeddings, labels, ()), "use loss(embeddings, labels, indices=indices_tuple)."),
        (lambda: trivet.mine(embeddings, labels, ref_labels=labels), "for ref_labels pass reference_labels."),
        (lambda: retrieve(embeddings, labels, reference=embeddings), "for reference pass gallery: "),
        (lambda: retrieve(embeddings, labels, measures=["precision_at_1"]), "for precision_at_1 pass recall@1 "),
        (lambda: trivet.TripletLoss(magrin=0.1), "TripletLoss has no argument 'magrin'; did you mean 'margin'? "),
    ):
        with pytest.raises((TypeError, ValueError), match=re.escape(message).replace(r"\.\*", ".*")) as caught:
            call()
        if " use " in str(caught.value):
            assert follow(str(caught.value))


LOSSES = [loss for loss in map(OURS.get, trivet.losses.__all__) if isinstance(loss, type)]
NEEDED = {"num_classes": 4, "embedding_dim": 6, "margin": 1.0}


def made(loss: Any, **options: object) -> torch.nn.Module:
    """A loss with these options, and those without a default."""
    parameters = signature(loss).parameters.values()
    needed = {each.name: NEEDED[each.name] for each in parameters if each.default is each.empty}
    value: torch.nn.Module = loss(**{**needed, **options})
    return value


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_an_object_of_pytorch_metric_learning_is_an_error_of_every_option_that_takes_names(loss: Any) -> None:
    names = theirs()
    objects = [names[name] for name in ("CosineSimilarity", "MeanReducer", "BatchHardMiner")]
    for option in {"distance", "reduction", "positives", "negatives"} & {*signature(loss).parameters}:
        if (loss, option) == (trivet.NPairLoss, "negatives"):  # miners give single ones, which it does not take
            with pytest.raises(ValueError, match=r"must be a set .* got BatchHardMiner.*; .* use NCATripletLoss"):
                made(loss, negatives=names["BatchHardMiner"]())
            continue
        for value in [*objects, *(each() for each in objects), names["LpDistance"](power=2)]:
            with pytest.raises(ValueError, match=rf"^{option} = [^\n]*; a name of pytorch[^\n]*pass [^\n]*Allowed: "):
                made(loss, **{option: value})
        with pytest.raises(ValueError, match=f"^{option} = Linear.*; Allowed: "):
            made(loss, **{option: torch.nn.Linear(1, 1)})


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_every_loss_advises_options_that_it_has(loss: Any) -> None:
    names, parameters = theirs(), {*signature(loss).parameters}
    for option, value in {
        "distance": names["CosineSimilarity"](),
        "reducer": names["MeanReducer"](),
        "normalize_embeddings": False,
        "embedding_size": 6,
        "miner": names["BatchHardMiner"](),
        "triplets_per_anchor": 3,
    }.items():
        if option not in parameters:
            with pytest.raises(TypeError, match=f"^{loss.__name__} has no argument '{option}'") as caught:
                made(loss, **{option: value})
            (advised,) = re.findall("leave it out|(?:pass|use) .*", str(caught.value).partition(": elsewhere")[0])
            assert advised == "leave it out" or {*re.findall(r"(\w+)(?==|\.$)", advised)} & parameters
    with pytest.raises(TypeError, match=f"^{loss.__name__} has no argument 'nonsense'"):
        made(loss, nonsense=1)
    with pytest.raises(TypeError, match=f"^{loss.__name__} takes embeddings, labels by position: got 3; "):
        made(loss)(ROWS, BATCH["labels"], ())


def test_an_error_inside_a_call_stays_what_it_is() -> None:
    with pytest.raises(TypeError, match="'int' object"):
        trivet.MatryoshkaLoss(trivet.TripletLoss(), prefixes=3)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'labels'"):
        trivet.TripletLoss()(ROWS)


def test_an_import_says_the_same_and_near_names_are_named() -> None:
    with pytest.raises(ImportError, match=r"use trivet\.NPairLoss\(temperature=0\.1, "):
        from trivet.losses import NTXentLoss  # noqa: F401
    with pytest.raises(ImportError, match="for miners pass positives= and"):
        from trivet import miners  # noqa: F401
    with pytest.raises(ImportError, match=r'for distance=CosineSimilarity\(\) pass distance="cosine"'):
        from trivet.distances import CosineSimilarity  # noqa: F401
    for module, name, message in (
        (trivet, "TripletLos", "did you mean 'TripletLoss'"),
        (trivet, "NTXentLos", "NTXentLoss is a name of pytorch-metric-learning: for NTXentLoss"),
        (
            trivet,
            "DistributedMinerWrapper",
            "use loss(embeddings, labels, gather=True) of a loss with the positives and ",
        ),
        (trivet, "utils", "for utils use trivet.metrics.retrieve for its AccuracyCalculator, and gather of a loss "),
        (trivet.samplers, "PKBatch", "did you mean 'PKBatches'"),
        (trivet, "loss", "did you mean 'losses'"),
        (trivet, "nothing_like_it", "no attribute 'nothing_like_it'$"),
    ):
        with pytest.raises(AttributeError, match=re.escape(message).replace(r"\$", "$")):
            getattr(module, name)
