"""Files that a command writes: new ones, and those that the same command wrote before; never one that it reads."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from trivet.io.atomic_files import INSIDE

Recognised = Callable[[Path], bool]

# The first columns of the csv files that commands write, and keys of the metadata of their parquet files.
PER_CLASS = ("embeddings", "level", "class", "queries")
SUSPECTS = ("id", "label", "proposed_label", "probability_wrong", "evidence")
TAG_SUSPECTS = ("id", "tag", "kind", "probability_wrong", "evidence")
PAIR_SUSPECTS = ("id", "left", "right", "kind", "probability_wrong", "evidence")
DECISION_FILE = ("id", "decision", "label")
EMBEDDED, CLEANED, MINED = "trivet.model", "trivet.decisions", "trivet.mined"
INIT_START = "# trivet init"  # what the settings begin with that `trivet init` writes
SHARDS = "shards.json"  # what a folder of embeddings begins with
STATE, SPLITS_FILE = "state.json", "dataset_dict.json"  # of a Hugging Face data set on disk, or several
# What the folders inside the folders that commands write hold.
RUN_FOLDER = (
    "checkpoints/step-*.safetensors",
    *(
        f"{model}/{file}"
        for model in ("model", "model-last", "model-best")
        for file in ("model.safetensors", "model.json", "transformer.json", "tokenizer.json")
    ),
    "candidates/*.toml",
    "candidates/*.npz",
    "embeddings/*.parquet",
    "logs/loggers.json",
    "logs/mlflow.db*",
    "logs/tensorboard/*",
    *(f"logs/wandb{'/*' * depth}" for depth in range(1, 6)),
)
# What a run folder, or that of a cross-validation, holds.
RUN_NAMES = (
    *("config.toml", "metrics.csv", "record.json", "report.html", "noise.csv", "applied_decisions.csv", "cleaning.csv"),
    *("checkpoints", "model", "model-last", "model-best", "embeddings", "logs", "folds.json", "folds.toml", "fold-*"),
    *("ladder.json", "ladder.toml", "candidates", "items.parquet"),
)
FIGURE_FOLDER = ("figures/*.csv", "figures/*.svg", "figures/*.png")


@dataclass(frozen=True)
class Output:
    """A file that a command is asked to write.

    Attributes:
        option: as it is typed: "--report".
        path: the file.
        matches: whether a file that is there was written by the same option of the same command; None if none is
        replaced.
        force: whether `--force` was given; None where there is no such option, and an own file is replaced without it.
    """

    option: str
    path: Path
    recognised: Recognised | None = None
    force: bool | None = None


@dataclass(frozen=True)
class OutputFolder:
    """A folder that a command is asked to make, or to replace.

    Attributes:
        option: as it is typed: "--output".
        path: the folder.
        names: patterns of all that folders inside such a folder may hold: "model/*.json".
        readable: names of files that may be read although they lie in it, as the new folder has a copy of them.
    """

    option: str
    path: Path
    names: Sequence[str]
    readable: Sequence[str] = ()


def page_start(kind: str) -> bytes:
    """First bytes of a page of Trivet; the kind is the name of its template."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="generator" content="Trivet {kind}">\n'
    ).encode()


def page(kind: str) -> Recognised:
    """Recognises a page of this kind."""
    return begins(page_start(kind))


def table(*columns: str, exact: bool = True) -> Recognised:
    """Recognises a csv file with these columns, or with these as the first ones."""
    return begins((",".join(columns) + ("\n" if exact else ",")).encode())


def embeddings(path: Path) -> bool:
    """Recognises a parquet file of `trivet embed`, which says in its metadata what model made it."""
    metadata = _metadata(path)
    return EMBEDDED.encode() in metadata and CLEANED.encode() not in metadata


def triplets(path: Path) -> bool:
    """Recognises a parquet file of `trivet mine`, which says in its metadata what was mined and how."""
    return MINED.encode() in _metadata(path)


def _metadata(path: Path) -> dict[bytes, bytes]:
    """The metadata of a parquet file; of any other, none."""
    from pyarrow import ArrowException  # here: other outputs need no tables
    from pyarrow.parquet import read_schema

    try:
        return read_schema(path).metadata or {}
    except (ArrowException, OSError, ValueError):
        return {}


def sharded(path: Path) -> bool:
    """Test whether a path is a folder of embeddings in shards, whole or not."""
    return (path / SHARDS).is_file()


def in_shards(output: Path) -> bool:
    """Test whether embeddings are to be written into a folder: one that is there, or a name without an ending."""
    return output.is_dir() or (not output.suffix and not output.exists())


def is_run_folder(path: Path) -> bool:
    """Test whether a path that holds embeddings must be a run: a folder, but not of shards or of Hugging Face."""
    return path.is_dir() and not sharded(path) and not is_saved(path)


def is_saved(path: Path) -> bool:
    """Test whether a folder was written by `save_to_disk` of the library `datasets`."""
    return (path / STATE).is_file() or (path / SPLITS_FILE).is_file()


def begins(start: bytes) -> Recognised:
    """Recognises a file by its first bytes."""

    def matches(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(start)) == start

    return matches


def check_outputs(outputs: Iterable[Output | OutputFolder], reads: Iterable[Path]) -> None:
    """Check, before any work, that writing what is asked for can destroy nothing.

    A file that is there is replaced only if the same option of the same command wrote it. Links, devices and pipes
    never are, nor what the command reads, by whatever name; and nothing is written into a folder that it reads.

    Args:
        outputs: files and folders to write.
        reads: files and folders that the command reads; of an .npy file, the csv file beside it, too.

    Raises:
        ValueError: if this does not hold, a folder is not there, or two outputs are one file.
        OSError: if a file that is there cannot be read.
    """
    outputs = list(outputs)
    inputs = [path for read in reads for path in (read, *_companions(read)) if path.exists()]
    by_path: dict[str, Output | OutputFolder] = {}
    for output in outputs:
        _check_separate(output, inputs)
        if isinstance(output, Output):
            _check_file(output)
        else:
            _check_strangers(output)
        # Equal but for capitals is one file on many systems.
        key = unicodedata.normalize("NFC", str(output.path.resolve())).casefold()
        if key in by_path:
            raise ValueError(
                f"outputs must be different files: got {output.path} for {by_path[key].option} and {output.option}; "
                "choose another name for one."
            )
        by_path[key] = output


def _companions(path: Path) -> list[Path]:
    return [path.with_suffix(".csv")] if path.suffix.lower() == ".npy" else []


def _check_file(output: Output) -> None:
    path, option = output.path, output.option
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"an output must be a file in a folder that exists: got {path}; make the folder first.")
    if path.is_symlink():
        raise ValueError(f"an output must be a file and no link: {path} is one to {os.readlink(path)}; name the file.")
    if not path.exists():
        return
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"an output must be a file: {path} is a device or a pipe; choose another {option}.")
    if output.recognised is None:
        raise ValueError(f"{option} must name a new file: {path} exists; choose another {option}.")
    if not output.recognised(path):
        raise ValueError(
            f"{option} replaces only a file that it wrote itself: {path} exists and is none; name another file."
        )
    if output.force is False:
        raise ValueError(f"{path} exists: choose another {option}, or add --force to replace it.")


def _check_separate(output: Output | OutputFolder, inputs: Sequence[Path]) -> None:
    path = output.path.resolve()
    for read in inputs:
        if output.path.exists() and os.path.samefile(output.path, read):
            raise ValueError(f"{output.option} must not name what is read: got {output.path}; choose another name.")
        if read.is_dir() and path.is_relative_to(read.resolve()):
            raise ValueError(
                f"{output.option} must lie outside of what is read: {output.path} lies in {read}; choose another place."
            )
        if not isinstance(output, OutputFolder) or not read.resolve().is_relative_to(path):
            continue
        if read.resolve().relative_to(path).as_posix() not in output.readable:
            raise ValueError(
                f"{output.option} must name a folder that holds nothing that is read: {read} lies in "
                f"{output.path}; choose another folder."
            )


def _check_strangers(output: OutputFolder) -> None:
    """ValueError if a folder below the output folder holds what may not be replaced with it."""
    for folder, _, files in os.walk(output.path):
        # What a killed command has set aside is judged as what it was.
        names = [name for name in Path(folder).relative_to(output.path).parts if name not in INSIDE]
        inside = PurePosixPath(*names)
        for name in files:
            if inside.parts and not name.startswith(".") and not _named(inside / name, output.names):
                raise ValueError(
                    f"{output.option} must name a new folder, or one that Trivet alone wrote into: {output.path} holds "
                    f"{inside / name}; choose another folder."
                )


def _named(path: PurePosixPath, names: Sequence[str]) -> bool:
    return any(len(path.parts) == pattern.count("/") + 1 and fnmatch(path.as_posix(), pattern) for pattern in names)
