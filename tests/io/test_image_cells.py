"""Images in the cells of a table: how they are named, and which are equal."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trivet.io.image_cells import named_images
from trivet.io.pair_table import read_pairs


def cell(content: bytes | None, path: str | None) -> dict[str, bytes | str | None]:
    return {"bytes": content, "path": path}


@pytest.mark.parametrize(
    ("cells", "names", "held"),
    [
        ([cell(b"1", "a.png"), cell(b"2", "b.png")], ["a.png", "b.png"], {"a.png": b"1", "b.png": b"2"}),
        ([cell(b"1", "a.png"), cell(b"1", "b.png")], ["a.png", "a.png"], {"a.png": b"1"}),
        ([cell(b"1", "a.png"), cell(b"2", "a.png")], ["image-0", "image-1"], {"image-0": b"1", "image-1": b"2"}),
        ([cell(b"1", None), cell(b"2", None)], ["image-0", "image-1"], {"image-0": b"1", "image-1": b"2"}),
        ([cell(None, "a.png"), cell(b"2", "b.png")], ["a.png", "b.png"], {"b.png": b"2"}),
        ([b"1", None, b"1"], ["image-0", "", "image-0"], {"image-0": b"1"}),
    ],
    ids=["by path", "equal images", "one path of two images", "no paths", "a file", "bytes alone"],
)
def test_images_are_named_by_paths_that_tell_them_apart(
    cells: list[object], names: list[str], held: dict[str, bytes], tmp_path: Path
) -> None:
    pq.write_table(pa.table({"image": cells, "caption": ["x"] * len(cells)}), tmp_path / "a.parquet")
    found = named_images(tmp_path / "a.parquet")
    assert {name: [*each] for name, each in found.names.items()} == {"image": names}
    assert {name: image.read() for name, image in found.cells.items()} == held


def test_equal_images_of_both_sides_have_one_name(tmp_path: Path) -> None:
    columns = {"left": [b"1", b"2", b"1"], "right": [b"2", b"3", b"3"]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    table = read_pairs(tmp_path / "a.parquet")
    assert [*table.left.contents] == ["left-0", "left-1"]
    assert [*table.right.contents] == ["left-1", "right-1"]
    assert table.pairs.tolist() == [[0, 0], [1, 1], [0, 1]]


def test_a_file_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    for content in (b"1", b"22"):
        pq.write_table(pa.table({"image": [content]}), tmp_path / "a.parquet")
        assert named_images(tmp_path / "a.parquet").cells["image-0"].read() == content
