"""`trivet embed`: embeds other images, texts or vectors with the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trivet.data import DATA_SETS, load, load_file, load_images, settings_for
from trivet.models import TextEmbedder
from trivet.plugins import absolute, is_reference
from trivet.progress import reporter
from trivet.tables import write_embeddings
from trivet.tasks.index import model_hash
from trivet.training.embedding import embed, kept_columns
from trivet.training.run_folder import (
    RunFolder,
    Which,
    trained_model,
)


def embed_data(
    path: Path, data: str, output: Path, *, which: Which | None = None, data_root: Path | None = None
) -> dict[str, Any]:
    """Embed a folder of images, a file of texts or vectors, or a data set by name, with the model of a run.

    Writes a parquet file. A data set has a column `split` besides its label levels; a folder has the levels its nesting
    gives, if any, and a file its columns.

    Args:
        which: the model of the last step, or the best; the one that was measured, if not given.

    Raises:
        ValueError, OSError: if the run, the data or the output cannot be used.
    """
    run = RunFolder.open(path)
    config = run.config()
    model = trained_model(run, which)
    tokenize = model.tokenizer if isinstance(model, TextEmbedder) else None
    names = [name for name, entry in DATA_SETS.items() if entry.published or name == config.data.name != "folder"]
    reading = reporter("reading images")

    if data in names or is_reference(data):
        same = config.data.name == absolute(data)
        settings = config.data if same or tokenize else settings_for(data, model.input_shape)
        if settings.name != absolute(data):
            raise ValueError(f"a network of texts takes texts: got the data set {data}; give a file of texts.")
        splits = load(settings, data_root, reading, tokenize=tokenize)
        parts = {"train": splits.train, **splits.evaluation}
    elif Path(data).is_file():
        part = load_file(config.data, Path(data), data_root, tokenize=tokenize)
        if part.inputs.shape != model.input_shape:
            raise ValueError(
                f"the vectors of {data} must have the length that the run was trained on, {model.input_shape[0]}: got "
                f"{part.inputs.shape[0]}; make them with the same encoder."
            )
        parts = {"": part}
    elif Path(data).is_dir():
        if tokenize is not None:
            raise ValueError(f"a network of texts takes texts: {data} is a folder; give a file of texts.")
        parts = {"": load_images(Path(data), config.data.frame(model.input_shape), reading)}
    else:
        raise ValueError(
            f"DATA must be a folder of images, a file of texts or vectors, or one of {', '.join(names)}: {data} is "
            "none of these; check the path."
        )
    embeddings = [embed(model, part.inputs, reporter("embedding")) for part in parts.values()]
    ids = tuple(id for part in parts.values() for id in part.ids)
    rows = np.concatenate(embeddings)
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(broken):
        shown = ", ".join(ids[row] for row in broken[:4]) + (", ..." if len(broken) > 4 else "")
        raise ValueError(
            f"embeddings must be finite: those of {shown} hold NaN or infinity ({len(broken)} of {len(ids)} items); "
            "check these inputs, or train again with a lower learning rate."
        )
    columns = kept_columns(list(parts.values()))
    if "" not in parts:
        columns["split"] = np.array([name for name, part in parts.items() for _ in range(len(part))])
    write_embeddings(
        output,
        rows,
        ids,
        columns,
        levels=next(iter(parts.values())).labels,
        model=model_hash(run, which),
    )
    skipped = [{"id": skip.id, "reason": skip.reason} for part in parts.values() for skip in part.skipped]
    return {
        "run": str(path),
        "output": str(output),
        "items": len(ids),
        "dimension": int(rows.shape[1]),
        "columns": ["id", *columns, "embedding"],
        "skipped": skipped,
    }
