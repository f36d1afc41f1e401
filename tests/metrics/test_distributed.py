"""Retrieval by several processes: the checks of `retrieval_worker.py`. Different input on them is not looked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from tests.metrics import retrieval_worker
from tests.mining.crew import CHECKS, start

from trivet.metrics import retrieve

PROCESSES = 2
NAMES = [name for name, function in CHECKS.items() if function.__module__ == retrieval_worker.__name__]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder with what each process wrote; they are started once, also where the tests are shared out by xdist."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "retrieval"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            start(Path(retrieval_worker.__file__), folder)
    return folder / str(PROCESSES)


@pytest.mark.parametrize("name", NAMES)
def test_processes_together_find_what_one_finds(reports: Path, name: str) -> None:
    lines = [json.loads(line) for file in reports.glob("*.jsonl") for line in file.read_text().splitlines()]
    errors = {line["rank"]: line["error"] for line in lines if line["check"] == name}
    assert sorted(errors) == list(range(PROCESSES)), (reports.parent / "output.txt").read_text()[-3000:]
    assert set(errors.values()) == {None}, "\n".join(filter(None, errors.values()))


def test_a_process_that_knows_no_others_says_what_to_do() -> None:
    with pytest.raises(
        ValueError,
        match=r"needs an initialised process group: call torch\.distributed\.init_process_group first, or "
        r"start",
    ):
        retrieve(np.zeros((3, 2)), np.array([0, 0, 1]), distributed=True)
