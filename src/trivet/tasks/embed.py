"""`trivet embed`: other images embedded by the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trivet.data import DataConfig, available, load, load_images
from trivet.tasks.display import Display
from trivet.training.embedding import embed, label_names
from trivet.training.run_folder import (
    RunFolder,
    trained_model,
    write_embeddings,
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
    channels, size, _ = model.input_shape
    known = [one.name for one in available() if one.name != "folder"]
    with Display(show=progress) as display:

        def reading(done: int, total: int) -> None:
            display.update("reading images", done, total)

        if data in known:
            same = config.data.name == data
            settings = (
                config.data
                if same
                else DataConfig.parse(
                    {"name": data, "image_size": size, "channels": channels}, source=f"{data} as this model takes it"
                )
            )
            splits = load(settings, data_root, reading)
            parts = {"train": splits.train, **splits.evaluation}
        elif Path(data).is_dir():
            parts = {"": load_images(Path(data), size=size, channels=channels, progress=reading)}
        else:
            raise ValueError(
                f"DATA must be a folder of images or one of {', '.join(known)}: {data} is neither; check the path."
            )
        embeddings = [
            embed(model, part.inputs, lambda done, total: display.update("embedding", done, total))
            for part in parts.values()
        ]
    ids = tuple(id for part in parts.values() for id in part.ids)
    columns = {
        level: tuple(name for part in parts.values() for name in label_names(part)[level])
        for level in next(iter(parts.values())).labels
    }
    if data in known:
        columns["split"] = tuple(name for name, part in parts.items() for _ in range(len(part)))
    write_embeddings(output, np.concatenate(embeddings), ids, columns)
    skipped = [{"id": skip.id, "reason": skip.reason} for part in parts.values() for skip in part.skipped]
    return {
        "run": str(path),
        "output": str(output),
        "items": len(ids),
        "dimension": int(embeddings[0].shape[1]),
        "columns": ["id", *columns, "embedding"],
        "skipped": skipped,
    }
