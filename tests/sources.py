"""The code of both packages, parsed once in a process for all tests that look through it."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"
LIBRARY = SRC / "trivet"


@cache
def files() -> dict[Path, tuple[ast.AST, ...]]:
    """The nodes of each file, its module first."""
    paths = sorted(SRC.rglob("*.py"))
    gc.disable()  # they live to the end, and looking through them for garbage takes longer than parsing
    found = {path: tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for path in paths}
    gc.freeze()
    gc.enable()
    return found


def library() -> dict[Path, tuple[ast.AST, ...]]:
    """Those of the library alone, without the papers."""
    return {path: nodes for path, nodes in files().items() if path.is_relative_to(LIBRARY)}
