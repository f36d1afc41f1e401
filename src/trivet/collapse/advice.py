"""What to change when an embedding collapses."""

from __future__ import annotations

from trivet.collapse.strategy import Strategy
from trivet.mining import EasyPositive, HardNegative

Advice = tuple[str, tuple[str, ...]]
"""The likely cause, a sentence, and one to three things to change, the most effective first."""


def network_advice(strategy: Strategy | None) -> Advice:
    """Against a collapse of the network, for this way to choose or for any."""
    if strategy is not None and isinstance(strategy.loss.strategy.negatives, HardNegative):
        size = strategy.classes_per_batch * strategy.samples_per_class
        return (
            f"The hardest of {size} items in a batch are negatives that no small step can move past the positives; the "
            "loss falls faster by shrinking everything.",
            (
                'Take semi-hard negatives (negatives = "semihard-hardest"), or easy positives with them.',
                "Use the second-order or the selectively contrastive loss, which do not pull hard negatives closer.",
                "Make batches smaller, the embedding wider, or the learning rate lower.",
            ),
        )
    return (
        "The loss was lowered by drawing all items together: hard negatives in large batches, a narrow embedding, "
        "wrong labels or a learning rate that is too high do that.",
        (
            "Take semi-hard negatives or easy positives in place of the hardest.",
            "Lower the learning rate, or start from a pretrained backbone.",
            "Normalise the embeddings, make them wider, or make batches smaller.",
        ),
    )


def class_advice(strategy: Strategy | None) -> Advice:
    """Against a collapse of classes, for this way to choose or for any."""
    easy = strategy is not None and isinstance(strategy.loss.strategy.positives, EasyPositive)
    few = strategy is not None and strategy.samples_per_class < 4
    first = (
        f"Put more items of each class in a batch (samples_per_class = {strategy.samples_per_class} now): easy "
        "positives need near ones to choose."
        if easy and strategy is not None
        else 'Take easy positives (positives = "easy"), with eight or more items of each class in a batch.'
    )
    return (
        "Positives are pulled together however different they are, so the modes of a class are drawn to one spot."
        + (" Few items of a class in a batch leave easy positives nothing to choose from." if easy and few else ""),
        (
            first,
            "Label finer classes, if there are any.",
            "Stop earlier: a class shrinks on after it is separated.",
        ),
    )
