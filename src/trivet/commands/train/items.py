"""`trivet.train`: what `trivet train` does, of items in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from trivet.commands.init.data import detect
from trivet.commands.init.run import as_toml, propose_ladder
from trivet.commands.train.ladder import climb
from trivet.commands.train.result import TrainingResult
from trivet.datasets.item_table import LabelledItems, item_table
from trivet.io.tag_cells import TagMatch
from trivet.runtime.progress import announce, show_progress
from trivet.runtime.text import typed
from trivet.training.ladder_config import LadderSettings
from trivet.training.run_folder import ITEMS

COMMAND = "trivet.train(items, labels)"


def train(
    items: Any,
    labels: Any,
    *,
    out: Path | str | None = None,
    ids: Any = None,
    split: Any = None,
    match: TagMatch = "any",
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    progress: bool = True,
) -> TrainingResult:
    """Train an embedding of items in memory, evaluate it and compare it with encoders as they are.

    This is `trivet train`, of items that lie in no file: the same candidates, settings and verdict.

    Args:
        items: vectors `(N, d)` as an array, a tensor, a list of rows or a data frame; or a list of N texts, of N paths
            of image files, or of N images of Pillow.
        labels: N integers or texts in any form, or lists of tags; several levels, coarse first, as a dict or a data
            frame of columns.
        out: the run folder, which must be new. Without one it is a temporary folder, removed with the result.
        ids: N different names of the items; by default their numbers, or the paths of images.
        split: the part that each item belongs to: "train", or another one that is evaluated, such as "test". By default
            classes are held out, as `trivet init` proposes.
        match: which tags belong together, see `trivet.Tags`.
        settings: "section.key" -> value of settings in place of those that are proposed, such as
            {"ladder.minutes": 2}.
        force: replace the run in the folder.
        progress: show progress on standard error.

    Raises:
        ValueError: if items and labels do not fit, the settings cannot be, there are too few classes, or the folder
            holds something.
        KeyboardInterrupt: if Ctrl-C came; `trivet train --resume` goes on with a run folder that has a name.

    Example:
        >>> vectors = np.random.default_rng(0).normal(size=(64, 8))  # doctest: +SKIP
        >>> result = trivet.train(vectors, ["red", "blue", "green", "grey"] * 16)  # doctest: +SKIP
        >>> result.embed(vectors[:2]).shape  # doctest: +SKIP
        (2, 8)
    """
    table = item_table(items, labels, ids=ids, split=split, match=match)
    temporary = Path(mkdtemp(prefix="trivet-")) if out is None else None
    folder = temporary / "run" if out is None and temporary is not None else Path(out or "")
    changes = [f"{key}={as_toml(_plain(value))}" for key, value in (settings or {}).items()]
    try:
        with show_progress("training", show=progress):
            ladder = _settings(table, folder / ITEMS, changes)
            record = climb(ladder, folder, force=force, command=COMMAND, progress=progress, items=table)
        if record is None or record.status == "interrupted":
            raise KeyboardInterrupt(f"stopped; continue with trivet train --resume {typed(folder)}")
    except BaseException:
        if temporary is not None:
            rmtree(temporary, ignore_errors=True)
        raise
    return TrainingResult(record, folder, temporary=temporary)


def _settings(table: LabelledItems, path: Path, changes: list[str]) -> LadderSettings:
    """The settings that are proposed for items that will lie at a path, with changes."""
    with TemporaryDirectory(prefix="trivet-") as folder:
        table.write(file := Path(folder) / path.name)
        detected = detect(file, table.levels, table.text, tags=table.tags, root=table.root)
        settings, findings = propose_ladder(file, detected, changes=changes, data_root=table.root)
    for finding in findings:
        announce(finding.replace(f" in {file}", ""))
    return settings.model_copy(update={"data": settings.data.model_copy(update={"path": path})})


def _plain(value: Any) -> Any:
    """A value as settings hold it, paths as texts."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return str(value) if isinstance(value, Path) else value
