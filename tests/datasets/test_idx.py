from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from trivet.datasets.idx import read_idx

HEADER = bytes((0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3))


def test_reads_the_format_plain_and_compressed(tmp_path: Path) -> None:
    data = HEADER + bytes((1, 2, 3, 4, 5, 255))
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "a.gz").write_bytes(gzip.compress(data))
    for name in ("a", "a.gz"):
        assert read_idx(tmp_path / name, dimensions=2).tolist() == [[1, 2, 3], [4, 5, 255]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begins with"),
        (HEADER[:9], "begins with"),
        (bytes((0, 0, 8, 1, 0, 0, 0, 1, 5)), "2 dimensions"),
        (bytes((0, 0, 13)) + HEADER[3:] + bytes(24), "idx file of bytes"),
        (HEADER + bytes(5), "must hold 6 values after its header: it has only 5"),
        (HEADER + bytes(7), "it has more"),
    ],
)
def test_a_wrong_file_is_named(data: bytes, message: str, tmp_path: Path) -> None:
    for name, content in (("wrong", data), ("wrong.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name} .*{message}"):
            read_idx(tmp_path / name, dimensions=2)


def test_a_broken_gzip_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(HEADER + np.random.default_rng(0).bytes(6))
    for content in (whole[:-9], b"not gzip at all", whole[:15] + b"\xff\xff" + whole[17:]):
        (tmp_path / "cut.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"cut\.gz must"):
            read_idx(tmp_path / "cut.gz", dimensions=2)
