"""The arguments and options of `trivet export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from trivet.commands.shared_options import (
    VECTOR_FILES,
    DataRoot,
    DistanceByDimension,
    Json,
    SkipEmpty,
    TagOptions,
    TrustCode,
    VectorOptions,
    exists,
)

ModelForm = Literal["onnx", "torch-export", "sentence-transformers", "safetensors"]
TableForm = Literal["parquet", "projector", "pgvector", "qdrant"]
ExportForm = Literal[ModelForm, TableForm]


@dataclass(frozen=True)
class ExportOptions(VectorOptions, TagOptions):
    """An export as it is asked for."""

    source: Annotated[
        Path,
        typer.Argument(
            help=f"A run folder. Forms of embeddings: that, or {VECTOR_FILES}.", callback=exists, show_default=False
        ),
    ]
    to: Annotated[
        ExportForm,
        typer.Option(
            help="The model of a run: onnx: a graph for onnxruntime (extra export). torch-export: a graph for "
            "torch.export.load. sentence-transformers: a folder for that library, of a network of texts. safetensors: "
            "weights and JSON for trivet.models.load_model. Embeddings: parquet: a table for Embedding Atlas, FiftyOne "
            "and LanceDB, with a map, neighbours and suspect labels. projector: the same for TensorBoard. pgvector: "
            "rows for PostgreSQL. qdrant: points for Qdrant."
        ),
    ]
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")]
    side: Annotated[
        Literal["left", "right"] | None,
        typer.Option(help="Of a run with a network of each side of pairs: which of them."),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--level",
            help="Of embeddings: the label column whose suspects and verdicts are written. Default: the first.",
        ),
    ] = None
    distance: DistanceByDimension = None
    split: Annotated[
        str | None,
        typer.Option(help="Of embeddings: only the rows of this split. Default: all; of a run, its main one."),
    ] = None
    skip_empty: SkipEmpty = False
    seed: Annotated[int, typer.Option(min=0, help="Seed of the map and the verdicts.")] = 0
    force: Annotated[bool, typer.Option("--force", help="Replace what was exported into the folder.")] = False
    data_root: DataRoot = None
    trust_code: TrustCode = False
    json: Json = False
