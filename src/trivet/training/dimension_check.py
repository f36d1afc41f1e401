"""Checks that an embedding is wide enough for the classes of a batch."""

from __future__ import annotations

import math
from typing import cast

from trivet.collapse.packing import most_points
from trivet.losses import ContrastiveLoss, MarginLoss, MatryoshkaLoss, TripletLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.losses.matryoshka import of_batch
from trivet.training.components import Components


def check_width(components: Components) -> str | None:
    """The result of `too_narrow` for a run."""
    settings, learner = components.config, components.state.learner
    if not settings.model.normalize or settings.batch.size is not None or learner.model.headless:
        return None
    loss, classes = learner.loss, settings.batch.num_classes
    if isinstance(loss, MatryoshkaLoss):  # the shortest has the least room
        for prefix_loss, prefix in zip(loss.losses[:-1], loss.prefixes, strict=False):
            if warning := too_narrow(cast(EmbeddingLoss, prefix_loss), classes, prefix, setting="loss.prefixes"):
                return warning
    return too_narrow(of_batch(loss), classes, settings.model.embedding_dim)


def too_narrow(loss: EmbeddingLoss, num_classes: int, dim: int, *, setting: str = "model.embedding_dim") -> str | None:
    """Says that not all classes of a batch can lie so far apart as the loss wants them; None if they may.

    Each class takes one point at least, and the points of two classes must be a margin apart for a loss of 0; twice
    the margin with the margin loss, whose boundary lies a margin above the distances within a class.

    Args:
        loss: of embeddings of length 1.
        num_classes: of a batch.
        dim: length of an embedding.
        setting: that gives it.
    """
    separation = loss.margin if isinstance(loss, ContrastiveLoss) else 0.0
    if isinstance(loss, TripletLoss) and not loss.soft:
        separation = loss.margin
    if isinstance(loss, MarginLoss):
        separation = 2 * loss.margin
    distance = separation if loss.strategy.distance == "euclidean" else math.sqrt(separation)
    if loss.strategy.distance == "cosine":
        distance = math.sqrt(2 * separation)
    most = most_points(dim, min(distance, 2.0))
    if num_classes <= most:
        return None
    return (
        f"the {num_classes} classes of a batch cannot all lie {separation:g} apart ({loss.strategy.distance}), as the "
        f"loss wants it: {dim} dimension{'s have' if dim > 1 else ' has'} room for {most:.0f}; raise {setting}, "
        "or lower batch.num_classes or loss.margin."
    )
