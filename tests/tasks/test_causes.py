"""A run that did worse than what it began as says why."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from trivet.collapse.result import Comparison, compare
from trivet.data import DigitsConfig, load
from trivet.evaluation import retrieve
from trivet.models import ModelConfig, build
from trivet.tasks.causes import Trained, name_causes
from trivet.training.config import RunConfig
from trivet.training.embedding import embed


def test_batch_norm_statistics_that_moved_are_named_and_those_that_stayed_are_not() -> None:
    splits = load(DigitsConfig(), None)
    seen = splits.evaluation["seen"]
    labels = seen.labels["digit"]
    config = RunConfig.model_validate({"data": {"name": "digits", "level": "digit"}, "loss": {"name": "triplet"}})
    before = build(ModelConfig(name="conv2", embedding_dim=8), seen.inputs.shape, 0)
    after = build(ModelConfig(name="conv2", embedding_dim=8), seen.inputs.shape, 0)
    lost: dict[str, torch.Tensor] = after.state_dict()
    for name in lost:
        if name.endswith("running_var"):
            lost[name] *= (6 * torch.randn(lost[name].shape, generator=torch.Generator().manual_seed(0))).exp()
        if name.endswith("running_mean"):
            lost[name] += 1e7  # more than float32 can hold beside what varies

    def told(statistics: bool) -> dict[str, Any]:
        hits = [
            retrieve(embed(network, seen.inputs), labels, measures=("recall@1",)).values[:, 0]
            for network in (after, before)
        ]
        if not statistics:
            hits[0] = np.zeros(len(labels))
        row = compare(*hits, labels, reference="untrained network", level="digit")
        assert row.worse
        verdict = {"kind": "worse-than-reference", "cause": "unknown", "changes": ["none"]}
        section = {"verdicts": [verdict], "measures": {"comparisons": [asdict(row)]}}
        datasets = {"seen": seen, "train": splits.train}
        name_causes({"seen": section}, Trained(datasets, "digit", config, None, after, before))
        return verdict

    after.load_state_dict(lost)
    named = told(True)
    assert named["cause"].startswith("Batch-norm statistics of training batches of 64 items")
    assert named["changes"][0].startswith("Keep the batch-norm layers")
    after.load_state_dict(before.state_dict())
    assert told(False) == {"kind": "worse-than-reference", "cause": "unknown", "changes": ["none"]}


def test_labels_that_are_wrong_in_training_alone_are_named() -> None:
    def told(rate: float, *, evaluated: str = "seen") -> str:
        data = {"name": "digits", "level": "digit", "noise": {"kind": "symmetric", "rate": rate}}
        config = RunConfig.model_validate({"data": data, "loss": {"name": "triplet"}})
        splits = load(config.data, None)
        network = build(ModelConfig(name="linear", embedding_dim=8), splits.train.inputs.shape, 0)
        row = Comparison("untrained network", "digit", 400, 0.5, 0.8, -0.35, -0.25)
        verdict = {"kind": "worse-than-reference", "cause": "unknown", "changes": ["none"]}
        section = {"verdicts": [verdict], "measures": {"comparisons": [asdict(row)]}}
        datasets = {"train": splits.train, "seen": splits.train if evaluated == "train" else splits.evaluation["seen"]}
        name_causes({"seen": section}, Trained(datasets, "digit", config, None, network, network))
        return str(verdict["cause"])

    found = re.match(
        r"Many training labels are probably wrong: judged in the raw inputs .*, at least (\d+) % are", told(0.4)
    )
    assert found is not None
    assert 25 <= int(found[1]) <= 40  # the lower end
    assert told(0.0) == "unknown"
    assert told(0.4, evaluated="train") == "unknown"  # wrong in both: what the training lost is not shown by them


def test_a_network_that_lost_to_the_raw_inputs_alone_is_said_to_have_begun_below() -> None:
    splits = load(DigitsConfig(), None)
    config = RunConfig.model_validate({"data": {"name": "digits", "level": "digit"}, "loss": {"name": "triplet"}})
    network = build(ModelConfig(name="linear", embedding_dim=8), splits.train.inputs.shape, 0)

    def told(untrained: float, *, kinds: tuple[str, ...] = ()) -> str:
        rows = [
            Comparison("untrained network", "digit", 400, 0.7, untrained, 0.7 - untrained - 0.1, 0.7 - untrained + 0.1),
            Comparison("raw inputs", "digit", 400, 0.7, 0.9, -0.25, -0.15),
        ]
        verdicts = [
            {"kind": kind, "cause": "unknown", "changes": ["none"]} for kind in ("worse-than-reference", *kinds)
        ]
        section = {"verdicts": verdicts, "measures": {"comparisons": list(map(asdict, rows))}}
        datasets = {"seen": splits.evaluation["seen"], "train": splits.train}
        name_causes({"seen": section}, Trained(datasets, "digit", config, None, network, network))
        return str(verdicts[0]["cause"])

    assert told(0.6).startswith("The network began lower still: recall@1 of the untrained network is 60.0 %")
    assert told(0.75) == "unknown"
    assert told(0.6, kinds=("network-collapse",)) == "unknown"
