"""Training by tags: what a batch holds, what its loss is, proxies of tags, and what needs classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trivet
from trivet.collapse import fine_coarse_index
from trivet.collapse.probe import ProbeTracker
from trivet.commands.evaluate.trained_model import collapse_index
from trivet.samplers import RelationBatches
from trivet.training.components import Components, first_task, load_splits, make_batches
from trivet.training.config import RunConfig
from trivet.training.loop import fit

WORDS = ("red", "blue", "green", "round", "square")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    rows = ["tags,text"]
    for i in range(300):
        tags = generator.permutation(WORDS)[: 1 + i % 3]
        rows.append(f"{';'.join(tags)},item {i} that is {' and '.join(sorted(tags))}")
    path = tmp_path / "t.csv"
    path.write_text("\n".join(rows))
    return path


def config_of(table: Path, **sections: Any) -> RunConfig:
    values: dict[str, Any] = {
        "data": {"name": "texts", "path": str(table), "levels": ["tags"], "separator": ";", "match": 0.5},
        "model": {"name": "residual", "embedding_dim": 16},
        "loss": {"name": "multi-similarity"},
        "batch": {"num_classes": 8, "samples_per_class": 2},
        "training": {"steps": 2},
    }
    return RunConfig.parse({**values, **sections}, source="test")


def test_each_anchor_of_a_batch_has_a_positive(table: Path) -> None:
    config = config_of(table)
    splits = load_splits(config, None)
    plan = make_batches(config, splits.train, "tags")
    assert isinstance(plan, RelationBatches)
    index = plan.batch(0, 1)
    relation = splits.train.relation("tags")[index]
    alike = relation.positive(relation.items, relation.items).fill_diagonal_(False)
    assert len(index) <= 16
    assert alike.any(dim=1).all()


@pytest.mark.parametrize("loss", ["multi-similarity", "contrastive", "proxy-anchor"])
def test_the_loss_is_that_of_the_tags(loss: str, table: Path) -> None:
    config = config_of(table, loss={"name": loss} | ({"margin": 0.5} if loss == "contrastive" else {}))
    splits = load_splits(config, None)
    learner, batches = first_task(config, splits.train, "tags", steps=2)
    relation, lists = splits.train.relation("tags"), [name.split(";") for name in splits.train.names["tags"]]
    assert sorted(relation.names) == sorted(WORDS)
    if loss == "proxy-anchor":
        assert len(next(learner.loss.parameters())) == len(WORDS)
    seen = []

    def compare(module: torch.nn.Module, inputs: tuple[Any, ...], value: torch.Tensor) -> None:
        embeddings, batch = inputs
        tags = trivet.Tags([lists[number] for number in batch.items.tolist()], 0.5)
        if loss != "proxy-anchor":  # whose tags must all be there
            again = trivet.MultiSimilarityLoss() if loss == "multi-similarity" else trivet.ContrastiveLoss(margin=0.5)
            again.load_state_dict(module.state_dict())
            torch.testing.assert_close(again.eval()(embeddings, tags), value)
        seen.append(len(tags))

    learner.loss.register_forward_hook(compare)
    assert fit(learner, batches)
    assert len(seen) == 2


def test_folds_and_the_choice_of_a_step_take_tags(table: Path) -> None:
    config = config_of(
        table,
        data={"name": "texts", "path": str(table), "levels": ["tags"], "separator": ";", "folds": 4},
        choosing={"keep": "best"},
        guard={"probe": 40},
    )
    components = Components(config, load_splits(config, None))
    assert components.probe_items is not None
    scores = components.state.selection.scores(components.state.learner.model)
    assert len(np.unique(scores.classes)) > 2
    assert "in 5 tags" in components.probe_items.sentence
    assert not components.state.sampling.checks


def test_a_probe_by_tags_asks_for_finer_classes_too(table: Path) -> None:
    """Of the level after the tags, where its classes have items enough; the evaluation has their index."""
    lines = table.read_text().splitlines()
    sets = ["+".join(sorted(line.partition(",")[0].split(";"))) for line in lines[1:]]
    rows = [f"{name}, {number % 2}".replace(",", "") + "," + lines[number + 1] for number, name in enumerate(sets)]
    table.write_text("\n".join(["half," + lines[0], *rows]))
    data = {"name": "texts", "path": str(table), "levels": ["tags", "half"], "level": "tags", "separator": ";"}
    config = config_of(table, data=data | {"folds": 4}, choosing={"keep": "best"}, guard={"probe": 40})
    components = Components(config, load_splits(config, None))
    probe = components.probe_items
    assert probe is not None
    assert probe.levels == ("tags", "half")
    learner = components.state.learner.model
    tracker = ProbeTracker()
    result = tracker.measure(probe.probe_of(learner, cosine=True), 0)
    embeddings, relation, fine = probe.probe_of(learner, cosine=True)()
    assert isinstance(relation, trivet.Tags)
    nearest = torch.cdist(embeddings.double(), embeddings.double()).fill_diagonal_(torch.inf).argmin(dim=1)
    assert result.fine_recall == pytest.approx(float((fine[nearest] == fine).double().mean()))
    found = collapse_index(embeddings.numpy(), probe.items)
    assert found is not None
    assert (found.coarse, found.fine) == ("tags", "half")
    assert found.index == pytest.approx(fine_coarse_index(embeddings, relation.partition, fine))


@pytest.mark.parametrize(
    "sections",
    [{"cleaning": {"action": "drop"}}, {"batch": {"mined": "triplets.parquet", "size": 16}}],
    ids=lambda sections: next(iter(sections)),
)
def test_what_needs_classes_is_refused(sections: dict[str, Any], table: Path) -> None:
    config = config_of(table, **sections)
    with pytest.raises(ValueError, match="needs one class for each item: those of level 'tags' have tags or partners"):
        Components(config, load_splits(config, None))
