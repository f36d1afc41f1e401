"""Optimisation: schedules beside those of torch, groups of parameters, precision, the average, and an exact resume."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.commands.conftest import Call
from tests.training.runs import check_same_run, killed, record_of, settings_of
from torch import nn
from torch.optim import lr_scheduler

from trivet.commands.train.run import resume, train
from trivet.datasets import load
from trivet.models import Embedder, ModelConfig, build
from trivet.training import RunConfig, TrainingConfig
from trivet.training.checkpoint_selection import make_selection
from trivet.training.components import Components, check_before_data, first_task, in_steps, load_splits
from trivet.training.config import ChoosingConfig
from trivet.training.loop import fit
from trivet.training.optimizer import make_optimizer, parameter_groups
from trivet.training.precision import Precision
from trivet.training.run_folder import RunFolder
from trivet.training.schedule import rate_factor
from trivet.training.trainer import Trainer
from trivet.training.weight_average import decay_at, update_average

pytestmark = pytest.mark.usefixtures("few_digits")

LEAST: dict[str, Any] = {
    "seed": 3,
    "data": {"name": "digits"},
    "batch": {"num_classes": 2, "samples_per_class": 8},
    "model": {"name": "conv3", "embedding_dim": 4, "width": 4},
    "loss": {"name": "margin", "positives": "random"},
    "training": {"steps": 8, "log_every": 2, "accelerator": "cpu"},
    "choosing": {},
    "evaluation": {"every": 100, "map_points": 20, "sample": 40, "nmi_plus": 1, "k": [1]},
}
CPU = torch.device("cpu")


def config(**changes: dict[str, Any]) -> RunConfig:
    return settings_of(LEAST, "x", **changes)


def training(**values: Any) -> TrainingConfig:
    return TrainingConfig.parse(values, source="x")


SCHEDULES: dict[str, dict[str, Any]] = {
    "constant": {},
    "linear": {},
    "cosine": {},
    "step": {"step_size": 7, "gamma": 0.5},
    "multi-step": {"milestones": [5, 6, 20], "gamma": 0.3},
}


@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_that_of_torch(name: str, warmup: int) -> None:
    settings = training(steps=30, schedule=name, warmup_steps=warmup, **SCHEDULES[name])
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    rise = lr_scheduler.LinearLR(optimizer, 1 / (warmup + 1), total_iters=warmup)
    scheduler: Any
    if name in ("linear", "cosine"):
        rest = 30 - warmup
        fall: Any = lr_scheduler.CosineAnnealingLR(optimizer, rest)
        if name == "linear":
            fall = lr_scheduler.LinearLR(optimizer, 1.0, 0.0, rest)
        scheduler = lr_scheduler.SequentialLR(optimizer, [rise, fall], [warmup])
    else:
        fall = {
            "constant": lambda: lr_scheduler.ConstantLR(optimizer, 1.0),
            "step": lambda: lr_scheduler.StepLR(optimizer, 7, 0.5),
            "multi-step": lambda: lr_scheduler.MultiStepLR(optimizer, [5, 6, 20], 0.3),
        }[name]()
        scheduler = lr_scheduler.ChainedScheduler([rise, fall], optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the order of scheduler and optimiser
        for step in range(30):
            assert rate_factor(step, settings) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-6), step
            scheduler.step()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"steps": 10, "epochs": 2}, "steps or epochs must be given, not both: got 10 and 2"),
        ({"schedule": "step"}, "needs step_size"),
        ({"schedule": "multi-step"}, "needs milestones"),
        ({"step_size": 5}, "step_size has no effect with the schedule constant: remove it"),
        ({"schedule": "cosine", "milestones": [5]}, "milestones has no effect with the schedule cosine"),
        ({"gamma": 0.5}, "gamma has no effect with the schedule constant"),
        ({"schedule": "multi-step", "milestones": [5, 3]}, r"milestones must ascend, each once: got \[5, 3\]"),
        ({"schedule": "multi-step", "milestones": [5, 10], "steps": 10}, "milestones must lie before the end .* 10 st"),
        ({"schedule": "step", "step_size": 10, "steps": 10}, "step_size must lie before the end"),
        ({"warmup_steps": 800}, "warmup_steps must lie before the end of the training, 800 steps: got 800"),
        ({"accumulate_grad_batches": 4}, "accumulate_grad_batches is not offered, .* set batch.micro"),
        ({"gradient_accumulation": 4}, "gradient_accumulation is not offered"),
        ({"ema": 1.0}, "ema must be below 1: got 1.0"),
    ],
)
def test_what_cannot_be_scheduled_is_said(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=rf"^x: training.*{said}") as error:
        RunConfig.parse(LEAST | {"training": values}, source="x")
    assert "\n" not in str(error.value)


def test_epochs_are_counted_in_steps_once_the_batches_are_known() -> None:
    given = RunConfig.parse(LEAST | {"training": {"epochs": 3, "warmup_steps": 20}}, source="x")
    assert RunConfig.parse(given.model_dump(exclude_none=True), source="again") == given
    assert (given.training.steps, given.training.epochs) == (None, 3)
    splits = load(given.data, None)
    found = Components(given, splits)
    batches = found.batches.steps_per_epoch
    assert batches == pytest.approx(len(splits.train) / (2 * 8), abs=1)
    assert (found.config.training.steps, found.config.training.epochs) == (3 * batches, None)
    assert found.config == in_steps(found.config, splits)
    late = given.training.model_copy(update={"warmup_steps": 3 * batches})
    with pytest.raises(ValueError, match=f"warmup_steps must lie before the end of the training, {3 * batches} steps"):
        Components(given.model_copy(update={"training": late}), splits)


def test_steps_take_the_place_of_epochs_on_the_command_line_and_the_reverse() -> None:
    for given, override, steps, epochs in (("steps", "epochs", None, 7), ("epochs", "steps", 7, None)):
        values = RunConfig.with_overrides(LEAST | {"training": {given: 3}}, [f"training.{override}=7"])
        found = RunConfig.parse(values, source="x").training
        assert (found.steps, found.epochs) == (steps, epochs)
    with pytest.raises(ValueError, match="not both"):
        RunConfig.parse(RunConfig.with_overrides(LEAST, ["training.epochs=7", "training.steps=7"]), source="x")


def on_backbone() -> Embedder:
    body = nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten()), nn.Linear(72, 4))
    return Embedder(body, input_shape=(1, 8, 8), normalize=True, on_backbone=True)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
def test_groups_have_their_own_rates_and_only_matrices_decay(name: str) -> None:
    run = config(training={"optimizer": name, "weight_decay": 0.1, "backbone_learning_rate": 1e-5})
    loss = run.loss.build(num_classes=2, embedding_dim=4, generator=torch.Generator())
    model = on_backbone()
    conv, norm, linear = model.body[0][0], model.body[0][1], model.body[1]
    norm.bias.requires_grad_(False)
    optimizer = make_optimizer(model, loss, run.training)
    found = [(group["initial_lr"], group["weight_decay"], group["params"]) for group in optimizer.param_groups]
    expected = [
        (1e-5, 0.1, [conv.weight]),
        (1e-5, 0.0, [conv.bias, norm.weight]),
        (1e-3, 0.1, [linear.weight]),
        (1e-3, 0.0, [linear.bias]),
        (5e-4, 0.0, [loss.beta]),
    ]
    for (rate, decay, parameters), (own, its, members) in zip(found, expected, strict=True):
        assert (rate, decay) == (own, its)
        assert list(map(id, parameters)) == list(map(id, members))


@pytest.mark.parametrize(
    ("settings", "stages"),
    [
        ({"name": "timm:resnet10t", "pooling": "gem"}, ["conv1", "layer1", "layer2", "layer3", "layer4"]),
        ({"name": "timm:test_vit"}, ["patch_embed", *(f"blocks.{i}." for i in range(6))]),
    ],
    ids=["convolutional", "transformer"],
)
def test_rates_fall_from_stage_to_stage_by_the_definition(settings: dict[str, str], stages: list[str]) -> None:
    """Stage i of n: the rate times decay^(n - i). Positions are of the first, a last norm or pooling of the last."""
    model = build(ModelConfig.parse(settings, source="test"), (3, 32, 32), 0)
    run = training(layer_decay=0.5, backbone_learning_rate=1e-4, weight_decay=0.1)
    rates = {id(values): group.get("lr") for group in parameter_groups(model, run) for values in group["params"]}
    names = [name for name, _ in model.named_parameters()]
    assert len(rates) == len(names)
    stages = [stage for stage in stages if any(stage in name for name in names)]
    for name, values in model.named_parameters():
        path = name.removeprefix("body.0.").removeprefix("0.")
        places = [i for i, stage in enumerate(stages, start=1) if path.startswith(stage)]
        if name.startswith("body.1."):
            assert rates[id(values)] is None
            continue
        before = path.startswith(("cls_token", "pos_embed", "reg_token", "bn1"))
        stage = places[0] if places else 1 if before else len(stages)
        assert rates[id(values)] == pytest.approx(1e-4 * 0.5 ** (len(stages) - stage)), name
    assert len({rates[id(values)] for values in model.parameters()}) == len(stages) + 1


def test_a_network_without_a_backbone_or_without_anything_to_learn() -> None:
    model = build(ModelConfig(name="linear"), (1, 8, 8), 0)
    (group,) = parameter_groups(model, training())
    assert len(group["params"]) == 2
    settings = config(training={"backbone_learning_rate": 1e-5})
    with pytest.raises(ValueError, match="backbone_learning_rate needs a network on a backbone"):
        Components(settings, load(settings.data, None))
    with pytest.raises(ValueError, match=r"training\.layer_decay needs a network on a backbone"):
        parameter_groups(model, training(layer_decay=0.9))
    with pytest.raises(ValueError, match="has none, or all are frozen"):
        parameter_groups(model.requires_grad_(False), training())


@pytest.mark.parametrize("precision", ["32", "fp16"])
def test_the_norm_of_the_gradient_of_all_groups_is_clipped(precision: Literal["32", "fp16"]) -> None:
    one, two = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    for clip, expected in ((None, (30.0, 40.0)), (5.0, (3.0, 4.0)), (100.0, (30.0, 40.0))):
        optimizer = torch.optim.SGD([{"params": [one]}, {"params": [two]}], lr=1.0)
        optimizer.zero_grad()
        with torch.no_grad():
            one.zero_(), two.zero_()
        Precision(precision, CPU).step(30 * one.sum() + 40 * two.sum(), optimizer, clip_norm=clip)
        assert (-one.item(), -two.item()) == pytest.approx(expected)


def test_a_step_in_fp16_whose_gradient_overflows_is_skipped_and_halves_the_scale() -> None:
    weight, precision = nn.Parameter(torch.ones(1)), Precision("fp16", CPU)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    for factor, moved, skipped in ((1e35, 0.0, 1), (0.5, 0.5, 1)):
        optimizer.zero_grad()
        weight.data.fill_(1.0)
        precision.step((factor * weight).sum(), optimizer, clip_norm=None)
        assert (1 - weight.item(), precision.skipped) == (moved, skipped)
    again = Precision("fp16", CPU)
    again.load(json.loads(json.dumps(precision.state())))
    assert again.state() == precision.state() == dict(precision.state()) | {"skipped": 1}
    assert again.state()["scaler"]["scale"] == 2**15


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_computes_the_network_in_half_and_the_loss_in_float32(precision: str) -> None:
    values = {}
    for name in ("32", precision):
        settings = config(training={"precision": name, "steps": 1})
        splits = load(settings.data, None)
        task, batches = first_task(settings, splits.train, splits.level, steps=1)
        seen: list[torch.dtype] = []
        task.model.body[0].register_forward_hook(lambda _, __, out, seen=seen: seen.append(out.dtype))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert fit(task, batches)
        assert set(seen) == {{"32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]}
        values[name] = task._value
    assert values[precision].dtype == torch.float32
    assert values[precision].item() != values["32"].item()
    assert values[precision].item() == pytest.approx(values["32"].item(), rel=0.02)


def test_a_precision_that_the_device_lacks_is_refused_before_data(monkeypatch: pytest.MonkeyPatch) -> None:
    check_before_data(config(training={"precision": "bf16"}))

    def lacks(*_: object, **__: object) -> None:
        raise RuntimeError('"slow_conv2d" not implemented for Half')

    monkeypatch.setattr(torch.nn.functional, "conv2d", lacks)
    with pytest.raises(ValueError, match=r'precision = "fp16" needs a device that computes in it: this CPU does not'):
        check_before_data(config(training={"precision": "fp16"}))


def test_the_average_is_that_of_weights_and_statistics() -> None:
    model, average = on_backbone(), on_backbone()
    before = {name: value.clone() for name, value in average.state_dict().items()}
    model.body[0][1].running_mean.fill_(3.0)
    model.body[0][1].num_batches_tracked.fill_(7)
    update_average(average, model, 0.9)
    for name, value in average.state_dict().items():
        new = model.state_dict()[name]
        expected = 0.9 * before[name] + 0.1 * new if new.is_floating_point() else new
        torch.testing.assert_close(value, expected, msg=name)
    assert [decay_at(step, 0.9) for step in (0, 8, 1000)] == [0.1, 0.5, 0.9]


@pytest.mark.usefixtures("unevaluated")
def test_the_average_is_what_is_looked_at_chosen_and_saved(tmp_path: Path) -> None:
    settings = config(data={"level": "digit", "folds": 2}, training={"ema": 0.9, "steps": 4}, choosing={"keep": "best"})
    splits, path = load_splits(settings, None), tmp_path / "run"
    parts = Components(settings, splits)
    with RunFolder(path).new(settings, force=False):
        job = Trainer(RunFolder(path), parts, lambda *_: None)
        job.fit()
    average, model = parts.state.learner.average, parts.state.learner.model
    assert average is not None
    assert parts.state.learner.measured is average
    assert any((one != two).any() for one, two in zip(average.parameters(), model.parameters(), strict=True))
    again = make_selection(settings.choosing, settings.evaluation, splits, seed=settings.seed)
    again.begin(job.untrained)
    by_average = again.measure(4, average)
    assert parts.state.selection.checks[-1] == again.checks[-1]
    assert job.run_log.metrics.rows[-1]["recall@1/digit"] == by_average["digit"] != again.measure(4, model)["digit"]

    train(settings.model_copy(update={"choosing": ChoosingConfig()}), tmp_path / "saved")
    last = load_file(tmp_path / "saved" / "checkpoints" / "step-00000004.safetensors")
    for name, value in load_file(tmp_path / "saved" / "model" / "model.safetensors").items():
        np.testing.assert_array_equal(value, last[f"average/{name}"])


FULL: dict[str, Any] = {
    "epochs": 1,
    "optimizer": "adamw",
    "weight_decay": 0.1,
    "schedule": "multi-step",
    "milestones": [3, 9],
    "warmup_steps": 2,
    "clip_norm": 0.5,
    "precision": "fp16",
    "ema": 0.9,
    "checkpoint_every": 5,
    "log_every": 1,
    "accelerator": "cpu",
}


@pytest.mark.usefixtures("unevaluated")
def test_a_killed_run_with_all_of_it_goes_on_to_the_same_result(tmp_path: Path) -> None:
    sections: dict[str, dict[str, Any]] = {
        # With what workers change, as images in memory need none.
        "data": {"level": "digit", "folds": 2, "noise": {"kind": "symmetric", "rate": 0.3}, "jitter": 0.1},
        "batch": {"micro": 5},  # with batch norm, whose statistics each piece moves
        "loss": {"prefixes": [2]},
        "training": {**FULL, "epochs": 2, "workers": 2, "steps": None},
        "choosing": {"keep": "best"},
        "evaluation": {"every": 5},
    }
    sections["cleaning"] = {"action": "drop", "after": 4, "every": 7}
    whole = tmp_path / "whole"
    said = train(config(**sections), whole).warnings
    assert said[-1].startswith("Steps that were skipped, as their gradients in fp16 were not finite: ")
    path = killed(whole, tmp_path / "killed")
    text = (path / "config.toml").read_text()
    assert ("epochs = 2" in text, "\nsteps = " in text) == (True, False)
    (path / "config.toml").write_text(text.replace("workers = 2", "workers = 0"))
    resume(path)
    check_same_run(whole, path)
    before, after = map(record_of, (whole, path))
    assert before["cleaning"]
    assert before["choosing"]["checks"]
    for section in ("history", "label_noise", "cleaning", "choosing", "monitor", "curves", "validation", "warnings"):
        assert after[section] == before[section], section
    weights = load_file(RunFolder(path).checkpoints()[-1])
    assert sum("beta" in name and name.startswith("loss/") for name in weights) == 2  # each prefix has its own


@pytest.mark.usefixtures("unevaluated")
def test_a_finished_run_is_made_longer_where_no_step_changes(tmp_path: Path, run_command: Call) -> None:
    settings = {"schedule": "step", "step_size": 3, "checkpoint_every": 4, "precision": "32"}
    values = {key: value for key, value in FULL.items() if key not in ("epochs", "milestones")} | settings
    evaluation = {"evaluation": LEAST["evaluation"] | {"every": 4}}
    long, short = tmp_path / "long", tmp_path / "short"
    for path, steps in ((long, 8), (short, 4)):
        train(RunConfig.parse(LEAST | {"training": values | {"steps": steps}} | evaluation, source="x"), path)
    for change in ("training.learning_rate=3", "seed=3"):
        with pytest.raises(ValueError, match=f"only: got {change[:-2]}; start a new run"):
            resume(short, changes=[change])
    assert resume(short, changes=["training.steps=8"]).status == "finished"
    check_same_run(long, short)
    with pytest.raises(ValueError, match="at least the number of completed steps, 8: got 6"):
        resume(short, changes=["training.steps=6"])
    code, _, err = run_command("train", "--resume", short, "--set", "training.epochs=0")
    assert code == 2
    assert "training.epochs must be at least 1: got 0" in err
    assert "\nsteps = 8" in (short / "config.toml").read_text()


def test_the_length_of_a_run_that_falls_to_the_end_stays(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run").new(config(training={"schedule": "cosine"}), force=False):
        pass
    with pytest.raises(ValueError, match="the length of a run with the schedule cosine must stay"):
        resume(tmp_path / "run", changes=["training.steps=20"])
