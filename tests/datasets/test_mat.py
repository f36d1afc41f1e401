"""Mat files, of which damaged ones would end the process in scipy."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.io import savemat
from tests import miniatures
from tests.hostile.damage import DAMAGES

from trivet.datasets.archives import Tree
from trivet.datasets.mat import Mat

VALUES: dict[str, Any] = {
    "numbers": np.arange(6.0).reshape(2, 3),
    "few": np.array([[1, 2]], np.uint8),
    "none": np.zeros((0, 0)),
    "truth": np.array([True, False]),
    "text": "thé",
    "texts": np.array(["ab", "c"]),
    "cells": miniatures.cars_names(3),
    "rows": miniatures.structs([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}]),
    "deep": {"in": {"side": [1, 2]}},
}


def read(folder: Path, data: bytes) -> Mat:
    (folder / "a.mat").write_bytes(data)
    return Mat(Tree(folder), "a.mat")


def made(values: dict[str, Any], *, packed: bool = False) -> bytes:
    sink = io.BytesIO()
    savemat(sink, values, do_compression=packed)
    return sink.getvalue()


@pytest.mark.parametrize("packed", [False, True])
def test_what_matlab_writes_is_read(packed: bool, tmp_path: Path) -> None:
    mat = read(tmp_path, made(VALUES, packed=packed))
    assert mat.floats("numbers").tolist() == [0, 3, 1, 4, 2, 5]  # column after column
    assert mat.texts("text") == ["thé"]
    assert mat.texts("texts") == ["ab", "c"]
    assert mat.integers("truth").tolist() == [1, 0]
    assert mat.texts("cells") == ["Z car 0", "Y car 1", "X car 2"]
    assert mat.texts("rows.name") == ["a", "b"]
    assert mat.integers("few").tolist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is none of version 5 to 7"),
        (made(VALUES)[:150], "an element is larger than what holds it"),
        (
            made({"a": np.eye(3)}).replace(np.int32([3, 3]).tobytes(), np.int32([3, 10**9]).tobytes()),
            "bytes for values",
        ),
        (made({"a": VALUES["cells"]}).replace(np.int32([1, 3]).tobytes(), np.int32([1, 10**9]).tobytes()), "fewer"),
        (made({"a": scipy.sparse.eye(3)}), "something else than real numbers, texts, cells and structures"),
        (made({"a": np.array([1 + 2j])}), "something else than real numbers"),
    ],
    ids=["empty", "cut", "shape", "cells", "sparse", "complex"],
)
def test_what_does_not_fit_together_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"a\.mat must be a complete mat file: .*{said}.*; get it again\."):
        read(tmp_path, data)


def test_another_version_and_a_variable_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.mat must be a mat file of version 5 to 7: it is of 7\.3"):
        read(tmp_path, b"MATLAB 7.3 MAT-file")
    with pytest.raises(ValueError, match="must hold 'labels'"):
        read(tmp_path, made(VALUES)).integers("labels")


def test_what_is_small_and_expands_is_refused_before_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.datasets.mat.EXPANDED", 2**20)
    with pytest.raises(ValueError, match="bytes and expands to"):
        read(tmp_path, made({"a": np.zeros(2**18)}, packed=True))


def test_no_damage_ends_the_process(tmp_path: Path) -> None:
    data = made(VALUES)
    child = os.fork()
    if not child:
        for number in range(1500):
            draw = random.Random(number)
            changed = DAMAGES[draw.choice(["bytes", "cut", "grown"])](data, draw)
            try:
                read(tmp_path, changed)
            except ValueError:
                pass
            except BaseException:  # it is told by the exit code
                os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
