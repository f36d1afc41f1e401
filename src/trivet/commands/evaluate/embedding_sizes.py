"""Recall@1 and MAP@R of embeddings of fewer numbers, and of numbers in fewer bits: how short they may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from trivet.collapse.significance import compare
from trivet.commands.evaluate.record import DifferenceRecord, EvaluationRecord
from trivet.datasets import Dataset
from trivet.distances import unit_rows
from trivet.knn.codes import code_bytes, quantized
from trivet.knn.kinds import Stored
from trivet.metrics import Retrieval, retrieve_levels
from trivet.metrics.points import Metric
from trivet.models.heads import principal_directions
from trivet.reports.measures import finite
from trivet.reports.run_record import EmbeddingSize, EmbeddingSizes, as_good
from trivet.training.checkpoint_selection import RECALL

QUERIES = 1000  # at most
SHORTEST = 8  # numbers, where they are halved
Kind = Literal["float32", Stored]
KINDS: tuple[Kind, ...] = ("float32", "float16", "int8", "binary")


def embedding_sizes(
    embeddings: np.ndarray,
    dataset: Dataset,
    trained: np.ndarray,
    *,
    split: str,
    level: str,
    prefixes: Sequence[int],
    normalize: bool,
    distance: Metric,
    known_classes: bool,
    seed: int,
) -> EmbeddingSizes:
    """Measure shorter forms of the embeddings `(N, d)` of a split on at most 1,000 of its queries.

    Numbers: the first of each embedding where it was trained for that, else coordinates along the principal directions
    of training embeddings: half of them, a quarter and so on. Bits: half precision, int8 and one bit, of all numbers;
    and int8 of the fewest numbers that lose less than half a point of recall@1.

    Args:
        trained: `(M, d)` embeddings of training items, which directions and scales follow from.
        prefixes: lengths below d that were trained for.
        normalize: whether embeddings have length 1: shorter ones are then brought to it.
        known_classes: whether the classes of the split were trained on.
        seed: of the queries that are drawn.
    """
    width = embeddings.shape[1]
    widths = list(prefixes) or [width >> k for k in range(1, width.bit_length()) if width >> k >= SHORTEST]
    measured = _retrieval(dataset, level, distance, seed=seed)
    directions = np.eye(width)
    if widths and not prefixes:
        directions = principal_directions(torch.from_numpy(trained), widths[0]).numpy().T

    def retrieved(numbers: int, kind: Kind) -> Retrieval:
        of_items, of_training = (
            rows if numbers == width else (rows @ directions[:, :numbers]).astype(np.float32)
            for rows in (embeddings, trained)
        )
        decoded = torch.from_numpy(quantized(of_items, of_training, kind))
        return measured((unit_rows(decoded) if normalize else decoded).numpy())

    full = retrieved(width, "float32")

    def size(numbers: int, kind: Kind) -> EmbeddingSize:
        result = full if (numbers, kind) == (width, "float32") else retrieved(numbers, kind)
        compared = compare([result], [full], reference="float32", level=level, known_classes=known_classes)
        return EmbeddingSize(
            numbers=numbers,
            kind=kind,
            bytes=code_bytes(kind, numbers),
            difference=compared.difference,
            low=compared.low,
            high=compared.high,
            **{name: result.mean()[name] for name in result.measures},
        )

    sizes = [size(width, kind) for kind in KINDS] + [size(numbers, "float32") for numbers in widths]
    fewest = min(each.numbers for each in sizes if each.kind == "float32" and as_good(each))
    if fewest < width:
        sizes.append(size(fewest, "int8"))
    return EmbeddingSizes(
        split=split,
        level=level,
        queries=len(full.values),
        prefixes=bool(prefixes),
        sizes=sorted(sizes, key=lambda each: -each.bytes),
    )


def stored_sizes(
    records: Sequence[EvaluationRecord], differences: Mapping[str, Sequence[DifferenceRecord]], level: str
) -> EmbeddingSizes | None:
    """The lengths and forms in which embeddings were evaluated, the longest first, by the recall@1 of a level.

    None where none were compared, or it was not measured, or those of several embeddings were.
    """
    complete, *forms = records
    rows = differences.get(RECALL, ())
    several = sum((record.form, record.prefix) == (complete.form, complete.prefix) for record in records) > 1
    if not complete.form or not forms or len(rows) != len(forms) or several:
        return None

    def size(record: EvaluationRecord, row: DifferenceRecord | None) -> EmbeddingSize:
        low, high = (row and row.over("queries")) or (0.0, 0.0)
        return EmbeddingSize(
            numbers=record.dimension or 0,
            kind=record.form,
            bytes=record.bytes or 0,
            difference=0.0 if row is None else row.difference,
            low=low,
            high=high,
            **{name: finite(record.evaluation[level].get(name)) for name in (RECALL, "map@r")},
        )

    sizes = [size(complete, None), *(size(*pair) for pair in zip(forms, rows, strict=True))]
    queries = complete.protocol.queries
    return EmbeddingSizes(level=level, queries=queries, sizes=sorted(sizes, key=lambda each: -each.bytes))


def _retrieval(dataset: Dataset, level: str, distance: Metric, *, seed: int) -> Callable[[np.ndarray], Retrieval]:
    """A function of embeddings `(N, d)`: recall@1 and MAP@R of the same random queries among all they retrieve from."""
    protocol, count = dataset.protocol, len(dataset)
    candidates = np.arange(count) if protocol is None else np.flatnonzero(protocol.query)
    queries = np.sort(np.random.default_rng(seed).permutation(candidates)[:QUERIES])
    labels = {level: dataset.relation(level)}
    if protocol is not None:
        protocol = replace(protocol, query=np.isin(np.arange(count), queries))

    def retrieval(embeddings: np.ndarray) -> Retrieval:
        measures = (RECALL, "map@r")
        if protocol is not None:
            arguments = protocol.arguments(embeddings, labels)
            return retrieve_levels(**arguments, measures=measures, distance=distance)[level]
        return retrieve_levels(embeddings, labels, sample=queries, measures=measures, distance=distance)[level]

    return retrieval
