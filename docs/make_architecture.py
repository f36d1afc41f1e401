"""Draw docs/architecture.svg from the imports of the code: .venv/bin/python docs/make_architecture.py"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
PICTURE = Path(__file__).with_name("architecture.svg")

# From the lowest up: a package imports packages of the layers below its own and nothing else. The number is its column
# in the picture.
LAYERS: list[dict[str, float]] = [
    {"runtime": 3.4},
    {"config": 1.3, "distances": 5.5},
    {"io": 1.3, "mining": 6.2},
    {"reports": 0.2, "models": 2.3, "metrics": 5, "losses": 8.3},
    {"label_noise": 4.1, "collapse": 5.9, "knn": 7.6, "samplers": 9.4},
    {"datasets": 3.6, "integrations": 8.9},
    {"training": 3.4},
    {"commands": 5.2},
]
WIDTH, HEIGHT, COLUMN, ROW, EDGE = 112, 30, 72, 68, 70  # of a box, of the grid, and from the border to a box's centre


def imports(file: Path, packages: Mapping[str, object]) -> set[str]:
    """The packages of trivet that a file imports, at its top or inside a function."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
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
        name: {other for file in (SOURCE / "trivet" / name).rglob("*.py") for other in imports(file, columns)} - {name}
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


def picture() -> str:
    """The SVG: a box for each package, layer upon layer, and the arrows."""
    centres = {
        name: (EDGE + COLUMN * column, 30 + ROW * (len(LAYERS) - 1 - level))
        for level, layer in enumerate(LAYERS)
        for name, column in layer.items()
    }
    width, height = 2 * EDGE + int(9.4 * COLUMN), 60 + ROW * (len(LAYERS) - 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        "<title>The packages of trivet in layers; an arrow leads from a package to one that it imports</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#888"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for name, other in arrows():
        (x, y), (to_x, to_y) = centres[name], centres[other]
        line = f"M{x:.0f} {y + HEIGHT / 2:.0f} {to_x:.0f} {to_y - HEIGHT / 2:.0f}"
        lines.append(f'<path d="{line}" stroke="#888" fill="none" marker-end="url(#head)"/>')
    for name, (x, y) in centres.items():
        box = f'x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6"'
        lines.append(f'<rect {box} fill="#e0f2f1" stroke="#00796b"/>')
        lines.append(f'<text x="{x:.0f}" y="{y + 5:.0f}" font-size="15" text-anchor="middle">{name}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture())
