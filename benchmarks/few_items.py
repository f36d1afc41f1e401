"""Labels of few items in features of pretrained networks: are right ones accused, and are wrong ones found?

    TRIVET_DATA=... OMP_NUM_THREADS=1 .venv/bin/python benchmarks/few_items.py --runs FOLDER \
        --weights tf_efficientnet_lite0.safetensors --text-encoder all-MiniLM-L6-v2

From each of four data sets, 14 sets of two or three classes are drawn, with 25 to 150 items of each. Their labels are
judged as they are, and with 10 or 20 % of them exchanged at random. The rule for few items was made for pairs of
classes of CUB and of cats and dogs of CIFAR-10, on which right labels had been called wrong; these sets were drawn
afterwards. Features are kept in the folder of the runs. Prints one line for each data set and rate.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from real_fates import features_of
from trivet.label_noise import find_suspects, symmetric

DATA, SETS, RATES = ("fashion-mnist", "cifar10", "clinc150", "banking77"), 14, (0.0, 0.1, 0.2)
ITEMS, MOST = (25, 60, 100, 150), 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--text-encoder", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for data in DATA:
        features, names = features_of(data, options.runs, options.weights, options.text_encoder)
        classes = np.unique(names, return_inverse=True)[1]
        found: dict[float, list[np.ndarray]] = {rate: [] for rate in RATES}
        random = np.random.default_rng(5)
        for number in range(SETS):
            count, items = int(random.integers(2, 4)), int(random.choice(ITEMS))
            drawn = random.permutation(classes.max() + 1)[:count]
            rows = np.concatenate([random.permutation(np.flatnonzero(classes == one))[:items] for one in drawn])
            assert len(rows) < MOST
            for rate in RATES:
                truth = classes[rows]
                labels = truth if rate == 0 else np.asarray(symmetric(truth, rate, generator=number).labels)
                judged, wrong = find_suspects(features[rows], labels), labels != truth
                called, ends = judged.probability_wrong > 0.5, judged.noise.interval
                inside = ends is not None and ends[0] <= wrong.mean() <= ends[1]
                told = (inside, ends is not None, (called & ~wrong).sum(), (~wrong).sum(), (called & wrong).sum())
                found[rate].append(np.array([*told, wrong.sum()]))
        for rate, lines in found.items():
            inside, ranges, spoiled, right, caught, wrong = np.sum(lines, axis=0).tolist()
            print(
                f"{data}, {100 * rate:.0f} % wrong: {inside} of {ranges} ranges hold the share; {spoiled} of {right} "
                f"right labels called wrong, {caught} of {wrong} wrong ones",
                flush=True,
            )


if __name__ == "__main__":
    main()
