"""`trivet embed`: embeds other images, texts or vectors with the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trivet.data import DATA_SETS, DataConfig, load, load_file, load_images, settings_for
from trivet.plugins import absolute, is_reference
from trivet.tables import write_embeddings
from trivet.tasks.display import Display
from trivet.tasks.index import model_hash
from trivet.training.embedding import embed, kept_columns
from trivet.training.run_folder import (
    RunFolder,
    trained_model,
)


def embed_data(
    path: Path, data: str, output: Path, *, data_root: Path | None = None, progress: bool = False
) -> dict[str, Any]:
    """Embed a folder of images, a file of texts or vectors, or a data set by name, with the model of a run.

    Writes a parquet file. A data set has a column `split` besides its label levels; a folder has the levels its nesting
    gives, if any, and a file its columns.

    Raises:
        ValueError, OSError: if the run, the data or the output cannot be used.
    """
    run = RunFolder.open(path)
    config = run.config()
    model = trained_model(run)
    names = [name for name, one in DATA_SETS.items() if not _needs_more(one.config)]
    with Display(show=progress) as display:

        def reading(done: int, total: int) -> None:
            display.update("reading images", done, total)

        if data in names or is_reference(data):
            same = config.data.name == absolute(data)
            splits = load(config.data if same else settings_for(data, model.input_shape), data_root, reading)
            parts = {"train": splits.train, **splits.evaluation}
        elif Path(data).is_file():
            part = load_file(
                config.data, Path(data), data_root, lambda done, total: display.update("encoding", done, total)
            )
            if part.inputs.shape != model.input_shape:
                raise ValueError(
                    f"the vectors of {data} must have the length that the run was trained on, {model.input_shape[0]}: "
                    f"got {part.inputs.shape[0]}; make them with the same encoder."
                )
            parts = {"": part}
        elif Path(data).is_dir():
            parts = {"": load_images(Path(data), config.data.frame(model.input_shape), reading)}
        else:
            raise ValueError(
                f"DATA must be a folder of images, a file of texts or vectors, or one of {', '.join(names)}: {data} is "
                "none of these; check the path."
            )
        embeddings = [
            embed(model, part.inputs, lambda done, total: display.update("embedding", done, total))
            for part in parts.values()
        ]
    ids = tuple(id for part in parts.values() for id in part.ids)
    columns = kept_columns(list(parts.values()))
    if "" not in parts:
        columns["split"] = np.array([name for name, part in parts.items() for _ in range(len(part))])
    write_embeddings(
        output,
        np.concatenate(embeddings),
        ids,
        columns,
        levels=next(iter(parts.values())).labels,
        model=model_hash(run),
    )
    skipped = [{"id": skip.id, "reason": skip.reason} for part in parts.values() for skip in part.skipped]
    return {
        "run": str(path),
        "output": str(output),
        "items": len(ids),
        "dimension": int(embeddings[0].shape[1]),
        "columns": ["id", *columns, "embedding"],
        "skipped": skipped,
    }


def _needs_more(config: type[DataConfig]) -> bool:
    """Whether a data set needs more settings than its name, such as where its items are."""
    return any(field.is_required() for field in config.model_fields.values())
