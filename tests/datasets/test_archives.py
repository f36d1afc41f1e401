"""Files of a data set in folders and zip files."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import pytest

from trivet.datasets.archives import LARGEST, Tree, ZipMember, check_inside, find_tree


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return path


def test_a_member_is_read_again_when_its_archive_changes_and_in_another_process(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"x": b"one"})
    member = ZipMember(path, "x")
    assert member.read() == b"one"
    os.utime(archive(path, {"x": b"two"}), ns=(0, 7))
    assert pickle.loads(pickle.dumps(member)).read() == b"two"  # as a worker is given it


def test_a_member_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.datasets.archives.LARGEST", 100)
    tree = find_tree([archive(tmp_path / "a.zip", {"d/x": bytes(101), "d/y": bytes(100)})], lambda one: one.has("x"))
    assert tree is not None
    assert tree.read("y") == bytes(100)
    with pytest.raises(ValueError, match=r"a\.zip/d/x must be a file .*: it unpacks to 101 bytes, and at most 100"):
        tree.read("x")
    assert LARGEST > 100


def test_folders_come_before_zip_files_and_both_list_their_images(tmp_path: Path) -> None:
    files = {"set/images/b.jpg": b"", "set/images/a.png": b"", "set/images/.c.jpg": b"", "set/images/in/d.jpg": b""}
    archive(tmp_path / "set.zip", files)
    zipped = find_tree([tmp_path / "absent", tmp_path], lambda one: one.has("images/b.jpg"))
    assert zipped is not None
    assert zipped.prefix == "set/"
    assert zipped.names("images", (".jpg", ".png")) == ["a.png", "b.jpg"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    folder = find_tree([tmp_path], lambda one: one.has("images/b.jpg"))
    assert folder == Tree(tmp_path / "set")
    assert folder.names("images", (".jpg", ".png")) == ["a.png", "b.jpg"]
    assert folder.names("absent", (".jpg",)) == []


@pytest.mark.parametrize("name", ["", "..", "../a", "a/../../b", "/a", "\\a", "a\\..\\..\\b"])
def test_names_that_leave_their_folder(name: str) -> None:
    with pytest.raises(ValueError, match="a path must lie below x: got"):
        check_inside(name, Path("x"))
    check_inside("a/../b..jpg", Path("x"))


def test_a_pipe_is_no_list(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "images.txt")
    with pytest.raises(ValueError, match="must be a file that can be read: a list of a data set must be a file"):
        Tree(tmp_path).text("images.txt")
