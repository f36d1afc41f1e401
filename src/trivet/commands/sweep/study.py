"""The study of a sweep: which trials there are, who works on which, and what they came to. Workers meet here, in a
database of optuna's.

A *candidate* is one of the settings to be tried, from 0 on. A worker claims a trial of it; if the worker dies or is
stopped, the trial is closed without a result and another one with the same settings is added, so that a candidate has
at most one trial that is open and at most one that was told.
"""

from __future__ import annotations

import json
import logging
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Self

from trivet.commands.sweep.record import State, StudyDescription, SweepMeasurement, SweepRun, SweepTrial
from trivet.commands.sweep.search_space import Range, SweepConfig, Value, Varied
from trivet.commands.sweep.storage_address import database_url, sqlite_file, storage_name
from trivet.io.file_locks import locked_file
from trivet.runtime.extras import load

STATES: dict[str, State] = {
    "COMPLETE": "complete",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "RUNNING": "running",
    "WAITING": "waiting",
}
ENDED: tuple[State, ...] = ("complete", "pruned", "failed")
SILENT = 4  # signs of life that a worker may miss
DEATHS = 3  # workers that may die of a trial
STRIDE = 10_000_000  # looks of run r of a trial are reported at r * STRIDE + step: a database has 32 bits for it
LOCK = 7_413_301  # of the locks in PostgreSQL
STARTUP = 5  # complete trials before one is pruned by their median
# What a trial says of itself, beside its values.
CANDIDATE, RUNS, WHY, FAILED, STOPPED = "candidate", "runs", "why", "failed", "stopped"
DESCRIPTION = "trivet"  # what a study says of itself
Code = bool | int | float | str  # a value as optuna takes it
log = logging.getLogger("trivet")


class TakenOverError(RuntimeError):
    """A trial was closed by another worker, which took this one for dead."""


def ranked(trials: Iterable[SweepTrial]) -> list[SweepTrial]:
    """The trials that have a value, the highest first, of equal ones the first; then the others, in their order."""
    return sorted(trials, key=lambda trial: (trial.value is None, -(trial.value or 0.0), trial.number))


def best_of(trials: Iterable[SweepTrial]) -> SweepTrial | None:
    """The complete trial with the highest value, of equal ones the first; None if there is none."""
    return next((trial for trial in ranked(trials)[:1] if trial.value is not None), None)


class Study:
    """A study in a database. After `with` its connections are closed.

    Args:
        storage, study: of optuna.
        config: of the sweep.
        lock: a file beside that of SQLite, locked while the study is changed; None for PostgreSQL, which has locks.
    """

    def __init__(self, storage: Any, study: Any, config: SweepConfig, lock: Path | None) -> None:
        self._storage, self._study, self._lock = storage, study, lock
        self.config = config
        self.description = _described(study)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._storage)

    @property
    def name(self) -> str:
        """Name of the study in its storage."""
        return str(self._study.study_name)

    @property
    def trials(self) -> int:
        """Number of candidates to be tried."""
        assert self.description is not None
        return self.description.trials

    def describe(self, description: StudyDescription) -> None:
        """Write what the study says of itself."""
        self.description = description
        self._study.set_user_attr(DESCRIPTION, description.as_json())

    def outcomes(self) -> list[SweepTrial]:
        """Result of each candidate that was begun or waits, in their order."""
        return [_outcome(candidate, trials, self.config.vary) for candidate, trials in sorted(self._candidates())]

    def over(self) -> bool:
        """Test whether all candidates have ended."""
        outcomes = self.outcomes()
        return len(outcomes) >= self.trials and all(outcome.state in ENDED for outcome in outcomes)

    def revive(self) -> None:
        """Close the trials of dead workers, and add another for each candidate that has none open or ended."""
        with self._alone():
            _optuna().storages.fail_stale_trials(self._study)
            for candidate, trials in self._candidates():
                if _state(trials) is None:
                    last = max(trials, key=lambda trial: trial.number)
                    self._add(candidate, last.system_attrs.get("fixed_params", {}) | last.params)

    def claim(self, grid: Sequence[Mapping[str, Value]] | None) -> ClaimedTrial | None:
        """A trial to work on; None where all places are told or worked on.

        Args:
            grid: all values there are, where they are not sampled; a new candidate has the first that no other has.
        """
        optuna = _optuna()
        with self._alone():
            if (waiting := self._waiting()) is None:
                trials = self._trials()
                claimed = {trial.user_attrs[CANDIDATE] for trial in trials}
                candidate = next((candidate for candidate in range(self.trials) if candidate not in claimed), None)
                if candidate is None:
                    return None
                self._add(candidate, {} if grid is None else _untried(grid, trials))
                waiting = self._waiting()
            assert waiting is not None
            candidate, key = waiting.user_attrs[CANDIDATE], waiting._trial_id
            self._storage.record_heartbeat(key)  # before: so that it is never claimed without a sign of life
            self._storage.set_trial_state_values(key, optuna.trial.TrialState.RUNNING)
            # A sampler for each candidate: what it draws does not depend on which worker asks, nor on a resume.
            assert self.description is not None
            self._study.sampler = _sampler(self.config, self.description.seed, candidate)
            return ClaimedTrial(self, optuna.trial.Trial(self._study, key), candidate)

    def _waiting(self) -> Any:
        """The first trial that waits to be claimed, None if there is none."""
        return next((trial for trial in self._trials() if trial.state.name == "WAITING"), None)

    def _add(self, candidate: int, values: Mapping[str, Any]) -> None:
        self._study.enqueue_trial(dict(values), user_attrs={CANDIDATE: candidate})

    def _candidates(self) -> Iterable[tuple[int, list[Any]]]:
        """Each candidate with its trials."""
        by_candidate: dict[int, list[Any]] = {}
        for trial in self._trials():
            by_candidate.setdefault(trial.user_attrs[CANDIDATE], []).append(trial)
        return by_candidate.items()

    def _trials(self) -> list[Any]:
        """All trials of candidates."""
        return [trial for trial in self._study.get_trials(deepcopy=False) if CANDIDATE in trial.user_attrs]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other worker changes the study: alone, a database lets two of them claim one trial."""
        if self._lock is None:
            with self._storage.engine.begin() as connection:  # at whose end the lock goes
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK}, {self._study._study_id})")
                yield
            return
        with locked_file(self._lock):
            yield

    def importance(self) -> dict[str, float] | None:
        """Setting -> its share in the variance of the measure, by fANOVA; None with too few complete trials.

        Source:
            Hutter, Hoos, Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter Importance", ICML 2014.
        """
        optuna = _optuna()
        done = self._study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
        if len(done) < max(8, 2 * len(self.config.vary)) or len({trial.value for trial in done}) < 2:
            return None
        if len(self.config.vary) == 1:
            return dict.fromkeys(self.config.vary, 1.0)
        try:
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
            shares = optuna.importance.get_param_importances(self._study, evaluator=evaluator)
        except (ValueError, RuntimeError):  # as where a setting had one value in all of them
            return None
        return {name: float(share) for name, share in shares.items()}


class ClaimedTrial:
    """A trial that this worker has claimed. Inside `with` it gives signs of life.

    Attributes:
        values: setting -> the value to try.
    """

    def __init__(self, study: Study, trial: Any, candidate: int) -> None:
        self._study, self._trial, self.candidate = study, trial, candidate
        self.values = {key: _suggested(trial, key, varied) for key, varied in study.config.vary.items()}
        self._reported: set[int] = set()
        self._over = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> ClaimedTrial:
        self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._heart.join()

    def report(self, run: int, step: int, value: float) -> None:
        """Note a look on validation, once.

        Raises:
            TakenOverError: if the trial was closed by another worker.
        """
        index = run * STRIDE + step
        if index in self._reported:
            return
        try:
            self._trial.report(value, index)
        except _optuna().exceptions.UpdateFinishedTrialError:
            raise TakenOverError from None
        self._reported.add(index)

    def below_median(self, run: int, step: int, best: float) -> str | None:
        """Reason why the trial may end, if its best measure in this run is below the median of other trials by this
        step."""
        others = [
            max(values)
            for other in self._study.outcomes()
            if other.state == "complete"
            and (values := [at.value for at in other.measurements if at.run == run and at.step <= step])
        ]
        if len(others) < STARTUP or best >= median(others):
            return None
        return (
            f"below the median at step {step}: the best was {100 * best:.1f} %, that of {len(others)} complete trials "
            f"{100 * median(others):.1f} %"
        )

    def complete(self, value: float, runs: Sequence[SweepRun]) -> bool:
        """Tell the value; returns False if another worker has closed the trial."""
        return self._close_trial("COMPLETE", value, **{RUNS: [run.as_json() for run in runs]})

    def prune(self, why: str) -> bool:
        """Tell that the trial was not worth going on."""
        return self._close_trial("PRUNED", None, **{WHY: why})

    def fail(self, why: str) -> bool:
        """Tell that the settings cannot be trained with."""
        return self._close_trial("FAIL", None, **{FAILED: True, WHY: why})

    def leave(self) -> bool:
        """Close the trial without a result, so that its settings are tried again: this worker was asked to end."""
        closed = self._close_trial("FAIL", None, **{STOPPED: True})
        self._study.revive()
        return closed

    def _close_trial(self, state: str, value: float | None, **attributes: Any) -> bool:
        optuna = _optuna()
        with self._study._alone():
            try:
                for name, attribute in attributes.items():
                    self._trial.set_user_attr(name, attribute)
                self._study._study.tell(self._trial, value, state=optuna.trial.TrialState[state])
            except (optuna.exceptions.UpdateFinishedTrialError, ValueError):
                # Its worker was taken for dead, and the trial closed; `tell` raises ValueError for that.
                return False
        return True

    def _beat(self) -> None:
        storage = self._study._storage
        while not self._over.wait(self._study.config.heartbeat):
            try:
                storage.record_heartbeat(self._trial._trial_id)
            except Exception as error:  # whatever the database has: it may be back at the next beat
                log.debug(f"no sign of life: {error}")
        storage.remove_session()


def open_study(url: str, config: SweepConfig, name: str | None, *, make: bool) -> Study:
    """The study of this name in a storage.

    Args:
        url: with a password where there is one.
        config: of the sweep.
        name: None for the only one.
        make: whether to make it where there is none.

    Raises:
        ValueError: if the storage cannot be reached, or there is no such study.
        ModuleNotFoundError: if optuna, or what reads PostgreSQL, is not installed.
    """
    return Study(*_opened(url, name, config.heartbeat, make=make), config, _lock_of(url))


def study_description(url: str, name: str | None) -> tuple[str, StudyDescription]:
    """The name of a study, and its description.

    Raises:
        ValueError: as `open_study`, and if the study is none of a sweep.
    """
    storage, study = _opened(url, name, SweepConfig.model_fields["heartbeat"].default, make=False)
    description, name = _described(study), str(study.study_name)
    _close(storage)
    if description is None:
        raise ValueError(
            f"a study to join must be one that trivet sweep began: {name} in {storage_name(url)} is "
            "none; give another --study."
        )
    return name, description


def _described(study: Any) -> StudyDescription | None:
    description = study.user_attrs.get(DESCRIPTION)
    return None if description is None else StudyDescription.read(description)


def only_study(url: str) -> str | None:
    """The name of the only study in a SQLite file, if it is that of a sweep; None otherwise."""
    if (file := sqlite_file(url)) is None or not file.is_file():
        return None
    try:
        return study_description(url, None)[0]
    except ValueError:  # as where a worker died while it made the file; what opens the study says what is wrong
        return None


@contextmanager
def within_reach(url: str) -> Iterator[None]:
    """Turn errors of a storage that is out of reach into ValueError, a sentence without a password."""
    errors, internal = load("sqlalchemy.exc"), _optuna().exceptions.StorageInternalError
    try:
        yield
    except (errors.SQLAlchemyError, internal) as error:
        cause = error if isinstance(error, errors.SQLAlchemyError) else error.__cause__
        original = getattr(cause, "orig", None) or cause or error
        reason = str(original).strip().splitlines()[0].rstrip(".")
        if type(original).__name__ == "ProgrammingError" and getattr(original, "sqlstate", None) is None:
            reason = "its address has an option that PostgreSQL does not know"  # which may be part of a password
        raise ValueError(
            f"the storage of a sweep must be within reach: {storage_name(url)} is not "
            f"({reason}); start the database, or check the address and PGPASSWORD, "
            "then go on with trivet sweep --join."
        ) from None


def _opened(url: str, name: str | None, heartbeat: int, *, make: bool) -> tuple[Any, Any]:
    """A storage and a study of it."""
    optuna = _optuna()
    with within_reach(url):
        storage = _storage(url, heartbeat, make=make)
        try:
            if make:
                study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
            else:
                study = optuna.load_study(study_name=_known(storage, name, url), storage=storage)
        except BaseException:
            _close(storage)
            raise
    return storage, study


def _close(storage: Any) -> None:
    storage.remove_session()
    storage.engine.dispose()


def _known(storage: Any, name: str | None, url: str) -> str:
    """The name of the study to load."""
    names = sorted(summary.study_name for summary in storage.get_all_studies())
    if name is None and len(names) == 1:
        return str(names[0])
    if name in names:
        return str(name)
    available = f"there are {', '.join(names[:10])}" if names else "there is none"
    wanted = "which has several" if name is None and names else f"which has no {name}" if name else "which has none"
    raise ValueError(
        f"a study to join must be in the storage {storage_name(url)}, {wanted}: {available}; name one with "
        "--study, or begin it with trivet sweep FILE.toml."
    )


def _storage(url: str, heartbeat: int, *, make: bool) -> Any:
    optuna, file = _optuna(), sqlite_file(url)
    if file is None:
        load("psycopg")
        url = database_url(url).render_as_string(hide_password=False)
    elif not make and not file.is_file():
        raise ValueError(f"a study to join must be there: {file} is not; begin it with trivet sweep FILE.toml.")
    waiting = {"connect_args": {"timeout": 60}} if file is not None else {}
    return optuna.storages.RDBStorage(
        url.replace("{", "{{").replace("}", "}}"),  # optuna formats it
        engine_kwargs={"pool_pre_ping": True, **waiting},
        heartbeat_interval=heartbeat,
        grace_period=SILENT * heartbeat,
        skip_table_creation=not make,
    )


def _lock_of(url: str) -> Path | None:
    file = sqlite_file(url)
    return None if file is None else file.with_name(f".{file.name}.lock")


def _sampler(config: SweepConfig, seed: int, candidate: int) -> Any:
    from numpy.random import SeedSequence

    samplers = _optuna().samplers
    number = int(SeedSequence((seed, candidate)).generate_state(1)[0])
    return samplers.TPESampler(seed=number) if config.sampler == "tpe" else samplers.RandomSampler(seed=number)


def _suggested(trial: Any, key: str, varied: Varied) -> Value:
    """The value of a setting in a trial: that of an earlier attempt, or a new one."""
    if not isinstance(varied, Range):
        codes = {_code(value): value for value in varied}
        return codes[trial.suggest_categorical(key, list(codes))]
    if varied.integral:
        step = 1 if varied.step is None else int(varied.step)
        return int(trial.suggest_int(key, varied.low, varied.high, step=step, log=varied.log))
    value = trial.suggest_float(key, float(varied.low), float(varied.high), step=varied.step, log=varied.log)
    return float(value) if varied.step is None else float(f"{value:.12g}")


def _untried(grid: Sequence[Mapping[str, Value]], trials: Sequence[Any]) -> Mapping[str, Code]:
    """The first values of a grid that no trial has: its order differs where there were fewer places before."""
    tried = {frozenset((trial.params | trial.system_attrs.get("fixed_params", {})).items()) for trial in trials}
    coded = ({key: _code(value) for key, value in values.items()} for values in grid)
    return next(values for values in coded if frozenset(values.items()) not in tried)


def _code(value: Value) -> Code:
    """A value as optuna takes it: a section or a list as JSON."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def _state(trials: Sequence[Any]) -> State | None:
    """State of the trials of one candidate; None if all were cut off, and another one is needed."""
    names = {trial.state.name for trial in trials if trial.state.name != "FAIL" or FAILED in trial.user_attrs}
    known = next((state for name, state in STATES.items() if name in names), None)
    return "failed" if known is None and _deaths(trials) >= DEATHS else known


def _deaths(trials: Sequence[Any]) -> int:
    return sum(trial.state.name == "FAIL" and not {FAILED, STOPPED} & trial.user_attrs.keys() for trial in trials)


def _outcome(candidate: int, trials: Sequence[Any], vary: Mapping[str, Varied]) -> SweepTrial:
    state = _state(trials)
    decisive = max(trials, key=lambda trial: (_state([trial]) == state, trial.number))
    why = decisive.user_attrs.get(WHY)
    if state == "failed" and why is None:
        why = f"its worker died {_deaths(trials)} times; it may need more memory than there is"
    measurements = [(*divmod(index, STRIDE), value) for index, value in sorted(decisive.intermediate_values.items())]
    ended = decisive.datetime_complete
    complete = state == "complete"
    return SweepTrial(
        number=candidate,
        state=state or "waiting",
        settings={key: _decoded(decisive.params[key], vary[key]) for key in vary if key in decisive.params},
        value=decisive.value if complete else None,
        runs=[SweepRun.read(run) for run in decisive.user_attrs.get(RUNS, []) if complete],
        why=why if state in ("pruned", "failed") else None,
        attempts=sum(trial.datetime_start is not None for trial in trials),
        measurements=[SweepMeasurement(run=run, step=step, value=value) for run, step, value in measurements],
        folder=f"trial-{candidate}",
        ended=ended.timestamp() if state in ENDED and ended is not None else None,
    )


def _decoded(value: Any, varied: Varied) -> Value:
    if isinstance(varied, Range):
        return float(f"{value:.12g}") if varied.step is not None and not varied.integral else value
    return next((choice for choice in varied if _code(choice) == value), value)


def _optuna() -> Any:
    optuna = load("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # what it says, Trivet says
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # such as heartbeats
    return optuna
