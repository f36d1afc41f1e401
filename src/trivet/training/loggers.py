"""Sends what a run measures to TensorBoard, MLflow and Weights & Biases."""

from __future__ import annotations

import logging
import os
import re
import time
import urllib.error
import urllib.request
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit, urlunsplit

from trivet.collapse.monitor import Event
from trivet.io.atomic_files import write_json
from trivet.runtime.extras import installed
from trivet.runtime.safe_read import read_json
from trivet.runtime.terminal import without_passwords
from trivet.training.config import LoggerName

LOGS = "logs"  # the folder in that of the run
SENT = "loggers.json"  # in it: logger -> its run, and the last step of each value that it has
WANDB_STEP = "trainer/global_step"  # the axis of what W&B draws
PROJECT = "trivet"  # where the environment names no other experiment of MLflow or project of W&B
ANSWER = 10.0  # seconds within which a server answers
MLFLOW_STATUS = {"finished": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
MLFLOW_VALUE, MLFLOW_BATCH = 250, 100  # characters of a setting, and settings sent at once
log = logging.getLogger("trivet")


def check_installed(names: Sequence[LoggerName]) -> None:
    """Raise ValueError if a logger that the settings name is not installed."""
    for name in names:
        if not installed(name):
            raise ValueError(
                f'training.loggers = ["{name}"] needs {name}, which is not installed: run pip install '
                f"'trivet[loggers]', or pip install {name}."
            )


class Logger(ABC):
    """A place that values go to.

    Attributes:
        id: the run of the logger, which a resumed run goes on with; None where the folder tells.
    """

    id: str | None = None

    @abstractmethod
    def begin(self, settings: Mapping[str, Any]) -> None:
        """Send the settings of a new run, section -> key -> value."""

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send values of a step, and have them stored."""

    @abstractmethod
    def log_text(self, key: str, text: str, step: int) -> None:
        """Send a text."""

    def log_results(self, settings: Mapping[str, Any], values: Mapping[str, float], step: int) -> None:
        """Send the results of a run, beside its settings where the logger shows them so."""
        self.log(values, step)

    @abstractmethod
    def close(self, status: str) -> None:
        """End, with the status of the record of the run."""


class TensorBoardLogger(Logger):
    """Event files in a folder."""

    def __init__(self, folder: Path, name: str, id: str | None, uri: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def begin(self, settings: Mapping[str, Any]) -> None:
        self._writer.add_text("settings", "\n".join(f"- {name}: {values}" for name, values in settings.items()))

    def log(self, values: Mapping[str, float], step: int) -> None:
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def log_text(self, key: str, text: str, step: int) -> None:
        self._writer.add_text(key, text, step)

    def log_results(self, settings: Mapping[str, Any], values: Mapping[str, float], step: int) -> None:
        from torch.utils.tensorboard.summary import hparams

        self.log(values, step)
        flat = {key: value if isinstance(value, int | float) else str(value) for key, value in _flat(settings)}
        for summary in hparams(flat, dict(values)):  # type: ignore[no-untyped-call]  # torch has no types of it
            self._writer.file_writer.add_summary(summary, step)

    def close(self, status: str) -> None:
        self._writer.close()


class MLflowLogger(Logger):
    """A run of an MLflow server, or of a SQLite file in the run folder."""

    def __init__(self, folder: Path, name: str, id: str | None, uri: str | None) -> None:
        for library in ("mlflow", "alembic"):
            logging.getLogger(library).setLevel(logging.WARNING)
        uri = uri or os.environ.get("MLFLOW_TRACKING_URI")
        _check_answers(uri)
        import mlflow
        from mlflow.tracking.context.registry import resolve_tags

        uri, artifacts = (uri, None) if uri else (f"sqlite:///{folder / 'mlflow.db'}", str(folder / "mlflow"))
        mlflow.set_tracking_uri(uri)
        self._client = mlflow.MlflowClient(uri)
        if id is not None:
            self.id = self._client.get_run(id).info.run_id
            self._client.update_run(id, status="RUNNING")
            return
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(title)
        if experiment is None or experiment.lifecycle_stage == "deleted":
            number = self._client.create_experiment(title, artifact_location=artifacts)
        else:
            number = experiment.experiment_id
        self.id = self._client.create_run(number, run_name=name, tags=resolve_tags()).info.run_id

    def begin(self, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        params = [Param(key, str(value)[:MLFLOW_VALUE]) for key, value in _flat(settings)]
        for start in range(0, len(params), MLFLOW_BATCH):
            self._client.log_batch(self.id, params=params[start : start + MLFLOW_BATCH])

    def log(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self.id, metrics=[Metric(key, value, now, step) for key, value in values.items()])

    def log_text(self, key: str, text: str, step: int) -> None:
        self._client.set_tag(self.id, key.replace("/", "."), text)

    def close(self, status: str) -> None:
        self._client.set_terminated(self.id, MLFLOW_STATUS[status])


class WandbLogger(Logger):
    """A run of Weights & Biases."""

    def __init__(self, folder: Path, name: str, id: str | None, uri: str | None) -> None:
        import wandb

        self._run: Any = wandb.init(
            name=name,
            dir=str(folder),
            id=id,
            resume="allow",
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            settings=wandb.Settings(console="off"),
        )
        self._run.define_metric(WANDB_STEP)
        self._run.define_metric("*", step_metric=WANDB_STEP, step_sync=True)
        self.id = self._run.id

    def begin(self, settings: Mapping[str, Any]) -> None:
        self._run.config.update(dict(settings), allow_val_change=True)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values, WANDB_STEP: step})

    def log_text(self, key: str, text: str, step: int) -> None:
        self._run.summary[f"{key}/rule"] = text

    def close(self, status: str) -> None:
        self._run.finish(exit_code=int(status not in ("finished", "stopped")))


OPENERS: dict[str, Callable[[Path, str, str | None, str | None], Logger]] = {
    "tensorboard": TensorBoardLogger,
    "mlflow": MLflowLogger,
    "wandb": WandbLogger,
}
"""The folder, the name of the run, the run of the logger and the address of MLflow -> the logger."""


class _Open(NamedTuple):
    """A logger that is written to; `sent` has the last step of each value that it has."""

    name: LoggerName
    logger: Logger
    sent: dict[str, int]


class Loggers:
    """The loggers of a run, which are closed at the end of a `with`.

    A resumed run goes on in the same run of each logger, and sends nothing twice. A logger that fails while training
    goes on is left out from then on, with a warning.

    Args:
        folder: of the run; TensorBoard writes to `logs/tensorboard`, W&B to `logs/wandb`.
        names: of the loggers; those named twice are one.
        settings: of the run, section -> key -> value.
        tracking_uri: of MLflow. Default: the environment's MLFLOW_TRACKING_URI, else `logs/mlflow.db`, by SQLite.
        resumed: whether the run goes on from a checkpoint.

    Raises:
        ValueError: if a logger cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[LoggerName],
        settings: Mapping[str, Any],
        *,
        tracking_uri: str | None,
        resumed: bool,
    ) -> None:
        self._folder, self._settings = folder / LOGS, settings
        self._ended = False
        self._open: list[_Open] = []
        if not names:
            return
        self._folder.mkdir(exist_ok=True)
        before = _noted(self._folder / SENT) if resumed else {}
        for name in dict.fromkeys(names):
            id, sent = before.get(name, (None, {}))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    logger = OPENERS[name](self._folder.resolve(), folder.resolve().name, id, tracking_uri)
                    self._open.append(_Open(name, logger, sent))
                    if name not in before:
                        logger.begin(settings)
            except Exception as error:  # whatever it is, it is of the logger
                raise ValueError(
                    f"the logger {name} must be one that can be reached: {_short(error)}; check its address, log in, "
                    "or remove it from training.loggers."
                ) from None
        self._note()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.end("interrupted" if issubclass(kind, KeyboardInterrupt) else "failed")

    def add(self, values: Mapping[tuple[str, ...], float], step: int) -> None:
        """Send values of a step: by what they are, from the general to the special: ("train", "loss")."""
        if not self._open:
            return
        named = {_key(words): value for words, value in values.items()}
        for target in self._open.copy():
            self._send(target, named, step, target.logger.log)

    def add_event(self, event: Event) -> None:
        """Send what the monitor detected: 1 at its step, and the rule in words."""
        key = _key(("event", event.kind))
        for target in self._open.copy():

            def send(values: Mapping[str, float], step: int, logger: Logger = target.logger) -> None:
                logger.log_text(key, f"step {event.step}: {event.rule}", step)
                logger.log(values, step)

            self._send(target, {key: 1.0}, event.step, send)

    def end(self, status: str, values: Mapping[tuple[str, ...], float] | None = None, step: int = 0) -> None:
        """Send the results of a run and close the loggers.

        Args:
            status: of the record of the run.
            values: as those of `add`.
        """
        if self._ended:
            return
        self._ended = True
        named = {_key(words): value for words, value in (values or {}).items()}
        for target in self._open.copy():
            self._send(target, named, step, partial(target.logger.log_results, self._settings))
            self._try(target, partial(target.logger.close, status))

    def _send(self, target: _Open, values: Mapping[str, float], step: int, send: Callable[..., None]) -> None:
        """Send the values that a logger does not have, and note that it has them."""
        new = {key: value for key, value in values.items() if step > target.sent.get(key, -1)}
        if new and self._try(target, partial(send, new, step)):
            target.sent.update(dict.fromkeys(new, step))
            self._note()

    def _try(self, target: _Open, do: Callable[[], object]) -> bool:
        """True if a logger did something; one that could not is left out from now on."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of libraries that no user can heed
                do()
        except Exception as error:  # a server that is gone must not end the training
            self._open.remove(target)
            log.warning(f"the logger {target.name} failed and gets no more of this run: {_short(error)}")
            return False
        return True

    def _note(self) -> None:
        noted = {target.name: {"id": target.logger.id, "sent": target.sent} for target in self._open}
        write_json(self._folder / SENT, noted)


def _noted(path: Path) -> dict[str, tuple[str | None, dict[str, int]]]:
    """Logger -> its run and what it was sent; empty where that is not known."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        noted = read_json(path, "the notes of loggers")
        return {
            name: (entry["id"], {str(key): int(step) for key, step in entry["sent"].items()})
            for name, entry in noted.items()
        }
    return {}


def _check_answers(uri: str | None) -> None:
    """OSError if no server answers at an address: MLflow itself would try for minutes."""
    address = urlsplit(uri or "")
    if address.scheme in ("http", "https"):
        bare = urlunsplit((address.scheme, address.netloc.rpartition("@")[2], address.path, "", ""))
        with suppress(urllib.error.HTTPError):  # which is an answer
            urllib.request.urlopen(bare, timeout=ANSWER).close()


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Settings by names such as "loss/margin"."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def _key(words: Sequence[str]) -> str:
    """The name of a value, of letters that every logger takes."""
    safe = [
        re.sub(r"[^\w .-]", "_", word.replace("@", "_at_").replace("+", "_plus"), flags=re.ASCII).strip(" .") or "_"
        for word in words
    ]
    return "/".join(safe)


def _short(error: Exception) -> str:
    """One line, without a full stop, and without users and passwords of addresses."""
    text = re.sub(r"://\S*@", "://", without_passwords(" ".join(str(error).split())))
    return (text or type(error).__name__)[:300].rstrip(".")
