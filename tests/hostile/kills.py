"""200 processes killed in sequence, at random moments: what is lost, what is left, and whether the end is the same.

    nice -n 5 .venv/bin/python tests/hostile/kills.py     # about six minutes of one core

plain, folds, force: `trivet train` of a tiny run (six steps on 200 digits), killed, gone on with by `--resume`,
killed again, ...; `force` replaces a finished run. index: `trivet index --force` over an older index. Half of the ends
are SIGKILL, half SIGTERM; half come at a random time of an unbroken command, half just before a random one of its
changes to a file. After each end, the next command is what a user would type. After every eighth end the command may
finish; its metrics, weights and evaluation are compared with those of a run that was never stopped, bit for bit, and
the names in its folder. Each command is a fork of a process that has loaded the libraries. Results go to
tests/hostile/results/kills.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

from trivet.commands.main import main as trivet
from trivet.io.atomic_files import EARLIER, LOCK, recover
from trivet.io.overwrite_guard import RUN_NAMES

RESULTS = Path(__file__).parent / "results" / "kills.json"
IN_A_ROW = 8  # ends before the command may finish
SHARES = {"plain": 72, "folds": 56, "index": 36, "force": 36}
MESSAGES = ("put back what", "in its place", "unfinished", "left behind", "is kept in")
SETTINGS = """seed = {seed}
[data]
name = "digits"
level = "digit"
[batch]
num_classes = 2
samples_per_class = 4
[model]
name = "linear"
embedding_dim = 3
[loss]
name = "triplet"
[training]
steps = 6
log_every = 1
checkpoint_every = 2
accelerator = "cpu"
[evaluation]
every = 3
map_points = 5
sample = 20
nmi_plus = 2
"""


@dataclass(frozen=True)
class End:
    """When and how a process ends: at a time in seconds, or before its n-th change of a file."""

    number: signal.Signals
    seconds: float | None = None
    change: int | None = None


@dataclass
class Ended:
    """How a command ended: its exit code (negative: a signal), what it said, its changes of files, and its time."""

    code: int
    said: str
    changes: int
    seconds: float


@dataclass
class Found:
    """What came of the kills of one kind."""

    kills: int = 0
    finished: int = 0
    by: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def command(arguments: list[str], folder: Path, end: End | None = None) -> Ended:
    """Run a command in a process of its own, and end it."""
    log, count = folder.with_suffix(".log"), folder.with_suffix(".count")
    log.touch()  # a child may be killed before it opens it
    began = time.perf_counter()
    child = os.fork()
    if not child:
        _be_command(arguments, folder, log, count, end)
    timer = threading.Timer(end.seconds, os.kill, (child, end.number)) if end is not None and end.seconds else None
    if timer is not None:
        timer.start()
    _, status = os.waitpid(child, 0)
    if timer is not None:
        timer.cancel()
    changes = int(count.read_text()) if count.exists() else 0
    said = log.read_text()
    log.unlink()
    count.unlink(missing_ok=True)
    return Ended(os.waitstatus_to_exitcode(status), said, changes, time.perf_counter() - began)


def _be_command(arguments: list[str], folder: Path, log: Path, count: Path, end: End | None) -> None:
    sink = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = ["trivet", *arguments]
    seen = 0

    def hook(event: str, values: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"):
            return
        if event == "open" and not (isinstance(values[2], int) and values[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        if not str(values[0]).startswith((str(folder), str(folder.with_name(f".{folder.name}.")))):
            return
        seen += 1
        if end is not None and seen == end.change:
            os.kill(os.getpid(), end.number)

    sys.addaudithook(hook)
    code: Any = 1
    try:
        try:
            trivet()
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
        sys.stderr.flush()
        count.write_text(str(seen))
    finally:  # a signal that comes after the command must not unwind what this is a fork of
        os._exit(code if isinstance(code, int) else 1)


class Kind:
    """Commands of one kind in a folder, their ends, and what must hold.

    Args:
        begin: the arguments of the first command.
        before: those of a command that makes the folder before that, if there is one.
    """

    def __init__(self, name: str, work: Path, begin: list[str], before: list[str] | None = None) -> None:
        self.name, self.work, self.begin, self.before = name, work, begin, before
        self.folder, self.whole, self.old = (work / f"{name}{part}" for part in ("", "-whole", "-old"))

    def arguments(self) -> list[str]:
        """What a user types next."""
        there = any((self.folder / mark).is_file() for mark in ("config.toml", "folds.toml"))
        replaced = self.name == "force" and there and _same(self.folder, self.old)
        if there and not replaced:
            return ["train", "--resume", str(self.folder)]
        return [*self.begin, str(self.folder)]

    def make_whole(self) -> Ended:
        """What is never stopped."""
        if self.before is not None:
            assert command([*self.before, str(self.old)], self.old).code == 0
            shutil.copytree(self.old, self.folder)
        ended = command([*self.begin, str(self.folder)], self.folder)
        assert ended.code == 0, ended.said
        self.folder.rename(self.whole)
        return ended

    def kill(self, count: int, random_numbers: random.Random) -> Found:
        found, whole = Found(), self.make_whole()
        while found.kills < count:
            if self.old.exists():
                shutil.copytree(self.old, self.folder)
            self.complete = False
            for number in range(min(IN_A_ROW, count - found.kills)):
                sort = signal.SIGKILL if (found.kills + number) % 2 else signal.SIGTERM
                at_change = random_numbers.random() < 0.5
                end = (
                    End(sort, change=random_numbers.randint(1, whole.changes))
                    if at_change
                    else End(sort, seconds=random_numbers.uniform(0, whole.seconds))
                )
                ended = command(self.arguments(), self.folder, end)
                found.by[f"{sort.name}, {'before a change' if at_change else 'at a time'}"] += 1
                self.look(found, ended, sort)
            found.kills += number + 1
            ended = command(self.arguments(), self.folder)
            if ended.code:
                found.wrong.append(f"the last command ended with {ended.code}: {ended.said[-300:]}")
            found.finished += 1
            found.wrong += self.differences()
            shutil.rmtree(self.folder)
        return found

    def look(self, found: Found, ended: Ended, sort: signal.Signals) -> None:
        """What holds after an end, before and after the next command looks at the folder."""
        if sort == signal.SIGTERM and ended.code not in (0, 1, -signal.SIGTERM):
            found.wrong.append(f"exit code {ended.code} after SIGTERM: {ended.said[-300:]}")
        if sort == signal.SIGTERM and ended.code == 1 and "trivet: stopped" not in ended.said:
            found.wrong.append(f"no word after SIGTERM: {ended.said[-300:]}")
        said = [*ended.said.splitlines(), *recovered(self.folder)]
        found.said.update(words for words in MESSAGES if any(words in line for line in said))
        if "Traceback" in ended.said:
            found.wrong.append(f"a traceback: {ended.said[-300:]}")
        if self.name == "index" and not any(_same(self.folder, each) for each in (self.old, self.whole)):
            found.wrong.append(f"the index is neither the old one nor the new: {sorted(os.listdir(self.folder))}")
        if self.name == "force":
            new = any((self.folder / "checkpoints").glob("step-*"))
            earlier = self.folder / EARLIER
            record = self.folder / "record.json"
            self.complete |= record.is_file() and json.loads(record.read_text())["status"] == "finished" and new
            if not (self.complete or _same(self.folder, self.old) or (new and _same(earlier, self.old))):
                found.wrong.append(f"the old run is lost: {sorted(os.listdir(self.folder))}")

    def differences(self) -> list[str]:
        """How what was killed and gone on with differs from what was never stopped; what is left beside it."""
        other = sorted(_names(self.folder) ^ _names(self.whole))
        wrong = [f"other files: {', '.join(other)}"] if other else []
        wrong += [f"left: {item.name}" for item in self.work.iterdir() if item.name.startswith(f".{self.name}.")]
        if not _same(self.folder, self.whole):
            wrong.append("other metrics, weights or evaluation")
        return wrong


def recovered(folder: Path) -> list[str]:
    """What the next command that is given the folder says first."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("trivet").addHandler(handler)
    recover(folder, RUN_NAMES)
    logging.getLogger("trivet").removeHandler(handler)
    return lines


def _names(path: Path) -> set[str]:
    return {str(item.relative_to(path)) for item in path.rglob("*") if item.name != LOCK}


def _same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same results, bit for bit; what says when and where they were made may differ."""
    if not (one.is_dir() and other.is_dir()):
        return False
    files = [name for name in _names(other) if (other / name).is_file() and not name.startswith(".trivet")]
    for name in files:
        if name.endswith((".html", "folds.toml", "config.toml")):
            continue
        if not (one / name).is_file():
            return False
        if "/checkpoints/" in f"/{name}":  # which also say how many seconds were trained
            tensors, others = load_file(one / name), load_file(other / name)
            if tensors.keys() != others.keys() or any((tensors[key] != others[key]).any() for key in tensors):
                return False
        elif name.endswith(".json"):
            if _results(json.loads((one / name).read_text())) != _results(json.loads((other / name).read_text())):
                return False
        elif (one / name).read_bytes() != (other / name).read_bytes():
            return False
    return True


def _results(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says but for times, versions, commands and paths."""
    keep = ("evaluation", "intervals", "curves", "validation", "history", "guard", "monitor", "maps", "status",
            "comparisons", "recall", "items", "centre", "scale", "diagnosis")  # fmt: skip
    return {name: record[name] for name in keep if name in record}


def kinds(work: Path) -> list[Kind]:
    """The commands, with their inputs in `work`."""
    (work / "run.toml").write_text(SETTINGS.format(seed=3))
    (work / "other.toml").write_text(SETTINGS.format(seed=4))
    generator = np.random.default_rng(0)
    for name in ("old", "new"):
        points = generator.standard_normal((200, 4)).astype(np.float32)
        np.savez(work / f"{name}.npz", embeddings=points, labels=np.arange(200) % 5)

    train = ["train", str(work / "run.toml")]
    return [
        Kind("plain", work, [*train, "-o"]),
        Kind("folds", work, [*train, "--folds", "2", "-o"]),
        Kind("index", work, ["index", str(work / "new.npz"), "--force", "-o"], ["index", str(work / "old.npz"), "-o"]),
        Kind("force", work, [*train, "--force", "-o"], ["train", str(work / "other.toml"), "-o"]),
    ]


def load_everything() -> None:
    """What the commands load, so that a fork has it; only the first 200 digits."""
    from sklearn import datasets

    import trivet.commands.index.run
    import trivet.commands.train.folds
    import trivet.commands.train.run  # noqa: F401  # loaded once, for the children

    whole = datasets.load_digits()
    few = type(whole)(images=whole.images[:200], target=whole.target[:200])
    datasets.load_digits = lambda: few
    torch.set_num_threads(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the kills; less is for a look")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    load_everything()
    record: dict[str, Any] = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": {"torch": torch.__version__, "numpy": np.__version__, "machine": platform.machine()},
        "seed": options.seed,
        "kinds": {},
    }
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        for kind in kinds(Path(work)):
            found = kind.kill(round(SHARES[kind.name] * options.share), random.Random(f"{options.seed} {kind.name}"))
            record["kinds"][kind.name] = {
                "kills": found.kills, "finished": found.finished, "by": dict(found.by),
                "said": dict(found.said), "wrong": found.wrong,
            }  # fmt: skip
            print(kind.name, record["kinds"][kind.name], round(time.perf_counter() - began), flush=True)
    record["kills"] = sum(kind["kills"] for kind in record["kinds"].values())
    record["wrong"] = sum(len(kind["wrong"]) for kind in record["kinds"].values())
    record["seconds"] = round(time.perf_counter() - began)
    options.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
