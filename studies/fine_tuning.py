"""Pretrained networks fine-tuned: recall@1 of classes never seen, beside the network as it came, for six strategies.

    TRIVET_DATA=... .venv/bin/python studies/fine_tuning.py examples/cub_pretrained.toml --runs FOLDER \\
        --set model.weights=FILE
    TRIVET_DATA=... .venv/bin/python studies/fine_tuning.py examples/texts_finetuned.toml --runs FOLDER \\
        --set data.path=FILE --set model.name=text:FOLDER

Everything but the loss is as in the settings file, but that all training classes are trained on: a class that is held
out to choose the step by is one less to learn from. The number of steps is given by --set training.steps, from runs of
the settings as they are, which choose by classes held out. The losses are those of `LOSSES`, each with random and with
easy positives, for each seed. A finished run is not trained again. The table goes to standard output and, with all that
it was made from, to studies/results/fine_tuning_NAME.json.

With --kill, a run of each loss with easy positives and of the first seed is also killed in the middle and resumed; its
weights and metrics.csv must be those of the run that was never stopped. A check that was made is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from trivet.commands.train.run import train
from trivet.config.base import overridden
from trivet.reports.run_record import RunRecord
from trivet.training import RunConfig
from trivet.training.config import resolved
from trivet.training.run_folder import RunFolder

LOSSES: dict[str, dict[str, Any]] = {
    "triplet": {"name": "triplet", "margin": 0.2, "negatives": "semihard"},
    "margin": {"name": "margin", "margin": 0.2, "negatives": "distance-weighted"},
    "multi-similarity": {"name": "multi-similarity"},
}
POSITIVES = ("random", "easy")
RECALL = "recall@1"
OfLoss = dict[str, dict[str, float]]  # loss -> settings that depend on how near the items of the data lie


def settings(file: Path, changes: list[str], loss: str, positives: str, seed: int, of_loss: OfLoss) -> RunConfig:
    """The settings of one run."""
    values = tomllib.loads(file.read_text())
    values |= {"loss": LOSSES[loss] | of_loss.get(loss, {}) | {"positives": positives}, "seed": seed}
    values.pop("choosing", None)
    values["data"].pop("folds", None)
    return resolved(RunConfig.parse(overridden(values, changes), source=str(file)))


def trained(config: RunConfig, folder: Path) -> RunRecord:
    """The record of a run, which is trained unless it has ended."""
    if folder.is_dir():
        done = RunFolder.open(folder)
        if done.ended() and done.config() == config:
            record = done.record()
            assert record is not None
            return record
    return train(config, folder, force=folder.is_dir(), progress=True, command=" ".join(sys.argv))


def row(record: RunRecord) -> dict[str, Any]:
    """What a run comes to on the split that no step was chosen by."""
    split, level = next(iter(record.evaluation)), record.level
    values = {one.name: one.levels[level] for one in record.evaluation[split]}
    return {
        "split": split,
        "step": record.step,
        "recall@1": {name: one[RECALL] for name, one in values.items()},
        "map@r": {name: one["map@r"] for name, one in values.items()},
        "compared": [one.as_json() for one in record.comparisons[split][level]],
        "interval": record.intervals[split][level][RECALL],
        "seconds": record.seconds,
    }


def killed(config: RunConfig, whole: Path, folder: Path) -> dict[str, Any]:
    """Train the same again, kill it in the middle, resume it, and compare it with the run that was never stopped."""
    file = folder.with_suffix(".toml")
    file.write_text(config.to_toml())
    start = [sys.executable, "-m", "trivet", "train"]
    process = subprocess.Popen([*start, str(file), "-o", str(folder), "--force"], stderr=subprocess.DEVNULL)
    half = config.training.steps // 2
    while process.poll() is None and reached(folder) < half:
        time.sleep(0.2)  # between two looks at how far it is
    at = reached(folder)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run([*start, "--resume", str(folder)], check=True, stderr=subprocess.DEVNULL)
    same = {
        name: (whole / name).read_bytes() == (folder / name).read_bytes()
        for name in ("metrics.csv", "model/model.safetensors")
    }
    return {"killed_at": at, "same": same}


def reached(folder: Path) -> int:
    """The last step in the metrics of a run."""
    try:
        return int(float((folder / "metrics.csv").read_text().splitlines()[-1].split(",")[0]))
    except (OSError, IndexError, ValueError):
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", type=Path)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of trivet train")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    parser.add_argument("--beta", type=float, default=1.2, help="of the margin loss at the start")
    parser.add_argument("--threshold", type=float, default=0.5, help="of the multi-similarity loss")
    parser.add_argument("--kill", action="store_true", help="also kill and resume")
    given = parser.parse_args()
    of_loss: OfLoss = {"margin": {"beta": given.beta}, "multi-similarity": {"threshold": given.threshold}}
    found: dict[str, Any] = {"settings": given.settings.name, "runs": {}, "killed": {}}
    given.runs.mkdir(parents=True, exist_ok=True)
    output = Path(__file__).parent / "results" / f"fine_tuning_{given.settings.stem}.json"
    for seed in given.seeds:
        for loss in given.losses:
            for positives in POSITIVES:
                name = f"{loss}-{positives}-{seed}"
                config = settings(given.settings, given.set, loss, positives, seed, of_loss)
                record = trained(config, given.runs / name)
                found |= {"environment": record.environment, "created": record.created}
                found["runs"][name] = row(record)
                output.write_text(json.dumps(found, indent=1) + "\n")
    if given.kill:
        for loss in given.losses:
            config = settings(given.settings, given.set, loss, "easy", given.seeds[0], of_loss)
            whole = given.runs / f"{loss}-easy-{given.seeds[0]}"
            told = given.runs / f"{loss}-killed.json"
            if not told.is_file():
                told.write_text(json.dumps(killed(config, whole, given.runs / f"{loss}-killed")))
            found["killed"][loss] = json.loads(told.read_text())
            output.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found["runs"], given.losses, given.seeds))
    for loss, one in found["killed"].items():
        print(f"{loss}, killed at step {one['killed_at']}: {one['same']}")


def table(runs: dict[str, Any], losses: list[str], seeds: list[int]) -> str:
    """Recall@1 in per cent, its gain on the network as it came, and the least of the lower ends of the gains."""
    first = next(iter(runs.values()))
    names = [name for name in first["recall@1"] if name != "trained"]
    lines = [
        f"| | {' | '.join(f'seed {seed}' for seed in seeds)} | mean | gain, least lower end | MAP@R |",
        "|---" * (len(seeds) + 4) + "|",
    ]
    start = next(name for name in ("zero-shot backbone", "untrained network") if name in names)
    for loss in losses:
        for positives in POSITIVES:
            some = [runs[f"{loss}-{positives}-{seed}"] for seed in seeds]
            recalls = [100 * one["recall@1"]["trained"] for one in some]
            compared = [next(c for c in one["compared"] if c["reference"] == start) for one in some]
            gain = 100 * statistics.fmean(one["difference"] for one in compared)
            low = 100 * min(one["low"] for one in compared)
            spread = f" ± {statistics.stdev(recalls):.1f}" if len(recalls) > 1 else ""
            lines.append(
                f"| {loss}, {positives} positives | {' | '.join(f'{value:.1f}' for value in recalls)} | "
                f"{statistics.fmean(recalls):.1f}{spread} | {gain:+.1f}, {low:+.1f} | "
                f"{100 * statistics.fmean(one['map@r']['trained'] for one in some):.1f} |"
            )
    for name in names:
        values = [f"{100 * runs[f'{losses[0]}-random-{seed}']['recall@1'][name]:.1f}" for seed in seeds]
        mean = 100 * statistics.fmean(one["map@r"][name] for one in runs.values())
        lines.append(f"| {name} | {' | '.join(values)} | | | {mean:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
