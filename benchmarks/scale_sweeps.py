"""A sweep in PostgreSQL whose workers are killed: is every trial told once, and is what was taken up again the same?

    nice -n 5 .venv/bin/python benchmarks/scale.py sweeps     # about two minutes of two cores

Four workers share a study of 40 trials of a tiny head in a server of its own on 127.0.0.1. Three of them get SIGKILL in
the middle of a trial. The trials that they had are trained once more from their first step, without a worker that dies,
and what they came to is compared. Results go to benchmarks/results/scale_sweeps.json.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from trivet.commands.sweep.record import SweepTrial
from trivet.commands.sweep.run import Data, Location, begin, work
from trivet.commands.sweep.search_space import Sweep
from trivet.commands.sweep.study import CANDIDATE, ENDED, FAILED, open_study
from trivet.commands.train.run import train
from trivet.runtime.safe_read import parse_toml
from trivet.training.components import load_splits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.small_sweep import write_vectors

from postgresql import PASSWORD, QUOTED, postgresql

WORKERS, TRIALS, KILLED = 4, 40, 3
RESULTS = Path(__file__).parent / "results" / "scale_sweeps.json"
SETTINGS = """
[data]
name = "vectors"
path = "{folder}/x.npz"
folds = 3
[batch]
num_classes = 3
samples_per_class = 4
[model]
name = "linear"
embedding_dim = 6
[loss]
name = "triplet"
[training]
steps = 200
checkpoint_every = 20
accelerator = "cpu"
[evaluation]
every = 20
map_points = 10
[sweep]
trials = {trials}
heartbeat = 1
pruning = false
name = "killed"
storage = "{storage}"
[sweep.vary]
loss.margin = {{low = 0.05, high = 0.5}}
training.learning_rate = {{low = 1e-4, high = 1e-1, log = true}}
"""


def fork_worker(sweep: Sweep, place: Location, data: Data, log: Path) -> int:
    """A worker as a process; returns its id."""
    child = os.fork()
    if child:
        return child
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 2)
    try:
        work(sweep, place, data, notify=lambda text: os.write(handle, f"{text}\n".encode()) and None)
        os._exit(0)
    except BaseException as error:
        os.write(handle, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trivet-sweep-") as name, postgresql() as address:
        folder = Path(name)
        write_vectors(folder / "x.npz")
        storage = address.replace("trivet@", f"trivet:{QUOTED}@")
        text = SETTINGS.format(folder=folder, trials=TRIALS, storage=storage)
        sweep = Sweep.parse(parse_toml(text), source="benchmark")
        data = Data(sweep)
        sweep, place = begin(sweep, folder / "sweep", data)
        assert PASSWORD not in (folder / "sweep" / "sweep.toml").read_text()
        began = time.perf_counter()
        workers = [fork_worker(sweep, place, data, folder / "log") for _ in range(WORKERS)]
        study = open_study(place.url, sweep.config, place.name, make=False)
        rng, killed = np.random.default_rng(0), []
        for victim, after in zip(workers[:KILLED], (4, 8, 12), strict=True):
            while sum(one.state in ENDED for one in study.outcomes()) < after:
                time.sleep(0.05)  # between two looks at the study
            time.sleep(rng.uniform(0, 0.5))  # to kill it at any moment of a trial
            while sum(one.state == "running" for one in study.outcomes()) < WORKERS - len(
                killed
            ):  # it has a trial, too
                time.sleep(0.01)  # between two looks at the study
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            killed.append(round(time.perf_counter() - began, 2))
        codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers[KILLED:]]
        seconds = time.perf_counter() - began
        trials = study._study.get_trials(deepcopy=False)
        told = Counter(
            trial.user_attrs[CANDIDATE]
            for trial in trials
            if trial.state.name in ("COMPLETE", "PRUNED") or FAILED in trial.user_attrs
        )
        outcomes = study.outcomes()
        again = [one for one in outcomes if one.attempts > 1]
        same = [trained_alone(sweep, one, folder) for one in again if one.value is not None]
        written = (folder / "sweep" / "sweep.json").read_text() + (folder / "log").read_text()
        result = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "workers": WORKERS,
            "killed_at_seconds": killed,
            "trials": TRIALS,
            "told": len(told),
            "told_more_than_once": sum(count > 1 for count in told.values()),
            "states": dict(Counter(one.state for one in outcomes)),
            "begun_more_than_once": {one.number: one.attempts for one in again},
            "same_as_never_killed": same,
            "exit_codes_of_the_others": codes,
            "password_written": PASSWORD in written or QUOTED in written,
            "seconds": round(seconds, 1),
        }
        print(json.dumps(result, indent=1))
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")


def trained_alone(sweep: Sweep, one: SweepTrial, folder: Path) -> bool:
    """Whether the runs of a trial, trained from their first step, come to what was told, to the last bit."""
    for run in one.runs:
        config = sweep.run(one.settings, seed=run.seed, fold=run.fold)
        splits = load_splits(config, None)
        splits = replace(splits, evaluation={"validation": splits.evaluation["validation"]})
        record = train(config, folder / f"alone-{one.number}", splits=splits)
        checks = record.choosing.checks if record.choosing else []
        if checks[-1].value != run.value:
            return False
    return True


if __name__ == "__main__":
    main()
