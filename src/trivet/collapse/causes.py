"""Causes for an embedding that did worse than a reference, where the run shows one: each rests on a measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trivet.collapse.significance import Comparison, in_words
from trivet.runtime.text import counted

EARLY, SLACK = 0.1, 20  # share of the steps, and at least so many steps, within which a rate that is too high shows
FALL = 0.1  # of recall@1 of the sample of the history
ERRORS, FEWER_ERRORS = 3, 2  # standard errors that it must be beside; fewer where the training items tell, too
WRONG = 0.1  # of labels, by which more of those trained on must be wrong than of those evaluated
OVERWRITTEN = 1  # size of a mean step, over that of the weights as they began, which leaves nothing of these
USUAL = 0.001  # the same of a rate that suits
HALF = 0.5  # of what was lost, from which the statistics alone account for it


@dataclass(frozen=True)
class Cause:
    """A sentence with its numbers, and what to change."""

    text: str
    changes: tuple[str, ...]


def moved_statistics(lost: Comparison, moved: Comparison, restored: Comparison, *, batch: int) -> Cause | None:
    """Return whether the batch-norm statistics of training batches account for the loss.

    Args:
        lost: the trained network beside the reference.
        moved: the reference with its batch-norm statistics replaced by those of the trained network, beside itself.
        restored: the trained network with the statistics it began with, beside itself as it is.
        batch: items that were normalised together in training.
    """
    if restored.better:
        differences = (
            f"with the statistics it began with, the trained network has recall@1 {100 * restored.score:.1f} % "
            f"instead of {100 * restored.reference_score:.1f} %"
        )
    elif moved.worse and moved.difference <= HALF * lost.difference:
        differences = (
            f"with them and its own weights, recall@1 of {in_words(lost.reference)} is {100 * moved.score:.1f} % "
            f"instead of {100 * moved.reference_score:.1f} %"
        )
    else:
        return None
    return Cause(
        f"Batch-norm statistics of training batches of {batch} items replaced those the network began with: "
        f"{differences}.",
        (
            'Keep the batch-norm layers in evaluation mode while training: set model.batch_norm = "frozen" for a '
            "backbone, or let train() of a network of your own leave them so.",
            'Train a last layer alone, with model.freeze = "all", or use a backbone without batch norm.',
        ),
    )


def learned_by_heart(train: Comparison, unseen: Comparison) -> Cause | None:
    """Return whether the training items gained while classes that were not trained on lost, beside the same
    reference."""
    if not (train.better and unseen.worse):
        return None
    return Cause(
        f"The training classes were learned by heart: beside {in_words(unseen.reference)}, recall@1 of training items "
        f"rose from {100 * train.reference_score:.1f} % to {100 * train.score:.1f} %, while that of "
        f"classes not trained on fell from {100 * unseen.reference_score:.1f} % to {100 * unseen.score:.1f} %.",
        (
            "Stop at the step with the best recall on new classes: trivet train FILE --folds 4 holds out each once.",
            "Train fewer steps, or only a new last layer, or on more classes.",
        ),
    )


def rate_too_high(
    steps: Sequence[int], recalls: Sequence[float | None], *, items: int, rate: float, train: Comparison | None
) -> Cause | None:
    """Return whether recall@1 of a fixed sample of training items fell at once, and training never made up for it.

    It did not if the sample never came back above that limit, or if all training items ended worse than they began.
    The second is a test of its own, of more items, so the first fall needs less then.

    Args:
        steps, recalls: when the sample was seen, the first before training, and its recall@1.
        items: of the sample.
        rate: the learning rate.
        train: the trained network beside what training began as, on training items.
    """
    known = [(step, recall) for step, recall in zip(steps, recalls, strict=True) if recall is not None]
    if len(known) < 3 or known[0][0] != 0:
        return None
    (_, first), (last, _) = known[0], known[-1]
    early = [(step, recall) for step, recall in known[1:] if step <= max(SLACK, EARLY * last)]
    if not early:
        return None
    step, least = min(early, key=lambda point: point[1])
    error = math.sqrt((first * (1 - first) + least * (1 - least)) / items)
    ended_worse = train is not None and train.worse
    limit = first - max(FALL, (FEWER_ERRORS if ended_worse else ERRORS) * error)
    if least > limit or (not ended_worse and max(recall for when, recall in known if when >= step) > limit):
        return None
    return Cause(
        f"The learning rate of {rate:g} is too high: within {counted(step, 'step')} recall@1 of a fixed sample of "
        f"training items fell from {100 * first:.1f} % to {100 * least:.1f} %, and it ended at "
        f"{100 * known[-1][1]:.1f} %.",
        ("Lower the learning rate tenfold.", "Warm it up: training.warmup_steps."),
    )


def steps_too_large(moved: float, *, steps: int, rate: float) -> Cause | None:
    """Return whether the mean step was at least as large as all that the weights were when they began.

    A way is no shorter than the distance between its ends. So the mean of ||W_t - W_t-1|| / ||W_0|| over the steps is
    at least `moved / steps`, whatever the optimiser and the schedule; and also where W is a moving average of the
    weights on the way, since that lies no farther from W_0 than one of them does. Steps that go back and forth lie
    above it by far: in a long run a rate that is too high may not show.

    Args:
        moved: ||W - W_0|| / ||W_0|| of what learned at the rate, W_0 as it began.
        steps: of the optimiser, from W_0 to W.
        rate: the learning rate.
    """
    if steps < 1 or not math.isfinite(moved) or moved < OVERWRITTEN * steps:
        return None
    mean = moved / steps
    least, lower = math.floor(10 * mean) / 10, 10.0 ** math.floor(math.log10(rate * USUAL / mean))
    return Cause(
        f"The learning rate of {rate:g} is too high: over {counted(steps, 'step')} the weights moved, on average, by "
        f"at least {least:g} times the size they began with per step; about a thousandth is usual.",
        (f"Lower the learning rate: try {lower:g} and {10 * lower:g}.",),
    )


def began_below(untrained: Comparison, raw: Comparison) -> Cause | None:
    """Return whether the network was below the raw inputs before it was trained, and has not fallen since.

    Args:
        untrained, raw: the trained network beside what it began as, and beside the raw inputs, on the same queries.
    """
    if not raw.worse or untrained.difference < 0:
        return None
    return Cause(
        f"The network began lower still: recall@1 of {in_words(untrained.reference)} is "
        f"{100 * untrained.reference_score:.1f} %, and training did not make up for that.",
        (
            'Begin with what is known: on vectors and texts with model.name = "residual", which begins as these, on '
            "images with pretrained weights.",
        ),
    )


def wrong_labels(train: float, other: float, *, judge: str, split: str) -> Cause | None:
    """Return whether many more labels are wrong among those trained on than among those evaluated.

    In an embedding that knows classes badly, right labels disagree even where it is surest. Those of the evaluation,
    judged in the same embedding, show how many do.

    Args:
        train: the least share of the training labels that disagrees with the items around where these are surest.
        other: the largest share of all labels of the split that does.
        judge: the embedding by which they were judged; it has seen no label.
    """
    if train < other + WRONG:
        return None
    return Cause(
        f"Many training labels are probably wrong: judged in {in_words(judge)}, at least {100 * train:.0f} % disagree "
        f"with the items around where these are surest, while of the labels of {split} at most {100 * other:.0f} % "
        "disagree at all.",
        ("Find the wrong labels: trivet audit RUN --report page.html; then train by your decisions, data.decisions.",),
    )
