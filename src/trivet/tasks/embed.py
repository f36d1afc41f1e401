"""`trivet embed`: embeds other images with the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trivet.data import DATA_SETS, load, load_images, settings_for
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
    """Embed a folder of images, or a data set by name, with the model of a run; writes a parquet file.

    A data set has a column `split` besides its label levels; a folder has the levels its nesting gives, if any.

    Raises:
        ValueError, OSError: if the run, the data or the output cannot be used.
    """
    run = RunFolder.open(path)
    config = run.config()
    model = trained_model(run)
    names = [name for name in DATA_SETS if name != "folder"]
    with Display(show=progress) as display:

        def reading(done: int, total: int) -> None:
            display.update("reading images", done, total)

        if data in names or is_reference(data):
            same = config.data.name == absolute(data)
            splits = load(config.data if same else settings_for(data, model.input_shape), data_root, reading)
            parts = {"train": splits.train, **splits.evaluation}
        elif Path(data).is_dir():
            parts = {"": load_images(Path(data), model.input_shape, reading)}
        else:
            raise ValueError(
                f"DATA must be a folder of images or one of {', '.join(names)}: {data} is neither; check the path."
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
