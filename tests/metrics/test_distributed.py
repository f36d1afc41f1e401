"""Retrieval by several processes: the checks of `retrieval_worker.py`. Different input on them is not looked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.metrics import retrieval_worker  # noqa: F401  # importing it adds its checks
from tests.mining.crew import checks, faults

from trivet.metrics import retrieve


@pytest.mark.parametrize("name", checks(2, package="tests.metrics"))
def test_processes_together_find_what_one_finds(crews: Path, name: str) -> None:
    assert not faults(crews, name, 2)


def test_a_process_that_knows_no_others_says_what_to_do() -> None:
    with pytest.raises(
        ValueError,
        match=r"needs an initialised process group: call torch\.distributed\.init_process_group first, or "
        r"start",
    ):
        retrieve(np.zeros((3, 2)), np.array([0, 0, 1]), distributed=True)
