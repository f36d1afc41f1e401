"""The arguments and options of `trivet audit`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet.commands.shared_options import (
    VECTOR_FILES,
    DataRoot,
    DistanceByDimension,
    Json,
    PairOptions,
    Separator,
    SkipEmpty,
    TrustCode,
    VectorOptions,
    exists,
    tag_cells,
)

if TYPE_CHECKING:
    from trivet.io.tag_cells import TagCells


@dataclass(frozen=True)
class AuditOptions(VectorOptions, PairOptions):
    """An audit as it is asked for."""

    embeddings: Annotated[
        Path,
        typer.Argument(
            help=f"Embeddings: {VECTOR_FILES}; texts: a table; pairs: a table or a folder of BEIR; or a run folder: "
            "its training items.",
            show_default=False,
            callback=exists,
        ),
    ]
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            "--labels",
            help="The label column to audit. Default: the first; for a run, the level it was trained on.",
        ),
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write all items here, most suspect first: id, label, proposed label, probability, evidence, "
            "duplicates, outliers and text; of tags those that disagree: id, tag, missing or superfluous; of pairs all "
            "and those that are missing."
        ),
    ] = None
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write a page here on which you can decide: the most suspect items next to their neighbours."
        ),
    ] = None
    decisions: Annotated[
        Path | None,
        typer.Option(
            help="Write a file id,decision,label here, to be filled in and given to --apply, or for a run to trivet "
            "train --labels."
        ),
    ] = None
    relabel_above: Annotated[
        float | None,
        typer.Option(
            help="Fill in decisions: relabel if another label is proposed that is right with a probability above this, "
            "else keep; add pairs that are missing with such a probability. Default: leave them empty."
        ),
    ] = None
    drop_above: Annotated[
        float | None,
        typer.Option(
            help="Fill in decisions: leave an item out of training if its label is wrong, or its classes overlap "
            "there, with a probability above this, else keep; two items of each class stay. With --relabel-above, what "
            "is not relabelled. Accuses no label, so it also decides where an audit cannot tell. Default: leave them "
            "empty."
        ),
    ] = None
    apply: Annotated[
        Path | None,
        typer.Option(
            "--apply",
            help="Do not audit: apply the decisions in this file to the data file, and write the result to --output.",
            show_default=False,
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="For --apply: the new file, of the same format; it must not exist.",
            show_default=False,
        ),
    ] = None
    folds: Annotated[
        int | None,
        typer.Option(
            help="For a run: number of networks to train, each without one fold of the items, which it then judges. 0 "
            "uses the network of the run, which may have memorised wrong labels. Default: 3, or 2 if the median "
            "class has fewer than 60 items."
        ),
    ] = None
    neighbours: Annotated[
        int | None, typer.Option(help="Number of nearest neighbours that judge an item.", show_default=False)
    ] = None
    distance: DistanceByDimension = None
    split: Annotated[str | None, typer.Option(help="For a file: use only the rows of this split.")] = None
    skip_empty: SkipEmpty = False
    text: Annotated[
        str | None,
        typer.Option(
            help="For a file: the column that the page shows for each row; for texts, that of the texts. Default: text."
        ),
    ] = None
    encoder: Annotated[
        str | None,
        typer.Option(
            help="For texts: the sentence-transformers model that embeds the texts, by name or folder. Default: "
            "none; texts are compared by character n-grams.",
            show_default=False,
        ),
    ] = None
    top: Annotated[int, typer.Option(min=0, help="Number of suspect items to print.")] = 10
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds, the text vectors and the estimate.")] = 0
    force: Annotated[bool, typer.Option("--force", help="Replace files that an earlier audit wrote.")] = False
    data_root: DataRoot = None
    separator: Separator = None
    trust_code: TrustCode = False
    json: Json = False

    @property
    def tags(self) -> TagCells | None:
        """The answer to what cells of several labels are; None without one."""
        return tag_cells(self.separator, None)
