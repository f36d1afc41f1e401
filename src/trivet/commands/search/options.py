"""The arguments and options of `trivet search`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from trivet.commands.shared_options import VECTOR_FILES, DataRoot, Json, TrustCode, VectorOptions, exists


@dataclass(frozen=True)
class SearchOptions(VectorOptions):
    """A search as it is asked for."""

    index: Annotated[Path, typer.Argument(help="An index folder, made by trivet index.", callback=exists)]
    query: Annotated[
        str | None,
        typer.Argument(
            help=f"The id of an item, an image file (index with a run), or vectors: {VECTOR_FILES}.",
            show_default=False,
        ),
    ] = None
    id: Annotated[str | None, typer.Option("--id", help="The id of an item, even if a file has the same name.")] = None
    text: Annotated[str | None, typer.Option("--text", help="Words, for an index of texts.")] = None
    k: Annotated[int, typer.Option("--k", help="Number of items to find.")] = 10
    recall: Annotated[
        float | None,
        typer.Option(
            help="Share of the nearest 10 to find; uses the least effort that was measured to find it. "
            "Default: that of trivet index."
        ),
    ] = None
    postprocess: Annotated[
        Literal["none", "expansion", "reciprocal"] | None,
        typer.Option(
            help="Expand the query, or re-rank what is found by reciprocal neighbours. Default: as the index."
        ),
    ] = None
    sheet: Annotated[Path | None, typer.Option("--sheet", help="Also write a page with pictures of the results.")] = (
        None
    )
    data_root: DataRoot = None
    trust_code: TrustCode = False
    json: Json = False
