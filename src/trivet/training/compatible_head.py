"""A head on a new embedding whose outputs search an index of an old one: backward-compatible training."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from trivet.losses import SupConLoss
from trivet.metrics import retrieve
from trivet.mining import Relation
from trivet.models.linear_map import LinearMap
from trivet.runtime.arrays import Integers
from trivet.runtime.progress import steps

STEPS, EVERY = 200, 25  # of training, and between two measurements
BATCH, REFERENCES = 1024, 4096  # items of a step, and old rows that it is compared with
RATE = 1e-3

Labels = np.ndarray | Relation


def compatible_loss(outputs: Tensor, labels: Tensor | Relation, old: Tensor, old_labels: Tensor | Relation) -> Tensor:
    """The loss of outputs `(B, e)` among themselves plus that against old vectors `(M, e)`, a scalar.

        L(outputs, outputs) + L(outputs, old)

    L is `SupConLoss`, in which an output and its own old vector are of one class.

    Source:
        Shen, Xiong, Xia, Soatto, "Towards backward-compatible representation learning", CVPR 2020; there the second
        term is the loss of the old classifier, which an index does not have.
    """
    loss = SupConLoss()
    there: Tensor = loss(outputs, labels, references=old, reference_labels=old_labels)
    within: Tensor = loss(outputs, labels)
    return within + there


def compatible_head(
    new: Tensor,
    old: Tensor,
    labels: Labels,
    *,
    start: LinearMap,
    fitting: Integers,
    choosing: Integers,
    generator: torch.Generator,
) -> LinearMap:
    """Train a linear head on new vectors by `compatible_loss` of its outputs and old vectors.

    The head begins as a map from new to old; the step is the best by the sum of recall@1 in the old vectors and in its
    outputs, of items that it is not trained on.

    Args:
        new, old: `(N, d)` and `(N, e)` of the same items, rows of length 1.
        labels: class numbers `(N,)`, or a relation of N items.
        start: from new to old.
        fitting, choosing: the row numbers that are trained on, and others, which choose the step.
        generator: draws the batches.
    """
    new, old = new.float(), old.float()
    weight = nn.Parameter(start.matrix.T.float().contiguous())
    bias = nn.Parameter((start.target_mean - start.source_mean @ start.matrix).float())
    optimizer = torch.optim.Adam([weight, bias], lr=RATE)
    best = -1.0, weight.detach().clone(), bias.detach().clone(), 0
    rows = torch.from_numpy(fitting)
    for step in steps(range(STEPS + 1), "steps of a compatible head"):
        if step % EVERY == 0:
            score = _recall(linear(new[choosing], weight, bias).detach(), old[choosing], labels[choosing])
            if score > best[0]:
                best = score, weight.detach().clone(), bias.detach().clone(), step
        batch = rows[torch.randperm(len(rows), generator=generator)[:BATCH]]
        references = rows[torch.randperm(len(rows), generator=generator)[:REFERENCES]]
        outputs = linear(new[batch], weight, bias)
        of_batch, of_references = _as_labels(labels, batch), _as_labels(labels, references)
        optimizer.zero_grad()
        torch.autograd.backward(compatible_loss(outputs, of_batch, old[references], of_references))
        optimizer.step()
    _, weight_best, bias_best, step = best
    zero = torch.zeros(new.shape[1], dtype=torch.float64)
    return LinearMap(f"head of {step} steps", weight_best.T.double(), zero, bias_best.double())


def _as_labels(labels: Labels, rows: Tensor) -> Tensor | Relation:
    return torch.from_numpy(labels[rows.numpy()]) if isinstance(labels, np.ndarray) else labels[rows]


def _recall(outputs: Tensor, old: Tensor, labels: Labels) -> float:
    """recall@1 of outputs in old vectors plus that among themselves, each but itself."""
    itself = np.arange(len(outputs))
    total = 0.0
    for gallery in (old, outputs):
        retrieved = retrieve(
            outputs,
            labels,
            gallery=gallery,
            gallery_labels=labels,
            self_rows=itself,
            measures=["recall@1"],
            distance="cosine",
        )
        total += retrieved.mean()["recall@1"]
    return total
