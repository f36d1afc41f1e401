"""Changes of encoder on real data: what `trivet migrate` says, and how often it errs where neither encoder is better.

    TRIVET_DATA=... .venv/bin/python studies/migrate.py FILE FOLDER   # writes studies/results/migrate.md, .json

FILE holds timm's weights of tf_efficientnet_lite0 as safetensors, FOLDER what studies/encoded_texts.py writes. Texts
are those of the classes that no head is trained on. Cases and seeds were fixed before the first run.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from readers import Array, cifar_archive, cifar_rows, cub_archive, picture, pooled
from trivet.commands.migrate.changes import measure_changes
from trivet.commands.migrate.options import MigrateOptions
from trivet.commands.migrate.record import MigrateRecord
from trivet.commands.migrate.run import judge_migration
from trivet.losses import SupConLoss
from trivet.metrics import retrieve

RESULTS = Path(__file__).parent / "results"
DRAWS = 100  # of equal encoders
Case = tuple[str, Array, Array, Array]


def cases(weights: Path, folder: Path) -> Iterator[Case]:
    """Name, old and new vectors, and labels."""
    for data in ("clinc150", "banking77"):
        with np.load(folder / f"{data}_minilm.npz") as file:
            columns = {name: file[name] for name in ("embeddings", "text", "intent", "split")}
        test = columns["split"] == "test"
        rows, labels = columns["embeddings"][test], columns["intent"][test]
        words = (
            TfidfVectorizer(ngram_range=(1, 2), min_df=2).fit(columns["text"][~test]).transform(columns["text"][test])
        )
        counts = TruncatedSVD(256, random_state=0).fit_transform(words).astype(np.float32)
        yield f"{data}: words to MiniLM", counts, rows, labels
        head = trained_head(columns["embeddings"][~test], columns["intent"][~test])
        yield f"{data}: MiniLM to a head on it", rows, rows @ head, labels
        turn = np.linalg.qr(np.random.default_rng(0).normal(size=(rows.shape[1],) * 2))[0].astype(np.float32)
        yield f"{data}: MiniLM turned", rows, rows @ turn, labels
    archive, names = cub_archive()
    pictures, labels = [picture(archive, name) for name in names], np.array([name.split("/")[-2] for name in names])
    yield "cub: 64 to 96 pixels", *(pooled(weights, pictures, side) for side in (64, 96)), labels
    archive = cifar_archive()
    root, listed = cifar_rows(archive)
    some = [listed[i] for i in np.random.default_rng(0).permutation(len(listed))[:2000]]
    pictures, labels = [picture(archive, root + row["path"]) for row in some], np.array([row["label"] for row in some])
    yield "cifar10: 48 to 64 pixels", *(pooled(weights, pictures, side) for side in (48, 64)), labels


def trained_head(rows: Array, labels: Array) -> Array:
    """A square matrix after 400 steps of a supervised contrastive loss on 512 training texts each."""
    points, classes = torch.from_numpy(rows), torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    weight = torch.nn.Parameter(torch.eye(rows.shape[1]))
    optimizer, draw = torch.optim.Adam([weight], lr=1e-3), torch.Generator().manual_seed(0)
    loss = SupConLoss()
    for _ in range(400):
        batch = torch.randperm(len(points), generator=draw)[:512]
        optimizer.zero_grad()
        loss(points[batch] @ weight, classes[batch]).backward()
        optimizer.step()
    return weight.detach().numpy()


def judged(case: Case, folder: Path) -> MigrateRecord:
    """The record of a change of encoder, with a compatible head."""
    _, old, new, labels = case
    paths = [folder / "old.npz", folder / "new.npz"]
    for path, rows in zip(paths, (old, new), strict=True):
        np.savez(path, embeddings=rows.astype(np.float32), label=labels)
    return judge_migration(MigrateOptions(embeddings=paths, labels=["label"], head=True))


def equal_encoders(folder: Path) -> Counter[str]:
    """Outcomes where old and new are the same vectors with noise of one distribution, drawn anew for both."""
    with np.load(folder / "clinc150_minilm.npz") as file:
        test = np.flatnonzero(file["split"] == "test")
        rows, labels = file["embeddings"][test], np.unique(file["intent"][test], return_inverse=True)[1]
    outcomes: Counter[str] = Counter()
    for seed in range(DRAWS):
        draw = np.random.default_rng(seed)
        some = draw.permutation(len(rows))[:1000]
        old, new = (
            retrieve(
                rows[some] + draw.normal(scale=0.03, size=(1000, rows.shape[1])).astype(np.float32),
                labels[some],
                measures=["recall@1", "map@r"],
                distance="cosine",
            )
            for _ in range(2)
        )
        outcomes[measure_changes([new], [old], "label", "old")[0].outcome] += 1
    return outcomes


def row_of(name: str, record: MigrateRecord) -> dict[str, Any]:
    """The numbers of a case."""
    maps, recall = record.linear_map, record.levels[0].measures[0]
    assert maps is not None
    return {
        "case": name,
        "items": record.items,
        "same": record.agreements[0].overlap,
        "old": recall.reference,
        "new": recall.value,
        "interval": recall.interval,
        "outcome": record.outcome,
        "map": maps.outcome,
        "gain_retained": maps.gain_retained,
        "fitted": maps.fitted,
        "searches": [
            {
                "queries": row.queries,
                "gallery": row.gallery,
                "recall@1": row.from_new[0].value,
                "from_old": [row.from_old[0].difference, *row.from_old[0].interval],
                "from_new": [row.from_new[0].difference, *row.from_new[0].interval],
            }
            for row in maps.searches
        ],
    }


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "# Changes of encoder",
        "",
        "`TRIVET_DATA=... .venv/bin/python studies/migrate.py FILE FOLDER`",
        "",
        f"{results['date']}, {results['machine']}, {results['seconds']:.0f} s. recall@1 in per cent, differences in "
        "points with 99 % intervals.",
        "",
        "| change | items | same of 10 | old | new | difference | answer |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results["cases"]:
        low, high = row["interval"]
        lines.append(
            f"| {row['case']} | {row['items']} | {100 * row['same']:.1f} % | {100 * row['old']:.1f} | "
            f"{100 * row['new']:.1f} | {100 * (row['new'] - row['old']):+.1f} "
            f"({100 * low:+.1f} to {100 * high:+.1f}) | {row['outcome']} |"
        )
    names = [f"{each['queries']} in {each['gallery']}" for each in results["cases"][0]["searches"]]
    lines += [
        "",
        "Maps and heads, on items that they were not fitted on, in halves of the items; below each recall@1 its "
        "difference from new in new. The map is judged by new queries in old, mapped items.",
        "",
        f"| change | {' | '.join(names)} | mapping |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for row in results["cases"]:
        cells = [f"{100 * each['recall@1']:.1f}<br>{100 * each['from_new'][0]:+.1f}" for each in row["searches"]]
        retained = "" if row["gain_retained"] is None else f", {100 * row['gain_retained']:.0f} % of the gain"
        lines.append(f"| {row['case']} | {' | '.join(cells)} | {row['map']}{retained} |")
    counts = ", ".join(f"{name} {count}" for name, count in sorted(results["equal"].items()))
    lines += [
        "",
        f"Where neither is better (1,000 texts of CLINC150, MiniLM with noise drawn anew for both, {DRAWS} draws): "
        f"{counts}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    began, rows = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(options.weights, options.folder):
            rows.append(row_of(case[0], judged(case, Path(folder))))
            print(json.dumps(rows[-1]), flush=True)
    results = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()} CPU",
        "cases": rows,
        "equal": dict(equal_encoders(options.folder)),
        "seconds": time.perf_counter() - began,
    }
    (RESULTS / "migrate.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "migrate.md").write_text(page(results))


if __name__ == "__main__":
    main()
