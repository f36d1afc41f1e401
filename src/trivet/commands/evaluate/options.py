"""The arguments and options of `trivet evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

import typer

from trivet.commands.shared_options import (
    VECTOR_FILES,
    DataRoot,
    Distance,
    ItemOptions,
    Json,
    Report,
    TrustCode,
    exists,
)
from trivet.knn.kinds import POSTPROCESSINGS, Approximate, Postprocessing, Stored

Name = TypeVar("Name", bound=str)


@dataclass(frozen=True)
class EvaluateOptions(ItemOptions):
    """An evaluation as it is asked for."""

    embeddings: Annotated[
        list[Path] | None,
        typer.Argument(
            help=f"Embeddings: {VECTOR_FILES}, or a run folder; several are compared. A run folder without options: "
            "its model is evaluated again. With options: the embeddings it holds, or with --texts or --images those "
            "that it makes, as an encoder does. With --left-vectors and --right-vectors the table of their pairs.",
            show_default=False,
            callback=exists,
        ),
    ] = None
    labels: Annotated[
        list[str] | None, typer.Option("--labels", "--level", help="A label column. May be repeated. Default: all.")
    ] = None
    query: Annotated[
        str | None, typer.Option(help="The split used as queries; without a file argument, a file of queries.")
    ] = None
    gallery: Annotated[
        str | None, typer.Option(help="The split or file to retrieve from. Default: all other items of the set.")
    ] = None
    same_items: Annotated[
        bool,
        typer.Option(
            "--same-items",
            help="Ids of --query and --gallery name the same items, and none finds itself. Default: only where the "
            "vectors are equal, too.",
        ),
    ] = False
    split: Annotated[
        str | None, typer.Option(help="Use only the rows of this split; with two files, those of the queries.")
    ] = None
    measures: Annotated[
        list[str] | None,
        typer.Option(
            help="recall@K, precision@K, r-precision, map@r, map, mrr, nmi, nmi-geometric, ami, nmi+, roc-auc, "
            "tar@far, verification-accuracy; with commas, or repeated. Default: all, with K = 1, 2, 4, 8 and 10. "
            "On request also found@K (the share of the positives found), map@K, rbp, ndcg@K, ndcg."
        ),
    ] = None
    distance: Distance = None
    cameras: Annotated[
        bool, typer.Option("--cameras", help="Ignore gallery items of the query's class from the same camera.")
    ] = False
    junk: Annotated[str | None, typer.Option(help="Gallery class to ignore, such as -1.")] = None
    out_of_scope: Annotated[
        str | None, typer.Option(help="Label of out-of-scope queries; measures how well they are rejected.")
    ] = None
    without_positive: Annotated[
        Literal["miss", "drop"], typer.Option(help="Count a query without a positive as a miss, or drop it.")
    ] = "miss"
    nmi_plus: Annotated[int, typer.Option(min=1, help="Clusters per class in NMI+.")] = 10
    folds: Annotated[int, typer.Option(min=0, help="Also evaluate within this many class-disjoint folds.")] = 0
    sample: Annotated[int, typer.Option(min=0, help="Number of random queries; 0 for all.")] = 0
    prefixes: Annotated[
        list[str] | None,
        typer.Option(
            help="Also evaluate the first N numbers of each embedding, for each N, such as 16,64,256 (Matryoshka), and "
            "compare; with commas, or repeated."
        ),
    ] = None
    approximate: Annotated[
        Approximate | None,
        typer.Option(help="Rank with an approximate index; its recall is reported."),
    ] = None
    quantize: Annotated[
        list[str] | None,
        typer.Option(
            help="Also evaluate the embeddings stored in fewer bits, and compare: float16, int8, binary, pq; with "
            "commas, or repeated."
        ),
    ] = None
    rescore: Annotated[
        bool,
        typer.Option("--rescore", help="With --quantize, also where the embeddings themselves rank what codes find."),
    ] = False
    postprocess: Annotated[
        list[str] | None,
        typer.Option(
            help="Also evaluate, and compare, what looks again at the embeddings or at what they find: whitening, "
            "expansion (of queries), reciprocal (re-ranking by reciprocal neighbours); with commas, or repeated."
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of k-means, pairs, folds and samples.")] = 0
    report: Report = None
    per_class: Annotated[Path | None, typer.Option(help="Write the measures of each class to this csv file.")] = None
    data_root: DataRoot = None
    trust_code: TrustCode = False
    json: Json = False

    @property
    def named_measures(self) -> list[str]:
        """The measures that are asked for by name."""
        return _listed(self.measures)

    @property
    def lengths(self) -> list[int]:
        """Lengths of the prefixes that are evaluated too."""
        numbers = _listed(self.prefixes)
        if not all(text.isdecimal() for text in numbers):
            raise ValueError(f"--prefixes must be whole numbers, such as 16,64: got {','.join(numbers)}.")
        return [*dict.fromkeys(map(int, numbers))]

    @property
    def forms(self) -> list[Stored]:
        """The numbers and codes that the embeddings are to be stored in."""
        return _named("--quantize", self.quantize, get_args(Stored))

    @property
    def postprocessings(self) -> list[Postprocessing]:
        """The ways of post-processing that are compared."""
        return _named("--postprocess", self.postprocess, POSTPROCESSINGS)


def _listed(texts: Sequence[str] | None) -> list[str]:
    """The items of an option that is repeated, or given a list with commas."""
    return [item.strip() for text in texts or () for item in text.split(",") if item.strip()]


def _named(option: str, texts: Sequence[str] | None, known: Sequence[Name]) -> list[Name]:
    """The names in a list, in the order of those that are known."""
    names = _listed(texts)
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"{option} must name {', '.join(known)}: got {unknown[0]}.")
    return [name for name in known if name in names]
