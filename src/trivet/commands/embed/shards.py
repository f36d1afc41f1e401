"""`trivet embed` into a folder of shards: a few at a time in memory, by any number of processes, on after a kill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trivet.datasets import Dataset, FileInputs
from trivet.io.atomic_files import claimed, shared_folder
from trivet.io.overwrite_guard import SHARDS, is_saved, sharded
from trivet.io.shards import (
    ROWS_PER_SHARD,
    VECTORS,
    Manifest,
    ShardMark,
    Skip,
    count_shards,
    is_shard_file,
    mark_of,
    missing,
    open_shards,
    read_manifest,
    shard_path,
    write_manifest,
    write_shard,
    write_vectors,
)
from trivet.models import Embedder
from trivet.runtime.fingerprint import contents_fingerprint, file_fingerprint, fingerprint, times_fingerprint
from trivet.runtime.progress import reporter, steps
from trivet.runtime.text import counted
from trivet.runtime.version import __version__
from trivet.training.embed_dataset import check_embedded, embed, item_columns

DECODED = 256  # images that are decoded at once


@dataclass(frozen=True, eq=False)
class Job:
    """Data to embed, with the model that embeds them.

    Attributes:
        datasets: name of a split, or "" -> its items.
        data: as it was named.
        model_hash, inputs: what tells the network, and these data, from others.
        unread: whether the images have not been read yet, so that some may turn out to be unreadable.
    """

    model: Embedder
    model_hash: str
    datasets: dict[str, Dataset]
    data: str
    inputs: str
    dimension: int
    unread: bool

    @property
    def items(self) -> int:
        """Number of items."""
        return sum(map(len, self.datasets.values()))


def columns_of(datasets: dict[str, Dataset], spans: Sequence[slice] | None = None) -> dict[str, np.ndarray]:
    """The columns of the items, or of some of them by their places in each part."""
    columns = item_columns(list(datasets.values()), spans)
    if "" not in datasets:
        slices = [slice(None)] * len(datasets) if spans is None else spans
        sizes = [len(range(*span.indices(len(data)))) for data, span in zip(datasets.values(), slices, strict=True)]
        columns["split"] = np.repeat(np.array([*datasets], np.str_), sizes)
    return columns


def skipped_of(datasets: dict[str, Dataset]) -> list[dict[str, str]]:
    """The images that were left out when the data were read."""
    return [{"id": skip.id, "reason": skip.reason} for dataset in datasets.values() for skip in dataset.skipped]


def check_folder(folder: Path) -> None:
    """Raise ValueError if a folder holds what Trivet did not write into it as shards."""
    there = [item.name for item in folder.iterdir()] if folder.is_dir() else []
    others = [name for name in there if not is_shard_file(name)]
    visible = [name for name in there if not name.startswith(".")]
    if others or (visible and SHARDS not in there):
        raise ValueError(
            f"the output folder must be new: {folder} is not just shards of embeddings, it holds "
            f"{(sorted(others) or sorted(visible))[0]}; choose another --output."
        )


def embed_shards(job: Job, folder: Path, *, rows_per_shard: int | None, force: bool) -> dict[str, Any]:
    """Write the shards that are not there yet and that no other process is writing; and `vectors.npy` after the last.

    Each shard is written by one process, which has locked it. What is there of the same model, data and size of shards
    stays.

    Args:
        rows_per_shard: None for that of the shards that are there, or 65,536.
        force: replace other embeddings.

    Returns:
        "items" (of all shards that are there), "skipped", "columns" and "shards": how many there are in all, "written"
        by this process, there before it or by others ("reused"), and "missing", which others are writing.
    """
    manifest = _manifest(job, rows_per_shard or ROWS_PER_SHARD)

    def prepare(alone: bool) -> None:
        nonlocal manifest
        check_folder(folder)
        there = read_manifest(folder) if sharded(folder) else None
        if there is not None and rows_per_shard is None:
            manifest = _manifest(job, there.rows_per_shard)
        if there is None or there.key != manifest.key:
            if there is not None and not (force and alone):
                raise ValueError(_differ(folder, there, manifest, alone=alone, force=force))
            assert alone
            _clear(folder)
            write_manifest(folder, manifest)
        for number in _changed(job, folder, manifest, force=force and alone):
            (folder / VECTORS).unlink(missing_ok=True)
            shard_path(folder, number).unlink()

    written: list[int] = []
    with shared_folder(folder, prepare):
        while True:
            before = len(written)
            left = missing(folder, manifest)
            for number in steps(left, "shards"):
                with claimed(shard_path(folder, number)) as mine:
                    if mine and not shard_path(folder, number).exists():
                        _write(job, folder, manifest, number)
                        written.append(number)
            if len(written) == before:  # the others write what is left, if anything is
                break
        if not missing(folder, manifest):
            with claimed(folder / VECTORS) as mine:
                if mine and not (folder / VECTORS).exists():
                    _check_any(folder, manifest)
                    _changed(job, folder, manifest, force=False)
                    write_vectors(folder, manifest)
        return _result(job, folder, manifest, len(written))


def _manifest(job: Job, rows_per_shard: int) -> Manifest:
    spans = [slice(0, 0)] * len(job.datasets)
    columns = list(columns_of(job.datasets, spans))
    identity = {"model": job.model_hash, "inputs": job.inputs, "items": job.items, "rows_per_shard": rows_per_shard}
    return Manifest(
        key=fingerprint([identity, columns]),
        trivet=__version__,
        model=job.model_hash,
        data=job.data,
        inputs=job.inputs,
        items=job.items,
        rows_per_shard=rows_per_shard,
        dimension=job.dimension,
        columns=columns,
        levels=next(iter(job.datasets.values())).level_lines,
    )


def _differ(folder: Path, there: Manifest, manifest: Manifest, *, alone: bool, force: bool) -> str:
    """Reason why the shards in a folder cannot be continued."""
    if there.model != manifest.model:
        what = "of another model, or of this one before it was trained anew"
    elif there.rows_per_shard != manifest.rows_per_shard:
        what = f"of {there.rows_per_shard} rows, not {manifest.rows_per_shard}"
    else:
        what = f"of other data: {there.items} items of {there.data}"
    todo = "choose another --output, or add --force to replace them."
    if force and not alone:
        todo = "another process is writing them; wait for it to end."
    return f"the shards of a folder must be of one model and the same items: {folder} holds shards {what}; {todo}"


def _changed(job: Job, folder: Path, manifest: Manifest, *, force: bool) -> list[int]:
    """The shards of files that changed since they were embedded: what takes time is read of those with new times only.

    Raises:
        ValueError: if there are any, without `force`; or a shard is broken.
    """
    absent = set(missing(folder, manifest))
    there = [number for number in range(count_shards(manifest)) if number not in absent]
    changed = []
    for number, file in zip(there, open_shards(folder, manifest, there), strict=True):
        mark, files = mark_of(shard_path(folder, number), file), _image_files(job, manifest, number)
        if mark.file_times != times_fingerprint(files) and mark.contents != contents_fingerprint(files):
            changed.append(number)
    if changed and not force:
        raise ValueError(
            f"the shards of a folder must be of the images as they are: those of {counted(len(changed), 'shard')} of "
            f"{folder} changed since they were embedded, first of {shard_path(folder, changed[0]).name}; embed these "
            "again with --force, once no other process writes here, or choose another --output."
        )
    return changed


def _image_files(job: Job, manifest: Manifest, number: int) -> list[Path]:
    """The files of the items of a shard, where they are image files."""
    return [
        source
        for dataset, span in zip(job.datasets.values(), _spans(job, manifest, number), strict=True)
        if isinstance(dataset.inputs, FileInputs)
        for row in dataset.inputs.rows[span].tolist()
        if isinstance(source := dataset.inputs.sources[row], Path)
    ]


def _spans(job: Job, manifest: Manifest, number: int) -> list[slice]:
    """The places of the items of a shard in each part."""
    start = number * manifest.rows_per_shard
    stop = min(start + manifest.rows_per_shard, manifest.items)
    spans, first = [], 0
    for size in map(len, job.datasets.values()):
        spans.append(slice(min(max(start - first, 0), size), min(max(stop - first, 0), size)))
        first += size
    return spans


def _clear(folder: Path) -> None:
    """Remove the shards of other embeddings, what they are said to be last, so that this can be gone on with."""
    for item in sorted(folder.iterdir(), key=lambda item: item.name == SHARDS):
        if is_shard_file(item.name) and item.name != ".lock":
            item.unlink()


def _write(job: Job, folder: Path, manifest: Manifest, number: int) -> None:
    """Embed the items of a shard and write them."""
    spans, files = _spans(job, manifest, number), _image_files(job, manifest, number)
    times, contents = times_fingerprint(files), contents_fingerprint(files)
    total = sum(span.stop - span.start for span in spans)
    ids: list[str] = []
    rows = [np.empty((0, manifest.dimension), np.float32)]
    skipped: list[Skip] = []
    selected, offset = [np.empty(0, np.int64)], 0
    progress = reporter("embedding")
    for dataset, span in zip(job.datasets.values(), spans, strict=True):
        for index, inputs in _readable(job, dataset, span, skipped):

            def report(count: int, _: int, before: int = offset + int(index[0]) - span.start) -> None:
                progress(before + count, total)

            rows.append(embed(job.model, inputs, report))
            ids += [dataset.ids[row] for row in index.tolist()]
            selected.append(index - span.start + offset)
        offset += span.stop - span.start
    embeddings, selected_rows = np.concatenate(rows), np.concatenate(selected)
    check_embedded(embeddings, ids)
    columns = {name: values[selected_rows] for name, values in columns_of(job.datasets, spans).items()}
    if times != times_fingerprint(files):
        raise ValueError(
            f"images must stay as they are while they are embedded: those of {shard_path(folder, number).name} "
            "changed; wait until they are written, and go on with the same command."
        )
    mark = ShardMark(key=manifest.key, number=number, skipped=skipped, file_times=times, contents=contents)
    write_shard(folder, manifest, mark, embeddings, ids, columns)


def _readable(job: Job, dataset: Dataset, span: slice, skipped: list[Skip]) -> Iterator[tuple[np.ndarray, Any]]:
    """Places in a part and their inputs; of images that were not read yet, those that can be, a few at a time."""
    if span.start == span.stop:
        return
    if not (job.unread and isinstance(dataset.inputs, FileInputs)):
        index = np.arange(span.start, span.stop)
        yield index, dataset.inputs.subset(index)
        return
    for start in range(span.start, span.stop, DECODED):
        index = np.arange(start, min(start + DECODED, span.stop))
        decoded, broken = dataset.inputs.subset(index).decode_all(np.inf, None)
        skipped += [Skip(id=dataset.ids[start + offset], reason=reason) for offset, reason in sorted(broken.items())]
        offsets = np.array([offset for offset in range(len(index)) if offset not in broken], np.int64)
        if len(offsets):
            yield index[offsets], decoded.subset(offsets)


def _check_any(folder: Path, manifest: Manifest) -> None:
    """Raise ValueError if no shard has a row."""
    files = open_shards(folder, manifest)
    if not any(file.metadata.num_rows for file in files):
        first = mark_of(shard_path(folder, 0), files[0]).skipped[0]
        raise ValueError(
            f"{manifest.data} must hold images that can be read: none of {manifest.items} can, first "
            f"{first.id} ({first.reason}); repair or convert them."
        )


def _result(job: Job, folder: Path, manifest: Manifest, written: int) -> dict[str, Any]:
    absent = set(missing(folder, manifest))
    there = [number for number in range(count_shards(manifest)) if number not in absent]
    files = open_shards(folder, manifest, there)
    marks = [mark_of(shard_path(folder, number), file) for number, file in zip(there, files, strict=True)]
    return {
        "items": sum(file.metadata.num_rows for file in files),
        "columns": ["id", *manifest.columns, "embedding"],
        "skipped": skipped_of(job.datasets) + [skip.as_json() for mark in marks for skip in mark.skipped],
        "shards": {
            "count": count_shards(manifest),
            "rows": manifest.rows_per_shard,
            "written": written,
            "reused": len(there) - written,
            "missing": len(absent),
        },
    }


def data_fingerprint(datasets: dict[str, Dataset], path: Path | None) -> str:
    """Fingerprint of data: of ids, columns and contents.

    Of a file its bytes count, of a data set by name all inputs in memory. Image files count by shard, see `ShardMark`.
    """
    values: list[Any] = [file_fingerprint(file) for file in _files(path)]
    for name, dataset in datasets.items():
        values += [name, dataset.ids, list(dataset.columns.items())]
        values += [value for level, labels in dataset.labels.items() for value in (level, dataset.names[level], labels)]
        if path is None and not isinstance(dataset.inputs, FileInputs):
            for start in range(0, len(dataset), DECODED):
                values.append(dataset.inputs.batch(np.arange(start, min(start + DECODED, len(dataset)))).numpy())
    return fingerprint(values)


def _files(path: Path | None) -> list[Path]:
    """The files whose bytes are the data."""
    if path is None:
        return []
    if path.is_dir():  # the key of shards stands for all that is in them
        return [path / SHARDS] if sharded(path) else sorted(path.rglob("*.*")) if is_saved(path) else []
    table = path.with_suffix(".csv")
    return [path, table] if path.suffix.lower() == ".npy" and table.is_file() else [path]
