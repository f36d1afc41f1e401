"""Which gallery tells what a network gains on new classes: held-out classes alone, or training classes beside them.

    .venv/bin/python studies/held_out_classes.py FILE.npz ... [--draws 4]

Each file has `embeddings` of an encoder, and a column `label`. A draw takes C classes to train on, and C others that
stand for those of a user. What whitening and a head gain there in MAP@R over the vectors as they are is compared with
what the ladder would have measured: each half of the C classes is held out in turn, and its items are searched for
among themselves, or among the training items as well. The table goes to studies/results/held_out_classes.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from trivet.commands.train.candidates import Candidate, Proposer, settings_of
from trivet.datasets import Splits
from trivet.datasets.holdout import hold_out_fold
from trivet.metrics import retrieve
from trivet.training.components import begun, load_splits, trained_on
from trivet.training.config import RunConfig, resolved
from trivet.training.embed_dataset import embed
from trivet.training.ladder_config import LadderSettings

TABLE = Path(__file__).parent / "results" / "held_out_classes.md"
CLASSES, ITEMS = (5, 10, 25), 50
GALLERIES = ("held-out classes", "training classes too", "new classes")  # the last is what is to be known


def drawn(file: Path, classes: int, seed: int, folder: Path) -> Path:
    """A file of vectors of so many classes to train on, and as many others to test."""
    with np.load(file) as arrays:
        vectors, labels = arrays["embeddings"], arrays["label"].astype(str)
    random = np.random.default_rng([seed, classes])
    rows, splits = list[int](), list[str]()
    for number, label in enumerate(random.permutation(np.unique(labels))[: 2 * classes]):
        chosen = random.permutation(np.flatnonzero(labels == label))[:ITEMS].tolist()
        rows += chosen
        splits += [["train", "test"][number >= classes]] * len(chosen)
    path = folder / "drawn.npz"
    np.savez(path, embeddings=vectors[rows], label=labels[rows], split=np.array(splits))
    return path


def candidates(path: Path, classes: int, seed: int) -> tuple[Splits, list[Candidate]]:
    """The data, and candidates: the vectors as they are, whitened, and with the shortest head."""
    data = {"name": "vectors", "path": str(path), "levels": ["label"]}
    values = {"seed": seed, "data": data, "evaluation": {"distance": "cosine"}}
    splits = load_splits(RunConfig.parse({"data": data, "loss": {"name": "triplet"}}, source="a draw"), None)
    settings = LadderSettings.parse(values, source="a draw")
    proposer = Proposer(settings, splits.train, splits.level, classes)
    (vectors,) = proposer.candidates("encoder", [])
    return splits, [vectors, *proposer.candidates("whitening", [vectors]), proposer.candidates("head", [vectors])[0]]


def map_at_r(whole: Splits, candidate: Candidate) -> dict[str, float]:
    """MAP@R by each gallery, in per cent."""
    whole_config = resolved(settings_of(candidate))
    found: dict[str, list[float]] = {name: [] for name in GALLERIES}
    for fold in (None, 0, 1):
        splits = whole if fold is None else hold_out_fold(whole, 2, fold)
        trained = len(np.unique(splits.train.labels[splits.level]))
        config = whole_config.model_copy(update={"batch": whole_config.batch.of_at_most(trained)})
        if config.training.steps:
            network = trained_on(config, splits, splits.train, "step")
        else:
            network, splits = begun(config, splits)
        items = splits.evaluation["unseen" if fold is None else "validation"]
        rows, known = embed(network, items.inputs), embed(network, splits.train.inputs)
        labels = items.labels[splits.level]
        galleries = {GALLERIES[2]: rows} if fold is None else {GALLERIES[0]: rows, GALLERIES[1]: np.r_[rows, known]}
        for name, gallery in galleries.items():
            others = np.full(len(gallery) - len(rows), labels.max() + 1)
            retrieval = retrieve(
                rows,
                labels,
                gallery=gallery,
                gallery_labels=np.r_[labels, others],
                self_rows=np.arange(len(rows)),
                measures=["map@r"],
                distance="cosine",
            )
            found[name] += retrieval.values[:, 0].tolist()
    return {name: 100 * float(np.mean(values)) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=4)
    options = parser.parse_args()
    lines = [
        "# What is gained on new classes, and what held-out classes say of it",
        "",
        "Made by `studies/held_out_classes.py`, which says how; 28 November 2026, torch 2.15. Gain in MAP@R over the",
        f"vectors as they are, in points, means of {options.draws} draws; in brackets the root mean square error.",
        "",
        "| vectors | classes | candidate | new classes | by held-out classes alone | among training classes too |",
        "|---|---|---|---|---|---|",
    ]
    errors: dict[str, list[float]] = {name: [] for name in GALLERIES[:2]}
    for file in options.files:
        for classes in CLASSES:
            with np.load(file) as arrays:
                if len(np.unique(arrays["label"])) < 2 * classes:
                    continue
            gains: dict[str, list[list[float]]] = {"whitened": [], "head of 60 steps": []}
            for seed in range(options.draws):
                with tempfile.TemporaryDirectory() as folder:
                    splits, tried = candidates(drawn(file, classes, seed, Path(folder)), classes, seed)
                    start, *others = (map_at_r(splits, each) for each in tried)
                for name, measured in zip(gains, others, strict=True):
                    gains[name].append([measured[gallery] - start[gallery] for gallery in GALLERIES])
            for name, each in gains.items():
                table = np.array(each)
                error = table[:, :2] - table[:, 2:]
                for column, gallery in enumerate(errors):
                    errors[gallery] += error[:, column].tolist()
                cells = [
                    f"{mean:+.1f} ({off:.1f})"
                    for mean, off in zip(table[:, :2].mean(axis=0), np.sqrt((error**2).mean(axis=0)), strict=True)
                ]
                lines.append(f"| {file.stem} | {classes} | {name} | {table[:, 2].mean():+.1f} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    alone, among = (float(np.sqrt(np.mean(np.square(values)))) for values in errors.values())
    lines += ["", f"Error over all draws: {alone:.1f} points by held-out classes alone, {among:.1f} among others."]
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
