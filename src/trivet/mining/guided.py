"""Negatives that may be false ones, left out by a guide."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from trivet.mining.relations import ComparedRelation, Relation, RelationSearch, signature_of


class Guided(ComparedRelation):
    """A relation without the negatives that a guide finds more similar than a positive, which may be false ones.

    They are ignored. For an anchor without a positive among the references all negatives count.

    Args:
        relation: of N items.
        vectors: `(N, g)` of its items by the guide, such as a larger encoder; compared by cosine similarity. For the
            `Pairs` of two sides those of the left side, then those of the right one.
        margin: how much less similar than its least similar positive an anchor's negative may be to be ignored; with a
            negative number, how much more similar it must be.

    Source:
        Solatorio, "GISTEmbed: Guided In-sample Selection of Training Negatives for Text Embedding Fine-tuning", 2024;
        there each anchor has one positive and the margin is 0.

    Example:
        >>> from trivet import Classes
        >>> guide = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.4], [0.0, 1.0]])
        >>> guided = Guided(Classes(torch.tensor([0, 0, 1, 1])), guide)
        >>> guided.ignored(guided.items[:1], guided.items)  # 0.91 to the third, 0.8 to the positive
        tensor([[False, False,  True, False]])
    """

    def __init__(self, relation: Relation, vectors: Tensor, margin: float = 0.0) -> None:
        if len(vectors) != len(relation):
            raise ValueError(
                f"vectors must hold one row for each item of the relation: got {len(vectors)} for {len(relation)}."
            )
        self.relation, self.margin, self.items = relation, margin, torch.arange(len(relation))
        self.vectors = normalize(vectors.detach().cpu().double(), dim=1)
        self.signature = signature_of(self.vectors.numpy(), np.array([relation.signature]))
        self.advice = relation.advice

    def relevance(self, anchors: Tensor, others: Tensor) -> Tensor:
        """Grades `(B, M)` of the relation."""
        numbers = self.relation.items.to(anchors.device)
        return self.relation.relevance(numbers[anchors], numbers[others])

    def search(self, among: Tensor) -> RelationSearch:
        return _GuidedSearch(self, among)

    def with_positives(self) -> Tensor:
        return self.relation[self.items].with_positives()  # the guide takes none

    def compared(self, anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        numbers = self.relation.items.to(anchors.device)
        positive, neutral = self.relation.compared(numbers[anchors], numbers[others])
        guide = self.vectors.to(anchors.device)
        similarity = (guide[anchors] @ guide[others].T).float()  # rounded, so that equal ones are equal
        least = pad(similarity.masked_fill(~positive, torch.inf), (0, 1), value=torch.inf).amin(dim=1, keepdim=True)
        return positive, neutral | (similarity > least - self.margin)


class _GuidedSearch(RelationSearch):
    def __init__(self, guided: Guided, among: Tensor) -> None:
        super().__init__(guided, among)
        self._guided, self._unguided = guided, guided.relation[guided.items].search(among)

    def positives(self, rows: Tensor) -> Iterator[Tensor]:
        return self._unguided.positives(rows)

    def neutral(self, rows: Tensor, columns: Tensor) -> Tensor:
        neutral, vectors, items = self._unguided.neutral(rows, columns), self._guided.vectors, self._guided.items
        for number, positives in enumerate(self.positives(rows)):
            others = items[torch.cat([columns[number], positives])]
            similarity = (vectors[others] @ vectors[items[rows[number]]]).float()
            to_columns, to_positives = torch.split(similarity, [len(columns[number]), len(positives)])
            least = pad(to_positives, (0, 1), value=torch.inf).amin()
            neutral[number] |= to_columns > least - self._guided.margin
        return neutral
