"""`trivet embed`: embeds other images, texts or vectors with the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trivet.commands.embed.shards import Job, check_folder, columns_of, data_fingerprint, embed_shards, skipped_of
from trivet.commands.network_of_side import network_of_side
from trivet.config.plugins import absolute, is_reference
from trivet.datasets import DATA_SETS, Inputs, in_memory, load, load_file, load_images, settings_for
from trivet.datasets.config import ItemKind
from trivet.datasets.table import image_column
from trivet.io.formats import open_rows
from trivet.io.image_file import SUFFIXES
from trivet.io.overwrite_guard import in_shards, is_saved, sharded
from trivet.io.parquet_files import write_embeddings
from trivet.io.vector_choice import NO_CHOICE, VectorChoice
from trivet.models import SideName
from trivet.runtime.progress import reporter, work
from trivet.training.embed_dataset import check_embedded, embed
from trivet.training.run_folder import RunFolder, Which, model_hash, trained_model


def embed_data(
    path: Path,
    data: str,
    output: Path,
    *,
    which: Which | None = None,
    side: SideName | None = None,
    rows_per_shard: int | None = None,
    choice: VectorChoice = NO_CHOICE,
    force: bool = False,
    data_root: Path | None = None,
) -> dict[str, Any]:
    """Embed a folder or a table of images, a file of texts or vectors, or a data set by name, with a run's model.

    Of a run with a network of each side, that of a side embeds a folder or a file, and both a data set by name. Writes
    a parquet file, or shards into a folder, see `embed_shards`. A data set has a column `split` besides its
    label levels; a folder has the levels its nesting gives, if any, and a file its columns.
    """
    into_folder = in_shards(output)
    if into_folder:
        check_folder(output)
    elif rows_per_shard is not None:
        raise ValueError(f"--shard-rows is for a folder of shards: {output} is a file; name a folder, or leave it out.")
    run = RunFolder.open(path)
    config = run.config()
    model = trained_model(run, which)
    source: Path | None = None
    unread = False
    names = [name for name, entry in DATA_SETS.items() if entry.published or name == config.data.name != "folder"]
    reading = reporter("reading images")

    if data in names or is_reference(data):
        if side is not None:
            raise ValueError(f"--side is for a folder or a file: {data} has items of both sides; leave it out.")
        same = config.data.name == absolute(data)
        settings = config.data if same or model.tokenize else settings_for(data, model.input_shape)
        if settings.name != absolute(data):
            raise ValueError(f"a network of texts takes texts: got the data set {data}; give a file of texts.")
        splits = load(settings, data_root, reading, tokenize=model.tokenize)
        datasets = {"train": splits.train, **splits.evaluation}
    elif (source := Path(data)).exists():
        folder_of_images = source.is_dir() and not sharded(source) and not is_saved(source)
        network = network_of_side(run, model, side, lambda: _kind(source, folder_of_images=folder_of_images))
        model, side = network.network, network.side
        frame = config.data.frame(model.input_shape) if len(model.input_shape) == 3 else None
        unread = frame is not None and into_folder  # then an image is read when its shard is written
        if folder_of_images:
            if network.kind == "texts":
                raise ValueError(f"a network of texts takes texts: {data} is a folder; give a file of texts.")
            frame = frame or config.data.frame(model.input_shape)
            dataset = load_images(source, frame, reading, unread=unread)
        else:
            dataset = load_file(
                config.data,
                source,
                data_root,
                kind=network.kind,
                tokenize=network.tokenize,
                frame=frame,
                progress=reading,
                unread=unread,
                choice=choice,
            )
        if dataset.inputs.shape != model.input_shape:
            raise ValueError(
                f"the vectors of {data} must have the length that the run was trained on, {model.input_shape[0]}: got "
                f"{dataset.inputs.shape[0]}; make them with the same encoder."
            )
        datasets = {"": dataset}
    else:
        raise ValueError(
            "DATA must be a folder or a table of images, a file of texts or vectors, or one of "
            f"{', '.join(names)}: {data} is none of these; check the path."
        )
    if into_folder and source is not None and source.resolve() == output.resolve():
        raise ValueError(f"--output must not name what is read: got {output}; choose another name.")
    if into_folder:
        # The first image may be unreadable.
        blank: Inputs | None = in_memory(np.zeros((1, *model.input_shape), np.uint8)) if unread else None
        first = blank or next(iter(datasets.values())).inputs.subset(np.arange(1))
        job = Job(
            model=model,
            model_hash=model_hash(run, which, side),
            datasets=datasets,
            data=data,
            inputs=data_fingerprint(datasets, source),
            dimension=embed(model, first).shape[1],
            unread=unread,
        )
        with work("embedding"):
            made = embed_shards(job, output, rows_per_shard=rows_per_shard, force=force)
        return {"run": str(path), "output": str(output), "dimension": job.dimension, **made}
    rows = np.concatenate([embed(model, dataset.inputs, reporter("embedding")) for dataset in datasets.values()])
    ids = tuple(id for dataset in datasets.values() for id in dataset.ids)
    check_embedded(rows, ids)
    columns = columns_of(datasets)
    levels = next(iter(datasets.values())).level_lines
    write_embeddings(output, rows, ids, columns, levels=levels, model=model_hash(run, which, side))
    return {
        "run": str(path),
        "output": str(output),
        "items": len(ids),
        "dimension": int(rows.shape[1]),
        "columns": ["id", *columns, "embedding"],
        "skipped": skipped_of(datasets),
    }


def _kind(path: Path, *, folder_of_images: bool) -> ItemKind:
    """The kind of the items of a folder or a file."""
    if folder_of_images or path.suffix.lower() in SUFFIXES:
        return "images"
    return "texts" if image_column(open_rows(path)) is None else "images"
