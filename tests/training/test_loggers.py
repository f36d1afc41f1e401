"""Loggers get what the run measures, each value once, also of a run that is killed; what they do changes nothing."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.runs import check_same_run, head_settings

from trivet.collapse.monitor import Event
from trivet.commands.train.run import resume, train
from trivet.io.overwrite_guard import RUN_FOLDER, OutputFolder, check_outputs
from trivet.training import loggers
from trivet.training.config import RunConfig
from trivet.training.loggers import Logger, Loggers
from trivet.training.run_log import RunLog

pytestmark = pytest.mark.usefixtures("undiagnosed")

STEPS, KILLED, CHECKPOINT = 8, 7, 6
QUIET = "ignore::DeprecationWarning"  # of the libraries of the loggers


class KilledError(Exception):
    """The end of a process that has no time for anything."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    label = np.repeat(np.arange(16), 4)
    path = tmp_path_factory.mktemp("data") / "vectors.npz"
    vectors = random.standard_normal((16, 8))[label] + random.standard_normal((64, 8))
    np.savez(path, embeddings=vectors.astype(np.float32), kind=np.array([f"k{i:02d}" for i in label]))
    return path


def settings(file: Path, *changes: str) -> RunConfig:
    few = ["evaluation.map_points=20", "evaluation.nmi_plus=1", "evaluation.every=4", "training.log_every=1"]
    few += [f"training.steps={STEPS}", f"training.checkpoint_every={CHECKPOINT // 2}"]
    return head_settings(file, *few, *changes)


def train_killed(config: RunConfig, path: Path) -> None:
    """Train with a kill after the seventh step, and go on from the sixth."""
    note = RunLog.add_step

    def note_or_die(run_log: RunLog, recall: Any) -> None:
        note(run_log, recall)
        if run_log._state.learner.step == KILLED:
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunLog, "add_step", note_or_die)
        patch.setattr(Loggers, "end", lambda *_: None)
        with pytest.raises(KilledError):
            train(config, path)
    resume(path)


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def expected(run: Path) -> dict[str, dict[int, float]]:
    """Some of what a logger must have, by name and step, from the files of the run."""
    record = json.loads((run / "record.json").read_text())
    rows = rows_of(run)
    trained = record["evaluation"]["unseen"][0]["levels"]["kind"]
    series = record["monitor"]["series"]
    return {
        "train/loss": {int(row["step"]): float(row["loss"]) for row in rows},
        "validation/recall_at_1/kind": {int(row["step"]): float(at) for row in rows if (at := row["recall@1/kind"])},
        "choosing/recall_at_1/kind": {look["step"]: look["value"] for look in record["choosing"]["checks"]},
        "collapse/relative_spread": dict(zip(map(int, series["step"]), series["relative_spread"], strict=True)),
        "evaluation/unseen/kind/recall_at_1": {STEPS: trained["recall@1"]},
        "evaluation/unseen/kind/nmi_plus": {STEPS: trained["nmi+"]},
    }


def check(found: dict[str, list[tuple[int, float]]], run: Path) -> None:
    for name, values in expected(run).items():
        assert [step for step, _ in found[name]] == sorted(values), name  # none twice
        assert dict(found[name]) == pytest.approx(values, rel=1e-6), name


@pytest.fixture(scope="module")
def plain(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "run"
    train(settings(file), path)
    return path


class Fake(Logger):
    """Keeps what it is sent; `broken` raises instead."""

    def __init__(self) -> None:
        self.id, self.broken, self.status = "own", False, ""
        self.values: list[tuple[str, int, float]] = []
        self.texts: dict[str, str] = {}
        self.settings: Mapping[str, Any] = {}

    def begin(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings

    def log(self, values: Mapping[str, float], step: int) -> None:
        if self.broken:
            raise OSError("the server has gone.")
        self.values += [(name, step, value) for name, value in values.items()]

    def log_text(self, key: str, text: str, step: int) -> None:
        self.texts[key] = text

    def close(self, status: str) -> None:
        self.status = status


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    one = Fake()
    monkeypatch.setitem(loggers.OPENERS, "mlflow", lambda *_: one)
    monkeypatch.setattr(loggers, "installed", lambda name: True)
    return one


def test_a_killed_run_sends_each_value_once_and_trains_as_one_without_loggers(
    file: Path, plain: Path, fake: Fake, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train_killed(settings(file, 'training.loggers=["mlflow"]'), run)
    found: dict[str, list[tuple[int, float]]] = {}
    for name, step, value in fake.values:
        found.setdefault(name, []).append((step, value))
    check(found, run)
    assert fake.settings["loss"]["margin"] == 0.4
    assert fake.status == "finished"
    check_same_run(plain, run)


def test_a_logger_that_fails_is_left_out_and_the_others_go_on(
    tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = Fake()
    monkeypatch.setitem(loggers.OPENERS, "wandb", lambda *_: other)
    with Loggers(tmp_path, ["mlflow", "wandb"], {}, tracking_uri=None, resumed=False) as both:
        both.add({("train", "loss"): 0.5}, 1)
        fake.broken = True
        both.add({("train", "loss"): 0.4}, 2)
        fake.broken = False
        both.add({("train", "loss"): 0.3}, 3)
        assert [step for _, step, _ in fake.values] == [1]
        assert [step for _, step, _ in other.values] == [1, 2, 3]
        assert caplog.messages == ["the logger mlflow failed and gets no more of this run: the server has gone"]


def test_names_of_values_and_nothing_twice(tmp_path: Path, fake: Fake) -> None:
    both = Loggers(tmp_path, ["mlflow", "mlflow"], {}, tracking_uri=None, resumed=False)
    both.add({("validation", "recall@1", "Größe/a.."): 0.5, ("evaluation", "nmi+"): 0.1}, 9)
    event = Event(5, "network-collapse", {}, "it fell", (), None, 0)
    both.add_event(event)
    both.add_event(event)
    assert fake.values == [
        ("validation/recall_at_1/Gr__e_a", 9, 0.5),
        ("evaluation/nmi_plus", 9, 0.1),
        ("event/network-collapse", 5, 1.0),
    ]
    assert fake.texts == {"event/network-collapse": "step 5: it fell"}


def test_a_logger_that_is_not_installed_or_not_asked_for(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "installed", lambda name: False)
    missing = settings(file, 'training.loggers=["wandb"]')
    missing = missing.model_copy(update={"data": missing.data.model_copy(update={"path": tmp_path / "none.npz"})})
    with pytest.raises(ValueError, match=r"needs wandb, which is not installed: run pip install 'trivet\[loggers\]'"):
        train(missing, tmp_path / "run")  # before the data are missed
    with pytest.raises(ValueError, match="'comet' is not known; Allowed: mlflow, tensorboard, wandb"):
        settings(file, 'training.loggers=["comet"]')
    with pytest.raises(ValueError, match='mlflow_uri is for the logger mlflow: add "mlflow" to loggers'):
        settings(file, "training.mlflow_uri=http://127.0.0.1")


@pytest.mark.filterwarnings(QUIET)
def test_tensorboard_files_are_read_back(file: Path, plain: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    train_killed(settings(file, 'training.loggers=["tensorboard"]'), run)
    events = EventAccumulator(str(run / "logs" / "tensorboard")).Reload()
    found = {name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]}
    check(found, run)
    assert "settings/text_summary" in events.Tags()["tensors"]
    assert "_hparams_/session_start_info" in events.summary_metadata
    assert rows_of(run) == rows_of(plain)
    check_outputs([OutputFolder("--output", run, RUN_FOLDER)], [])  # --force may replace what loggers wrote


def get(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except OSError:
        return False
    return True


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an MLflow server with a SQLite store."""
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    store = f"--backend-store-uri sqlite:///{tmp_path / 'store.db'} --artifacts-destination {tmp_path / 'a'}"
    command = f"{sys.executable} -m mlflow server {store} --host 127.0.0.1 --port {port} --workers 1".split()
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        address, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
        while not get(f"{address}/health"):
            assert process.poll() is None, (tmp_path / "server.log").read_text()
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # its workers are of its group
        process.wait(30)


@pytest.mark.filterwarnings(QUIET)
def test_a_server_of_mlflow_has_all_of_a_killed_run_in_one(
    file: Path, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    run = tmp_path / "named"
    train_killed(settings(file, 'training.loggers=["mlflow"]'), run)
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("trivet")
    (kept,) = client.search_runs([experiment.experiment_id])
    assert (kept.info.run_name, kept.info.status) == ("named", "FINISHED")
    assert kept.data.params["loss/name"] == "triplet"
    names = expected(run)
    check(
        {name: [(one.step, one.value) for one in client.get_metric_history(kept.info.run_id, name)] for name in names},
        run,
    )


def test_a_server_that_does_not_answer_is_said_before_the_first_step(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        config = settings(file, 'training.loggers=["mlflow"]', f"training.mlflow_uri={address}")
        with pytest.raises(ValueError, match=r"the logger mlflow must be one that can be reached: .* remove it from"):
            train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def logged(data: bytes) -> Iterator[bytes]:
    """The records of a file of W&B, which has the form of a log of LevelDB behind seven bytes of its own."""
    place, record = 7, b""
    while place < len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_writes_in_the_run_folder(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "run"
    train(settings(file, 'training.loggers=["wandb"]'), run)
    (written,) = (run / "logs" / "wandb").glob("offline-run-*/*.wandb")
    found: dict[str, list[tuple[int, float]]] = {}
    for data in logged(written.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for name, value in row.items():
            found.setdefault(name, []).append((row["trainer/global_step"], value))
    check(found, run)
    check_outputs([OutputFolder("--output", run, RUN_FOLDER)], [])
