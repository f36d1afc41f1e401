"""Advice in words: what a person should change when an embedding collapses."""

from __future__ import annotations

from trivet.collapse.strategy import SamplingStrategy
from trivet.collapse.weight_motion import WeightMotion
from trivet.mining import EasyPositive, HardNegative

Advice = tuple[str, tuple[str, ...]]
"""The likely cause, a sentence, and one to three things to change, the most effective first."""

FAR = 0.1  # of their norm: what weights moved, from where on a lower rate is worth a try


def rate_advice(sentence: str, motion: WeightMotion | None, *, unknown: str = "") -> tuple[str, ...]:
    """The sentence, that the rate be lower, where weights moved far in this run; nothing where they hardly did.

    Args:
        sentence: without its full stop.
        motion: of the weights since the run began; None if it is not known.
        unknown: what follows the sentence then.
    """
    if motion is None:
        return (f"{sentence}{unknown}.",)
    if motion.farthest < FAR:
        return ()
    return (
        f"{sentence}: the weights moved by {100 * motion.total:.0f} % of their norm since the run began, most of all "
        f"{motion.layer} by {100 * motion.farthest:.0f} %.",
    )


def network_advice(
    strategy: SamplingStrategy | None, motion: WeightMotion | None = None, *, pretrained: bool = False
) -> Advice:
    """Against a collapse of the network, for this way to choose; without one what holds for any loss of any library.

    Args:
        motion: see `rate_advice`.
        pretrained: whether the network is known to be pretrained.
    """
    start = "" if pretrained else ", or start from a pretrained network if this one is not"
    rate = rate_advice(
        "Lower the learning rate tenfold",
        motion,
        unknown=", above all if it is 0.01 or more with Adam, or the loss jumped",
    )
    if strategy is not None and isinstance(strategy.loss.strategy.negatives, HardNegative):
        size = strategy.classes_per_batch * strategy.samples_per_class
        return (
            f"The hardest of {size} items in a batch are negatives that no small step can move beyond the positives; "
            "the loss falls faster if everything shrinks.",
            (
                'Use semi-hard negatives (negatives = "semihard-hardest"), possibly with easy positives.',
                *(rate if motion is not None else ()),
                "Use the second-order or the selectively contrastive loss, which do not pull hard negatives closer.",
                "Use smaller batches, a wider embedding or a lower learning rate: this first, if it is 0.01 or more "
                "with Adam."
                if motion is None
                else "Use smaller batches, or a wider embedding.",
            )[:3],
        )
    if strategy is None:
        return (
            "The loss was lowered by drawing all items together. Typical causes are a high learning rate, wrong "
            "labels, and batches or pairs that no small step of the network can tell apart.",
            (
                *rate,
                "Check the margin or the temperature of the loss against the distances that the network begins with, "
                "and the labels or pairs for wrong ones.",
                f"Train the last layers alone at first{start}.",
            ),
        )
    easy = isinstance(strategy.loss.strategy.positives, EasyPositive)
    return (
        "The loss was lowered by drawing all items together. Typical causes are hard negatives in large batches, few "
        "dimensions, wrong labels or a high learning rate.",
        (
            *rate,
            *(() if easy else ('Use easy positives (positives = "easy").',)),
            f"Make the embeddings wider or use smaller batches{start}.",
        ),
    )


def class_advice(strategy: SamplingStrategy | None) -> Advice:
    """Against a collapse of classes, likewise."""
    finer, earlier = (
        "Train on finer labels, if there are any.",
        "Stop earlier: classes keep shrinking after they are separated.",
    )
    cause = "Every positive is pulled towards its anchor, however different they are, so the modes of a class merge."
    if strategy is None:
        return (
            cause,
            (
                finer,
                "Put many items of each class in a batch, and pull each towards its nearest positives alone, if the "
                "loss can do that.",
                earlier,
            ),
        )
    easy = isinstance(strategy.loss.strategy.positives, EasyPositive)
    first = (
        f"Put more items of each class in a batch (now samples_per_class = {strategy.samples_per_class}): easy "
        "positives need near items to choose from."
        if easy
        else 'Use easy positives (positives = "easy"), with at least eight items of each class in a batch.'
    )
    few = easy and strategy.samples_per_class < 4
    return (
        cause + (" With few items of a class in a batch, easy positives have little choice." if few else ""),
        (first, finer, earlier),
    )


def noise_advice(strategy: SamplingStrategy | None) -> Advice:
    """Against labels that disagree with their neighbours, likewise."""
    cause = (
        "So many labels disagree with their neighbours that they are probably wrong, or describe what the inputs do "
        "not show."
    )
    inspect = "Inspect the items surrounded by another class, and correct or drop their labels."
    if strategy is None:
        return cause, (
            inspect,
            "If the loss takes the hardest pairs of a batch, or weighs them most, use another one: they include items "
            "with wrong labels.",
        )
    hard = 'Avoid the hardest negatives (negatives = "hard"): they include items with wrong labels.'
    return cause, (
        inspect,
        "Use easy positives or trim the largest losses, so that wrong pairs are rarely used.",
        *((hard,) if isinstance(strategy.loss.strategy.negatives, HardNegative) else ()),
    )


def chance_advice(*, trained: bool, never: bool) -> Advice:
    """Advice for an embedding that is no better than chance.

    Args:
        trained: whether there is known to be a training.
        never: whether all that it is compared with is no better either.
    """
    if never:
        return (
            "What it is compared with knows nothing of these labels either: the inputs do not show them, or inputs and "
            "labels are not in the same order.",
            ("Check that inputs and labels are in the same order, and that the inputs can show the labels.",),
        )
    return (
        "The embedding knows nothing of these labels: training destroyed it or was on other labels, or its rows and "
        "its labels are not in the same order.",
        (
            "Check that embeddings and labels are in the same order: the raw inputs should do better.",
            "Start again from the untrained or pretrained network, with a lower learning rate."
            if trained
            else "If training did this, start again from the untrained or pretrained network, with a lower learning "
            "rate.",
        ),
    )


def harm_advice(motion: WeightMotion | None = None) -> tuple[str, ...]:
    """Changes to make where training made held-out items worse than they were before it; `motion` as in
    `rate_advice`."""
    rate = rate_advice("Go back to the best step, and lower the learning rate tenfold", motion)
    return (
        *(rate or ("Go back to the best step: the weights hardly moved, so look at what else training changes.",)),
        "If the network is pretrained, train its last layer alone, or keep batch norm, where it has any, in evaluation "
        "mode.",
        f"Use the network as it was before training, if no {'rate' if rate else 'change'} makes it better.",
    )


def norm_advice(motion: WeightMotion | None = None) -> tuple[str, ...]:
    """Against norms that explode in training, likewise."""
    rate = rate_advice("Lower the learning rate, or warm it up", motion)
    return "Normalise the embeddings.", *rate, "Clip the norm of the gradient."


def not_finite_advice(motion: WeightMotion | None = None) -> tuple[str, ...]:
    """Against losses and embeddings that are not finite, likewise."""
    rate = rate_advice("Lower the learning rate, or warm it up", motion)
    return *rate, "Clip the norm of the gradient.", "Check the inputs for values that are not finite."
