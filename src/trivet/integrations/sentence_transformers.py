"""Losses and batches of Trivet in the trainer of sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.losses.engine.step_stats import StepStats
from trivet.losses.matryoshka import of_batch
from trivet.mining.batch import Labels
from trivet.mining.gather import LocalBatch, gather
from trivet.mining.pairs import Pairs
from trivet.runtime.arguments import explain_arguments
from trivet.samplers import PKBatches


class BatchLoss(nn.Module):
    """A loss on the embeddings of one text column with classes, or of several columns whose rows belong together.

    `SentenceLoss` calls it, and a monitor watches it.

    Args:
        loss, gather, both_directions: see `SentenceLoss`.
    """

    def __init__(self, loss: EmbeddingLoss | MatryoshkaLoss, *, gather: bool, both_directions: bool) -> None:
        super().__init__()
        self.loss, self.gather, self.both_directions = loss, gather, both_directions

    @property
    def last(self) -> StepStats | None:
        """Counts and means of the last call of the loss."""
        return self.loss.last

    def forward(self, embeddings: Tensor, labels: Labels, *, columns: int = 1) -> Tensor:
        """The loss, a scalar.

        Args:
            columns: C. With more than one, the rows of each column follow those of the column before.

        Shape:
            embeddings `(C N, d)` float, labels `(N,)` integer, or of columns the pairs of all `(C N,)` rows.
        """
        embeddings = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
        if columns > 1:
            return self._pairs(embeddings, columns)
        value: Tensor = self.loss(embeddings, labels, gather=self.gather)
        return value

    def _pairs(self, embeddings: Tensor, columns: int) -> Tensor:
        """The mean over the own anchors, against the other columns of all processes."""
        size = len(embeddings) // columns
        first, second = embeddings[:size], embeddings[size : 2 * size]
        others, start, counts = embeddings, 0, [len(embeddings)]
        if self.gather:
            labels = pair_labels(size, columns).to(embeddings.device)
            everyone = gather(lambda: LocalBatch(embeddings, labels, None, seeds=(0, 0)))
            others, start, counts = everyone.embeddings, everyone.start, everyone.counts
        sizes = [count // columns for count in counts]
        starts = [0, *accumulate(counts)]
        numbers = torch.cat([at + pair_labels(each, columns) for at, each in zip(starts, sizes, strict=False)])
        anchors = torch.cat([torch.arange(columns * each) < each for each in sizes]).to(embeddings.device)
        numbers = numbers.to(embeddings.device)
        local = numbers[start : start + size]
        value: Tensor = self.loss(first, local, references=others[~anchors], reference_labels=numbers[~anchors])
        if self.both_directions:
            back = self.loss(second, local, references=others[anchors], reference_labels=numbers[anchors])
            value = (value + back) / 2
        return value


class SentenceLoss(nn.Module):
    """A loss of Trivet as the `loss` of a `SentenceTransformerTrainer`.

    With one text column and a column of integer labels, the loss of the batch: `ClassBatches` gives each item a
    positive. With several text columns and no labels, row i of the first two belongs together, and every other text is
    a negative, those of further columns for all rows: (anchor, positive), (anchor, positive, negative) and so on. The
    first column is compared with the others. `NPairLoss(normalize=True, temperature=0.05)` is then the in-batch
    softmax, also called InfoNCE, or MultipleNegativesRankingLoss with scale 20; other losses choose among the same
    negatives.

    The trainer puts the loss's parameters, such as beta or proxies, into its optimiser, at the learning rate of the
    model, but into no checkpoint: see `trivet.integrations.transformers.LossTrainerCallback`.

    Args:
        model: the SentenceTransformer that the trainer trains.
        loss: any.
        gather: compare with the texts of all processes of torch.distributed, see `EmbeddingLoss.forward`. With several
            columns the value is the mean over the own texts.
        both_directions: for columns: the mean of comparing the first with the others, and the second with the first.

    Attributes:
        batch: the part that is called as loss(embeddings, labels): a monitor watches it.

    Raises:
        ValueError: if several columns come with labels, or with a loss that has parameters of classes; if one column
            comes without labels.

    Source:
        Columns: Henderson et al., "Efficient Natural Language Response Suggestion for Smart Reply", 2017, section 4.4.

    Example:
        >>> from trivet import TripletLoss
        >>> loss = SentenceLoss(model, TripletLoss(negatives="hard"))  # doctest: +SKIP
        >>> trainer = SentenceTransformerTrainer(model, args, train_dataset=data, loss=loss)  # doctest: +SKIP
    """

    @explain_arguments
    def __init__(
        self,
        model: nn.Module,
        loss: EmbeddingLoss | MatryoshkaLoss,
        *,
        gather: bool = False,
        both_directions: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(loss, EmbeddingLoss | MatryoshkaLoss):
            raise ValueError(f"loss must be a loss of Trivet: got {loss!r}; give the model first, then the loss.")
        self.model = model
        self.batch = BatchLoss(loss, gather=gather, both_directions=both_directions)

    def forward(self, sentence_features: Iterable[Mapping[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            sentence_features: what the model takes, for each text column.
            labels: `(N,)` integer, for one column.
        """
        embeddings = [self.model(dict(features))["sentence_embedding"] for features in sentence_features]
        columns = len(embeddings)
        if columns == 1:
            if labels is None:
                raise ValueError(
                    "one text column needs labels: got none; add a column of integer classes named 'label', or a "
                    "second text column whose row i belongs to row i of the first."
                )
            value: Tensor = self.batch(embeddings[0], labels.reshape(-1))
            return value
        loss = of_batch(self.batch.loss)
        if labels is not None:
            raise ValueError(
                f"labels go with one text column: got {columns} columns, whose rows belong together, and labels; "
                "remove the label column, or all text columns but one."
            )
        if loss.term == "proxy" or loss.parameters_per is not None:
            raise ValueError(
                f"text columns without labels have no classes, and {type(loss).__name__} has parameters of them: use "
                "a loss without, such as NPairLoss, or one text column with labels."
            )
        rows = torch.cat(embeddings)
        paired: Tensor = self.batch(rows, column_pairs(len(rows) // columns, columns), columns=columns)
        return paired

    def get_config_dict(self) -> dict[str, str | bool]:
        """The description of the loss for the model card."""
        return {"loss": repr(self.batch.loss), "gather": self.batch.gather}


@lru_cache(maxsize=4)  # most batches are alike
def column_pairs(size: int, columns: int) -> Pairs:
    """The pairs of the first column with all others: row i belongs to row i of the second, further rows to none."""
    partners = torch.arange(size)[:, None].expand(-1, 2)
    return Pairs(size, size * (columns - 1), partners, aligned=False)


def pair_labels(size: int, columns: int) -> Tensor:
    """Labels `(columns * size,)`: row i of the first two columns has label i, rows of further columns one each."""
    numbers = torch.arange(size * columns)
    return torch.where(numbers < 2 * size, numbers % max(1, size), numbers)


@dataclass(frozen=True)
class ClassBatches:
    """The `batch_sampler` of `SentenceTransformerTrainingArguments` that gives every text a positive; see `PKBatches`.

    A batch holds `samples_per_class` texts of each of batch_size // samples_per_class classes, or of all classes where
    these are fewer. It is also the sampler of the evaluation loss. Every text comes in each epoch.

    Args:
        samples_per_class: K, at least 1.
        positives: whether a class of a single text is an error; else that text has no positive in its batches.

    Raises:
        ValueError: when the trainer makes the loader: if the data has no label column, or as `PKBatches`.

    Example:
        >>> SentenceTransformerTrainingArguments(
        ...     batch_sampler=ClassBatches(samples_per_class=4), per_device_train_batch_size=64
        ... )  # doctest: +SKIP
    """

    samples_per_class: int = 4
    positives: bool = True

    def __call__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool,
        valid_label_columns: Iterable[str] | None = None,
        generator: torch.Generator | None = None,
        seed: int = 0,
    ) -> PKBatches:
        """The batches of a dataset, as the trainer asks for them.

        `drop_last` and `generator` have no effect: every batch is full, and depends on `seed`, epoch and step alone.
        """
        known = list(valid_label_columns or ("label", "labels"))
        names = [name for name in known if name in dataset.column_names]
        if not names:
            raise ValueError(
                f"the dataset needs a column of integer classes, named one of {', '.join(known)}: got "
                f"{', '.join(dataset.column_names)}; rename it."
            )
        labels = np.asarray(list(dataset[names[0]]))
        return PKBatches(
            labels,
            num_classes=min(batch_size // self.samples_per_class, max(2, len(np.unique(labels)))),
            samples_per_class=self.samples_per_class,
            seed=seed or 0,
            positives=self.positives,
        )
