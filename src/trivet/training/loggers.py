"""Sends what a run measures to TensorBoard, MLflow and Weights & Biases, by the loggers of Lightning."""

from __future__ import annotations

import logging
import os
import re
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit, urlunsplit

from trivet.collapse.monitor import Event
from trivet.io.atomic_files import write_json
from trivet.runtime.extras import installed
from trivet.runtime.safe_read import read_json
from trivet.training.config import LoggerName

LOGS = "logs"  # the folder in that of the run
SENT = "loggers.json"  # in it: logger -> its run, and the last step of each value that it has
PROJECT = "trivet"  # where the environment names no other experiment of MLflow or project of W&B
ANSWER = 10.0  # seconds within which a server answers
ENDS = {"finished": "success", "stopped": "success", "interrupted": "KILLED", "failed": "failed"}
log = logging.getLogger("trivet")


def check_installed(names: Sequence[LoggerName]) -> None:
    """Raise ValueError if a logger that the settings name is not installed."""
    for name in names:
        if not installed(name):
            raise ValueError(
                f'training.loggers = ["{name}"] needs {name}, which is not installed: run pip install '
                f"'trivet[loggers]', or pip install {name}."
            )


class _Open(NamedTuple):
    """A logger that is written to; `sent` has the last step of each value that it has."""

    name: LoggerName
    logger: Any
    id: str | None
    sent: dict[str, int]


class Loggers:
    """The loggers of a run, which are closed at the end of a `with`.

    A resumed run goes on in the same run of each logger, and sends nothing twice. Values of an attempt after a repair,
    whose steps begin anew, are named "attempt-1/...". A logger that fails while training goes on is left out from then
    on, with a warning.

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
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        before = _noted(self._folder / SENT) if resumed else {}
        for name in dict.fromkeys(names):
            id, sent = before.get(name, (None, {}))
            with _opening(name):
                logger, id = OPENERS[name](self._folder.resolve(), folder.resolve().name, id, tracking_uri)
                self._open.append(_Open(name, logger, id, sent))
                if name not in before:
                    _begin(self._open[-1], settings)
        self._note()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.end("interrupted" if issubclass(kind, KeyboardInterrupt) else "failed")

    def add(self, values: Mapping[tuple[str, ...], float], step: int, attempt: int = 0) -> None:
        """Send values of a step: by what they are, from the general to the special: ("train", "loss")."""
        if not self._open:
            return
        named = {_key(parts, attempt): value for parts, value in values.items()}
        for target in self._open.copy():
            self._send(target, named, step, partial(_measured, target))

    def say(self, event: Event, attempt: int = 0) -> None:
        """Send what the monitor detected: 1 at its step, and the rule in words."""
        key = _key(("event", event.kind), attempt)
        for target in self._open.copy():
            self._send(target, {key: 1.0}, event.step, partial(_send_event, target, key, event))

    def end(self, status: str, values: Mapping[tuple[str, ...], float] | None = None, step: int = 0) -> None:
        """Send the results of a run and close the loggers.

        Args:
            status: of the record of the run.
            values: as those of `add`.
        """
        if self._ended:
            return
        self._ended = True
        named = {_key(parts, 0): value for parts, value in (values or {}).items()}
        for target in self._open.copy():
            self._send(target, named, step, partial(_resulted, target, self._settings))
            self._try(target, partial(_close, target, ENDS[status]))

    def _send(self, target: _Open, values: Mapping[str, float], step: int, send: Callable[..., None]) -> None:
        """Send the values that a logger does not have, and note that it has them."""
        new = {key: value for key, value in values.items() if step > target.sent.get(key, -1)}
        if new and self._try(target, partial(send, new, step)):
            target.sent.update(dict.fromkeys(new, step))
            self._note()

    def _try(self, target: _Open, do: Callable[[], object]) -> bool:
        """Whether a logger did something; one that could not is left out from now on."""
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
        noted = {target.name: {"id": target.id, "sent": target.sent} for target in self._open}
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


@contextmanager
def _opening(name: str) -> Iterator[None]:
    """ValueError for whatever goes wrong in the block."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise ValueError(
            f"the logger {name} must be one that can be reached: {_short(error)}; check its address, log in, or remove "
            "it from training.loggers."
        ) from None


def _tensorboard(folder: Path, name: str, id: str | None, uri: str | None) -> tuple[Any, str | None]:
    from lightning.pytorch.loggers import TensorBoardLogger

    return TensorBoardLogger(folder, name="tensorboard", version="", default_hp_metric=False), None


def _mlflow(folder: Path, name: str, id: str | None, uri: str | None) -> tuple[Any, str | None]:
    from lightning.pytorch.loggers import MLFlowLogger

    for library in ("mlflow", "alembic"):
        logging.getLogger(library).setLevel(logging.WARNING)
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI")
    _check_answers(uri)
    logger = MLFlowLogger(
        experiment_name=os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT),
        run_name=name,
        tracking_uri=uri or f"sqlite:///{folder / 'mlflow.db'}",
        artifact_location=None if uri else str(folder / "mlflow"),
        run_id=id,
    )
    run = logger.run_id  # connects
    if id is not None:
        logger.experiment.update_run(id, status="RUNNING")
    return logger, run


def _wandb(folder: Path, name: str, id: str | None, uri: str | None) -> tuple[Any, str | None]:
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    logger = WandbLogger(
        name=name,
        save_dir=folder,
        id=id,
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        settings=wandb.Settings(console="off"),
    )
    return logger, logger.experiment.id


OPENERS: dict[str, Callable[[Path, str, str | None, str | None], tuple[Any, str | None]]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
"""The folder, the name of the run, the run of the logger and the address of MLflow -> the logger and its run."""


def _check_answers(uri: str | None) -> None:
    """OSError if no server answers at an address: MLflow itself would try for minutes."""
    address = urlsplit(uri or "")
    if address.scheme in ("http", "https"):
        bare = urlunsplit((address.scheme, address.netloc.rpartition("@")[2], address.path, "", ""))
        with suppress(urllib.error.HTTPError):  # which is an answer
            urllib.request.urlopen(bare, timeout=ANSWER).close()


def _begin(target: _Open, settings: Mapping[str, Any]) -> None:
    """The settings of a run, at its beginning."""
    if target.name == "tensorboard":
        target.logger.experiment.add_text(
            "settings", "\n".join(f"- {name}: {values}" for name, values in settings.items())
        )
    else:
        target.logger.log_hyperparams(dict(settings))


def _measured(target: _Open, values: Mapping[str, float], step: int) -> None:
    target.logger.log_metrics(dict(values), step)
    target.logger.save()  # on disk


def _send_event(target: _Open, key: str, event: Event, values: Mapping[str, float], step: int) -> None:
    text = f"step {event.step}: {event.rule}"
    if target.name == "tensorboard":
        target.logger.experiment.add_text(key, text, step)
    elif target.name == "mlflow":
        target.logger.experiment.set_tag(target.id, key.replace("/", "."), text)
    else:
        target.logger.experiment.summary[f"{key}/rule"] = text
    _measured(target, values, step)


def _resulted(target: _Open, settings: Mapping[str, Any], values: Mapping[str, float], step: int) -> None:
    if target.name == "tensorboard":  # it shows settings beside the results that came with them
        target.logger.log_hyperparams(dict(settings), dict(values), step)
    else:
        _measured(target, values, step)


def _close(target: _Open, status: str) -> None:
    target.logger.finalize(status)
    if target.name == "wandb":
        target.logger.experiment.finish(exit_code=int(status != "success"))


def _key(words: Sequence[str], attempt: int) -> str:
    """The name of a value, of letters that every logger takes."""
    safe = [
        re.sub(r"[^\w .-]", "_", word.replace("@", "_at_").replace("+", "_plus"), flags=re.ASCII).strip(" .") or "_"
        for word in words
    ]
    return "/".join([*([f"attempt-{attempt}"] if attempt else []), *safe])


def _short(error: Exception) -> str:
    """One line, without a full stop."""
    return (" ".join(str(error).split()) or type(error).__name__)[:300].rstrip(".")
