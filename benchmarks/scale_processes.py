"""Training in several processes: whether the network is that of one process, how long they wait, and what a kill costs.

    TRIVET_DATA=... .venv/bin/python benchmarks/scale.py processes same   # 50 steps of every loss, 1, 2 and 4 processes
    TRIVET_DATA=... .venv/bin/python benchmarks/scale.py processes waits  # the share of a step that processes wait
    TRIVET_DATA=... .venv/bin/python benchmarks/scale.py processes kills  # a process killed 20 times at random moments

Steps are those of `trivet train` on images of Omniglot, on the CPU, with one thread each. Results go to
benchmarks/results/scale_processes.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor

from trivet.commands.train.run import train
from trivet.datasets import Splits, load
from trivet.losses import LOSSES
from trivet.losses.engine import BlockView, EmbeddingLoss
from trivet.mining.selected_set import SelectedItems
from trivet.training.components import Components
from trivet.training.config import RunConfig
from trivet.training.distributed.process_group import ProcessGroup
from trivet.training.loop import fit
from trivet.training.run_folder import RunFolder

RESULTS = Path(__file__).parent / "results" / "scale_processes.json"
STEPS, KILLS = 50, 20
SIZES = (2, 4)
# network, optimiser: with a plain gradient and batch norm, and with Adam without (see docs/scale.md)
NETWORKS = {"conv4": ("sgd", 0.02), "mlp": ("adam", 1e-3)}


def settings(network: str, loss: str, *, classes: int, steps: int = STEPS) -> RunConfig:
    optimizer, rate = NETWORKS[network]
    values = {
        "data": {"name": "omniglot", "image_size": 28, "level": "character", "augment": "crop-flip"},
        "batch": {"num_classes": classes, "samples_per_class": 3},
        "model": {"name": network, "embedding_dim": 64},
        "loss": {"name": loss} | ({"margin": 0.5} if loss == "contrastive" else {}),
        "training": {"steps": steps, "accelerator": "cpu", "optimizer": optimizer, "learning_rate": rate},
    }
    return RunConfig.parse(values, source=loss)


class Notes:
    """Of processes of which none fails."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def choices(loss: EmbeddingLoss) -> list[str]:
    """A digest of all positives and negatives that each step chooses, from now on."""
    found: list[str] = []
    formula = loss.evaluate

    def look(rows: BlockView) -> Any:
        positives, negatives = rows.selection.positives, rows.selection.negatives
        parts = [positives.index.where(positives.chosen, -1)]
        parts.append(
            negatives.index.where(negatives.chosen, -1) if isinstance(negatives, SelectedItems) else negatives.count
        )
        found.append(hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest())
        return formula(rows)

    loss.evaluate = look  # type: ignore[method-assign]  # to see what it picks
    return found


def in_processes(size: int, work: Callable[[ProcessGroup | None], Any]) -> list[Any]:
    """What the work returns in each of several processes that train together, or in this one alone."""
    if size == 1:
        return [work(None)]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:

        def member(rank: int) -> None:
            place = f"file://{folder}/store"
            dist.init_process_group("gloo", init_method=place, rank=rank, world_size=size, timeout=timedelta(minutes=5))
            torch.save(work(ProcessGroup(rank, size, Notes())), Path(folder) / f"{rank}.pt")
            dist.destroy_process_group()

        members = [fork.Process(target=member, args=(rank,)) for rank in range(size)]
        for one in members:
            one.start()
        for one in members:
            one.join()
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(size)]


def trained(config: RunConfig, splits: Splits, dtype: torch.dtype, world: ProcessGroup | None) -> dict[str, Any]:
    """The weights before and after training, and what its steps chose."""
    parts = Components(config, splits, world)
    learner = parts.state.learner
    learner.model.to(dtype)
    begun = weights(parts)
    found = choices(learner.loss)
    fit(learner, parts.batches_from(0))
    return {"begun": begun, "weights": weights(parts), "choices": found, "loss": learner.value}


def weights(parts: Components) -> dict[str, Tensor]:
    """Of network and loss, copied."""
    learner = parts.state.learner
    state = learner.model.state_dict() | {f"loss.{name}": value for name, value in learner.loss.state_dict().items()}
    return {name: value.double().clone() for name, value in state.items() if value.is_floating_point()}


def norm(tensors: dict[str, Tensor]) -> float:
    return float(torch.cat([value.flatten() for value in tensors.values()]).norm())


def difference(one: dict[str, Tensor], two: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: two[name] - value for name, value in one.items()}


def same() -> dict[str, Any]:
    """For each network, loss and number of processes: how different the weights are, and how many steps chose alike.

    Where rounding has decided a choice, or the sign of a unit, otherwise, training is repeated in float64.
    """
    rows = []
    for network in NETWORKS:
        splits = load(settings(network, "triplet", classes=9).data, None)
        for loss in LOSSES:
            for dtype in (torch.float32, torch.float64):
                work = partial(trained, settings(network, loss, classes=9), splits, dtype)
                reference = work(None)
                found = [compared(reference, size, in_processes(size, work)) for size in SIZES]
                found = [{"network": network, "loss": loss, "dtype": str(dtype)} | row for row in found]
                rows += found
                print(*map(json.dumps, found), sep="\n", flush=True)
                if all(row["chosen alike"] and row["weights"] < 1e-4 for row in found):
                    break
    return {"steps": STEPS, "batch": 27, "rows": rows}


def compared(reference: dict[str, Any], size: int, found: list[dict[str, Any]]) -> dict[str, Any]:
    """What processes have trained beside what one has."""
    alone, together = reference["weights"], found[0]["weights"]
    error = difference(alone, together)
    return {
        "processes": size,
        "weights": norm(error) / norm(alone),
        "largest of a tensor": max(float(error[name].norm() / own.norm()) for name, own in alone.items() if own.any()),
        "of the change": norm(error) / norm(difference(reference["begun"], alone)),
        "chosen alike": reference["choices"] == found[0]["choices"],
        "equal in all": all(norm(difference(together, other["weights"])) == 0 for other in found),
    }


def timed(config: RunConfig, splits: Splits, world: ProcessGroup | None) -> dict[str, Any]:
    """Seconds of each step after the first ten, and the seconds of them in which this process computed."""
    parts = Components(config, splits, world)
    stamps: list[tuple[float, float]] = []
    parts.state.learner.after_step = lambda: stamps.append((time.perf_counter(), time.process_time()))
    fit(parts.state.learner, parts.batches_from(0))
    steps = [[b[i] - a[i] for i in (0, 1)] for a, b in pairwise(stamps[10:])]
    return {"steps": steps}


def waits() -> dict[str, Any]:
    """The share of the time in which a process did not compute, of the one that waited most."""
    rows = []
    for network, classes in (("conv4", 80), ("conv4", 320)):
        config = settings(network, "triplet", classes=classes, steps=40)
        splits = load(config.data, None)
        for size in (1, 2):
            found = in_processes(size, partial(timed, config, splits))
            each = [torch.tensor(one["steps"]) for one in found]
            wall = torch.stack([steps[:, 0] for steps in each])
            busy = torch.stack([steps[:, 1] for steps in each])
            row = {
                "network": network,
                "batch": 3 * classes,
                "processes": size,
                "ms a step": 1000 * float(wall.mean(0).median()),
                "waits": max(1 - float(busy[rank].sum() / wall[rank].sum()) for rank in range(size)),
                "less to do": float((busy.sum(1).max() - busy.sum(1).min()) / busy.sum(1).max()),
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    return {"rows": rows}


def kills() -> dict[str, Any]:
    """Runs in two processes that are killed at random moments and gone on with, until there were 20 kills.

    A quarter of the moments lie while the processes begin, the others after the first checkpoint that they write.
    """
    source = random.Random(0)
    rows: list[dict[str, Any]] = []
    values = {
        "data": {"name": "digits", "level": "digit"},
        "batch": {"num_classes": 5, "samples_per_class": 5},
        "model": {"name": "mlp", "embedding_dim": 16},
        "loss": {"name": "triplet"},
        "training": {"steps": 3000, "accelerator": "cpu", "checkpoint_every": 50, "optimizer": "sgd"},
    }
    config = RunConfig.parse({**values, "evaluation": {"every": 1000, "sample": 200}}, source="kills")
    with tempfile.TemporaryDirectory() as place:
        folder, run = Path(place), Path(place) / "run"
        (folder / "run.toml").write_text(config.to_toml())
        while len(rows) < KILLS:
            launched, went_on = len(rows) % 2 == 0, (run / "config.toml").is_file()
            if went_on and RunFolder(run).ended():
                run = folder / f"run-{len(rows)}"
                went_on = False
            arguments = ["--resume", str(run)] if went_on else [str(folder / "run.toml"), "-o", str(run)]
            rows.append(killed(arguments, run, launched, source) | {"resumed": went_on})
            print(json.dumps(rows[-1]), flush=True)
        last = [*program(True), "--resume", str(run)]
        code = subprocess.run(last, env=environment(), stdout=subprocess.DEVNULL, check=False).returncode
        record = RunFolder(run).record()
        finished = code == 0 and record is not None and record.status == "finished"
        train(config, folder / "alone")
        one, two = (load_file(each / "model" / "model.safetensors") for each in (folder / "alone", run))
        one, two = ({name: value.double() for name, value in each.items()} for each in (one, two))
    return {
        "rows": rows,
        "finished after that": finished,
        "slowest end, seconds": max(row["seconds"] for row in rows),
        "left processes": sum(len(row["left"]) for row in rows),
        "weights beside those of a run never stopped": norm(difference(one, two)) / norm(one),
    }


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def program(launched: bool) -> list[str]:
    if launched:
        return [sys.executable, "-m", "trivet", "train", "--set", "training.devices=2"]
    place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    start = [sys.executable, "-m", "torch.distributed.run", *place, "--nnodes", "1", "--nproc-per-node", "2"]
    return [*start, "-m", "trivet", "train", "--set", "training.devices=2"]


def killed(arguments: list[str], run: Path, launched: bool, source: random.Random) -> dict[str, Any]:
    """Start a run, kill one of its processes after a random time, and see how all of it ends."""
    command = subprocess.Popen(
        [*program(launched), *arguments],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    family: set[int] = set()
    known = {file.name for file in RunFolder(run).checkpoints()}
    begun, began = source.random() < 0.25, time.monotonic()
    moment = began + source.uniform(1, 10) if begun else float("inf")
    while time.monotonic() < moment and command.poll() is None:
        family |= descendants(command.pid)
        if moment == float("inf") and {file.name for file in RunFolder(run).checkpoints()} - known:
            moment = time.monotonic() + source.uniform(0, 2)
        time.sleep(0.02)  # between two looks at the processes
    ranks = [pid for pid in descendants(command.pid) if is_rank(pid)]
    whom = "the launcher" if not ranks or source.random() < 0.2 else "a process"
    victim = command.pid if whom == "the launcher" else source.choice(ranks)
    steps = [file.name for file in RunFolder(run).checkpoints()]
    began = time.monotonic()
    if command.poll() is None:
        os.kill(victim, signal.SIGKILL)
    said = command.communicate()[1]
    while any(alive(pid) for pid in family) and time.monotonic() - began < 120:
        family |= {child for pid in family for child in descendants(pid)}
        time.sleep(0.05)  # between two looks at the processes
    record = RunFolder(run).record()
    return {
        "started by": "training.devices" if launched else "torchrun",
        "killed": whom,
        "when": "beginning" if begun else "training",
        "checkpoint": steps[-1] if steps else None,
        "seconds": round(time.monotonic() - began, 2),
        "left": [pid for pid in family if alive(pid)],
        "status": None if record is None else record.status,
        "said": [line.replace(str(run), "RUN") for line in said.splitlines() if line.startswith("trivet:")],
        "partial files": [file.name for file in run.rglob("*.trivet")],
    }


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = {int(child) for child in (task / "children").read_text().split()}
        except OSError:
            continue
        found |= children.union(*map(descendants, children))
    return found


def is_rank(pid: int) -> bool:
    """Whether it is a process that trains, and not one that looks after others' memory."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return "spawn_main" in words or ("trivet" in words and "torch.distributed.run" not in words)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("same", "waits", "kills"))
    part = parser.parse_args().part
    torch.set_num_threads(1)
    found = {"same": same, "waits": waits, "kills": kills}[part]()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known[part] = {"date": date.today().isoformat(), "torch": version("torch"), "cores": os.cpu_count(), **found}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
