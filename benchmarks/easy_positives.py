"""Easy positives against the usual positives of a loss: trains both variants with every seed and writes a table.

    TRIVET_DATA=... .venv/bin/python benchmarks/easy_positives.py examples/omniglot.toml --usual random

For each seed both variants share initial weights, batches and negative rule. Runs go to
runs/easy_positives/NAME/ARM-SEED and are kept: a finished one is not trained again. The table goes to standard output
and, as JSON, to benchmarks/results/easy_positives_NAME.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from trivet.records import RunRecord
from trivet.tasks.train import train
from trivet.training import RunConfig
from trivet.training.run_folder import RunFolder


def run(config: Path, positives: str, seed: int) -> RunRecord:
    """The record of one arm and seed."""
    folder = Path("runs/easy_positives") / config.stem / f"{positives}-{seed}"
    settings = RunConfig.read(config, [f"seed={seed}", f"loss.positives={positives}"])
    if folder.is_dir():
        done = RunFolder.open(folder)
        record = done.record()
        if record and record["status"] == "finished" and done.config() == settings:
            return record
    return train(settings, folder, force=True, progress=True, command=" ".join(sys.argv))


def spread(values: list[float]) -> str:
    """Mean ± sample standard deviation, in per cent."""
    deviation = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{deviation}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--usual", required=True, help="the positives of the other arm, such as random")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    arms = [options.usual, "easy"]
    records = {arm: [run(options.config, arm, seed) for seed in options.seeds] for arm in arms}
    first = records["easy"][0]
    table: dict[str, Any] = {"config": options.config.name, "seeds": options.seeds, "splits": {}}
    table |= {"created": first["created"], "environment": first["environment"], "settings": first["settings"]}
    table["seconds"] = {arm: [record["seconds"] for record in records[arm]] for arm in arms}
    for split, rows in first["evaluation"].items():
        for level in rows[0]["levels"]:
            measures = [key for key in rows[0]["levels"][level] if key.startswith(("recall@", "nmi"))]
            measures = [key for key in measures if not key.startswith("nmi+_")]
            print(f"\n{split}, {level}\n\n| | {' | '.join(measures)} |\n|---|{'---|' * len(measures)}")
            found: dict[str, dict[str, list[float]]] = {}
            for arm in arms:
                levels = [record["evaluation"][split][0]["levels"][level] for record in records[arm]]
                found[f"{arm} positives"] = {key: [one[key] for one in levels] for key in measures}
            for reference in rows[1:]:
                levels = [
                    next(row for row in record["evaluation"][split] if row["name"] == reference["name"])["levels"]
                    for record in records["easy"]
                ]
                found[reference["name"]] = {
                    key: [one[level][key] for one in levels] for key in measures if key in levels[0][level]
                }
            for name, values in found.items():
                cells = [spread(values[key]) if key in values else "–" for key in measures]
                print(f"| {name} | {' | '.join(cells)} |")
            gains = [
                easy - usual
                for easy, usual in zip(
                    *(found[f"{arm} positives"]["recall@1"] for arm in ("easy", options.usual)), strict=True
                )
            ]
            print(f"\nGain in recall@1 per seed: {', '.join(f'{100 * gain:+.1f}' for gain in gains)}")
            table["splits"].setdefault(split, {})[level] = {**found, "gain in recall@1": gains}
    target = Path(__file__).parent / "results" / f"easy_positives_{options.config.stem}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
