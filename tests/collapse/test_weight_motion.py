"""How far weights moved since a run began: measured by samples of each layer, and heeded by all advice on the rate."""

from __future__ import annotations

import copy
import math
import pickle
from itertools import pairwise

import pytest
import torch
from torch import nn

from trivet import TripletLoss, Watch
from trivet.collapse.advice import harm_advice, network_advice, norm_advice, not_finite_advice
from trivet.collapse.monitor import CollapseMonitor
from trivet.collapse.strategy import SamplingStrategy
from trivet.collapse.weight_motion import FirstWeights, WeightMotion

HARD, EASY = (
    SamplingStrategy(TripletLoss(positives=positives, negatives=negatives), classes_per_batch=4, samples_per_class=2)
    for positives, negatives in (("hard", "hard"), ("easy", "semihard"))
)


def network(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(widths)))


def norms(tensors: list[torch.Tensor]) -> list[float]:
    return [math.hypot(*tensor.flatten().tolist()) for tensor in tensors]


def weights(model: nn.Sequential) -> list[torch.Tensor]:
    return [layer.weight.detach().clone() for layer in model if isinstance(layer, nn.Linear)]


def test_motion_equals_the_definition() -> None:
    model = network(6, 8, 4)
    first, before = FirstWeights(model), weights(model)
    with torch.no_grad():
        model[0].weight.mul_(1.3)
        model[1].weight.add_(0.05)
        model[1].bias.add_(1e6)
    changes, sizes = norms([now - then for now, then in zip(weights(model), before, strict=True)]), norms(before)
    motion = first.motion()
    assert motion is not None
    assert motion.total == pytest.approx(math.hypot(*changes) / math.hypot(*sizes), rel=1e-5)
    assert (motion.layer, motion.farthest) == ("0.weight", pytest.approx(0.3, rel=1e-5))
    assert changes[1] / sizes[1] < 0.3


def test_motion_of_large_layers_is_that_of_samples() -> None:
    model = network(300, 400, 50)
    first, before = FirstWeights(model), weights(model)
    with torch.no_grad():
        model[0].weight.add_(0.1 * before[0].std() * torch.randn(400, 300))
        model[1].weight.add_(0.5 * before[1].std() * torch.randn(50, 400))
    changes, sizes = norms([now - then for now, then in zip(weights(model), before, strict=True)]), norms(before)
    motion = first.motion()
    assert motion is not None
    assert motion.total == pytest.approx(math.hypot(*changes) / math.hypot(*sizes), rel=0.1)
    assert (motion.layer, motion.farthest) == ("1.weight", pytest.approx(0.5, rel=0.1))


def test_what_does_not_count_is_left_out() -> None:
    model = network(6, 8, 4, 3)
    nn.init.zeros_(model[1].weight)  # such as the change of a residual layer
    model[2].requires_grad_(False)
    first = FirstWeights(model)
    with torch.no_grad():
        for layer in model[1:]:
            layer.weight.add_(5)
    assert first.motion() == WeightMotion(0, "", 0)
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    assert first.motion() is None
    assert copy.deepcopy(first).motion() is None
    assert pickle.loads(pickle.dumps(first)).motion() is None
    assert FirstWeights(nn.Module()).motion() is None


def test_weights_that_cannot_be_read_end_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.LazyLinear(4), nn.Linear(2, 2, device="meta"))
    first = FirstWeights(model)
    with torch.no_grad():
        model[0].weight.mul_(3)
    assert first.motion() == WeightMotion(pytest.approx(2), "0.weight", pytest.approx(2))
    monitor = CollapseMonitor()
    monitor.follow(model)
    monkeypatch.setattr(model, "named_parameters", None)
    assert monitor.motion is None
    with pytest.warns(UserWarning, match="the weights could not be followed: TypeError"):
        CollapseMonitor().follow(model)


@pytest.mark.parametrize("strategy", [None, HARD, EASY], ids=["unknown", "hard", "easy"])
def test_advice_names_the_rate_only_where_weights_moved_far(strategy: SamplingStrategy | None) -> None:
    far, near = WeightMotion(0.4, "head", 1.2), WeightMotion(0.002, "head", 0.01)
    for motion, named in ((far, True), (near, False), (None, True)):
        for changes in (
            network_advice(strategy, motion)[1],
            harm_advice(motion),
            norm_advice(motion),
            not_finite_advice(motion),
        ):
            assert 1 <= len(changes) <= 3
            text = " ".join(changes)
            assert ("learning rate" in text) is named
            assert ("the weights moved by 40 % of their norm since the run began" in text) is (motion is far)
            assert ("most of all head by 120 %" in text) is (motion is far)


@pytest.mark.parametrize("moved", [True, False])
def test_a_watched_run_is_told_whether_its_weights_moved(moved: bool) -> None:
    torch.manual_seed(0)
    model, points = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), torch.randn(2, 2).repeat(20, 1)
    points += 0.01 * torch.randn(40, 2)
    watch = Watch(model, points, ["a", "b"] * 20)
    with torch.no_grad():
        if moved:
            model[0].weight.zero_()
        else:
            model[1].running_var.fill_(1e30)  # all items are at one point in float32
            model[1].bias.fill_(1)
    with pytest.warns(UserWarning, match="detected"):
        events = [event for _ in range(12) for event in watch.step()]
    assert events
    text = " ".join(change for event in events for change in event.changes)
    assert ("the weights moved by 100 % of their norm" in text) is moved
    assert ("learning rate" in text) is moved


@pytest.mark.parametrize("source", ["a/model", ""])
def test_a_network_that_says_where_it_was_loaded_from_is_pretrained(source: str) -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].name_or_path = source
    assert FirstWeights(model).pretrained is bool(source)
    points = torch.eye(3)[torch.arange(40) % 2] + torch.randn(40, 3, generator=torch.Generator().manual_seed(0)) / 10
    watch = Watch(model, points, ["a", "b"] * 20)
    with torch.no_grad():
        model[0].weight.zero_()
    with pytest.warns(UserWarning, match="network collapse"):
        events = [event for _ in range(12) for event in watch.step()]
    assert ("start from a pretrained network" in " ".join(events[0].changes)) is not bool(source)
