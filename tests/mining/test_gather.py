"""Many processes: the checks of `gather_worker.py` and `gather_losses.py` in 2 and in 4, and what needs none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.mining import gather_worker  # noqa: F401  # importing it adds its checks
from tests.mining.crew import checks, faults, start
from tests.programs import Programs
from tests.training.distributed import world_worker  # noqa: F401  # importing it adds its checks

from trivet.mining.gather import LocalBatch, carrier, gather, gather_rows, sum_over_processes

HERE = "tests.mining"


@pytest.mark.parametrize(
    ("processes", "name"), [(size, name) for size in (2, 4) for name in checks(size, package=HERE)]
)
def test_in_several_processes(crews: Path, processes: int, name: str) -> None:
    assert not faults(crews, name, processes)


@pytest.mark.nightly
def test_all_choices_in_several_processes(programs: Programs, tmp_path: Path) -> None:
    start(programs, tmp_path, nightly=True)
    failed = [faults(tmp_path, name, size) for size in (2, 4) for name in checks(size)]
    assert not list(filter(None, failed))


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
