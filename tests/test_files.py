"""Whenever a process that writes is ended, by a kill, a signal or a full disk, nothing is lost and nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from tests.ended import End, ended_at, every_moment
from tests.nightly import sampled
from tests.programs import Programs

from trivet.io.atomic_files import (
    atomic_file,
    atomic_folder,
    claimed,
    commit_new,
    filled_folder,
    locked_folder,
    partial_folder,
    recover,
    shared_folder,
    write_atomic,
)
from trivet.io.overwrite_guard import OutputFolder, check_outputs

KIND = frozenset(("mark", "more", "folder"))
DEAD = 4_194_305  # beyond the largest process number of Linux


def content(path: Path) -> dict[str, str]:
    return {str(file.relative_to(path)): file.read_text() for file in path.rglob("*") if file.is_file()}


def fill(folder: Path, text: str) -> None:
    write_atomic(folder / "mark", text.encode())
    write_atomic(folder / "folder" / "more", text.encode())


def clean(path: Path) -> None:
    for item in path.parent.iterdir():
        shutil.rmtree(item) if item.is_dir() else item.unlink()


def passes(programs: Programs, check: str, folder: Path, *arguments: object) -> None:
    """Run a check of this file, which forks many processes, in a folder."""
    ended = programs.run(f"tests.test_files:{check}", *arguments, folder=folder)
    assert ended.returncode == 0, ended.stderr.decode()


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("old") / "out"
    fill(path, "old")
    return path


OLD = {"mark": "old", "folder/more": "old"}
NEW = {"mark": "new", "folder/more": "new"}


@pytest.mark.parametrize(
    ("end", "force"),
    [
        ("killed", False),
        ("killed", True),
        pytest.param("interrupted", True, marks=pytest.mark.nightly),
        ("disk full", True),
        pytest.param("signalled", True, marks=pytest.mark.nightly),
    ],
)
def test_a_folder_that_is_built_is_the_old_one_or_the_new_one(
    small_programs: Programs, end: End, force: bool, old: Path, tmp_path: Path
) -> None:
    passes(small_programs, "built_at_every_moment", tmp_path, str(old), end, force)


def built_at_every_moment(old: str, end: End, force: bool) -> None:
    path = Path.cwd() / "out"

    def prepare() -> None:
        clean(path)
        if force:
            shutil.copytree(old, path)

    def work() -> None:
        with atomic_folder(path, KIND, mark="mark", what="a thing", force=force) as new:
            fill(new, "new")

    moments = 0
    for moment in every_moment(end, work, prepare):
        moments = moment
        if end != "killed":
            assert not path.exists() or content(path) in (OLD, NEW)  # without the help of a later command
        recover(path, KIND)
        assert (content(path) in (OLD, NEW)) if force else (not path.exists() or content(path) == NEW)
        assert [item.name for item in path.parent.iterdir()] in (["out"], [])
    assert moments > 5
    assert content(path) == NEW


@pytest.mark.parametrize("end", ["killed", pytest.param("interrupted", marks=pytest.mark.nightly), "disk full"])
def test_a_folder_that_is_filled_in_place_loses_nothing(
    small_programs: Programs, end: End, old: Path, tmp_path: Path
) -> None:
    passes(small_programs, "filled_at_every_moment", tmp_path, str(old), end)


def filled_at_every_moment(old: str, end: End) -> None:
    path = Path.cwd() / "out"

    def done() -> bool:
        return (path / "more").exists()

    def work() -> None:
        with filled_folder(path, KIND, mark="mark", what="a thing", force=True, ended=done):
            fill(path, "new")
            commit_new(path)
            write_atomic(path / "more", b"")

    def prepare() -> None:
        clean(path)
        shutil.copytree(old, path)

    states = set()
    for moment in every_moment(end, work, prepare):
        check_outputs([OutputFolder("--output", path, ("folder/more",))], [])  # as the same command does first
        if end != "killed":
            assert not (path / ".trivet-replaced").exists()  # without the help of a later command
        recover(path, KIND)
        with locked_folder(path, KIND, what="a thing", ended=done):
            pass
        found = content(path)
        found.pop(".lock", None)
        done_now, earlier = found.pop("more", None) is not None, found.pop(".trivet-earlier/mark", None)
        found.pop(".trivet-earlier/folder/more", None)
        assert found in (OLD, NEW), moment
        assert (earlier == "old") == (found == NEW and not done_now), moment
        assert [item.name for item in path.parent.iterdir()] == ["out"]
        states.add((found["mark"], earlier))
        if moment % 5 == 0 and end == "killed":
            assert not ended_at(1_000_000, end, work)  # the same command goes on to its end
            assert content(path) == {**NEW, "more": "", ".lock": ""}
    assert ("old", None) in states
    assert content(path) == {**NEW, "more": "", ".lock": ""}


@pytest.mark.parametrize("aside", [".trivet-earlier", ".trivet-replaced", ".trivet-moving", "trial/.trivet-earlier"])
def test_what_is_set_aside_is_no_stranger_and_a_stranger_in_it_is_one(aside: str, tmp_path: Path) -> None:
    write_atomic(tmp_path / aside / "page", b"")
    write_atomic(tmp_path / aside / "folder" / "more", b"")
    output = OutputFolder("--output", tmp_path, ("folder/more", "trial/page", "trial/folder/more"))
    check_outputs([output], [])
    write_atomic(tmp_path / aside / "folder" / "thesis", b"")
    with pytest.raises(ValueError, match="folder/thesis; choose another folder"):
        check_outputs([output], [])


def test_what_was_kept_of_the_last_complete_content_outlives_a_second_replacement(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def unfinished(text: str, *, keep: bool) -> None:
        with filled_folder(path, KIND, mark="mark", what="a thing", force=True, ended=lambda: False):
            fill(path, text)
            if keep:
                commit_new(path)

    fill(path, "old")
    unfinished("second", keep=True)
    assert content(path)["mark"] == "second"
    unfinished("third", keep=False)
    assert {name: text for name, text in content(path).items() if name != ".lock"} == OLD


@pytest.mark.parametrize("process", [DEAD, os.getpid()], ids=["dead", "own"])
def test_partial_files_go_with_their_process(process: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, "old")
    left, foreign = tmp_path / f".more.{process}.trivet", tmp_path / f".notes.{DEAD}"
    left.touch()
    foreign.touch()
    with atomic_file(tmp_path / "mark") as written, locked_folder(tmp_path, KIND, what="a thing", ended=lambda: False):
        assert written.exists()  # who writes it lives, and has locked it
    assert not left.exists()
    assert foreign.exists()  # not ours, by its name
    assert str(left) in caplog.text


def test_what_a_living_process_has_locked_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with atomic_folder(path, KIND, mark="mark", what="a thing", force=False) as new:
        fill(new, "new")
        recover(path, KIND)
        assert content(new) == NEW
        with (
            pytest.raises(ValueError, match="is being made"),
            atomic_folder(path, KIND, mark="mark", what="a thing", force=False),
        ):
            pass
    with locked_folder(path, KIND, what="a thing", ended=lambda: False):
        child = os.fork()  # a process that reads data, which outlives its parent for a while, holds no lock
        if not child:
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        os.waitpid(child, os.WUNTRACED)
    with locked_folder(path, KIND, what="a thing", ended=lambda: False):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_partial_file_does_not_make_a_folder_foreign(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.mkdir()
    (path / f".mark.{DEAD}.trivet").touch()
    with filled_folder(path, KIND, mark="mark", what="a thing", force=False, ended=lambda: False):
        fill(path, "new")
    assert content(path) == {**NEW, ".lock": ""}


def _built(path: Path) -> None:
    with atomic_folder(path, KIND, mark="mark", what="a thing", force=False) as new:
        (new / "mark").touch()


def _filled(path: Path) -> None:
    with filled_folder(path, KIND, mark="mark", what="a thing", force=False, ended=(path / "mark").exists):
        (path / "mark").touch()


def _in_parts(path: Path) -> None:
    with partial_folder(path) as folder:
        (folder / "first").touch()


def _claimed(path: Path) -> None:
    with claimed(path) as mine:
        assert mine


def _shared(path: Path) -> None:
    with shared_folder(path, lambda alone: None):
        (path / "mark").touch()


@pytest.mark.parametrize("each", sampled([7, 1], 2))  # lines
@pytest.mark.parametrize("work", ["_built", "_filled", "_in_parts", "_claimed", "_shared"])
def test_ctrl_c_at_any_line_leaves_no_lock_and_no_empty_folder(
    small_programs: Programs, work: str, each: int, tmp_path: Path
) -> None:
    passes(small_programs, "interrupted_at_every_line", tmp_path, work, each)


def interrupted_at_every_line(work: str, each: int) -> None:
    path, moments = Path.cwd() / "out", 0
    for moment in every_moment("signalled", lambda: globals()[work](path), lambda: clean(path), each=each):
        moments = moment
        left = {item.name for item in path.parent.iterdir()}
        finished = (path.parent / ".out.trivet-parts" / "first").exists()  # parts stay, to be gone on with
        assert left <= ({".out.trivet-parts"} if finished else {"out"} if (path / "mark").exists() else set())
    assert moments > 10
