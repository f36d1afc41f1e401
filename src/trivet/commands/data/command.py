"""`trivet data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.commands.printing import echo, print_json
from trivet.commands.shared_options import DataRoot, Json, check_folder, exists
from trivet.runtime.progress import show_progress

data = typer.Typer(help="List and download data sets.", rich_markup_mode=None)


@data.command("list")
def list_all(json: Json = False) -> int:
    """List the data sets and their label levels."""
    with show_progress("loading the data sets"):
        from trivet.datasets import DATA_SETS  # here: it loads the data stack

    if json:
        keys = ("description", "levels", "published")
        rows = [{"name": name, **{key: getattr(entry, key) for key in keys}} for name, entry in DATA_SETS.items()]
        print_json({"data": rows})
        return 0
    for name, entry in DATA_SETS.items():
        levels = " > ".join(entry.levels) or "levels from the data"
        echo(f"{name:<14} {entry.description} ({levels})")
        if entry.published:
            echo(f"{'':<14} {entry.published}")
    return 0


@data.command("download")
def download(
    name: Annotated[
        str,
        typer.Argument(
            help="mnist, fashion-mnist, omniglot, flowers102, cifar10 or cifar100. Others of `trivet data list` need "
            "no download or must be fetched by hand."
        ),
    ],
    data_root: DataRoot = None,
    json: Json = False,
) -> int:
    """Download a data set."""
    with show_progress(f"downloading {name}"):
        from trivet.datasets import download as fetch  # here: it loads the data stack

        folder = fetch(name, data_root)
    if json:
        print_json({"name": name, "folder": None if folder is None else str(folder)})
    else:
        echo(f"{name} needs no download" if folder is None else f"{name} is in {folder}")
    return 0


@data.command("export-beir")
def export_beir(
    context: typer.Context,
    pairs: Annotated[
        Path,
        typer.Argument(help="A table of pairs of texts: csv, tsv, parquet, JSON or Hugging Face.", callback=exists),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    left: Annotated[str | None, typer.Option(help="The column of queries. Default: by its name.")] = None,
    right: Annotated[str | None, typer.Option(help="The column of documents. Default: by its name.")] = None,
    score: Annotated[str | None, typer.Option(help="The column of scores. Default: by its name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder of this layout.")] = False,
    json: Json = False,
) -> int:
    """Write a table of pairs in the layout of BEIR: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv."""
    with show_progress("writing the folder"):
        from trivet.io.beir import FILES, write_beir  # here: `--help` needs no tables
        from trivet.io.pair_table import read_pairs

        check_folder(context, output, FILES)
        table = read_pairs(pairs, left=left, right=right, score=score)
        write_beir(table, output, force=force)
    counts = {"queries": len(table.left.contents), "documents": len(table.right.contents), "pairs": len(table.pairs)}
    if json:
        print_json({"folder": str(output), **counts, "notes": list(table.notes)})
    else:
        for note in table.notes:
            echo(note, err=True)
        echo(f"{output}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))
    return 0
