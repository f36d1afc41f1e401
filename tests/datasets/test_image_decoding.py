from __future__ import annotations

import ast
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageOps
from tests.sources import library

from trivet.datasets.image_decoding import THREADS, Decoded, Decoders, Progress, decode_files
from trivet.io.image_file import FORMATS, Region, decode_image


def decode(paths: Sequence[Path], into: Decoded | None, progress: Progress | None = None) -> dict[int, str]:
    return decode_files(len(paths), lambda i: decode_image(paths[i], size=4, channels=1), into, progress)


def begin(decoders: Decoders, paths: Sequence[Path], into: Decoded | None) -> Callable[[], dict[int, str]]:
    return decoders.begin(range(len(paths)), lambda i: decode_image(paths[i], size=4, channels=1), into)


def test_the_centre_is_cropped_from_the_resized_image(tmp_path: Path) -> None:
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, :20], pixels[:, 20:40], pixels[:, 40:] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    Image.fromarray(pixels.transpose(1, 0, 2)).save(tmp_path / "tall.png")
    for name in ("wide.png", "tall.png"):
        decoded = decode_image(tmp_path / name, size=10, channels=3)
        assert decoded.shape == (3, 10, 10)
        assert decoded[:, 1:-1, 1:-1].min(axis=(1, 2)).tolist() == [0, 255, 0]


def test_upright_as_the_camera_says(tmp_path: Path) -> None:
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:16] = 255  # white on top
    exif = Image.Exif()
    exif[0x0112] = 3  # held upside down
    Image.fromarray(pixels).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    decoded = decode_image(tmp_path / "turned.jpg", size=8, channels=1)
    assert decoded[0, :3].max() < 20
    assert decoded[0, -3:].min() > 235


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "tiff"])
@pytest.mark.parametrize("held", range(1, 9))
def test_every_way_to_hold_a_camera_in_every_kind_of_file(held: int, kind: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = held
    path = tmp_path / f"a.{kind}"
    Image.fromarray(pixels).save(path, exif=exif)
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
        seen = image.convert("RGB")
    decoded = decode_image(path, size=(upright.height, upright.width), channels=3)
    assert (decoded.transpose(1, 2, 0) == np.asarray(upright)).all()
    mirrored = decode_image(path, size=(upright.height, upright.width), channels=3, mirror=True)
    assert (mirrored == decoded[:, :, ::-1]).all()
    given = Image.open(path)
    decode_image(given, size=4, channels=3)
    assert (np.asarray(given) == np.asarray(seen)).all()  # the caller's own stays as it is


@pytest.mark.parametrize("shape", [(16, 24), (16, 25), (30, 12), (31, 12), (16, 12), (31, 47), (9, 9)], ids=str)
@pytest.mark.parametrize("kind", ["RGB", "L"])
def test_a_part_is_that_of_the_whole(shape: tuple[int, int], kind: str) -> None:
    """To the last bit, also where the image is not resized but moved by half a pixel, and only the part is made."""
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    image, channels = Image.fromarray(pixels).convert(kind), len(kind)
    whole = decode_image(image, size=(16, 12), channels=channels)
    for part in (Region(0, 0, 16, 12), Region(3, 2, 10, 9), Region(6, 3, 10, 9), Region(15, 11, 1, 1)):
        for mirror in (False, True):
            made = decode_image(image, size=(16, 12), channels=channels, region=part, mirror=mirror)
            expected = whole[:, part.top : part.top + part.height, part.left : part.left + part.width]
            assert (made == (expected[:, :, ::-1] if mirror else expected)).all()


def test_unusual_pixels(tmp_path: Path) -> None:
    Image.new("RGBA", (4, 4), (10, 20, 30, 0)).save(tmp_path / "clear.png")
    assert (decode_image(tmp_path / "clear.png", size=4, channels=3) == 255).all()
    Image.fromarray(np.full((4, 4), 200 * 256 + 7, np.uint16)).save(tmp_path / "deep.png")
    assert (decode_image(tmp_path / "deep.png", size=4, channels=1) == 200).all()
    Image.new("CMYK", (4, 4), (0, 0, 0, 0)).save(tmp_path / "print.jpg")
    assert (decode_image(tmp_path / "print.jpg", size=4, channels=3) == 255).all()
    Image.new("L", (4, 4), 90).save(tmp_path / "a.gif", save_all=True, append_images=[Image.new("L", (4, 4), 7)])
    assert (decode_image(tmp_path / "a.gif", size=4, channels=1) == 90).all()


def test_broken_files_are_named_and_the_others_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50 * 50)
    monkeypatch.setattr("trivet.datasets.image_decoding.CHUNK", 2)
    good = [tmp_path / f"good{i}.png" for i in range(2)]
    for i, path in enumerate(good):  # each with broken camera data, of which Pillow warns
        Image.new("L", (9, 9), 10 + i).save(path, exif=b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01")
    Image.new("L", (60, 60)).save(tmp_path / "bomb.png")  # above the limit: a warning of Pillow
    Image.new("L", (200, 200)).save(tmp_path / "worse.png")  # above twice the limit: an error of Pillow
    (tmp_path / "text.jpg").write_text("not an image")
    whole = good[0].read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) - 20])
    (tmp_path / "empty.png").touch()
    names = ("bomb.png", "worse.png", "text.jpg", "cut.png", "empty.png", "absent.png")
    paths = [good[0], *(tmp_path / name for name in names), good[1]]
    into = np.zeros((len(paths), 1, 4, 4), np.uint8)
    calls: list[tuple[int, int]] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        broken = decode(paths, into, lambda done, count: calls.append((done, count)))
    assert sorted(broken) == [1, 2, 3, 4, 5, 6]
    assert broken[1] == broken[2] == "more than 2,500 pixels"
    assert broken[6] == "no such file"
    assert (into[0] == 10).all()
    assert (into[7] == 11).all()
    assert calls == [(2, 8), (4, 8), (6, 8), (8, 8)]
    assert not caught


class Stopping(list[int]):
    """Takes images until one stops it."""

    def __init__(self, at: int, stop: Callable[[], None]) -> None:
        super().__init__()
        self.at, self.stop = at, stop

    def __setitem__(self, position: Any, image: Any) -> None:
        self.append(position)
        time.sleep(0.001)  # without Python's lock: the other threads go on
        if position == self.at:
            self.stop()


def fail() -> None:
    raise ZeroDivisionError("of whoever takes the images")


def interrupt() -> None:
    """Ctrl-C."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


@pytest.mark.parametrize(("stop", "error"), [(fail, ZeroDivisionError), (interrupt, KeyboardInterrupt)])
def test_an_error_or_an_interruption_ends_all_threads_soon(
    stop: Callable[[], None], error: type[BaseException], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    before_tests = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before_tests))
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    into, before = Stopping(10, stop), threading.active_count()
    with pytest.raises(error):
        decode([tmp_path / "a.png"] * 500, into)
    assert threading.active_count() == before
    assert 11 - THREADS <= len(into) < 250


def test_each_file_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.datasets.image_decoding.CHUNK", 64)
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    into = Stopping(-1, fail)
    broken = decode([tmp_path / "a.png", tmp_path / "none.png"] * 150, into)
    assert sorted(into) == list(range(0, 300, 2))
    assert list(broken) == list(range(1, 300, 2))  # in this order: a run names the first


def test_the_next_files_are_decoded_before_the_first_are_asked_for(tmp_path: Path) -> None:
    Image.new("L", (4, 4), 7).save(tmp_path / "a.png")
    files, before = [tmp_path / "a.png", tmp_path / "none.png"] * 5, threading.active_count()
    first, second = np.zeros((10, 1, 4, 4), np.uint8), np.zeros((10, 1, 4, 4), np.uint8)
    with Decoders() as decoders:
        finish_first = begin(decoders, files, first)
        finish_second = begin(decoders, files, second)
        assert list(finish_second()) == [1, 3, 5, 7, 9]
        assert (second[::2] == 7).all()
        assert list(finish_first()) == [1, 3, 5, 7, 9]
        assert (first[::2] == 7).all()
        assert threading.active_count() <= before + THREADS
    assert threading.active_count() == before


def test_what_was_begun_and_not_asked_for_ends_soon(tmp_path: Path) -> None:
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    into, before = Stopping(-1, fail), threading.active_count()
    with Decoders() as decoders:
        begin(decoders, [tmp_path / "a.png"] * 500, into)
    assert threading.active_count() == before
    assert len(into) < 250


def test_only_warnings_of_pillow_are_hidden_while_files_are_decoded(tmp_path: Path) -> None:
    Image.new("L", (9, 9)).save(tmp_path / "a.png", exif=b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01")  # Pillow warns
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Decoders() as decoders:
            assert begin(decoders, [tmp_path / "a.png"], None)() == {}
            warnings.warn("of whoever trains meanwhile", stacklevel=1)
        with Image.open(tmp_path / "a.png") as image:
            ImageOps.exif_transpose(image)
    assert "of whoever trains" in str(caught[0].message)
    assert all("EXIF" in str(one.message) for one in caught[1:])
    assert len(caught) > 1  # Pillow is heard again


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def test_only_the_documented_formats_are_tried_and_no_program_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A .png that holds PostScript made Pillow start Ghostscript."""
    program, started = tmp_path / "bin" / "gs", tmp_path / "started"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho yes > {started}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    (tmp_path / "a.png").write_bytes(POSTSCRIPT)
    others = {"b.png": "PPM", "c.jpg": "TGA", "d.png": "ICO", "e.gif": "PCX"}
    for name, kind in others.items():
        Image.new("RGB", (16, 16)).save(tmp_path / name, kind)
    paths = [tmp_path / "a.png", *(tmp_path / name for name in others)]
    assert list(decode(paths, None)) == [0, 1, 2, 3, 4]
    assert not started.exists()
    for kind in FORMATS:
        Image.new("RGB", (16, 16), (9, 9, 9)).save(tmp_path / "any.png", kind)
        assert decode([tmp_path / "any.png"], None) == {}, kind


def test_every_image_is_opened_in_one_place() -> None:
    opening = set()
    openers = ("Image.open", "imread", "read_image", "default_loader", "ImageFolder")
    last = {opener.rpartition(".")[2] for opener in openers}
    for path, nodes in library().items():
        for node in nodes:
            name = getattr(node, "func", None)
            if getattr(name, "attr", getattr(name, "id", "")) in last and ast.unparse(name).endswith(openers):
                opening.add((path.name, ast.unparse(node)))
    assert opening == {("image_file.py", "Image.open(source, formats=formats)")}


def test_a_pipe_or_a_device_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    found = decode([tmp_path / "pipe.png", tmp_path / "zero.png"], None)
    assert all("is a device or a pipe" in reason for reason in found.values())
    assert len(found) == 2
