"""Grades of relevance: does a head that is trained by them rank new classes better than one trained by flat classes?

    TRIVET_DATA=... python studies/graded.py VECTORS [--seeds 5] [--steps 300]

VECTORS is a file of `trivet embed` with the features of EfficientNet-Lite0 of the images of the first 50 classes of CUB
and their label, `001.Black_footed_Albatross`. Two birds of a class have grade 1, of a family 2/3, of an order 1/3, by
the hierarchy of cvjena's semantic-embeddings, which lies beside CUB. Each seed trains linear heads of 128 dimensions on
25 classes drawn at random, by Adam at 1e-3 on batches of 128; of the other 25 every image is a query among the others.
By nDCG with the grades as gains, all birds of the query's order count, the nearer kin more; recall@1 is of classes
alone. Each loss is trained by classes, and by grades: those of less than 1 as margins that shrink with the grade
(`relevance_margin`), or, of the smooth rank loss, as gains. Nothing was chosen on these numbers; the rate and the steps
were set before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import trivet
from pages import gain, table, write
from trivet.datasets.download import find_root
from trivet.io.read_embeddings import read_vectors
from trivet.metrics import Retrieval, retrieve

RESULTS = Path(__file__).parent / "results"
BATCH, DIMENSION, RATE = 128, 128, 1e-3
THIRD = 1 / 3 - 1e-9
Relations = dict[str, trivet.Relation]  # of all items, by name
# Name -> the loss, and by which relation it is trained.
WAYS: dict[str, tuple[Callable[[], trivet.EmbeddingLoss], str]] = {
    "multi-similarity, classes": (lambda: trivet.MultiSimilarityLoss(threshold=0.5), "classes"),
    "multi-similarity, grades": (
        lambda: trivet.MultiSimilarityLoss(threshold=0.5, relevance_margin=True),
        "grades",
    ),
    "contrastive, classes": (lambda: trivet.ContrastiveLoss(margin=1.0, normalize=True), "classes"),
    "contrastive, grades": (
        lambda: trivet.ContrastiveLoss(margin=1.0, normalize=True, relevance_margin=True),
        "grades",
    ),
    "approximate NDCG, classes": (trivet.ApproxNDCGLoss, "classes"),
    "approximate NDCG, grades": (trivet.ApproxNDCGLoss, "kin"),
}


def kinship(numbers: np.ndarray) -> np.ndarray:
    """Grades `(C, C)` of two classes, by their numbers in CUB."""
    folder = find_root(None) / "cub" / "hierarchy"
    parents = dict(line.split()[::-1] for line in (folder / "cub_flat.parent-child.txt").read_text().splitlines())
    taxa = []
    for number in numbers:
        chain, node = [], str(number)
        while node in parents:
            node = parents[node]
            chain.append(node)
        taxa.append((chain[-2], chain[-3]))  # order, family
    orders, families = (np.array(level) for level in zip(*taxa, strict=True))
    same = (orders[:, None] == orders).astype(float) + (families[:, None] == families) + np.eye(len(numbers))
    return same / 3


def trained(
    features: Tensor, relation: trivet.Relation, rows: np.ndarray, loss: nn.Module, steps: int, seed: int
) -> Any:
    """The head after training on these rows."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    head = nn.Linear(features.shape[1], DIMENSION)
    optimizer = torch.optim.Adam(head.parameters(), lr=RATE)
    items = torch.from_numpy(rows)
    for _ in range(steps):
        batch = items[torch.randint(len(items), (BATCH,), generator=generator)]
        value = loss(head(features[batch]), relation[batch])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return head


def measured(rows: Tensor, classes: np.ndarray, grades: trivet.Relation) -> tuple[Retrieval, Retrieval]:
    """nDCG by the grades, and recall@1 by classes."""
    embeddings = normalize(rows, dim=1).numpy()
    return retrieve(embeddings, grades, measures=("ndcg",)), retrieve(embeddings, classes, measures=("recall@1",))


def main() -> None:
    """Train, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output", type=Path, default=RESULTS / "graded.json")
    arguments = parser.parse_args()
    source = read_vectors(arguments.vectors)
    names, classes = np.unique(source.labels["label"], return_inverse=True)
    features = normalize(torch.as_tensor(np.asarray(source.embeddings)).float(), dim=1) * 10
    matrix, items = kinship(np.array([int(name[:3]) for name in names])), torch.from_numpy(classes)
    relations: Relations = {
        "classes": trivet.Classes(items),
        "grades": trivet.Grades(matrix, positive=1.0, items=items),
        "kin": trivet.Grades(matrix, positive=THIRD, items=items),
    }
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        order = np.random.default_rng(seed).permutation(len(names))
        train, test = (np.flatnonzero(np.isin(classes, some)) for some in (order[:25], order[25:]))
        found = {"features": measured(features[test], classes[test], relations["kin"][test])}
        for way, (make, relation) in WAYS.items():
            head = trained(features, relations[relation], train, make(), arguments.steps, seed)
            with torch.no_grad():
                found[way] = measured(head(features[test]), classes[test], relations["kin"][test])
        for way, (ranking, nearest) in found.items():
            row = {"seed": seed, "way": way, **ranking.mean(), **nearest.mean()}
            if way.endswith("grades"):
                other = found[way.replace("grades", "classes")][0]
                difference = ranking.differences(other)["ndcg"]["queries"]
                row["difference"] = [difference.value, *astuple(difference.interval)]
            rows.append(row)
            print(row, flush=True)
        save(arguments, rows)


def save(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Write what there is, as JSON and as a table."""
    record = {"date": datetime.now(UTC).date().isoformat(), "steps": arguments.steps, "torch": torch.__version__}
    lines = []
    for way in ("features", *WAYS):
        own = [row for row in rows if row["way"] == way]
        means = [f"{100 * np.mean([row[measure] for row in own]):.1f}" for measure in ("ndcg", "recall@1")]
        gains = [gain(*row["difference"]) for row in own if "difference" in row]
        lines.append([way, *means, "; ".join(gains)])
    head = ["head", "nDCG, %", "recall@1, %", "nDCG beside classes, each seed (95 % over other items)"]
    page = (
        f"# Grades of relevance\n\n`studies/graded.py`, {record['date']}, {len({row['seed'] for row in rows})} seeds, "
        f"torch {torch.__version__}; the method is described in that file.\n\n" + "\n".join(table(head, lines))
    )
    write(arguments.output, {**record, "rows": rows}, page)


if __name__ == "__main__":
    main()
