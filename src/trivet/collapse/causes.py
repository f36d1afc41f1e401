"""Why an embedding did worse than a reference, where the run shows it: each cause rests on a measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trivet.collapse.result import Comparison, in_words

EARLY, SLACK = 0.1, 20  # share of the steps, and at least so many steps, within which a rate that is too high shows
FALL = 0.1  # of recall@1 of the sample of the history, beside three standard errors
WRONG = 0.1  # of the training labels, at least, from which they are named; of right ones up to 0.04 were called so
HALF = 0.5  # of what was lost, from which the statistics alone account for it


@dataclass(frozen=True)
class Cause:
    """A sentence with its numbers, and what to change."""

    said: str
    changes: tuple[str, ...]


def moved_statistics(lost: Comparison, moved: Comparison, restored: Comparison, *, batch: int) -> Cause | None:
    """Whether the batch-norm statistics of training batches account for the loss.

    Args:
        lost: the trained network beside the reference.
        moved: the reference with its batch-norm statistics replaced by those of the trained network, beside itself.
        restored: the trained network with the statistics it began with, beside itself as it is.
        batch: items that were normalised together in training.
    """
    if restored.better:
        found = (
            f"with the statistics it began with, the trained network has recall@1 {100 * restored.recall:.1f} % "
            f"instead of {100 * restored.reference_recall:.1f} %"
        )
    elif moved.worse and moved.difference <= HALF * lost.difference:
        found = (
            f"with them and its own weights, recall@1 of {in_words(lost.reference)} is {100 * moved.recall:.1f} % "
            f"instead of {100 * moved.reference_recall:.1f} %"
        )
    else:
        return None
    return Cause(
        f"Batch-norm statistics of training batches of {batch} items replaced those the network began with: {found}.",
        (
            'Keep the batch-norm layers in evaluation mode while training: set model.batch_norm = "frozen" for a '
            "backbone, or let train() of a network of your own leave them so.",
            'Train a last layer alone, with model.freeze = "all", or use a backbone without batch norm.',
        ),
    )


def learned_by_heart(train: Comparison, unseen: Comparison) -> Cause | None:
    """Whether the training items gained while classes that were not trained on lost, beside the same reference."""
    if not (train.better and unseen.worse):
        return None
    return Cause(
        f"The training classes were learned by heart: beside {in_words(unseen.reference)}, recall@1 of training items "
        f"rose from {100 * train.reference_recall:.1f} % to {100 * train.recall:.1f} %, while that of "
        f"classes not trained on fell from {100 * unseen.reference_recall:.1f} % to {100 * unseen.recall:.1f} %.",
        (
            "Stop at the step with the best recall on classes held out: --folds trains without each part once.",
            "Train fewer steps, or only a new last layer, or on more classes.",
        ),
    )


def rate_too_high(steps: Sequence[int], recalls: Sequence[float | None], *, items: int, rate: float) -> Cause | None:
    """Whether recall@1 of a fixed sample of training items fell at once, and never came back.

    Args:
        steps, recalls: when the sample was seen, the first before training, and its recall@1.
        items: of the sample.
        rate: the learning rate.
    """
    known = [(step, recall) for step, recall in zip(steps, recalls, strict=True) if recall is not None]
    if len(known) < 3 or known[0][0] != 0:
        return None
    (_, first), (last, _) = known[0], known[-1]
    early = [(step, recall) for step, recall in known[1:] if step <= max(SLACK, EARLY * last)]
    if not early:
        return None
    step, least = min(early, key=lambda one: one[1])
    error = math.sqrt((first * (1 - first) + least * (1 - least)) / items)
    limit = first - max(FALL, 3 * error)
    if least > limit or max(recall for when, recall in known if when >= step) > limit:
        return None
    return Cause(
        f"The learning rate of {rate:g} is too high: within {step} steps recall@1 of a fixed sample of training items "
        f"fell from {100 * first:.1f} % to {100 * least:.1f} %, and it ended at {100 * known[-1][1]:.1f} %.",
        ("Lower the learning rate tenfold.", "Warm it up: training.warmup_steps."),
    )


def wrong_labels(least: float, *, judge: str) -> Cause | None:
    """Whether so many training labels are wrong that the network learned them.

    Args:
        least: the lower end of the interval of their share, which classes that overlap do not explain.
        judge: the embedding that told them, which has seen no label.
    """
    if least < WRONG:
        return None
    return Cause(
        f"At least {100 * least:.0f} % of the training labels are wrong, as the other items tell in {in_words(judge)}: "
        "the network was drawn to classes that these items are not of.",
        (
            "Find the wrong labels: trivet audit RUN --report page.html; then train on your decisions, with --labels.",
            "Until then train fewer steps, or keep the step with the best recall on classes held out.",
        ),
    )
