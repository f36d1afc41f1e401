"""Work of training in the published size: operations as torch counts them, and hours of a GPU at a stated rate."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from trivet.datasets import DataConfig
from trivet.models import ModelConfig, build
from trivet.runtime.record import Number, Record
from trivet.runtime.text import counted
from trivet.samplers.config import BatchConfig
from trivet_papers.experiment import Settings
from trivet_papers.runs import ArmRun

EPOCH_ITEMS = {"cars196": 8_054, "cub": 5_864, "omniglot": 19_280}  # as published, of the classes trained on
# Operations a second. NVIDIA trains ResNet-50 with 938 images of 224 pixels a second on one A100, in TF32
# (DeepLearningExamples, ResNet50 v1.5 for PyTorch, container 21.03); one image is 24.3e9 operations.
RATE = 938 * 24.3e9
ESTIMATE = (
    "Hours are an estimate, of training alone: at the 2.3e13 operations a second with which NVIDIA trains ResNet-50 on "
    "an A100 in TF32. Small batches, measuring, and images that do not come in time take more."
)


class TrainingWork(Record):
    """Training of several runs, without the measuring.

    Attributes:
        operations: of the network, forward and back; a multiplication and its addition are two.
        hours: of one GPU at `RATE`.
    """

    runs: int
    images: int
    operations: int
    hours: Number

    def as_text(self) -> str:
        return (
            f"{counted(self.runs, 'run')}, {self.images / 1e6:,.1f} million images, {self.operations / 1e15:,.1f}e15 "
            f"operations, about {self.hours:,.1f} GPU hours"
        )


def work_of(runs: Iterable[ArmRun]) -> TrainingWork:
    """Work of these runs; one that stands there twice is one."""
    different = {run.key: run for run in runs}
    images, operations = 0, 0
    for run in different.values():
        if run.steps[-1] > 0:
            count = _images(run.settings)
            images += count
            operations += count * _image_operations(
                *(json.dumps(run.settings[section]) for section in ("model", "data"))
            )
    return TrainingWork(runs=len(different), images=images, operations=operations, hours=operations / RATE / 3600)


def _images(settings: Settings) -> int:
    """The images that a run is trained with, each as often as it comes."""
    epochs: int | None = settings["training"].get("epochs")
    if epochs is not None:
        return epochs * EPOCH_ITEMS[settings["data"]["name"]]
    steps: int = settings["training"]["steps"]
    return steps * BatchConfig.model_validate(settings["batch"]).batch_size


@cache
def _image_operations(model: str, data: str) -> int:
    """The same for sections of settings, as JSON."""
    network = ModelConfig.parse(json.loads(model), source="model")
    shape = DataConfig.parse(json.loads(data), source="data").input_shape
    assert shape is not None, "published data are of images of one size"
    return image_operations(network.stored(), shape)


def image_operations(model: ModelConfig, input_shape: tuple[int, ...]) -> int:
    """Floating-point operations of a training step for each image of its batch.

    Example:
        >>> config = ModelConfig.parse({"name": "mlp", "embedding_dim": 4, "width": 16}, source="an example")
        >>> image_operations(config, (1, 8, 8))  # all layers forward and back, but for the gradient of the pixels
        6016
    """
    network, image = build(model, input_shape, seed=0).eval().to("meta"), torch.zeros(1, *input_shape, device="meta")
    with FlopCounterMode(display=False) as counter:
        network(image).sum().backward()
    return int(counter.get_total_flops())
