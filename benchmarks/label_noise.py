"""Label noise, estimated and found: rates, wrong labels beside cleanlab's Datalab, rare modes, the MNIST test errors.

    TRIVET_DATA=... .venv/bin/python benchmarks/label_noise.py --runs FOLDER --datalab PYTHON \\
        --cifar lite=FEATURES.npy --parts noise rare mnist

noise: `find_suspects` on labels with noise that is known, on each set and seed: the error of the rate, AUROC and
    precision at the true rate, and the same of Datalab on the same embeddings.
rare: small true sub-clusters of a class, next to whole ones: how many of their right labels are called wrong.
mnist: the 10,000 test images in an embedding trained on the 60,000 training images: the 15 voted errors in the top 100.

PYTHON is the interpreter of an environment with cleanlab. FEATURES are rows `(20000, d)` of the CIFAR-10 images in the
order of their indices, from any network that has not seen these labels. Embeddings and answers of Datalab are kept in
FOLDER, finished cells in benchmarks/results/label_noise.json: what is there is not done again.

The numbers in the library (20 neighbours, q from 0.2, 50 weighted neighbours) were chosen on digits and the first
10,000 Fashion-MNIST images as pixels with seeds 0 to 2, CIFAR-10N with the features called lite, and the first 200
characters and all alphabets of Omniglot's evaluation half in an embedding of the other half with seed 1. Seeds 3 and 4,
the second 10,000 images of Fashion-MNIST, embeddings trained on the noisy labels, other characters and alphabets of
Omniglot and the parts rare and mnist had no say. The features called patches were looked at before q was settled,
though it was not fitted to them. lite: an EfficientNet-lite0 trained on ImageNet; patches: unsupervised ones.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import platform
import subprocess
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from trivet.batching import PKBatches
from trivet.evaluation import recall_at_k
from trivet.label_noise import find_suspects, pair_flip, symmetric
from trivet.losses import TripletLoss
from trivet.models import ModelConfig, build

Array = np.ndarray[Any, np.dtype[Any]]
RESULTS = Path(__file__).parent / "results" / "label_noise.json"
SEEDS = (3, 4)
GRID = (("clean", 0.0), *((kind, p) for kind in ("symmetric", "pair-flip") for p in (0.1, 0.2, 0.4)))
HUMAN = (("aggregate", "c10_aggre_label"), ("random1", "c10_random_label1"), ("worst", "c10_worse_label"))
DATALAB = """
import contextlib, io, sys, warnings
import numpy as np
warnings.filterwarnings("ignore")
from cleanlab import Datalab
given = np.load(sys.argv[1])
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    lab = Datalab({"label": given["labels"]}, label_name="label", task="classification")
    lab.find_issues(features=given["embeddings"], issue_types={"label": {}})
found = lab.get_issues("label")
np.savez(sys.argv[2], score=found["label_score"].to_numpy(), issue=found["is_label_issue"].to_numpy())
"""


def idx(root: Path, name: str, part: str) -> tuple[Array, Array]:
    """Images `(N, 1, 28, 28)` float32 in [0, 1] and labels."""
    with gzip.open(root / name / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(root / name / f"{part}-labels-idx1-ubyte.gz") as file:
        return images.astype(np.float32) / 255, np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)


@cache
def omniglot(root: Path, half: str) -> tuple[Array, Array, Array]:
    """Images `(N, 1, 28, 28)`, ink 1, and the numbers of alphabets and characters."""
    with zipfile.ZipFile(root / "omniglot" / f"images_{half}.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".png"))
        images = np.stack([_character(archive.read(name)) for name in names])[:, None]
    folders = [name.split("/")[1:3] for name in names]
    return images, _numbers([a for a, _ in folders]), _numbers(["/".join(both) for both in folders])


def _character(data: bytes) -> Array:
    image = Image.open(io.BytesIO(data)).convert("L").resize((28, 28), Image.Resampling.BOX)
    return 1 - np.asarray(image, np.float32) / 255


def _numbers(names: Sequence[str]) -> Array:
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def principal(rows: Array, axes: int) -> Array:
    """Coordinates along the first principal axes."""
    centred = rows.reshape(len(rows), -1).astype(np.float64)
    centred -= centred.mean(axis=0)
    vectors = np.linalg.eigh(centred.T @ centred)[1][:, ::-1]
    return np.asarray((centred @ vectors[:, :axes]).astype(np.float32))


def train(images: Array, labels: Array, *, body: str, steps: int, batch: tuple[int, int], seed: int) -> Any:
    """An embedding of 64 dimensions: triplets of random positives and semi-hard negatives, Adam at 0.001."""
    torch.manual_seed(seed)
    model = build(ModelConfig(name=body, embedding_dim=64), images.shape[1:], seed)
    loss = TripletLoss(positives="random", negatives="semihard", margin=0.2)
    batches = PKBatches(labels, num_classes=batch[0], samples_per_class=batch[1], seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for step in range(steps):
        index = batches.batch(*divmod(step, batches.steps_per_epoch))
        value = loss(model(torch.from_numpy(images[index])), torch.from_numpy(labels[index]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def embed(model: Any, images: Array) -> Array:
    parts = [model(torch.from_numpy(images[start : start + 500])).numpy() for start in range(0, len(images), 500)]
    return np.concatenate(parts)


def out_of_fold(images: Array, labels: Array, seed: int, **settings: Any) -> tuple[Array, Array]:
    """Each half in the embedding that was trained on the other, and the halves."""
    folds = np.random.default_rng(seed).permutation(len(labels)) % 2
    embeddings = np.empty((len(labels), 64), np.float32)
    for fold in (0, 1):
        model = train(images[folds != fold], labels[folds != fold], seed=seed, **settings)
        embeddings[folds == fold] = embed(model, images[folds == fold])
    return embeddings, folds


class Bench:
    """Cells of results by name, written as each is done."""

    def __init__(self, root: Path, runs: Path, datalab: str | None) -> None:
        self.root, self.runs, self.datalab = root, runs, datalab
        self.found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cells": {}}
        runs.mkdir(parents=True, exist_ok=True)

    def cell(self, name: str, make: Callable[[], dict[str, Any]]) -> None:
        if name in self.found["cells"]:
            return
        began = time.perf_counter()
        value = make()
        self.found["cells"][name] = value | {"seconds": round(time.perf_counter() - began, 1)}
        self.found["written"] = datetime.now(UTC).isoformat(timespec="seconds")
        self.found["machine"] = {"cpu": platform.machine(), "torch": torch.__version__, "numpy": np.__version__}
        RESULTS.write_text(json.dumps(self.found, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text(page(self.found["cells"]))
        print(name, {k: v for k, v in value.items() if not isinstance(v, dict)}, flush=True)

    def kept(self, name: str, make: Callable[[], Array]) -> Array:
        """An array of this name from the folder, made if it is not there."""
        path = self.runs / f"{name}.npy"
        if not path.exists():
            np.save(path, make())
        return np.asarray(np.load(path))

    def ask_datalab(self, name: str, embeddings: Array, labels: Array) -> tuple[Array, Array] | None:
        """How suspect each label is to Datalab, and whether it calls it an issue."""
        if self.datalab is None:
            return None
        given, answer = self.runs / f"{name}.given.npz", self.runs / f"{name}.datalab.npz"
        if not answer.exists():
            np.savez(given, embeddings=embeddings, labels=labels)
            subprocess.run([self.datalab, "-c", DATALAB, str(given), str(answer)], check=True)
            given.unlink()
        found = np.load(answer)
        return 1 - found["score"], found["issue"]

    def judge(self, name: str, embeddings: Array, labels: Array, truth: Array, folds: Array | None) -> dict[str, Any]:
        began = time.perf_counter()
        found = find_suspects(embeddings, labels, folds=folds)
        seconds = time.perf_counter() - began
        wrong, noise = labels != truth, found.noise
        named = found.proposed != labels
        value: dict[str, Any] = {
            "items": len(labels),
            "classes": int(truth.max()) + 1,
            "rate": float(wrong.mean()),
            "estimate": noise.rate,
            "interval": list(noise.interval),
            "method": noise.method,
            "find_suspects_seconds": round(seconds, 2),
            "named_wrong": float(named.mean()),
            "named_wrong_rightly": float(wrong[named].mean()) if named.any() else None,
        }
        if not wrong.any():
            return value
        value["proposed_right"] = float((found.proposed == truth)[wrong].mean())
        value["trivet"] = scores(found.probability_wrong, wrong)
        apart = np.zeros_like(embeddings) if folds is None else embeddings
        # Datalab knows no folds: each fold is asked about by itself.
        suspicion = np.empty(len(labels))
        for fold in [None] if folds is None else np.unique(folds).tolist():
            items = np.arange(len(labels)) if fold is None else np.flatnonzero(folds == fold)
            whole = embeddings if fold is None else apart
            answer = self.ask_datalab(f"{name}{'' if fold is None else f'-{fold}'}", whole[items], labels[items])
            if answer is None:
                return value
            suspicion[items] = answer[0]
        value["datalab"] = scores(suspicion, wrong)
        return value


def scores(suspicion: Array, wrong: Array) -> dict[str, float]:
    """AUROC, ties counted half, and precision among as many as are wrong, the mean over the order of ties."""
    from scipy.stats import rankdata

    count = int(wrong.sum())
    ranks = rankdata(suspicion)
    auroc = (ranks[wrong].sum() - count * (count + 1) / 2) / (count * (len(wrong) - count))
    limit = np.sort(suspicion)[::-1][count - 1]
    above, tied = suspicion > limit, suspicion == limit
    hits = wrong[above].sum() + wrong[tied].mean() * (count - above.sum())
    return {"auroc": float(auroc), "precision": float(hits / count)}


def noise(bench: Bench, cifar: Mapping[str, Path]) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    garments, garment = idx(bench.root, "fashion-mnist", "train")
    second = slice(10_000, 20_000)
    garments, garment = garments[second], garment[second]
    some = slice(200 * 20, 400 * 20)
    plain: dict[str, Callable[[], tuple[Array, Array]]] = {
        "digits, pixels": lambda: (digits.data.astype(np.float32), digits.target.astype(np.int64)),
        "fashion-mnist, 64 axes of the pixels": lambda: (
            bench.kept("fashion-pixels", lambda: principal(garments, 64)),
            garment,
        ),
        "omniglot, 200 characters, embedding of the other half": lambda: (
            bench.kept("omniglot-evaluation", lambda: other_half(bench.root, "evaluation"))[some],
            omniglot(bench.root, "evaluation")[2][some] - 200,
        ),
        "omniglot, 30 alphabets, embedding of the other half": lambda: (
            bench.kept("omniglot-background", lambda: other_half(bench.root, "background")),
            omniglot(bench.root, "background")[1],
        ),
    }
    for name, path in cifar.items():
        human(bench, name, path)
    for seed in SEEDS:
        for name, load in plain.items():
            for kind, p in GRID:
                if kind == "clean" and seed != SEEDS[0]:
                    continue
                key = f"noise | {name} | {kind} {p} | {seed}"

                def cell(
                    key: str = key, load: Any = load, kind: str = kind, p: float = p, seed: int = seed
                ) -> dict[str, Any]:
                    embeddings, truth = load()
                    return bench.judge(_file(key), embeddings, noisy(truth, kind, p, seed), truth, None)

                bench.cell(key, cell)
    trained = {
        "fashion-mnist, trained on these labels, two halves": (garments, garment, 400),
        "digits, trained on these labels, two halves": (
            (digits.images / 16).astype(np.float32)[:, None],
            digits.target.astype(np.int64),
            300,
        ),
    }
    for name, (pixels, truth, steps) in trained.items():
        for kind, p in GRID:
            key = f"noise | {name} | {kind} {p} | {SEEDS[0]}"

            def halves(
                key: str = key,
                pixels: Array = pixels,
                truth: Array = truth,
                steps: int = steps,
                kind: str = kind,
                p: float = p,
            ) -> dict[str, Any]:
                labels = noisy(truth, kind, p, SEEDS[0])
                embeddings, folds = out_of_fold(pixels, labels, SEEDS[0], body="mlp", steps=steps, batch=(10, 12))
                return bench.judge(_file(key), embeddings, labels, truth, folds)

            bench.cell(key, halves)


def human(bench: Bench, name: str, path: Path) -> None:
    """CIFAR-10N with these features."""
    with np.load(bench.root / "cifar-n" / "cifar_n_labels.npz") as file:
        labels = {column: file[column].astype(np.int64) for column in file.files}
    with zipfile.ZipFile(bench.root / "cifar-n" / "cifar10_jpg_train20k_test10k.zip") as archive:
        table = next(one for one in archive.namelist() if one.endswith("train_index.csv"))
        rows = csv.DictReader(io.TextIOWrapper(archive.open(table)))
        index = np.sort([int(row["original_index"]) for row in rows])
    embeddings = bench.kept(f"cifar-{name}", lambda: principal(np.load(path), 128))
    for people, column in HUMAN:
        key = f"noise | cifar-10n, {name} | {people} | 0"
        given, truth = labels[column][index], labels["c10_clean_label"][index]
        bench.cell(key, lambda k=key, y=given, t=truth: bench.judge(_file(k), embeddings, y, t, None))


def noisy(truth: Array, kind: str, p: float, seed: int) -> Array:
    if kind == "clean":
        return truth
    flip = {"symmetric": symmetric, "pair-flip": pair_flip}[kind]
    return np.asarray(flip(truth, p, generator=seed).labels)


def _file(key: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in key)


def other_half(root: Path, half: str) -> Array:
    """One half of Omniglot in an embedding of the other: conv2, 500 steps of 30 x 4."""
    images, _, characters = omniglot(root, {"evaluation": "background", "background": "evaluation"}[half])
    model = train(images, characters, body="conv2", steps=500, batch=(30, 4), seed=0)
    return embed(model, omniglot(root, half)[0])


def rare(bench: Bench) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = digits.data.astype(np.float32)
    for seed in SEEDS:

        def parity(seed: int = seed) -> dict[str, Any]:
            return judge_rare(bench, f"parity-{seed}", pixels, digits.target % 2, digits.target, 10, 0.4, seed)

        bench.cell(f"rare | digits in parity, 10 of 180 kept of two of each | {seed}", parity)

    for half in ("evaluation", "background"):
        for seed in SEEDS:

            def alphabets(half: str = half, seed: int = seed) -> dict[str, Any]:
                _, alphabet, character = omniglot(bench.root, half)
                embeddings = bench.kept(f"omniglot-{half}", lambda: other_half(bench.root, half))
                return judge_rare(bench, f"alphabets-{half}-{seed}", embeddings, alphabet, character, 5, 1 / 3, seed)

            bench.cell(f"rare | characters in alphabets, {half}, 5 of 20 kept of a third | {seed}", alphabets)


def judge_rare(
    bench: Bench, name: str, embeddings: Array, coarse: Array, fine: Array, keep: int, share: float, seed: int
) -> dict[str, Any]:
    """Of each coarse class some fine ones are thinned out; without wrong labels, and with a tenth of them."""
    random = np.random.default_rng(seed)
    thin = np.concatenate(
        [
            random.permutation(inside)[: max(1, round(share * len(inside)))]
            for inside in (np.unique(fine[coarse == c]) for c in np.unique(coarse))
        ]
    )
    kept = np.isin(fine, thin, invert=True)
    for one in thin:
        kept[random.permutation(np.flatnonzero(fine == one))[:keep]] = True
    rows = np.flatnonzero(kept)
    embeddings, truth, few = embeddings[rows], coarse[rows].astype(np.int64), np.isin(fine[rows], thin)
    value: dict[str, Any] = {"items": len(rows), "rare_items": int(few.sum())}
    for kind, p in (("clean", 0.0), ("symmetric", 0.1)):
        labels = noisy(truth, kind, p, seed)
        right = labels == truth
        found = find_suspects(embeddings, labels)
        named = found.proposed != labels
        votes = surround(embeddings, truth)
        part = {"trivet_rare": float(named[right & few].mean()), "trivet_others": float(named[right & ~few].mean())}
        part["neighbours_disagree_rare"] = float((votes != truth)[few].mean())
        part["recall"] = float(named[~right].mean()) if p else None
        answer = bench.ask_datalab(f"{name}-{kind}", embeddings, labels)
        if answer is not None:
            issue = answer[1]
            part |= {
                "datalab_rare": float(issue[right & few].mean()),
                "datalab_others": float(issue[right & ~few].mean()),
            }
            part["datalab_recall"] = float(issue[~right].mean()) if p else None
        value[f"{kind} {p}"] = part
    return value


def surround(embeddings: Array, labels: Array) -> Array:
    """The most frequent true class of the 3 nearest: where it is not the own, the embedding does not hold the mode."""
    rows = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    found = np.empty(len(rows), np.int64)
    for start in range(0, len(rows), 1000):
        near = rows[start : start + 1000] @ rows.T
        near[np.arange(len(near)), start + np.arange(len(near))] = -np.inf
        nearest = labels[np.argpartition(-near, 3, axis=1)[:, :3]]
        found[start : start + 1000] = [np.bincount(row).argmax() for row in nearest]
    return found


def mnist(bench: Bench) -> None:
    images, labels = idx(bench.root, "mnist", "train")
    test, given = idx(bench.root, "mnist", "t10k")
    votes = json.loads((bench.root / "mnist" / "mnist_mturk.json").read_text())
    errors = np.array([one["id"] for one in votes if one["mturk"]["given"] < 3])
    for seed in (0,):
        for body, steps in (("conv2", 600), ("mlp", 1500)):

            def make(body: str = body, steps: int = steps, seed: int = seed) -> dict[str, Any]:
                embeddings = bench.kept(
                    f"mnist-{body}-{seed}",
                    lambda: embed(train(images, labels, body=body, steps=steps, batch=(10, 12), seed=seed), test),
                )
                found = find_suspects(embeddings, given)
                place = np.empty(len(given), np.int64)
                place[found.order] = np.arange(len(given))
                value: dict[str, Any] = {
                    "recall@1": recall_at_k(embeddings, given, (1,))[1],
                    "estimate": found.noise.rate,
                    "interval": list(found.noise.interval),
                    "errors": len(errors),
                    "top_100": int((place[errors] < 100).sum()),
                    "places": sorted(place[errors].tolist()),
                    "other_candidates_in_top_100": int((place[[one["id"] for one in votes]] < 100).sum())
                    - int((place[errors] < 100).sum()),
                }
                answer = bench.ask_datalab(f"mnist-{body}-{seed}", embeddings, given)
                if answer is not None:
                    order = np.argsort(-answer[0], kind="stable")
                    value["datalab_top_100"] = int(np.isin(errors, order[:100]).sum())
                return value

            bench.cell(f"mnist | {body}, {steps} steps | {seed}", make)


def page(cells: Mapping[str, Any]) -> str:
    """The results as tables."""
    lines = [
        "# Label noise",
        "",
        "Made by `benchmarks/label_noise.py`; its first lines say what was chosen on which data. Means over seeds."
        " Embeddings of Omniglot's evaluation half and of MNIST were made by a separate script of the same recipe and "
        "put into FOLDER; the command itself has not made them yet.",
        "",
    ]
    groups: dict[tuple[str, str], list[Any]] = {}
    for key, value in cells.items():
        part, name, what, *_ = [*key.split(" | "), ""]
        if part == "noise":
            groups.setdefault((name, what), []).append(value)
    lines += [
        "| set | noise | true rate | estimate | mean error, points | inside interval | AUROC | Datalab | precision "
        "at the true rate | Datalab | named wrong, of them rightly | proposed right |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    gains: list[tuple[str, float, float]] = []
    missed = []
    for (name, what), values in groups.items():

        def mean(*path: str, values: list[Any] = values) -> float | None:
            found = []
            for value in values:
                for step in path:
                    value = value.get(step) if value is not None else None
                found.append(value)
            return None if any(one is None for one in found) else float(np.mean(found))

        error = np.mean([abs(one["estimate"] - one["rate"]) for one in values])
        inside = sum(one["interval"][0] <= one["rate"] <= one["interval"][1] for one in values)
        if error > (0.06 if name.startswith("cifar") else 0.03):
            missed.append(f"{name}, {what}: {100 * error:.1f}")
        four = [mean(w, m) for m in ("auroc", "precision") for w in ("trivet", "datalab")]
        if None not in four:
            gains.append((name, four[0] - four[1], four[2] - four[3]))
        lines.append(
            f"| {name} | {what} | {mean('rate'):.3f} | {mean('estimate'):.3f} | {100 * error:.1f} "
            f"| {inside} of {len(values)} | "
            + " | ".join("" if one is None else f"{one:.3f}" for one in four)
            + f" | {mean('named_wrong'):.3f}, {_short(mean('named_wrong_rightly'))} "
            + f"| {_short(mean('proposed_right'))} |"
        )
    if missed:
        lines += ["", "Rates beyond the goal (3 points, 6 for cifar-10n): " + "; ".join(missed) + "."]
    if gains:
        lines += [
            "",
            "| set | AUROC above Datalab's, points | precision, points | worst of either |",
            "|---|---|---|---|",
        ]
        for name in dict.fromkeys(one[0] for one in gains):
            own = np.array([one[1:] for one in gains if one[0] == name]) * 100
            lines.append(f"| {name} | {own[:, 0].mean():+.1f} | {own[:, 1].mean():+.1f} | {own.min():+.1f} |")
        every = np.array([one[1:] for one in gains]) * 100
        lines.append(f"| all | {every[:, 0].mean():+.1f} | {every[:, 1].mean():+.1f} | {every.min():+.1f} |")
    lines += [
        "",
        "Right labels of rare modes that are called wrong, beside right labels of the others. 3-NN: rare items whose 3 "
        "nearest are mostly of another class by true labels.",
        "",
        "| set | seed | noise | rare items | 3-NN | Trivet rare | Trivet others | Trivet recall | Datalab rare "
        "| Datalab others | Datalab recall |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key, value in cells.items():
        if key.startswith("rare"):
            _, name, seed = key.split(" | ")
            for what in ("clean 0.0", "symmetric 0.1"):
                one = value[what]
                columns = ("neighbours_disagree_rare", "trivet_rare", "trivet_others", "recall")
                columns += ("datalab_rare", "datalab_others", "datalab_recall")
                numbers = " | ".join(_short(one.get(column)) for column in columns)
                lines.append(f"| {name} | {seed} | {what} | {value['rare_items']} | {numbers} |")
    lines += [
        "",
        "| MNIST test set, embedding | seed | recall@1 | errors in the top 100 | Datalab | places |",
        "|---|---|---|---|---|---|",
    ]
    for key, value in cells.items():
        if key.startswith("mnist"):
            _, name, seed = key.split(" | ")
            lines.append(
                f"| {name} | {seed} | {value['recall@1']:.4f} | {value['top_100']} of {value['errors']} | "
                f"{value.get('datalab_top_100', '')} | {', '.join(map(str, value['places']))} |"
            )
    return "\n".join(lines) + "\n"


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--datalab")
    parser.add_argument("--cifar", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--parts", nargs="+", default=["noise", "rare", "mnist"], choices=["noise", "rare", "mnist"])
    chosen = parser.parse_args()
    bench = Bench(Path(os.environ["TRIVET_DATA"]), chosen.runs, chosen.datalab)
    features = {name: Path(path) for name, path in (one.split("=", 1) for one in chosen.cifar)}
    if "noise" in chosen.parts:
        noise(bench, features)
    if "rare" in chosen.parts:
        rare(bench)
    if "mnist" in chosen.parts:
        mnist(bench)


if __name__ == "__main__":
    main()
