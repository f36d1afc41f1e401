"""`trivet train` of items in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from trivet.commands.init.data import detect
from trivet.commands.init.run import as_toml, propose_ladder
from trivet.commands.train.command import TrainOptions, further_encoders
from trivet.commands.train.ladder import climb
from trivet.commands.train.result import TrainingResult
from trivet.datasets.item_table import LabelledItems
from trivet.datasets.judged_pairs import SIDES
from trivet.io.pair_table import PairSides
from trivet.runtime.progress import announce, show_progress
from trivet.runtime.text import typed
from trivet.training.ladder_config import LadderSettings
from trivet.training.run_folder import ITEMS

COMMAND = "trivet.train(items, labels)"


def train_items(
    table: LabelledItems,
    out: Path | str | None,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    force: bool,
    progress: bool,
) -> TrainingResult:
    """Train on items in memory; see `trivet.train`.

    Args:
        options: those of the command.
    """
    temporary = Path(mkdtemp(prefix="trivet-")) if out is None else None
    folder = temporary / "run" if out is None and temporary is not None else Path(out or "")
    changes = [f"{key}={as_toml(_plain(value))}" for key, value in settings.items()]
    try:
        with show_progress("training", show=progress):
            ladder = _settings(table, folder / ITEMS, changes, options)
            record = climb(ladder, folder, force=force, command=COMMAND, progress=progress, items=table)
        if record is None or record.status == "interrupted":
            raise KeyboardInterrupt(f"stopped; continue with trivet train --resume {typed(folder)}")
    except BaseException:
        if temporary is not None:
            rmtree(temporary, ignore_errors=True)
        raise
    return TrainingResult(record, folder, temporary=temporary)


def _settings(table: LabelledItems, path: Path, changes: list[str], options: Mapping[str, Any]) -> LadderSettings:
    """The settings that are proposed for items that will lie at a path, with changes."""
    request = TrainOptions(**options)
    ladder = request.ladder
    if (encoders := further_encoders(request, table.kind)) is not None:
        ladder["encoders"] = encoders
    with TemporaryDirectory(prefix="trivet-") as folder:
        table.write(file := Path(folder) / path.name)
        levels, pairs = (None, PairSides(*SIDES)) if table.paired else (table.levels, None)
        detected = detect(file, levels, table.text, tags=table.tags, pairs=pairs, root=table.root)
        settings, findings = propose_ladder(file, detected, ladder=ladder, changes=changes, data_root=table.root)
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
