"""Audit of tags: how many of the planted mistakes are called, how many calls are right, and what is called without any.

    TRIVET_DATA=... python studies/tag_noise.py --texts VECTORS --birds VECTORS [--seeds 2]

VECTORS are files of `trivet embed` with a column `label`: all-MiniLM-L6-v2 of 7,500 texts of CLINC150, whose tags are
the intent and the domain; and EfficientNet-Lite0 of the first 50 classes of CUB, tagged by class, family and order; and
600 of these birds, drawn by the seed. A share of all tags is removed, and as many are added, each a tag drawn by its
frequency for an item drawn at random. Without mistakes planted, every call counts as wrong here, though the published
labels have mistakes of their own. The method was chosen on these vectors with seeds 0 and 1; seeds from 2 on are
reported.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from pages import environment, table, write
from readers import clinc_domains
from trivet import Tags
from trivet.datasets.download import find_root
from trivet.io.read_embeddings import read_vectors
from trivet.label_noise import find_tag_suspects

RESULTS = Path(__file__).parent / "results"
RATES = (0.0, 0.02, 0.1)


def taxa() -> dict[int, tuple[str, str]]:
    """Number of a class of CUB -> its order and family."""
    lines = (find_root(None) / "cub" / "hierarchy" / "cub_flat.parent-child.txt").read_text().splitlines()
    parents = dict(line.split()[::-1] for line in lines)
    found = {}
    for number in range(1, 51):
        chain, node = [], str(number)
        while node in parents:
            node = parents[node]
            chain.append(node)
        found[number] = (f"order {chain[-2]}", f"family {chain[-3]}")
    return found


def planted(tags: np.ndarray, rate: float, random: np.random.Generator) -> np.ndarray:
    """The tags `(N, T)` with this share removed, and as many added."""
    given, there = tags.copy(), np.argwhere(tags)
    count = round(rate * len(there))
    removed = there[random.permutation(len(there))[:count]]
    given[removed[:, 0], removed[:, 1]] = False
    frequency = tags.sum(axis=0) / tags.sum()
    while count:
        item, tag = random.integers(len(tags)), random.choice(len(frequency), p=frequency)
        if not (tags[item, tag] or given[item, tag]):
            given[item, tag], count = True, count - 1
    return given


def audited(name: str, vectors: np.ndarray, tags: Tags, rate: float, seed: int) -> list[dict[str, Any]]:
    """A row for missing and one for superfluous tags."""
    right = tags.rows(tags.items)[:, : len(tags.names)].toarray().astype(bool)
    given = planted(right, rate, np.random.default_rng(seed))
    found = find_tag_suspects(vectors, Tags(given.astype(np.uint8)), seed=seed)
    called, rows = found.probability_wrong > 0.5, []
    ranges: dict[str, tuple[float, float]] = dict(found.ranges)
    for kind, missing, mistakes in (("missing", True, right & ~given), ("superfluous", False, given & ~right)):
        some = called & (found.missing == missing)
        hits = mistakes[found.items[some], found.tags[some]]
        least, most = ranges.get(kind, (None, None))
        rows.append(
            {
                "data": name, "rate": rate, "seed": seed, "kind": kind, "tags": len(tags.names),
                "judged": int(found.judged.sum()), "planted": int(mistakes.sum()),
                "planted_judged": int(mistakes[:, found.judged].sum()), "called": int(some.sum()),
                "right": int(hits.sum()), "least": least, "most": most,
                "first": list(
                    zip(found.items[some][:12].tolist(), tags.names[found.tags[some][:12]].tolist(), strict=True)
                ),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    """Audit, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--birds", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS / "tag_noise.json")
    arguments = parser.parse_args()
    texts, birds, domains, kin = read_vectors(arguments.texts), read_vectors(arguments.birds), clinc_domains(), taxa()
    of_texts = Tags([[label, f"domain {domains[label]}"] for label in texts.labels["label"].tolist()])
    of_birds = Tags([[label, *kin[int(label[:3])]] for label in birds.labels["label"].tolist()])
    rows: list[dict[str, Any]] = []
    for seed in range(2, 2 + arguments.seeds):
        some = np.random.default_rng(seed).permutation(len(of_birds))[:600]
        for rate in RATES:
            for name, vectors, tags in (
                ("birds", birds.embeddings, of_birds),
                ("600 birds", birds.embeddings[some], of_birds[some]),
                ("texts", texts.embeddings, of_texts),
            ):
                rows += audited(name, np.asarray(vectors), tags, rate, seed)
                print(rows[-2:], flush=True)
                save(arguments.output, rows)


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [
        (
            row["data"], f"{100 * row['rate']:g} %", str(row["seed"]), row["kind"], f"{row['judged']} of {row['tags']}",
            f"{row['planted']} ({row['planted_judged']})", str(row["called"]), str(row["right"]),
            "" if row["least"] is None else f"{100 * row['least']:.1f} to {100 * row['most']:.1f} %",
        )
        for row in sorted(rows, key=lambda row: (row["data"], row["rate"], row["kind"], row["seed"]))
    ]  # fmt: skip
    head = ("data", "rate", "seed", "kind", "judged tags", "planted (judged tags)", "called", "right", "range")
    page = ["# Mistakes in tags", "", (__doc__ or "").split("\n\n")[2].replace("\n", " "), "", *table(head, lines)]
    made = environment("numpy", "torch")
    write(path, {"made": made, "rows": rows}, "\n".join([*page, f"Made {made}.", ""]))


if __name__ == "__main__":
    main()
