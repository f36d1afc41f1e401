"""The probe of a run: which items, that they are not trained on, and that a guard with it does what it should."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.commands.train.run import resume, train
from trivet.datasets import Splits, load
from trivet.models import load_model
from trivet.training import RunConfig
from trivet.training.components import Components, run_fingerprint
from trivet.training.probe import ProbeItems, probe_items
from trivet.training.run_folder import RunFolder
from trivet.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("undiagnosed")

SETTINGS: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "digits", "level": "digit"},
    "batch": {"num_classes": 4, "samples_per_class": 16},
    "model": {"name": "mlp", "width": 16, "embedding_dim": 8},
    "loss": {"name": "triplet"},
    "training": {"steps": 1000, "accelerator": "cpu"},
    "evaluation": {"every": 1000, "map_points": 10, "sample": 50, "nmi_plus": 2},
}  # fmt: skip


def config(**changes: dict[str, Any]) -> RunConfig:
    return RunConfig.parse({**SETTINGS, "guard": {}, **changes}, source="test")


def probed(settings: RunConfig, splits: Splits) -> ProbeItems | None:
    return probe_items(settings.guard, splits, batch_size=settings.batch.batch_size, seed=settings.seed)


@pytest.fixture(scope="module")
def splits() -> Splits:
    """The digits, four times: enough to leave a hundred of them out."""
    once = load(config().data, None)
    train = once.train
    rows = np.tile(np.arange(len(train)), 4)
    fourfold = train.subset(np.arange(len(train)))
    object.__setattr__(fourfold, "ids", tuple(f"{i}" for i in range(len(rows))))
    object.__setattr__(fourfold, "inputs", train.inputs.subset(rows))
    object.__setattr__(fourfold, "labels", {level: values[rows] for level, values in train.labels.items()})
    return Splits(**{**vars(once), "train": fourfold})


@pytest.mark.parametrize(
    ("guard", "left_out"),
    [
        ({}, 0),
        ({"probe": 120}, 120),
        ({"action": "stop"}, 0),  # filled in below: a twentieth of all
        ({"action": "stop", "probe": 0}, 0),
        ({"probe": 99}, 0),  # too few to tell
    ],
    ids=["warn", "asked for", "stop", "none", "too few"],
)
def test_training_items_are_left_out_where_the_settings_say_so(
    guard: dict[str, Any], left_out: int, splits: Splits
) -> None:
    if guard == {"action": "stop"}:
        left_out = len(splits.train) // 20
    found = probed(config(guard=guard), splits)
    assert (0 if found is None else len(found.rows)) == left_out
    if found is None:
        return
    labels = splits.train.labels["digit"]
    counts, all_counts = np.bincount(labels[found.rows]), np.bincount(labels)
    assert (counts <= all_counts / 5).all()
    assert counts[counts > 0].min() >= 4
    parts = Components(config(guard=guard), splits)
    assert set(parts.items.ids) == set(splits.train.ids) - set(found.items.ids)
    assert f"left out of training, so that {left_out} fewer are trained on" in parts.notes[-1]
    assert run_fingerprint(config(guard=guard), splits) != run_fingerprint(config(), splits)


def test_the_validation_part_is_asked_where_there_is_one() -> None:
    settings = config(data={"name": "digits", "level": "digit", "folds": 2})
    splits = load(settings.data, None)
    found = probed(settings, splits)
    assert found is not None
    assert (found.split, len(found.rows)) == ("validation", 0)
    assert set(found.items.ids) <= set(splits.evaluation["validation"].ids)
    assert run_fingerprint(settings, splits) == run_fingerprint(
        settings.model_copy(update={"guard": config().guard}), splits
    )


@pytest.mark.parametrize("validation", [False, True], ids=["left out", "validation"])
def test_a_probe_holds_as_many_of_each_finer_class(validation: bool, splits: Splits) -> None:
    """Else a level with many classes would have one item of each, and nothing to retrieve."""
    parity = replace(splits, level="parity")
    if validation:
        parity = replace(parity, evaluation={"validation": splits.train})
    found = probed(config(data={"name": "digits", "level": "parity"}, guard={"probe": 120}), parity)
    assert found is not None
    assert (found.levels, found.split) == (("parity", "digit"), "validation" if validation else None)
    _, counts = np.unique(found.items.labels["digit"], return_counts=True)
    assert counts.tolist() == [20] * 6


@pytest.mark.parametrize(("samples", "items"), [(4, 100), (16, 192), (40, 300)])
def test_a_call_costs_as_much_as_a_step(samples: int, items: int) -> None:
    settings = config(
        data={"name": "digits", "level": "digit", "folds": 2}, batch={"num_classes": 4, "samples_per_class": samples}
    )
    found = probed(settings, load(settings.data, None))
    assert found is not None
    assert len(found.items) == items


@pytest.mark.usefixtures("unevaluated")
def test_a_run_asks_its_probe_and_trains_the_same(tmp_path: Path, splits: Splits) -> None:
    short = {"steps": 30, "checkpoint_every": 10, "accelerator": "cpu"}
    whole = train(config(training=short, guard={"probe": 120, "action": "stop"}), tmp_path / "whole", splits=splits)
    seen = whole.monitor.probe
    assert seen.items == 120
    assert seen.series["step"][0] == 0
    assert len(seen.series["step"]) > 1
    assert any("left out of training" in line for line in whole.warnings)
    untouched = Components(config(training=short, guard={"probe": 120}), splits)
    assert untouched.probe_items is not None
    asked = untouched.probe_items.probe_of(untouched.state.learner.model, cosine=False)()
    assert seen.start["recall"] == pytest.approx(_recall(*asked[:2]))
    for file in RunFolder(tmp_path / "whole").checkpoints()[1:]:
        file.unlink()
    again = resume(tmp_path / "whole", splits=splits)
    assert again.monitor == whole.monitor


def _recall(embeddings: torch.Tensor, labels: torch.Tensor) -> float:
    distances = torch.cdist(embeddings.double(), embeddings.double()).fill_diagonal_(torch.inf)
    return float((labels[distances.argmin(dim=1)] == labels).double().mean())


class Told(CollapseMonitor):
    """Calls a network collapse at step 60, whatever it sees, and nothing else."""

    def update(self, *args: Any, **kwargs: Any) -> list[Event]:
        super().update(*args, **kwargs)
        self.events[:] = [event for event in self.events if event.rule == "told to"]
        if kwargs["step"] != 60:
            return []
        self.events.append(Event(60, "network-collapse", {}, "told to", (), None, 0))
        return self.events[-1:]


@pytest.mark.parametrize("kill", [None, 45], ids=["not killed", "killed"])
@pytest.mark.usefixtures("unevaluated")
def test_the_best_network_is_the_result_of_a_stopped_run(
    kill: int | None, tmp_path: Path, splits: Splits, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a network that is spoiled from step 31 on; also after a kill, the best of before is remembered."""

    class Killed(BaseException):
        pass

    monkeypatch.setattr("trivet.training.guard.CollapseMonitor", Told)
    after_step = Trainer._after_step

    def spoil(self: Trainer) -> None:
        if self.state.learner.step > 30:
            with torch.no_grad():
                for weight in self.state.learner.model.parameters():
                    weight.zero_()
        if self.state.learner.step == kill:
            raise Killed
        after_step(self)

    settings = config(
        training={"steps": 100, "learning_rate": 0.01, "checkpoint_every": 20, "accelerator": "cpu"},
        guard={"action": "stop"},
    )
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_after_step", spoil)
        if kill is None:
            record = train(settings, path, splits=splits)
        else:
            with pytest.raises(Killed):
                train(settings, path, splits=splits)
            kill = None
            record = resume(path, splits=splits)
    assert (record.status, record.step) == ("stopped", 61)
    seen = record.monitor.probe.series
    best = max(range(len(seen["recall"])), key=lambda look: seen["recall"][look])
    assert record.guard.snapshot == int(seen["step"][best]) <= 30
    assert seen["recall"][-1] < seen["recall"][best] - 0.1
    assert f"the network of step {record.guard.snapshot} is the result" in caplog.messages[-1]
    components = Components(settings, splits)
    model = components.state.learner.model
    model.load_state_dict(load_model(path / "model").state_dict())
    assert components.probe_items is not None
    found = _recall(*components.probe_items.probe_of(model, cosine=False)())
    assert found == pytest.approx(seen["recall"][best])


def test_a_probe_that_was_asked_for_and_is_not_there_is_said(splits: Splits) -> None:
    small = load(config().data, None)
    parts = Components(config(guard={"probe": 200}), small)
    assert parts.probe_items is None
    assert parts.notes[-1] == (
        f"The guard asks no probe: it needs 100 items in two classes or more, at most a twentieth of the "
        f"{len(small.train)} training items and a fifth of a class, and guard.probe = 200."
    )
    one = replace(splits, evaluation={"val": splits.train.subset(np.flatnonzero(splits.train.labels["digit"] == 0))})
    assert "and the split val has fewer" in Components(config(guard={"probe": 120}), one).probe_note
    for guard in ({}, {"action": "stop"}, {"probe": 0}):
        assert Components(config(guard=guard), small).probe_note == ""
