"""The weights of the best call: which are copied, and when they are loaded again."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from trivet.collapse.best_weights import BestWeights
from trivet.collapse.probe import ProbeTracker

LABELS = torch.arange(200) % 4
NOISE = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))


def embedded(apart: float) -> Tensor:
    return NOISE + apart * nn.functional.one_hot(LABELS, 8)


@pytest.mark.parametrize(
    ("course", "result", "words"),
    [
        ([4.0, 2.0, 1.0], 4.0, "the network of step 0 is the result: recall@1 by the labels of 200 held-out items is "),
        (
            [1.0, 4.0, 2.0],
            4.0,
            "the network of step 10 is the result: recall@1 by the labels of 200 held-out items is ",
        ),
        ([1.0, 2.0, 4.0], 4.0, "the network of step 20 is the result, the best by held-out items"),
        ([1.0, 4.0, 3.9], 3.9, "the network of step 20 is the result, not behind that of step 10 beyond doubt"),
        ([4.0], 4.0, None),
    ],
)
def test_the_best_network_is_the_result_where_the_last_is_behind(
    course: list[float], result: float, words: str | None
) -> None:
    network, probing = nn.Linear(1, 1, bias=False), ProbeTracker()
    best = BestWeights(probing)
    best.follow(network)
    for number, apart in enumerate(course):
        nn.init.constant_(network.weight, apart)
        probing.measure(lambda apart=apart: (embedded(apart), LABELS), 10 * number)
    assert course == [4.0] or "were not judged there" in str(best.restore(network, 25))
    line = best.restore(network, 10 * number)
    assert network.weight.item() == pytest.approx(result)
    assert line is None if words is None else str(line).startswith(words)
    assert (best.restored is not None) == (result != course[-1])
    assert copy.deepcopy(probing).on_best is None


def test_a_resumed_training_has_the_copy_that_it_is_given() -> None:
    network, probing = nn.Linear(1, 1, bias=False), ProbeTracker()
    probing.measure(lambda: (embedded(4.0), LABELS), 0)
    best = BestWeights(probing)
    probing.measure(lambda: (embedded(1.0), LABELS), 10)
    assert "was better, but there is no copy of it" in str(best.restore(network, 10))
    best.load({"weight": torch.full((1, 1), 7.0)})
    best.restore(network, 10)
    assert network.weight.item() == 7.0
