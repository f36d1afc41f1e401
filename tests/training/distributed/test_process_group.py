"""Several processes train one network: the same one as a single process, and they end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.mining.crew import checks, faults
from tests.training.distributed import world_worker  # noqa: F401  # importing it adds its checks
from tests.training.runs import write_vectors
from torch.distributed import HashStore
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun

from trivet.commands.train.run import resume, train
from trivet.datasets import load
from trivet.reports.run_record import RunRecord
from trivet.runtime.signals import ProcessRank, member_of
from trivet.training import RunConfig
from trivet.training.config import with_length
from trivet.training.distributed import launch, process_group
from trivet.training.distributed.launch import note_failed, processes_to_start
from trivet.training.distributed.process_group import PeerWatch, ProcessGroup
from trivet.training.run_folder import RunFolder

# A loss of a user's own, which in the process of rank 1 ends it in step 6, the first time.
KILLED = """
import os, pathlib, signal
from trivet import TripletLoss

class Killed(TripletLoss):
    def formula(self, rows):
        here = pathlib.Path(__file__).with_name("killed")
        if os.environ.get("RANK") == "1" and int(self.key[1]) == 6 and not here.exists():
            here.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().formula(rows)
"""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """What torchrun and a process that ends do with signals is over with the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("name", checks(2, package="tests.training"))
def test_in_two_processes(crews: Path, name: str) -> None:
    assert not faults(crews, name, 2)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Of a short run on vectors."""
    write_vectors(tmp_path / "vectors.npz", 160)
    training = {"steps": 16, "log_every": 1, "checkpoint_every": 4, "optimizer": "sgd", "accelerator": "cpu"}
    return {
        "seed": 1,
        "data": {"name": "vectors", "path": str(tmp_path / "vectors.npz"), "folds": 4, "folds_of": "items"},
        "batch": {"num_classes": 3, "samples_per_class": 3},
        "model": {"name": "mlp", "width": 16, "embedding_dim": 8},
        "loss": {"name": "triplet", "negatives": "violating"},
        "training": {**training, "learning_rate": 0.1},
        "evaluation": {"every": 4, "map_points": 10, "sample": 50, "nmi_plus": 2},
    }


def parsed(settings: dict[str, Any]) -> RunConfig:
    return RunConfig.parse(settings, source="test")


def weights(path: Path) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in load_file(path / "model" / "model.safetensors").values()])


def losses(path: Path) -> list[float]:
    rows = (path / "metrics.csv").read_text().splitlines()[1:]
    return [float(row.split(",")[1]) for row in rows]


def check_same(run: Path, alone: Path) -> None:
    assert losses(run) == pytest.approx(losses(alone), rel=1e-4, abs=1e-6)
    assert torch.allclose(weights(run), weights(alone), rtol=1e-4, atol=1e-6)


@pytest.mark.nightly
def test_two_devices_clean_and_choose_as_one(tmp_path: Path, settings: dict[str, Any]) -> None:
    write_vectors(tmp_path / "vectors.npz", 1600)  # 600 are trained on: of fewer than 500 seldom a label looks wrong
    settings["data"]["noise"] = {"kind": "symmetric", "rate": 0.3}
    settings["cleaning"] = {"action": "drop", "after": 4, "every": 8}
    file, run, alone = tmp_path / "run.toml", tmp_path / "run", tmp_path / "alone"
    file.write_text(parsed(settings).to_toml())
    command = [sys.executable, "-m", "trivet", "train", str(file), "-o", str(run), "--set", "training.devices=2"]
    ended = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=200
    )
    said = [line for line in ended.stderr.splitlines() if "labels" in line]
    assert (ended.returncode, ended.stdout.count("Report:")) == (0, 1), ended.stderr
    assert len(said) == 2, ended.stderr  # once each: two looks at the labels
    train(parsed(settings), alone)
    one, two = RunFolder(alone).record(), RunFolder(run).record()
    assert one is not None
    assert two is not None
    assert two.cleaning[0].left_out > 0
    assert two.guard == one.guard
    least = [[look.least for look in record.cleaning] for record in (one, two)]
    without = [[look.model_copy(update={"least": None}) for look in record.cleaning] for record in (one, two)]
    assert without[1] == without[0]
    assert least[1] == pytest.approx(least[0], rel=1e-5)
    assert one.choosing is not None
    assert two.choosing is not None
    checks = [[look.value for look in choice.checks] for choice in (one.choosing, two.choosing)]
    assert checks[1] == pytest.approx(checks[0])
    check_same(run, alone)


@pytest.mark.nightly
def test_one_process_goes_on_where_another_was_killed_under_torchrun(
    tmp_path: Path, settings: dict[str, Any], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loss.py").write_text(KILLED)
    monkeypatch.chdir(tmp_path)
    settings["loss"] |= {"name": f"python:{tmp_path / 'loss.py'}:Killed"}
    file, run, alone = tmp_path / "run.toml", tmp_path / "run", tmp_path / "alone"
    file.write_text(parsed(settings).to_toml())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    with pytest.raises(ChildFailedError):
        torchrun([*place, "--nnodes", "1", "--nproc-per-node", "2", "-m", "trivet", "train", str(file), "-o", str(run)])
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("trivet:")]
    assert said == [
        "trivet: the training ended, as process 1 is gone: it was killed, or is out of reach; continue with trivet "
        f"train --resume {run}."
    ]
    folder = RunFolder(run)
    record = folder.record()
    assert record is not None
    assert record.status == "failed"
    assert [file.name for file in folder.checkpoints()] == ["step-00000004.safetensors"]
    assert not list(tmp_path.rglob("*.trivet"))  # what was being written
    assert resume(run).status == "finished"
    train(parsed(settings), alone)
    check_same(run, alone)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("BEAT", 0.01), ("PATIENCE", 0.2), ("GRACE", 0.1)):
        monkeypatch.setattr(process_group, name, seconds)


def test_a_process_without_signs_of_life_is_lost(quick: None) -> None:
    notes, said, over = HashStore(), [], threading.Event()

    def act(reason: str) -> None:
        said.append(reason)
        over.set()

    other = PeerWatch(1, 2, notes, lambda _: None)
    watch = PeerWatch(0, 2, notes, act)
    assert watch.why(0.05) is None  # it is alive
    other.end()  # and gives no sign from now on
    assert over.wait(10)
    assert said == ["process 1 is gone: it was killed, or is out of reach"]
    watch.end()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("the disk is full."), "process 1 failed: the disk is full"),
        (RuntimeError("a bug"), "process 1 failed: RuntimeError a bug"),
        (KeyboardInterrupt(), None),
    ],
)
def test_a_process_says_why_it_ends(quick: None, error: BaseException, reason: str | None) -> None:
    notes = HashStore()
    ProcessGroup(1, 2, notes).fail(error)
    watch = PeerWatch(0, 2, notes, lambda _: None)
    watch.stop()
    assert watch.why(0.05) == reason


@pytest.mark.parametrize(
    ("environment", "member"),
    [
        ({}, None),
        ({"WORLD_SIZE": "1", "RANK": "0"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, None),
        (
            {
                "WORLD_SIZE": "4",
                "RANK": "3",
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "a",
                "MASTER_PORT": "1",
            },
            ProcessRank(3, 4, 1, 2),
        ),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 says that several were started, but RANK is not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "a"}, "MASTER_PORT is not set"),
        ({"SLURM_PROCID": "1"}, "must be started by torchrun, or by training.devices: SLURM_PROCID=1"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE=2"),
    ],
)
def test_a_process_knows_which_of_several_it_is(environment: dict[str, str], member: ProcessRank | str | None) -> None:
    if isinstance(member, str):
        with pytest.raises(ValueError, match=member):
            member_of(environment)
    else:
        assert member_of(environment) == member


@pytest.mark.parametrize(
    ("training", "batch", "started", "expected"),
    [
        ({}, {}, 0, 1),
        ({"devices": 2}, {}, 0, 2),
        ({"devices": "auto"}, {}, 0, 1),  # without a GPU
        ({}, {}, 4, 1),
        ({"devices": 4}, {}, 4, 1),
        ({"devices": 2}, {}, 4, "it started 4, and training.devices = 2;"),
        ({"devices": 10}, {}, 0, "an item for each process: got 9 items for 10 processes"),
        ({"devices": 3}, {"gpus": 2}, 0, "a GPU of its own: got 3 processes and 2 GPUs"),
        ({}, {"gpus": 2}, 4, "a GPU of its own: got 4 processes and 2 GPUs"),
        ({"devices": "auto"}, {"gpus": 2}, 0, 2),
    ],
)
def test_as_many_processes_as_there_are_devices(
    training: dict[str, Any],
    batch: dict[str, int],
    started: int,
    expected: int | str,
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = ProcessRank(0, started, 0, started) if started else None
    monkeypatch.setattr(launch, "member_of", lambda _: member)
    if "gpus" in batch:
        monkeypatch.setattr(launch, "device_of", lambda _: torch.device("cuda"))
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: batch["gpus"])
    config = parsed({**settings, "training": {**settings["training"], **training}})
    if isinstance(expected, int):
        assert processes_to_start(config.training, config.batch.batch_size) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            processes_to_start(config.training, config.batch.batch_size)


def test_processes_that_are_started_get_settings_alone(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = parsed(settings)
    splits, several = load(config.data, None), ["training.devices=2"]
    sentence = "splits and watch cannot be given to the processes that training.devices starts: it asks for 2"
    with pytest.raises(ValueError, match=sentence):
        train(with_length(config, several), tmp_path / "new", splits=splits, watch=lambda *_: None)
    run = RunFolder(tmp_path / "run")
    with run.new(config, force=False):
        run.write_record(RunRecord(status="interrupted"))
    with pytest.raises(ValueError, match=r"^watch cannot be given"):
        resume(run.path, changes=several, watch=lambda *_: None)


def test_devices_may_change_when_a_run_goes_on(settings: dict[str, Any]) -> None:
    settings["training"] |= {"schedule": "cosine"}
    longer = with_length(parsed(settings), ["training.devices=4"]).training
    assert longer.devices == 4
    with pytest.raises(ValueError, match="must stay"):
        with_length(parsed(settings), ["training.steps=32"])
    for wrong in ("0", "some"):
        with pytest.raises(ValueError, match=r"training\.devices"):
            with_length(parsed(settings), [f"training.devices={wrong}"])


def test_only_a_run_that_nobody_writes_has_failed(tmp_path: Path, settings: dict[str, Any]) -> None:
    note_failed(tmp_path)  # no run
    run = RunFolder(tmp_path / "run")
    with run.new(parsed(settings), force=False):
        run.write_record(RunRecord(status="running"))
        note_failed(run.path)
        assert run.record().status == "running"
    note_failed(run.path)
    assert run.record().status == "failed"
    run.write_record(RunRecord(status="interrupted"))
    note_failed(run.path)
    assert run.record().status == "interrupted"
