"""The sentences that come first where embeddings are compared with other forms of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trivet.commands.evaluate.embedding_sizes import stored_sizes
from trivet.commands.evaluate.postprocessing import postprocessing_line
from trivet.commands.evaluate.record import DifferenceRecord, EvaluationRecord
from trivet.commands.train.outcome import size_line


def answers(
    records: Sequence[EvaluationRecord], differences: Mapping[str, Sequence[DifferenceRecord]], level: str
) -> list[str]:
    """Sentences of a level on the fewest bytes that are enough, and on the post-processing that finds more."""
    lines = size_line(stored_sizes(records, differences, level)), postprocessing_line(records, differences, level)
    return [line for line in lines if line]
