"""Write docs/rooms.md and the order of imports in CONTRIBUTING.md from the code: .venv/bin/python docs/make_rooms.py"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "trivet"
PAGE, GUIDE = ROOT / "docs" / "rooms.md", ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- order of imports: docs/make_rooms.py -->\n", "<!-- end -->"

# From the lowest up: a room imports those of the lines above its own and nothing else.
LAYERS = [
    {"runtime"},
    {"config"},
    {"io"},
    {"distances"},
    {"mining"},
    {"losses"},
    {"samplers", "metrics"},
    {"knn", "collapse", "label_noise"},
    {"models"},
    {"datasets"},
    {"reports"},
    {"training"},
    {"integrations"},
    {"commands"},
]


def order() -> str:
    """The order of imports as CONTRIBUTING.md prints it."""
    lines = [", ".join(f"`{name}`" for name in sorted(names)) for names in LAYERS]
    return BEGIN + " <\n".join(lines) + ".\n" + END


def rooms() -> str:
    """The page: every room and every file of it, with the first sentence of its docstring."""
    parts = [
        "# Where things are\n\nWritten by `docs/make_rooms.py` from the first lines of the code. "
        "A room imports only rooms that come before it.\n"
    ]
    for names in LAYERS:
        for name in sorted(names):
            folder = SOURCE / name
            files = sorted(folder.rglob("*.py")) if folder.is_dir() else [SOURCE / f"{name}.py"]
            head, *rest = sorted(files, key=lambda path: (len(path.parts), path.name != "__init__.py"))
            parts.append(f"\n## `{name}`\n\n{first_sentence(head)}\n")
            if rest:
                parts.append("\n")
            parts += [
                f"- `{path.relative_to(folder).as_posix()}`: {first_sentence(path)}\n"
                for path in sorted(rest, key=lambda path: path.relative_to(folder).as_posix())
                if path.name != "__init__.py"
            ]
    return "".join(parts)


def first_sentence(path: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def guide() -> str:
    """CONTRIBUTING.md with the present order of imports."""
    return re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: order(), GUIDE.read_text(), flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(rooms())
    GUIDE.write_text(guide())
