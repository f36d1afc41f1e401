"""Tags of texts: does a head that is trained by tags rank texts better than one that is trained by classes?

    TRIVET_DATA=... python studies/tags.py ENCODER --folder CACHE [--seeds 5] [--steps 300]

The texts of CLINC150 have two tags, their intent and its domain: the Jaccard index of two texts is 1 of an intent, 1/3
of a domain, else 0. As intents lie within domains, to share any tag is to be of a domain: `Tags` with match="any" are
then the domains as classes, and a loss that asks only for positives cannot gain by them. Left to compare are, for each
loss:

- intents, domains: as classes;
- intents and domains: the sum of both losses;
- tags: positives from a Jaccard index of a half on, so texts of an intent; those of its domain alone are ignored;
- grades: other intents of the domain are negatives whose margin shrinks (`relevance_margin`), or, of the smooth rank
  loss, positives of gain 1/3, by `Tags` with match="any".

ENCODER is all-MiniLM-L6-v2, a folder of sentence-transformers; its vectors are files of `--folder`. Each seed trains
linear heads that begin as the identity, by Adam at 1e-3, on the training texts of 75 intents drawn at random, in
batches of 4 texts of 32 intents. Test texts are searched for among each other, those of the 75 intents and those of the
others, which no head knows. Right are texts of the intent, or of the domain; nDCG has the Jaccard index as gain.
Differences are to the same loss by intents, with Student's interval over the seeds, each of which has other intents.
Nothing was chosen on these numbers.
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
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import normalize

import trivet
from pages import gain, table, write
from readers import clinc_domains, encoded, texts
from trivet.metrics import Retrieval, retrieve

RESULTS = Path(__file__).parent / "results"
RATE, INTENTS, TEXTS = 1e-3, 32, 4
LOSSES: dict[str, Callable[[bool], nn.Module]] = {  # of whether grades are margins
    "multi-similarity": lambda grades: trivet.MultiSimilarityLoss(threshold=0.5, relevance_margin=grades),
    "contrastive": lambda grades: trivet.ContrastiveLoss(margin=1.0, normalize=True, relevance_margin=grades),
    "approximate NDCG": lambda grades: trivet.ApproxNDCGLoss(),
}
RELATIONS = ("intents", "domains", "intents and domains", "tags", "grades")
COLUMNS = ("intent recall@1", "intent map@r", "domain recall@1", "domain map@r", "ndcg")
Labels = dict[str, Any]  # intents and domains `(N,)`, and the tags


def labels_of(part: str) -> tuple[list[str], Labels]:
    """Texts, and what they are labelled with."""
    domains = clinc_domains()
    sentences, intents = zip(*texts("clinc150", part), strict=True)
    names = sorted(domains)
    levels = sorted(set(domains.values()))
    tags = [[intent, "domain " + domains[intent]] for intent in intents]
    numbers = {
        "intents": torch.tensor([names.index(intent) for intent in intents]),
        "domains": torch.tensor([levels.index(domains[intent]) for intent in intents]),
    }
    return list(sentences), {**numbers, "tags": tags}


def vectors(encoder: Path, folder: Path, part: str, sentences: list[str]) -> Tensor:
    """Vectors of length 1, from the folder if they are there."""
    path = folder / f"clinc150_{part}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(path, encoded(encoder, sentences))
    return normalize(torch.from_numpy(np.load(path)), dim=1)


def jaccard(labels: Labels) -> Tensor:
    """The Jaccard index of each two intents, `(C, C)`; intents are their numbers."""
    domains = torch.zeros(int(labels["intents"].max()) + 1, dtype=torch.int64)
    domains[labels["intents"]] = labels["domains"]
    return torch.where(torch.eye(len(domains), dtype=torch.bool), 1.0, (domains[:, None] == domains) / 3)


def relations_of(labels: Labels, loss: str) -> dict[str, list[trivet.Relation]]:
    """Name -> the relations of all texts by which a loss is summed."""
    intents, domains = trivet.Classes(labels["intents"]), trivet.Classes(labels["domains"])
    graded: trivet.Relation = trivet.Tags(labels["tags"])
    if loss != "approximate NDCG":
        graded = trivet.Grades(jaccard(labels), positive=1.0, items=labels["intents"])
    return {
        "intents": [intents],
        "domains": [domains],
        "intents and domains": [intents, domains],
        "tags": [trivet.Tags(labels["tags"], match=0.5)],
        "grades": [graded],
    }


def batches(intents: Tensor, rows: np.ndarray, steps: int, seed: int) -> list[np.ndarray]:
    """Rows of the texts of each batch, of those allowed."""
    numbers = np.random.default_rng(seed)
    of_rows = intents.numpy()[rows]
    members = [rows[of_rows == intent] for intent in np.unique(of_rows)]
    return [
        np.concatenate(
            [numbers.choice(members[one], TEXTS, replace=False) for one in numbers.permutation(len(members))[:INTENTS]]
        )
        for _ in range(steps)
    ]


def trained(
    features: Tensor, relations: list[trivet.Relation], loss: nn.Module, drawn: list[np.ndarray]
) -> Callable[[Tensor], Tensor]:
    """The head after training on these batches."""
    head = nn.Linear(features.shape[1], features.shape[1], bias=False)
    nn.init.eye_(head.weight)
    optimizer = torch.optim.Adam(head.parameters(), lr=RATE)
    for batch in drawn:
        embeddings = head(features[batch])
        value = torch.stack([loss(embeddings, relation[batch]) for relation in relations]).sum()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return head.eval()


def measured(rows: Tensor, labels: Labels, among: np.ndarray) -> dict[str, tuple[Retrieval, str]]:
    """Column -> the retrieval that has it, and its name there."""
    embeddings = normalize(rows[among], dim=1).numpy()
    found = {
        level: retrieve(embeddings, labels[level + "s"][among].numpy(), measures=("recall@1", "map@r"))
        for level in ("intent", "domain")
    }
    ranking = retrieve(embeddings, trivet.Tags([labels["tags"][row] for row in among]), measures=("ndcg",))
    return {
        column: (ranking, column) if column == "ndcg" else (found[column.split()[0]], column.split()[1])
        for column in COLUMNS
    }


def main() -> None:
    """Train, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="vectors of the texts")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output", type=Path, default=RESULTS / "tags.json")
    arguments = parser.parse_args()
    sentences, known = labels_of("train")
    queries, asked = labels_of("test")
    features = vectors(arguments.encoder, arguments.folder, "train", sentences)
    others = vectors(arguments.encoder, arguments.folder, "test", queries)
    rows: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        some = np.random.default_rng(seed).permutation(150)[:75]
        drawn = batches(known["intents"], np.flatnonzero(np.isin(known["intents"], some)), arguments.steps, seed)
        new = ~np.isin(asked["intents"], some)
        tests = {"new intents": np.flatnonzero(new), "known intents": np.flatnonzero(~new)}
        for loss, make in {"none": None, **LOSSES}.items():
            if make is None:
                heads = {"vectors": others}
            else:
                heads = {}
                for name, relations in relations_of(known, loss).items():
                    head = trained(features, relations, make(name == "grades"), drawn)
                    with torch.no_grad():
                        heads[name] = head(others)
            for test, among in tests.items():
                all_found = {name: measured(embeddings, asked, among) for name, embeddings in heads.items()}
                for name, found in all_found.items():
                    row: dict[str, Any] = {"seed": seed, "test": test, "loss": loss, "relation": name}
                    for column, (retrieval, measure) in found.items():
                        row[column] = retrieval.mean()[measure]
                        if name not in ("vectors", "intents"):
                            difference = retrieval.differences(all_found["intents"][column][0])[measure]["queries"]
                            row[column + " beside intents"] = [difference.value, *astuple(difference.interval)]
                    rows.append(row)
                    print(row, flush=True)
        save(arguments, rows)


def save(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Write what there is, as JSON and as tables."""
    seeds = sorted({row["seed"] for row in rows})
    record = {"date": datetime.now(UTC).date().isoformat(), "steps": arguments.steps, "torch": torch.__version__}
    page = [
        f"# Tags of texts\n\n`studies/tags.py`, {record['date']}, {len(seeds)} seeds, torch {torch.__version__}; the "
        "method is described in that file. Means over the seeds, per cent; below, differences to the same loss by "
        "intents, with 95 % intervals over the seeds.\n"
    ]
    ways = [("none", "vectors"), *((loss, relation) for loss in LOSSES for relation in RELATIONS)]
    for test in ("new intents", "known intents"):
        means, differences = [], []
        for loss, relation in ways:
            own = [row for row in rows if (row["test"], row["loss"], row["relation"]) == (test, loss, relation)]
            means.append(
                [loss, relation, *(f"{100 * np.mean([row[column] for row in own]):.1f}" for column in COLUMNS)]
            )
            if relation not in ("vectors", "intents"):
                values = [[row[column + " beside intents"][0] for row in own] for column in COLUMNS]
                differences.append([loss, relation, *(gain(*over_seeds(each)) for each in values)])
        head = ["loss", "by", *COLUMNS]
        page += [f"## Test texts of {test}\n", *table(head, means), *table(head, differences)]
    write(arguments.output, {**record, "rows": rows}, "\n".join(page))


def over_seeds(values: list[float]) -> tuple[float, float, float]:
    """The mean, and Student's interval of it."""
    mean, count = float(np.mean(values)), len(values)
    half = stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / count**0.5 if count > 1 else float("nan")
    return mean, mean - half, mean + half


if __name__ == "__main__":
    main()
