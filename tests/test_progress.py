"""Progress: silent for a second, then one line in a terminal or one every ten seconds, with rate and time left."""

from __future__ import annotations

import io
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trivet.commands.main import main
from trivet.metrics import clustering
from trivet.runtime import progress
from trivet.runtime.progress import ProgressLine, Work, report, reporter, show_progress, steps, work

Heard = list[tuple[str, float, float]]


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def line_of(stream: io.StringIO) -> tuple[ProgressLine, Clock]:
    clock = Clock()
    return ProgressLine(stream, clock), clock


def test_a_log_gets_a_line_after_a_second_and_then_every_ten_with_rate_and_time_left() -> None:
    stream = io.StringIO()
    line, clock = line_of(stream)
    said = {}
    for second in range(27):  # 40 of 1,200 parts a second
        clock.now = 100.0 + second
        line.report("queries", 40 * second, 1200)
        if text := stream.getvalue()[sum(map(len, said.values())) :]:
            said[second] = text
    assert said == {
        2: "queries 80/1200, 40/s, 28 s left\n",
        12: "queries 480/1200, 40/s, 18 s left\n",
        22: "queries 880/1200, 40/s, 8 s left\n",
    }


def test_what_is_over_in_a_second_says_nothing() -> None:
    for stream in (io.StringIO(), Terminal()):
        line, clock = line_of(stream)
        for tenth in range(13):
            clock.now = 100 + tenth / 10
            line.report("queries", tenth, 12)
        line.clear()
        assert stream.getvalue() == ""


def test_a_terminal_has_one_line_that_is_rewritten_and_left_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    line, clock = line_of(stream)
    line.report("queries", 0, 1000)
    clock.now += 4
    line.report("queries", 8, 1000, "a note that no line of sixty characters has room for")
    clock.now += 0.1
    line.report("queries", 9, 1000)  # too soon
    clock.now += 0.15
    line.report("queries", 10, 1000)
    line.clear()
    text = stream.getvalue()
    assert "\n" not in text
    _, first, second, emptied, end = text.split("\r")
    assert first == "queries 8/1000, 2/s, 8 min 16 s left  a note that no line o"
    assert second.rstrip() == "queries 10/1000, 2.4/s, 7 min 1 s left"
    assert (len(first), len(second), emptied, end) == (59, 59, " " * len(second.rstrip()), "")


def test_a_work_that_says_nothing_for_long_is_still_shown_by_its_time() -> None:
    stream = io.StringIO()
    line, clock = line_of(stream)
    line.open("k-means")
    for clock.now in (101.0, 104.0, 110.0, 4000.0):  # as the heart beats
        line.update()
    assert stream.getvalue() == "k-means, 4 s so far\nk-means, 1 h 5 min so far\n"


def test_works_inside_a_work_stand_beside_it() -> None:
    stream = io.StringIO()
    line, clock = line_of(stream)
    line.open("evaluation")
    outer = line.open("splits", 2)
    clock.now += 5
    line.report("queries", 10, 40)  # begun now, so there is no rate yet
    line.close(outer)
    clock.now += 10
    line.update()
    assert stream.getvalue().splitlines() == [
        "splits 0/2: queries 10/40, 0 s so far",
        "evaluation, 15 s so far",
    ]


def test_steps_go_on_after_a_work_inside_them_and_from_an_earlier_one() -> None:
    stream = io.StringIO()
    line, clock = line_of(stream)
    line.open("training")
    line.open("step", 400, 200)  # 200 were done before the run was resumed
    clock.now += 10
    line.report("step", 220, 400, "loss 0.2")
    clock.now += 10
    line.report("embedding", 10, 40)
    clock.now += 10
    line.report("step", 260, 400, "loss 0.1")
    clock.now += 10
    line.report("step", 230, 400)  # a repair went back
    clock.now += 10
    line.report("step", 240, 400)
    assert stream.getvalue().splitlines() == [
        "step 220/400, 2/s, 1 min 30 s left  loss 0.2",
        "step 220/400: embedding 10/40, 0 s so far",
        "step 260/400, 2/s, 1 min 10 s left  loss 0.1",
        "step 230/400, 0 s so far",
        "step 240/400, 1/s, 2 min 40 s left",
    ]


@pytest.mark.parametrize(
    ("done", "after", "said"),
    [
        (300, 10.0, "training 300/400, 10/s, 10 s left"),  # 200 were done before the run was resumed
        (200, 10.0, "training 200/400, 10 s so far"),
        (201, 100.0, "training 201/400, 0.6/min, 5 h 31 min left"),
        (400, 0.001, "training 400/400, 200000/s, 0 s left"),
    ],
)
def test_rate_and_time_left_are_of_this_time(done: int, after: float, said: str) -> None:
    assert Work("training", 50.0, done, 400, first=200).line(50.0 + after) == said


def test_names_reach_a_terminal_harmless_and_in_its_letters() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", newline="")
    line, clock = line_of(stream)
    clock.now += 4
    line.report("reading \x1b[31mfröhlich\n\r.npz", 1, 2)
    assert raw.getvalue() == rb"reading \x1b[31mfr?hlich\n\r.npz 1/2, 0 s so far" + b"\n"


def test_a_message_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SILENT", 0.0)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    told = logging.getLogger("trivet")
    handler, filters = logging.StreamHandler(stream), [*told.filters]
    told.addHandler(handler)
    with show_progress("training"):
        told.warning("detected")
    told.removeHandler(handler)
    assert stream.getvalue() == "\rtraining, 0 s so far\r                    \rdetected\n"
    assert told.filters == filters


def test_a_reader_that_has_gone_ends_no_work() -> None:
    stream = io.StringIO()
    line, clock = line_of(stream)
    clock.now += 4
    stream.close()
    line.report("queries", 1, 2)
    line.clear()


def test_another_process_says_nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    line, clock = line_of(stream)
    clock.now += 4
    monkeypatch.setattr(os, "getpid", lambda: -1)
    line.report("loading", 1, 2)
    assert stream.getvalue() == ""


def test_nobody_shows_it() -> None:
    assert list(steps(range(3), "counting")) == [0, 1, 2]
    report("queries", 1, 2)
    with work("k-means"):
        reporter("rows")(1, 2)


def test_a_loop_that_is_left_early_is_over(heard: Heard) -> None:
    line = progress._current.get()
    assert line is not None
    with work("rounds"):
        for number in steps(range(9), "turn"):
            report("inside", 1, 9)
            if number == 4:
                break
        assert [one.title for one in line._works] == ["rounds"]
        endless = steps(itertools.count(), "endless", total=5)
        assert next(endless) == 0
        assert line._works[-1].title == "endless"
        del endless
        assert [one.title for one in line._works] == ["rounds"]
    assert line._works == []
    assert ("turn", 4, 9) in heard


def test_what_is_shown_ends_with_the_block(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "SILENT", 0.0)
    with show_progress("audit"), show_progress("inside"):
        report("rows", 1, 2)
        assert [thread.name for thread in threading.enumerate()].count("progress") == 1
    assert "progress" not in [thread.name for thread in threading.enumerate()]
    assert progress._current.get() is None
    assert capsys.readouterr() == ("", "audit, 0 s so far\n")
    with show_progress("audit", show=False):
        report("rows", 1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("progress")
    random = np.random.default_rng(0)
    labels = np.arange(120) % 4
    points = random.normal(size=(120, 6)) + 3 * np.eye(6)[labels]
    np.savez(folder / "points.npz", embeddings=points, label=np.array([f"class {one}" for one in labels]))
    np.savez(folder / "queries.npz", embeddings=points[:40] + 0.01)
    return folder


@pytest.mark.parametrize(
    ("command", "counted"),
    [
        ("audit points.npz", {"nearest neighbours": 120, "probabilities of the classes": 120}),
        ("diagnose points.npz", {"queries": 120}),
        (
            "evaluate points.npz",
            {
                "queries": 120,
                "k-means, 4 clusters": 250,
                "k-means, 40 clusters": 250,
                "bootstrap of 120 queries": 1000,
                "bootstrap of 4 classes": 1000,
                "intervals": 2,
            },
        ),
        ("index points.npz -o exact", {"indexing": 120}),
        ("index points.npz -o graph --kind hnsw", {"indexing": 120, "exact neighbours of a sample": 120}),
        ("search exact queries.npz", {"searching": 40}),
        ("simulate isometry --check", {"checking papers": 1}),
    ],
)
def test_what_takes_long_is_counted_to_its_end(
    command: str, counted: dict[str, int], files: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setattr(sys, "argv", ["trivet", *command.split()])
    if command.startswith("simulate"):
        monkeypatch.setattr("trivet_papers.xu2024.claims.checks", list)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    for title, total in counted.items():
        said = [(done, of) for name, done, of in heard if name == title]
        assert (total, total) in said, title
        assert {of for _, of in said} == {total}


def test_k_means_counts_its_iterations_and_finds_the_same_clusters(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    faiss = pytest.importorskip("faiss")
    points = np.random.default_rng(0).normal(size=(300, 5)).round(1)  # some rows are equal
    centred = points - points.mean(axis=0)
    rows = (centred / np.abs(centred).max()).astype(np.float32)
    means = faiss.Kmeans(5, 40, niter=25, nredo=3, seed=7, min_points_per_centroid=1, max_points_per_centroid=300)
    means.train(rows)
    nearest = means.index.search(rows, 1)[1][:, 0]
    for long in (10**9, 1):
        heard.clear()
        monkeypatch.setattr(clustering, "LONG", long)
        found = clustering.cluster(points, 40, seed=7, restarts=3)
        assert found.assignment.tolist() == nearest.tolist()
        told = [done for title, done, _ in heard if title == "k-means, 40 clusters"]
        # Where an iteration is long each is told, until nothing moves any more.
        assert told == [25, 50, 75] if long > 1 else {1, 2, 3, 25, 26, 27, 50, 51, 52, 75} <= set(told)
        assert told == sorted(told)


def stopped(command: str, at: str, monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        before()
        raise KeyboardInterrupt

    monkeypatch.setattr(at, interrupted)
    monkeypatch.setattr(sys, "argv", ["trivet", *command.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1


def test_ctrl_c_says_what_was_written(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    command = "audit points.npz --out found.csv --report page.html"
    stopped(command, "trivet.commands.audit.run.judge", monkeypatch, lambda: None)
    assert capsys.readouterr().err == "trivet: stopped; nothing that the command names was written or changed.\n"
    stopped(
        command,
        "trivet.commands.audit.run.judge",
        monkeypatch,
        lambda: Path("found.csv").write_text("id") and None,  # type: ignore[func-returns-value]
    )
    assert capsys.readouterr().err == (
        "trivet: stopped; written before that: found.csv. Nothing else that the command names was changed.\n"
    )
