"""The result of a training: how good its network is beside the best of what it is compared with, and the network."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from trivet.commands.train.outcome import answering_splits, evaluated_rows, split_result
from trivet.commands.train.page import write_run_report
from trivet.commands.train.printing import advice_contents, run_contents
from trivet.commands.train.record import RunSummary
from trivet.datasets.arrays import as_matrix
from trivet.datasets.texts import vectors_of
from trivet.models import Embedder
from trivet.reports.result import Contents, Paragraph, Result
from trivet.training.run_folder import RunFolder, trained_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from trivet.reports.run_record import RunRecord


class TrainingResult(Result):
    """A finished run: its measures beside those of what it is compared with, and its network.

    Args:
        run_record: of the run.
        folder: of the run.
        temporary: the folder around it, which is removed with the result.
    """

    kind = "run"

    def __init__(self, run_record: RunRecord, folder: Path, *, temporary: Path | None = None) -> None:
        self.run_record, self.folder = run_record, folder
        if temporary is not None:
            finalize(self, rmtree, temporary, ignore_errors=True)

    @property
    def record(self) -> RunSummary:
        """The summary of the run that `--json` prints."""
        return RunSummary.of(self.run_record, self.folder)

    @cached_property
    def model(self) -> Embedder:
        """The network, in evaluation mode."""
        return trained_model(RunFolder(self.folder))

    def embed(self, items: Any) -> npt.NDArray[np.float32]:
        """Embeddings `(N, d)` of other items, of the kind that the network was trained on.

        Args:
            items: as `trivet.train` takes them.

        Raises:
            ValueError: if they are of another kind or length, or cannot be read.
        """
        data = RunFolder(self.folder).config().data
        if data.item_kind == "vectors":
            return self.model.embed(as_matrix(items, "the items"))
        if data.item_kind == "texts" and self.model.tokenize is None:
            return self.model.embed(vectors_of(data, list(items)))
        return self.model.embed(list(items))

    def contents(self) -> Contents:
        """The answer, the candidates, the measures, and what to do next."""
        yield from run_contents(self.run_record, self.folder)
        yield Paragraph(f"Run: {self.folder}")
        yield from advice_contents(self.run_record, self.folder)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each network at each split and level, its measures as shares from 0 to 1."""
        return [
            {"split": split, "level": level, "network": row.name, **values}
            for split in self.run_record.evaluation
            for row in evaluated_rows(self.run_record, split)
            for level, values in row.levels.items()
        ]

    def figure(self) -> Figure:
        """Recall@1 beside that of what it is compared with and chance, at each split and level."""
        from trivet.commands.train.drawing import draw_recalls  # here: it loads matplotlib

        splits = answering_splits(self.run_record)
        return draw_recalls({split: split_result(split, self.run_record) for split in splits})

    def write_page(self, path: Path) -> None:
        """Write the page of the run."""
        write_run_report(self.run_record, path)
