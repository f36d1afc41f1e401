"""Many processes: the checks of `gather_worker.py` and `gather_losses.py` in 2 and in 4, and what needs none."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from filelock import FileLock
from tests.mining import gather_worker
from tests.mining.crew import checks, start

from trivet.mining.gather import LocalBatch, carrier, gather, gather_rows, sum_over_processes


class Reports(NamedTuple):
    """What the processes wrote: the error of each check on each rank, None if it passed, and what was printed."""

    processes: int
    errors: dict[tuple[str, int], str | None]
    output: str


@pytest.fixture(scope="session")
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Reports:
    """The processes are started once for all tests, also where these are shared out by xdist."""
    base = tmp_path_factory.getbasetemp()
    processes, nightly = request.param
    folder = (base if worker_id == "master" else base.parent) / ("thorough-gather" if nightly else "gather")
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            start(Path(gather_worker.__file__), folder, nightly=nightly)
    files = folder.glob(f"{processes}/*.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    errors = {(line["check"], line["rank"]): line["error"] for line in lines}
    return Reports(processes, errors, (folder / "output.txt").read_text()[-3000:])


@pytest.mark.parametrize(
    ("reports", "name"),
    [
        pytest.param((processes, nightly), name, id=f"{processes}-{name}", marks=[pytest.mark.nightly] * nightly)
        for nightly, processes in product((False, True), (2, 4))
        for name in checks(processes, package="tests.mining")
    ],
    indirect=["reports"],
)
def test_in_several_processes(reports: Reports, name: str) -> None:
    missing = f"no report; printed was: {reports.output}"
    errors = {rank: reports.errors.get((name, rank), missing) for rank in range(reports.processes)}
    failed = {rank: error for rank, error in errors.items() if error is not None}
    assert not failed, "\n".join(f"process {rank}: {error}" for rank, error in failed.items())


def test_without_process_group_says_what_to_do() -> None:
    part = LocalBatch(torch.ones(2, 3), torch.zeros(2, dtype=torch.int64), ids=None, seeds=(0, 0))
    needs = "gather=True needs an initialised process group: got none; call torch.distributed.init_process_group"
    with pytest.raises(ValueError, match=needs):
        gather(lambda: part)
    with pytest.raises(ValueError, match=needs):
        gather_rows(part.embeddings, [2])
    with pytest.raises(ValueError, match=needs):
        sum_over_processes(part.embeddings)


@pytest.mark.parametrize(
    ("device", "backends", "expected"),
    [
        ("cpu", "cpu:gloo", "cpu"),
        ("cpu", "cpu:gloo,cuda:nccl", "cpu"),
        ("cpu", "cuda:nccl", "cuda"),
        ("cuda", "cuda:nccl", "cuda"),
        ("cuda", "cpu:gloo,cuda:nccl", "cuda"),
        ("cuda", "cpu:gloo,cuda:gloo", "cpu"),
        ("cuda", "cpu:mpi,cuda:mpi", "cuda"),
        ("mps", "cpu:gloo", "cpu"),
    ],
)
def test_values_are_sent_from_where_the_backend_can_take_them(device: str, backends: str, expected: str) -> None:
    assert carrier(device, backends) == expected
