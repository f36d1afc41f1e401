from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest

from trivet.reports import Panel, scatter_svg

SVG = "{http://www.w3.org/2000/svg}"


def marks(svg: str) -> list[tuple[str, float, float]]:
    """(shape, x, y) of every point; the legend's marks have no x."""
    uses = ElementTree.fromstring(svg).iter(f"{SVG}use")
    return [(use.attrib["href"], float(use.attrib["x"]), float(use.attrib["y"])) for use in uses if "x" in use.attrib]


def test_hostile_names_give_well_formed_xml_and_are_shown() -> None:
    names = ["<script>alert(1)</script>", '"><img src=x>', "a\0b\x1b\udcff", "&amp;", "Ω猫", "]]>"]
    panel = Panel(names[0], names[1], [(0.0, 1.0)] * 6, range(6), names, [0, 1] * 3, [names[3], names[5]])
    svg = scatter_svg([panel, panel], title=names[0])
    root = ElementTree.fromstring(svg.encode("utf-8"))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        *("svg", "title", "defs", "path", "rect", "text", "use")
    }
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert names[0] in texts
    assert "a\ufffdb\ufffd\ufffd (&amp;)" in texts
    assert root.findtext(f"{SVG}title") == names[0]


def test_both_axes_have_one_scale_and_up_is_up() -> None:
    corners = [(10.0, 5.0), (12.0, 5.0), (12.0, 6.0), (10.0, 6.0)]
    svg = scatter_svg([Panel("", "", corners, range(4), list("abcd"))], title="")
    places = {shape: (x, y) for shape, x, y in marks(svg)}
    a, b, c, _ = (places[f"#c{k}"] for k in range(4))
    assert math.dist(a, b) == pytest.approx(2 * math.dist(b, c), abs=0.2)
    assert a[1] == b[1] > c[1]
    assert b[0] > a[0]


def test_colour_is_the_fine_class_and_shape_the_coarse_class() -> None:
    points = [(float(k), 0.0) for k in range(5)]
    panel = Panel("", "", points, [0, 1, 2, 3, 1], list("wxyz"), [0, 0, 1, 1], ["low", "high"])
    svg = scatter_svg([panel], title="")
    by_place = [shape for shape, _, _ in sorted(marks(svg), key=lambda mark: mark[1])]
    assert by_place == ["#c0", "#c1", "#t2", "#t3", "#c1"]
    shapes = {path.attrib["id"]: path.attrib for path in ElementTree.fromstring(svg).iter(f"{SVG}path")}
    assert len({shape["fill"] for shape in shapes.values()}) == 4
    assert shapes["c0"]["d"] == shapes["c1"]["d"] != shapes["t2"]["d"]
    assert [e.text for e in ElementTree.fromstring(svg).iter(f"{SVG}text")][-4:] == [
        *("w (low)", "x (low)", "y (high)", "z (high)")
    ]


def test_everything_lies_inside_the_picture() -> None:
    wide, tall = [(-1e6, 0.0), (1e6, 3.0)], [(0.0, -1e6), (3.0, 1e6)]
    panels = [Panel("t", "s", points, [0, 1], ["a" * 99, "b"]) for points in (wide, tall, wide)]
    svg = scatter_svg(panels, title="x" * 999)
    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert len(marks(svg)) == 6
    assert all(0 < x < width and 0 < y < height for _, x, y in marks(svg))
    assert all(float(text.attrib["y"]) < height for text in root.iter(f"{SVG}text"))


def test_points_that_are_not_finite_are_left_out() -> None:
    points = [(0.0, 0.0), (math.nan, 1.0), (1.0, math.inf)]
    assert len(marks(scatter_svg([Panel("", "", points, [0, 0, 0], ["a"])], title=""))) == 1


@pytest.mark.parametrize(
    ("panels", "words"),
    [
        ([], "at least one panel: got none"),
        ([Panel("p", "", [(0.0, 0.0)], [], ["a"])], "'p' .* got 1 points, 0 classes"),
        ([Panel("p", "", [(0.0, 0.0)], [1], ["a"])], "indices into its 1 names: got 1 to 1"),
        ([Panel("p", "", [(0.0, 0.0)], [0], ["a"], [0, 1])], "got 1 names, 2 coarse classes"),
    ],
)
def test_panels_that_do_not_fit_together_are_refused(panels: list[Panel], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        scatter_svg(panels, title="")
