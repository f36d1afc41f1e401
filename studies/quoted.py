"""Run commands whose numbers the documents quote, as a reader would, and write what they print.

    OMP_NUM_THREADS=1 .venv/bin/python studies/quoted.py [NAME ...]

The names are those of `QUOTED`; by default all are run, in about three minutes of one core. What was measured goes to
studies/results/quoted.json, beside its commands, the day, the versions and the machine; `tests/test_quoted_numbers.py`
compares the documents with it.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pages import environment, read

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results" / "quoted.json"
Printed = dict[str, Any]
AUDIT = "trivet audit runs/noisy --out suspects.csv --report audit.html --decisions likely.csv --relabel-above 0.5"
WRONG_LABELS = {
    "noisy": "trivet train noisy.toml",
    "audit": AUDIT,
    "mended": "trivet train noisy.toml --labels likely.csv -o runs/mended",
    "clean": "trivet train noisy.toml --set data.noise.rate=0.0 -o runs/clean",
    "topline": "trivet train noisy.toml --set data.noise.topline=true -o runs/topline",
    "cleaned": "trivet train noisy.toml --set cleaning.action=drop -o runs/cleaned",
    "cleaned late": "trivet train noisy.toml --set cleaning.action=drop --set cleaning.after=200 "
    "--set cleaning.every=200 -o runs/late",
}


def printed(command: str) -> Printed:
    """The JSON that a command of trivet prints."""
    words = [sys.executable, "-m", *shlex.split(command), "--json"]
    found: Printed = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    return found


def recalls(run: Printed) -> Printed:
    """Recall@1 and MAP@R of a run and of its references, by split and level."""
    sides = {"trained": run["splits"]}
    for split, references in run["references"].items():
        for name, levels in references.items():
            sides.setdefault(name, {})[split] = levels
    return {
        f"{name}, {split}, {level}": {measure: values[measure] for measure in ("recall@1", "map@r")}
        for name, splits in sides.items()
        for split, levels in splits.items()
        for level, values in levels.items()
    }


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def demo() -> tuple[list[str], Printed]:
    found = printed("trivet demo")
    return ["trivet demo --json"], {name: found[name] for name in ("results", "references", "collapse", "gains")}


def wrong_labels() -> tuple[list[str], Printed]:
    """The example of docs/label_noise.md."""
    page = (ROOT / "docs" / "label_noise.md").read_text()
    Path("noisy.toml").write_text(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])
    ran = {name: printed(command) for name, command in WRONG_LABELS.items()}
    values: Printed = {name: recalls(run) for name, run in ran.items() if name != "audit"}
    values["tolerance"] = ran["noisy"]["label_noise"]["strategy"]["tolerance"]["rate"]
    values["audit"] = {name: ran["audit"][name] for name in ("noise_rate", "items", "notes")}
    wrong = {row["id"]: row for row in rows("runs/noisy/noise.csv")}
    relabelled = {row["id"]: row["label"] for row in rows("likely.csv") if row["decision"] == "relabel"}
    right = sum(wrong[key]["true_label"] == label for key, label in relabelled.items() if key in wrong)
    spoiled = len(relabelled.keys() - wrong)
    values["labels"] = {"wrong": len(wrong), "relabelled": len(relabelled), "made right": right, "spoiled": spoiled}
    for name, folder in (("cleaned", "cleaned"), ("cleaned late", "late")):
        out = {row["id"] for row in rows(f"runs/{folder}/cleaning.csv") if row["decision"] == "drop"}
        values["labels"] |= {f"{name}, dropped": len(out), f"{name}, dropped and wrong": len(out & wrong.keys())}
    return list(WRONG_LABELS.values()), values


QUOTED: dict[str, Callable[[], tuple[list[str], Printed]]] = {
    "demo": demo,
    "wrong labels": wrong_labels,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(QUOTED))
    given = parser.parse_args()
    for name in given.names or QUOTED:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            commands, values = QUOTED[name]()
        measured_with = environment("torch", "numpy")
        found = read(RESULTS) | {name: {"commands": commands, "environment": measured_with, "values": values}}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        print(name, file=sys.stderr)


if __name__ == "__main__":
    main()
