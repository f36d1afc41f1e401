"""Draw docs/architecture.svg from the imports of the code, and docs/ways.svg from the lists of docs/architecture.md:
.venv/bin/python docs/make_architecture.py"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
PAGE, PICTURE, WAYS = (Path(__file__).with_name(name) for name in ("architecture.md", "architecture.svg", "ways.svg"))

# From the lowest up: a package imports packages of the layers below its own and nothing else. The number is its column
# in the picture.
LAYERS: list[dict[str, float]] = [
    {"runtime": 3.4},
    {"config": 1.3, "distances": 5.5},
    {"io": 1.3, "mining": 6.2},
    {"reports": 0.2, "models": 2.3, "metrics": 5, "losses": 8.3},
    {"drift": 2.6, "label_noise": 4.1, "collapse": 5.9, "knn": 7.6, "samplers": 9.4},
    {"datasets": 3.6, "integrations": 8.9},
    {"training": 3.4},
    {"commands": 5.2},
]
WIDTH, HEIGHT, COLUMN, ROW, EDGE = 112, 30, 72, 68, 70  # of a box, of the grid, and from the border to a box's centre


def imports(nodes: Iterable[ast.AST], packages: Mapping[str, object]) -> set[str]:
    """The packages of trivet that a file of these nodes imports, at its top or inside a function."""
    modules: list[str] = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import of {node.module}"
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    return {parts[1] for parts in (module.split(".") for module in modules) if parts[0] == "trivet" and parts[1:]} & {
        *packages
    }


def arrows() -> list[tuple[str, str]]:
    """The imports between packages, without those that follow from others: (importing, imported)."""
    columns = {name: column for layer in LAYERS for name, column in layer.items()}
    direct = {
        name: {
            other
            for file in (SOURCE / "trivet" / name).rglob("*.py")
            for other in imports(ast.walk(ast.parse(file.read_text())), columns)
        }
        - {name}
        for name in columns
    }

    def reached(name: str) -> set[str]:
        return direct[name].union(*map(reached, direct[name]))

    return [
        (name, other)
        for name in columns
        for other in sorted(direct[name])
        if not any(other in reached(between) for between in direct[name])
    ]


def ways() -> dict[str, list[str]]:
    """The packages of each "way" of the page, in the order in which its steps first name one."""
    result = {}
    for title, text in re.findall(
        r"^## The way of (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE
    ):
        steps = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^$)", text, re.DOTALL | re.MULTILINE)
        named = [name for step in steps for name in re.findall(r"`(\w+)/[\w/]+\.py`", step)]
        result[title] = [name for name, before in zip(named, [None, *named], strict=False) if name != before]
    return result


def picture() -> str:
    """The packages: a box for each, layer upon layer, and the arrows."""
    centres = {
        name: (EDGE + COLUMN * column, 30 + ROW * (len(LAYERS) - 1 - level))
        for level, layer in enumerate(LAYERS)
        for name, column in layer.items()
    }
    lines = []
    for name, other in arrows():
        (x, y), (to_x, to_y) = centres[name], centres[other]
        lines.append(_arrow(x, y + HEIGHT / 2, to_x, to_y - HEIGHT / 2))
    lines += [_box(name, x, y) for name, (x, y) in centres.items()]
    title = "The packages of trivet in layers; an arrow leads from a package to one that it imports"
    return _svg(title, 2 * EDGE + int(9.4 * COLUMN), 60 + ROW * (len(LAYERS) - 1), lines)


def picture_of_ways() -> str:
    """The ways: a row for each, a box for each package that it visits, in order."""
    lines, wide = [], 90
    step = wide + 18
    for row, (title, names) in enumerate(ways().items()):
        top = 24 + 76 * row
        lines.append(f'<text x="14" y="{top}" font-size="15">{title[0].upper() + title[1:]}</text>')
        for index, name in enumerate(names):
            x, y = 14 + wide / 2 + step * index, top + 26
            if index:
                lines.append(_arrow(x - step + wide / 2, y, x - wide / 2, y))
            lines.append(_box(name, x, y, wide))
    width = 28 + step * max(map(len, ways().values())) - 18
    return _svg("The packages on the way of each, in order", width, 12 + 76 * len(ways()), lines)


def _svg(title: str, width: int, height: int, lines: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f"<title>{title}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#888"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    )
    return "\n".join([*head, *lines, "</svg>"]) + "\n"


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path d="M{x:.0f} {y:.0f} {to_x:.0f} {to_y:.0f}" stroke="#888" fill="none" marker-end="url(#head)"/>'


def _box(name: str, x: float, y: float, width: int = WIDTH) -> str:
    box = f'x="{x - width / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{width}" height="{HEIGHT}" rx="6"'
    text = f'<text x="{x:.0f}" y="{y + 5:.0f}" font-size="15" text-anchor="middle">{name}</text>'
    return f'<rect {box} fill="#e0f2f1" stroke="#00796b"/>\n{text}'


if __name__ == "__main__":
    PICTURE.write_text(picture())
    WAYS.write_text(picture_of_ways())
