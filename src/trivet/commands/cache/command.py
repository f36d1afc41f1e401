"""`trivet cache`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.printing import echo, print_json
from trivet.commands.shared_options import Json
from trivet.runtime.arguments import check_name
from trivet.runtime.cache import MADE_AGAIN, SUBJECTS, Subject, cache_folder, cache_limit, cached_files


def cache(
    subject: Annotated[
        str | None,
        typer.Argument(help=f"Only this: {', '.join(SUBJECTS)}.", show_default=False),
    ] = None,
    empty: Annotated[
        bool, typer.Option("--empty", help="Remove what is computed again when it is needed; data sets stay.")
    ] = False,
    json: Json = False,
) -> int:
    """Show what is cached on this machine, such as features of frozen encoders, and how much room it takes."""
    subjects = [*SUBJECTS]
    if subject is not None:
        check_name(subject, SUBJECTS, name="the subject of the cache")
        if empty and subject not in MADE_AGAIN:
            raise ValueError(
                f"data sets may have been put there by you, and are removed by hand: {cache_folder('data')} stays; "
                f"--empty is for {', '.join(MADE_AGAIN)}."
            )
        subjects = [name for name in SUBJECTS if name == subject]
    folder, limit = cache_folder("features").parent, cache_limit()
    removed = sum(_emptied(name) for name in subjects if name in MADE_AGAIN) if empty else 0
    rows = {name: _sizes(cache_folder(name)) for name in subjects}
    if json:
        print_json({"folder": str(folder), "limit": limit, "removed": removed, "subjects": rows})
        return 0
    if empty:
        echo(f"{_size(removed)} removed")
    echo(f"{folder} (TRIVET_CACHE), at most {_size(limit)} of each but data (TRIVET_CACHE_LIMIT)")
    for name, row in rows.items():
        echo(f"{name:<10} {_size(row['bytes']):>8} in {row['files']} files: {SUBJECTS[name]}")
    return 0


def _sizes(folder: Path) -> dict[str, int]:
    sizes: list[int] = []
    for file in folder.rglob("*"):
        with suppress(OSError):  # another process has removed it
            if file.is_file():
                sizes.append(file.stat().st_size)
    return {"bytes": sum(sizes), "files": len(sizes)}


def _emptied(subject: Subject) -> int:
    """Remove the arrays of a subject, and folders that are empty then; returns their bytes."""
    folder, removed = cache_folder(subject), 0
    for file, stat in cached_files(folder):
        file.unlink(missing_ok=True)
        removed += stat.st_size
    for inner in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        with suppress(OSError):  # of another process
            inner.rmdir()
    return removed


def _size(count: float) -> str:
    unit = min(3, max(0, len(str(int(count))) - 1) // 3)
    return f"{count / 1000**unit:.3g} {('B', 'kB', 'MB', 'GB')[unit]}"
