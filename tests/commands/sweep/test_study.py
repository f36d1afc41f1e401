"""Each trial is told once, whatever becomes of its workers: in SQLite, and in PostgreSQL where that can be started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

from tests.postgresql import PIECES, QUOTED, UnavailableError, postgresql
from tests.small_sweep import settings

from trivet.commands.sweep import study as sweep_study
from trivet.commands.sweep.record import StudyDescription, SweepRun
from trivet.commands.sweep.run import _grid
from trivet.commands.sweep.search_space import Sweep
from trivet.commands.sweep.study import ClaimedTrial, Study, TakenOverError, open_study, study_description

pytestmark = pytest.mark.usefixtures("rough_evaluation")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('study') / 'study {x}.db'}"
        return
    try:
        with postgresql() as url:
            yield url.replace("trivet@", f"trivet:{QUOTED}@")
    except UnavailableError as error:
        pytest.skip(str(error))


# Of what no database decides.
ANY = pytest.mark.parametrize("address", ["sqlite"], indirect=True)


class Workers:
    """Workers on one study, each with connections of its own."""

    def __init__(self, address: str, name: str, folder: Path, **sweep: Any) -> None:
        self.address, self.name = address, name
        self.sweep = Sweep.parse(settings(folder, **{"trials": 4, **sweep}), source="test")
        first = open_study(address, self.sweep.config, name, make=True)
        first.describe(StudyDescription(sweep="", folder=str(folder), trials=self.sweep.trials, seed=0))
        self._open = [first]

    def worker(self) -> Study:
        self._open.append(open_study(self.address, self.sweep.config, self.name, make=False))
        return self._open[-1]

    def close(self) -> None:
        for study in self._open:
            study.__exit__()


@pytest.fixture
def make(address: str, tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    """Makes workers on the study of a name."""
    made: list[Workers] = []

    def make_workers(name: str, **sweep: Any) -> Workers:
        made.append(Workers(address, name, tmp_path, **sweep))
        return made[-1]

    yield make_workers
    for one in made:
        one.close()


@pytest.fixture
def workers(make: Callable[..., Workers], request: pytest.FixtureRequest) -> Workers:
    return make(request.node.name)


def claimed(study: Study) -> ClaimedTrial:
    attempt = study.claim(None)
    assert attempt is not None
    return attempt


def states(study: Study) -> list[str]:
    return [one.state for one in study.outcomes()]


@ANY
def test_a_grid_with_more_trials_than_before_is_tried_whole(make: Callable[..., Workers]) -> None:
    vary = {"loss.margin": [0.1, 0.2, 0.3], "training.learning_rate": {"low": 0.1, "high": 0.3, "step": 0.1}}
    tried = []
    for trials in (4, 2, 9):
        workers = make("grid", sampler="grid", vary=vary, trials=trials)
        study = workers.worker()
        while (attempt := study.claim(_grid(workers.sweep))) is not None:
            tried.append(attempt.values)
            attempt.complete(0.5, [])
    assert len(tried) == 9
    assert all(values in tried for values in workers.sweep.grid())
    assert tried[:4] != workers.sweep.grid()[:4]


def test_a_place_is_claimed_by_one_worker_and_told_once(workers: Workers) -> None:
    one, other = workers.worker(), workers.worker()
    first, second = claimed(one), claimed(other)
    assert (first.candidate, second.candidate) == (0, 1)
    assert first.complete(0.5, [SweepRun(seed=0, value=0.5)])
    assert not first.complete(0.6, [])  # told once
    assert second.prune("low")
    third, fourth = claimed(other), claimed(one)
    assert one.claim(None) is None
    assert third.fail("it cannot be")
    assert not one.over()
    assert fourth.complete(0.7, [])
    assert one.over()
    assert states(other) == ["complete", "pruned", "failed", "complete"]
    assert [o.why for o in other.outcomes()] == [None, "low", "it cannot be", None]
    assert other.outcomes()[0].settings == first.values


def silent(study: Study) -> None:
    """As if no worker had given a sign of life for long."""
    with study._storage.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE trial_heartbeats SET heartbeat = '2001-01-01 00:00:00'")


def test_what_a_dead_worker_had_is_taken_up_again(workers: Workers) -> None:
    dead, other = workers.worker(), workers.worker()
    lost = claimed(dead)
    lost.report(0, 5, 0.25)
    other.revive()
    assert states(other) == ["running"]
    alive = claimed(other)
    silent(other)
    with alive:  # gives a sign of life each second
        time.sleep(1.5)
        for worker in (other, workers.worker()):  # the second one finds nothing to do
            worker.revive()
    assert states(other) == ["waiting", "running"]
    other.description.seed = 1
    again = claimed(other)
    assert (again.candidate, again.values) == (lost.candidate, lost.values)
    with pytest.raises(TakenOverError):
        lost.report(0, 10, 0.3)
    assert again.complete(0.5, [])
    assert not lost.complete(0.9, [])  # it was not dead, after all
    assert other.outcomes()[0].value == 0.5
    assert other.outcomes()[0].attempts == 2


def test_a_worker_that_is_stopped_gives_its_trial_back_at_once(workers: Workers) -> None:
    study = workers.worker()
    left = claimed(study)
    assert left.leave()
    again = claimed(study)
    assert (again.candidate, again.values) == (0, left.values)


@ANY
def test_settings_that_kill_each_worker_are_given_up(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    study = workers.worker()
    for _ in range(sweep_study.DEATHS):
        attempt = claimed(study)
        assert attempt.candidate == 0
        attempt._close_trial("FAIL", None)  # as a dead worker's trial is closed
        study.revive()
    assert states(study) == ["failed"]
    assert study.outcomes()[0].why == "its worker died 3 times; it may need more memory than there is"


def test_workers_that_claim_at_once_have_one_trial_each(workers: Workers) -> None:
    studies = [workers.worker() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        attempts = list(pool.map(claimed, studies))
    assert sorted(attempt.candidate for attempt in attempts) == [0, 1, 2, 3]
    assert states(studies[0]) == ["running"] * 4


@ANY
def test_what_is_tried_depends_on_the_place_and_not_on_the_worker(make: Callable[..., Workers]) -> None:
    alone, shared = make("alone"), make("shared")
    study = alone.worker()
    tried = []
    for value in (0.1, 0.4, 0.2):
        attempt = claimed(study)
        assert attempt.complete(value, [])
        tried.append(attempt.values)
    for value, values in zip((0.1, 0.4, 0.2), tried, strict=True):
        attempt = claimed(shared.worker())
        assert attempt.complete(value, [])
        assert attempt.values == values
    assert len({str(values) for values in tried}) == 3


@ANY
def test_a_run_below_the_median_may_end(make: Callable[..., Workers]) -> None:
    study = make("median", trials=9).worker()
    for value in (0.1, 0.2, 0.3, 0.4):
        attempt = claimed(study)
        attempt.report(1, 5, value)
        attempt.report(1, 15, 0.9)
        assert attempt.below_median(1, 5, 0.0) is None  # too few are complete
        assert attempt.complete(value, [])
    attempt = claimed(study)
    attempt.report(1, 5, 0.5)
    assert attempt.complete(0.5, [])
    attempt = claimed(study)
    assert attempt.below_median(0, 5, 0.0) is None  # nobody has been there
    assert attempt.below_median(1, 5, 0.3) is None
    why = attempt.below_median(1, 5, 0.29)
    assert why == "below the median at step 5: the best was 29.0 %, that of 5 complete trials 30.0 %"


def test_the_study_to_join_is_named(make: Callable[..., Workers], address: str, tmp_path: Path) -> None:
    own = make("named")
    make("another")
    name, description = study_description(address, "named")
    assert (name, description.folder) == (own.name, str(tmp_path))
    for name in (None, "nothing"):
        with pytest.raises(ValueError, match="a study to join must be in the storage") as error:
            study_description(address, name)
        assert "another" in str(error.value)
        assert not [piece for piece in PIECES if piece in str(error.value)]


def test_a_storage_out_of_reach_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    config = Sweep.parse(settings(tmp_path), source="test").config
    with pytest.raises(ValueError, match=r"must be within reach: x on 127\.0\.0\.1:1 is not") as error:
        open_study("postgresql://me:secret@127.0.0.1:1/x", config, "x", make=True)
    assert "secret" not in str(error.value)
    with pytest.raises(ValueError, match="a study to join must be there"):
        study_description(f"sqlite:///{tmp_path}/none.db", None)
    assert not (tmp_path / "none.db").exists()
