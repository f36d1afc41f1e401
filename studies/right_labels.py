"""Labels that are easily doubted, in features of pretrained networks: are right ones accused, and wrong ones found?

    TRIVET_DATA=... OMP_NUM_THREADS=1 .venv/bin/python studies/right_labels.py --runs FOLDER \
        --weights tf_efficientnet_lite0.safetensors --text-encoder all-MiniLM-L6-v2

Few: from each of four data sets, 14 sets of two or three classes are drawn, with 25 to 150 items of each. Their labels
are judged as they are, and with 10 or 20 % of them exchanged at random. The rule for few items was made for pairs of
classes of CUB and of cats and dogs of CIFAR-10, on which right labels had been called wrong; these sets were drawn
afterwards.

Alike: classes that are easily confused, such as cats and dogs, or pullovers, coats and shirts; of each such group five
sets of 500 to 1,000 items, to which the rule for few items no longer applies; judged as they are, and with 10 % wrong.

Rules: labels that a rule made, so that all are right: ten bins of equal size of the first and of the third principal
component; and the classes with rows of random length, log-normal with a deviation of 1, compared by Euclidean distance.
Of each of four data sets 3,000 items are drawn with eight seeds.

The rules of `trivet.label_noise.estimate` that these sets are asked about were made for other draws of them, which are
not reported: where labels lie towards the next class (`EVEN`), on draws of these sets with noise and by rules, and on
the labels of people of CIFAR-10N; where rows are long (`LONG`), on random lengths and on Gaussian classes; the
sampling error that is taken off where no label must be wrong, on classes that are alike. The seeds of the parts alike
and rules were changed afterwards, and nothing since; two of the draws of bins had been seen before.

Features are kept in the folder of the runs. Prints one line for each data set and rate: how many ranges hold the share
of wrong labels, how many right labels are called wrong (a probability above one half), in all and in the worst set, and
how many wrong ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from readers import Array
from real_fates import features_of
from trivet.label_noise import find_suspects, symmetric
from trivet.metrics.points import Metric

DATA, SETS, RATES = ("fashion-mnist", "cifar10", "clinc150", "banking77"), 14, (0.0, 0.1, 0.2)
ITEMS, FEW = (25, 60, 100, 150), 500
ALIKE = {
    "cifar10": ("cat dog", "bird frog", "automobile truck", "cat deer", "deer horse", "bird deer", "cat frog"),
    "fashion-mnist": ("0 6", "2 4", "4 6", "2 6", "3 6", "7 9", "2 4 6", "0 2 4 6"),
}
DRAWS, ALIKE_RATES = 5, (0.0, 0.1)
RULED, RULE_SEEDS, DRAWN = ("cifar10", "fashion-mnist", "cub", "clinc150"), range(21, 29), 3000
TENTHS = np.arange(1, 10) / 10


def few(classes: Array) -> Iterator[Array]:
    """Rows of sets of two or three classes."""
    random = np.random.default_rng(5)
    for _ in range(SETS):
        count, items = int(random.integers(2, 4)), int(random.choice(ITEMS))
        drawn = random.permutation(classes.max() + 1)[:count]
        rows = np.concatenate([random.permutation(np.flatnonzero(classes == one))[:items] for one in drawn])
        assert len(rows) < FEW
        yield rows


def alike(names: Array, groups: tuple[str, ...]) -> Iterator[Array]:
    """Rows of sets of classes that are easily confused."""
    random = np.random.default_rng(53)
    for group in groups:
        for _ in range(DRAWS):
            parts = group.split()
            items = int(random.integers(FEW, 2 * FEW)) // len(parts) + 1
            yield np.concatenate([random.permutation(np.flatnonzero(names == one))[:items] for one in parts])


def rules(features: Array, classes: Array) -> Iterator[tuple[str, Array, Array, Metric]]:
    """Name, vectors, labels and distance of sets whose labels are all right."""
    for seed in RULE_SEEDS:
        random = np.random.default_rng(seed)
        rows = np.sort(random.permutation(len(features))[:DRAWN])
        points = features[rows]
        centred = points - points.mean(axis=0)
        axes = np.linalg.svd(centred, full_matrices=False)[2]
        for number in (1, 3):
            scores = centred @ axes[number - 1]
            yield f"bins of component {number}", points, np.searchsorted(np.quantile(scores, TENTHS), scores), "cosine"
        unit = points / np.linalg.norm(points, axis=1, keepdims=True)
        yield "random lengths", unit * np.exp(random.normal(size=(len(rows), 1))), classes[rows], "euclidean"


def judged_by_rule(data: str, features: Array, classes: Array) -> None:
    by_name: dict[str, list[tuple[bool, float]]] = {}
    for name, points, labels, distance in rules(features, classes):
        found = find_suspects(points, labels, distance=distance)
        ends = found.noise.interval
        called = float((found.probability_wrong > 0.5).mean())
        by_name.setdefault(name, []).append((ends is not None and ends[0] > 0, called))
    for name, told in by_name.items():
        shares = ", ".join(f"{100 * called:.1f}" for _, called in told)
        print(
            f"rules: {data}, {name}: {sum(accused for accused, _ in told)} of {len(told)} ranges begin above 0; "
            f"{shares} % of the right labels called wrong",
            flush=True,
        )


def judged(title: str, features: Array, classes: Array, sets: list[Array], rates: tuple[float, ...]) -> None:
    for rate in rates:
        counts, worst = np.zeros(6, int), 0.0
        for number, rows in enumerate(sets):
            truth = classes[rows]
            labels = truth if rate == 0 else np.asarray(symmetric(truth, rate, generator=number).labels)
            found, wrong = find_suspects(features[rows], labels), labels != truth
            called, ends = found.probability_wrong > 0.5, found.noise.interval
            inside = ends is not None and ends[0] <= wrong.mean() <= ends[1]
            spoiled = called & ~wrong
            counts += [inside, ends is not None, spoiled.sum(), (~wrong).sum(), (called & wrong).sum(), wrong.sum()]
            worst = max(worst, spoiled.sum() / (~wrong).sum())
        print(
            f"{title}, {100 * rate:.0f} % wrong: {counts[0]} of {counts[1]} ranges hold the share; {counts[2]} of "
            f"{counts[3]} right labels called wrong, at most {100 * worst:.1f} % of a set; {counts[4]} of {counts[5]} "
            "wrong ones",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--text-encoder", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for data in dict.fromkeys(DATA + RULED):
        features, names = features_of(data, options.runs, options.weights, options.text_encoder)
        names = names.astype(str)
        classes = np.unique(names, return_inverse=True)[1]
        if data in DATA:
            judged(f"few: {data}", features, classes, list(few(classes)), RATES)
        if data in ALIKE:
            judged(f"alike: {data}", features, classes, list(alike(names, ALIKE[data])), ALIKE_RATES)
        if data in RULED:
            judged_by_rule(data, features, classes)


if __name__ == "__main__":
    main()
