"""Pairs of texts: a sentence encoder before and after training on pairs alone, beside sentence-transformers' own loss.

    TRIVET_DATA=... python studies/text_pairs.py ENCODER --folder RUNS [--seeds 3] [--steps 80]

Two texts of an intent are a pair, of CLINC150 and of BANKING77; no label is used in training. Every second intent is
trained on; the test texts of the others are searched for among each other, and those of the same intent are right.
ENCODER is all-MiniLM-L6-v2, a folder of sentence-transformers (extra `text`), trained for some steps of 32 pairs at
2e-5 with AdamW, in four ways from the same start on the same batches, but with other draws of dropout:

- sentence-transformers: MultipleNegativesSymmetricRankingLoss, scale 20;
- trivet: SymmetricLoss(SupConLoss(temperature=0.05)) with the rows of `Pairs`, whose value it should have;
- guided: the same where `Guided` by the encoder before training leaves out what it finds nearer than the pair;
- classes: the same with the intents as labels, which pairs do not tell: what more knowledge would gain.

Differences are of recall@1 and MAP@R to sentence-transformers' loss, with intervals over other intents. The embeddings
of each run are files of `--folder`; runs that have theirs there are not trained again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import astuple
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import trivet
from pages import gain, table, write
from readers import texts
from trivet.metrics import Retrieval, retrieve

MEASURES = ("recall@1", "map@r")
RESULTS = Path(__file__).parent / "results"
WAYS = ("sentence-transformers", "trivet", "guided", "classes")
BATCH, RATE = 32, 2e-5
Loss = Callable[[Tensor, Tensor, np.ndarray], Tensor]  # of both sides of a batch, and which pairs these are


def drawn_pairs(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Rows `(count, 2)` of two different texts of an intent, the intents at random."""
    numbers = np.random.default_rng(seed)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.array([numbers.choice(members[numbers.integers(len(members))], 2, replace=False) for _ in range(count)])


def embed(encoder: Any, sentences: list[str]) -> Tensor:
    """Embeddings with a graph."""
    embeddings: Tensor = encoder(encoder.preprocess(sentences))["sentence_embedding"]
    return embeddings


def made_loss(way: str, encoder: Any, sentences: np.ndarray, labels: np.ndarray, pairs: np.ndarray) -> Loss:
    """The loss of a way, which has the encoder before training."""
    if way == "sentence-transformers":
        from sentence_transformers.losses import MultipleNegativesSymmetricRankingLoss

        theirs = MultipleNegativesSymmetricRankingLoss(encoder, scale=20.0)
        return lambda a, b, rows: theirs.compute_loss_from_embeddings([a, b], None)
    ours = trivet.SymmetricLoss(trivet.SupConLoss(temperature=0.05))
    left, right = (sentences[side].tolist() for side in pairs.T)
    relation = trivet.Pairs(left, right)
    first: trivet.Relation = relation.left
    second: trivet.Relation = relation.right
    if way == "guided":
        with torch.no_grad():
            guide = encoder.encode([*left, *right], convert_to_numpy=True, show_progress_bar=False)
        guided = trivet.Guided(relation, torch.as_tensor(guide))
        first, second = guided[: len(pairs)], guided[len(pairs) :]
    elif way == "classes":
        first, second = (trivet.Classes(torch.from_numpy(labels)[side]) for side in pairs.T)

    def loss(a: Tensor, b: Tensor, rows: np.ndarray) -> Tensor:
        value: Tensor = ours(a, first[rows], references=b, reference_labels=second[rows])
        return value

    return loss


def trained(folder: str, way: str, sentences: np.ndarray, labels: np.ndarray, steps: int, seed: int) -> Any:
    """The encoder after training."""
    from sentence_transformers import SentenceTransformer

    torch.manual_seed(seed)
    pairs = drawn_pairs(labels, steps * BATCH, seed)
    start, encoder = SentenceTransformer(folder, device="cpu"), SentenceTransformer(folder, device="cpu")
    loss = made_loss(way, start, sentences, labels, pairs)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=RATE)
    encoder.train()
    for step in range(steps):
        rows = np.arange(step * BATCH, (step + 1) * BATCH)
        first, second = (embed(encoder, sentences[side].tolist()) for side in pairs[rows].T)
        value = loss(first, second, rows)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{way} {seed} step {step} loss {value.item():.6f}", flush=True)
    return encoder.eval()


def embedded(path: Path, make: Callable[[], Any], sentences: np.ndarray) -> np.ndarray:
    """Embeddings of a file, or, where there is none, by an encoder that is made for them."""
    if not path.exists():
        found = make().encode(sentences.tolist(), batch_size=128, show_progress_bar=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, found)
    rows: np.ndarray = np.load(path)
    return rows


def split(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Texts and intents: those to train on, of every second intent, and those to search among, of the others."""
    parts = {part: texts(name, part) for part in ("train", "test")}
    intents = sorted({row[-1] for row in parts["train"]})
    known = set(intents[::2])
    train = [row for row in parts["train"] if row[-1] in known]
    test = [row for row in parts["test"] if row[-1] not in known]
    return [
        (np.array([row[0] for row in part]), np.array([intents.index(row[-1]) for row in part]))
        for part in (train, test)
    ]


def main() -> None:
    """Train, and write the table."""
    from sentence_transformers import SentenceTransformer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder")
    parser.add_argument("--folder", type=Path, required=True, help="embeddings of each run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--output", type=Path, default=RESULTS / "text_pairs.json")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed, name in product([None, *range(arguments.seeds)], ("clinc150", "banking77")):
        (sentences, labels), (queries, intents) = split(name)
        theirs = None
        for way in ("before",) if seed is None else WAYS:

            def make(way: str = way, seed: int | None = seed, train: Any = (sentences, labels)) -> Any:
                if seed is None:
                    return SentenceTransformer(arguments.encoder, device="cpu")
                return trained(arguments.encoder, way, *train, arguments.steps, seed)

            path = arguments.folder / f"{name}_{arguments.steps}_{seed}_{way}.npy"
            found: Retrieval = retrieve(embedded(path, make, queries), intents, measures=MEASURES)
            theirs = theirs or found
            row = {"data": name, "seed": seed, "way": way, **found.mean()}
            if seed is not None:
                row["differences"] = {
                    measure: [each["classes"].value, *astuple(each["classes"].interval)]
                    for measure, each in found.differences(theirs).items()
                }
            rows.append(row)
            print(row, flush=True)
            save(arguments, rows)


def save(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Write what there is, as JSON and as a table."""
    record = {"date": datetime.now(UTC).date().isoformat(), "steps": arguments.steps, "torch": torch.__version__}
    lines = []
    for row in rows:
        points = [f"{100 * row[measure]:.1f}" for measure in MEASURES]
        ends = [gain(*row["differences"][measure]) if "differences" in row else "" for measure in MEASURES]
        lines.append([row["data"], "" if row["seed"] is None else str(row["seed"]), row["way"], *points, *ends])
    head = ["data", "seed", "way", "recall@1, %", "MAP@R, %", "recall@1 beside theirs", "MAP@R beside theirs"]
    page = (
        f"# Pairs of texts\n\n`studies/text_pairs.py`, {record['date']}, {arguments.steps} steps of {BATCH} pairs, "
        f"torch {torch.__version__}; the method is described in that file.\n\n" + "\n".join(table(head, lines))
    )
    write(arguments.output, {**record, "rows": rows}, page)


if __name__ == "__main__":
    main()
