"""Progress: silent for a second, then one line in a terminal or one every ten seconds, with rate and time left."""

from __future__ import annotations

import io
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import trivet
from trivet.commands.main import main
from trivet.metrics import clustering
from trivet.runtime import progress
from trivet.runtime.progress import ProgressLine, Work, announce, report, show_progress, steps, work

Heard = list[tuple[str, float, float]]


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def new_line() -> tuple[ProgressLine, Clock]:
    clock = Clock()
    return ProgressLine(clock), clock


def test_works_inside_a_work_stand_beside_it_and_one_that_says_nothing_is_shown_by_its_time() -> None:
    line, clock = new_line()
    assert line.text() == ""
    with line.work("evaluation"):
        with line.work("splits", 2):
            clock.now += 5
            line.report("queries", 10, 40)  # begun now, so there is no rate yet
            assert line.text() == "splits 0/2: queries 10/40, 0 s so far"
        clock.now += 10
        assert line.text() == "evaluation, 15 s so far"
        clock.now += 4000
        assert line.text() == "evaluation, 1 h 6 min so far"


def test_steps_go_on_after_a_work_inside_them_and_from_an_earlier_one() -> None:
    line, clock = new_line()
    with line.work("training"), line.work("step", 400, 200):  # 200 were done before the run was resumed
        for title, done, total, note, text in (
            ("step", 220, 400, "loss 0.2", "step 220/400, 2/s, 1 min 30 s left  loss 0.2"),
            ("embedding", 10, 40, "", "step 220/400: embedding 10/40, 0 s so far"),
            ("step", 260, 400, "loss 0.1", "step 260/400, 2/s, 1 min 10 s left  loss 0.1"),
            ("step", 230, 400, "", "step 230/400, 0 s so far"),
            ("step", 240, 400, "", "step 240/400, 1/s, 2 min 40 s left"),
        ):
            clock.now += 10
            line.report(title, done, total, note)
            assert line.text() == text


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


def test_names_reach_a_terminal_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    line, _ = new_line()
    line.report("reading \x1b[31mfröhlich\n\r.npz", 1, 2)
    text = r"reading \x1b[31mfröhlich\n\r.npz 1/2, 0 s so far"
    assert line.text() == text
    monkeypatch.setattr(os, "getpid", lambda: -1)
    line.report("of another process, which says nothing here", 1, 2)
    assert line.text() == text


class Stream(io.StringIO):
    """Standard error, of a terminal or not, that tells when something was written."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self.terminal, self.written = terminal, threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        if "training" in text:
            self.written.set()
        return count


def test_a_log_gets_a_line_and_nothing_of_what_is_over_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress("training"):
        report("step", 1, 2)
    assert stream.getvalue() == ""
    monkeypatch.setattr(progress, "SILENT", 0.0)
    with show_progress("training"):
        assert stream.written.wait(10)
    assert stream.getvalue() == "training, 0 s so far\n"


def test_a_terminal_has_one_line_below_the_messages_that_is_gone_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SILENT", 0.0)
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress("training"):
        assert stream.written.wait(10)
        assert sys.stderr is not stream
        print("detected", file=sys.stderr)
    assert sys.stderr is stream
    text = stream.getvalue()
    assert "\x1b[2Kdetected\n" in text
    assert text.rpartition("training")[2].endswith("\x1b[2K")  # erased


class CellOutput(Stream):
    """Standard error in a notebook, where an end of a line that goes back to its beginning is written over."""

    __module__ = "ipykernel.iostream"

    def shown(self) -> list[str]:
        lines = []
        for line in self.getvalue().split("\n"):
            text = ""
            for piece in line.split("\r"):
                text = piece + text[len(piece) :]
            lines.append(text.rstrip())
        return lines


def test_a_notebook_has_one_line_that_is_written_over_and_blank_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, (line, clock) = CellOutput(), new_line()
    monkeypatch.setattr(sys, "stderr", stream)
    token = progress._current.set(line)
    line.report("embedding", 1, 40)

    def while_it_waits() -> Iterator[None]:
        assert stream.shown() == ["embedding 1/40, 0 s so far"]
        yield
        line.report("step", 1, 9)
        yield
        assert stream.shown() == ["step 1/9, 0 s so far"]
        announce("images")
        assert stream.shown() == ["images", ""]
        clock.now += 5
        yield
        assert stream.shown() == ["images", "step 1/9, 5 s so far"]

    waits = while_it_waits()
    over = SimpleNamespace(wait=lambda _: next(waits, "over") == "over")
    progress._paint_notebook(line, over)  # type: ignore[arg-type]  # an event whose time the test tells
    progress._current.reset(token)
    assert stream.shown() == ["images", ""]


@pytest.mark.parametrize(
    ("stream", "watched"), [(Stream(), False), (Stream(terminal=True), True), (CellOutput(), True)]
)
def test_a_function_shows_its_progress_where_somebody_sees_it(
    stream: Stream, watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    shown = list[bool]()

    def show(title: str, *, show: bool = True) -> AbstractContextManager[None]:
        shown.append(show)
        return nullcontext()

    monkeypatch.setattr("trivet.commands.arrays.show_progress", show)
    trivet.search(np.eye(3), np.eye(3), k=1)
    assert shown == [watched]


def test_a_reader_that_has_gone_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENT", 0.0)
    stream = Stream()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress("training"):
        report("step", 1, 2)
        announce("a line")


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
        lambda: Path("found.csv").write_text("id") and None,
    )
    assert capsys.readouterr().err == (
        "trivet: stopped; written before that: found.csv. Nothing else that the command names was changed.\n"
    )
