"""What stands beside a trained network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from trivet.commands.evaluate.baselines import run_references
from trivet.commands.evaluate.trained_model import at_prefixes, measure_split
from trivet.datasets import DigitsConfig, load
from trivet.metrics import recall_at_k, retrieve
from trivet.models import Embedder
from trivet.reports.run_record import RunRecord
from trivet.training.config import EvaluationConfig
from trivet.training.embed_dataset import embed


def test_a_network_without_a_last_layer_is_its_backbone_and_stands_once() -> None:
    seen = load(DigitsConfig(), None).evaluation["seen"].subset(np.arange(20))
    body = nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(64, 5)), nn.Identity())
    untrained = Embedder(body, input_shape=(1, 8, 8), normalize=True, on_backbone=True)
    assert list(run_references(untrained, seen)) == ["zero-shot backbone", "raw inputs"]


def test_a_network_on_a_backbone_is_measured_beside_that_backbone_alone() -> None:
    seen = load(DigitsConfig(), None).evaluation["seen"].subset(np.arange(60))
    torch.manual_seed(0)
    body = nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(64, 20)), nn.Linear(20, 3))
    untrained = Embedder(body, input_shape=(1, 8, 8), normalize=True, on_backbone=True)
    config = EvaluationConfig(k=(1,), nmi_plus=2, map_points=20, further=("found@3", "ndcg@5"))
    found, embeddings, references = RunRecord(), embed(untrained, seen.inputs), run_references(untrained, seen)
    options = {"chosen_by": "map@r", "prefixes": (), "normalize": True, "seed": 0}
    measure_split(found, "seen", seen, embeddings, references, config, level="digit", **options)
    rows = {row.name: row.levels for row in found.evaluation["seen"]}
    assert list(rows) == ["trained", "untrained network", "zero-shot backbone", "raw inputs"]
    by_choice = {one.reference: one for one in found.chosen_comparisons["seen"]["digit"]}
    assert list(by_choice) == list(rows)[1:]
    for name, one in by_choice.items():
        assert (one.measure, one.queries, one.level) == ("map@r", 60, "digit")
        shares = [row["digit"]["map@r"] for row in (rows["trained"], rows[name])]
        assert [one.value, one.reference_value] == pytest.approx(shares)
        assert one.value is not None
        assert one.reference_value is not None
        assert one.low is not None
        assert one.high is not None
        assert one.low <= one.value - one.reference_value <= one.high
        assert one.difference == one.value - one.reference_value
    backbone = untrained.backbone
    assert backbone is not None
    recall = recall_at_k(embed(backbone, seen.inputs), seen.labels["digit"], (1,))[1]
    assert rows["zero-shot backbone"]["digit"]["recall@1"] == recall > rows["untrained network"]["digit"]["recall@1"]
    low, high = found.intervals["seen"]["digit"]["recall@1"]["queries"] or (1, 0)
    assert low <= rows["trained"]["digit"]["recall@1"] <= high
    for name in ("found@3", "ndcg@5"):
        found_here = retrieve(embed(backbone, seen.inputs), seen.labels["digit"], measures=[name]).mean()
        assert rows["zero-shot backbone"]["digit"][name] == pytest.approx(found_here[name])
        assert name in found.intervals["seen"]["digit"]


def test_prefixes_stand_beside_references_that_are_as_long_but_not_beside_pixels() -> None:
    seen = load(DigitsConfig(), None).evaluation["seen"].subset(np.arange(60))
    draw = np.random.default_rng(0)
    rows, zero_shot, raw = (draw.normal(size=(60, size)).astype(np.float32) for size in (6, 3, 64))
    references = {"zero-shot backbone": zero_shot, "raw inputs": raw}
    for unit in (True, False):
        two, four = at_prefixes(
            rows, references, seen, EvaluationConfig(k=(1,)), (2, 4), normalize=unit, trained=(), cache=None
        )
        assert [row.name for row in two.evaluated] == ["trained", "zero-shot backbone"]
        assert [row.name for row in four.evaluated] == ["trained"]
        assert four.comparisons == {level: [] for level in seen.labels}
        for row, whole in zip(two.evaluated, (rows, zero_shot), strict=True):
            cut = whole[:, :2] / (np.linalg.norm(whole[:, :2], axis=1, keepdims=True) if unit else 1)
            assert row.levels["digit"]["recall@1"] == recall_at_k(cut, seen.labels["digit"], (1,))[1]
