"""Checks of training in several processes: each trains the same network as one process with the whole batch."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from tests.every_loss import make
from tests.integrations.sentences import SOFTMAX, Encoder, texts
from tests.mining.crew import Crew, check_of_two, message, thorough
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trivet.datasets import Dataset
from trivet.datasets.inputs import in_memory
from trivet.integrations.sentence_transformers import SentenceLoss
from trivet.losses import LOSSES, MatryoshkaLoss, NPairLoss
from trivet.losses.engine import BlockView, EmbeddingLoss
from trivet.losses.matryoshka import of_batch
from trivet.mining.selected_set import SelectedItems
from trivet.models import ModelConfig, build
from trivet.samplers import PKBatches
from trivet.training import TrainingConfig
from trivet.training.distributed.process_group import ProcessGroup, process_slices
from trivet.training.loop import Batches, Learner, fit

SHAPE = (1, 6, 6)
ITEMS, CLASSES, EACH = 48, 3, 3  # of four classes; two processes share a batch of 9 as 4 and 5
STEPS = 6


class Store:
    """Of processes of which none fails."""

    def set(self, key: str, value: str) -> None:
        raise AssertionError(key)

    get = check = add = set


def world_of(crew: Crew) -> ProcessGroup:
    return ProcessGroup(crew.rank, crew.size, Store())


def dataset() -> Dataset:
    source = np.random.default_rng(0)
    pixels = source.integers(0, 256, (ITEMS, *SHAPE)).astype(np.uint8)
    labels = np.arange(ITEMS) % 4
    names = tuple("abcd")
    return Dataset("noise", in_memory(pixels), {"class": labels}, {"class": names}, tuple(map(str, range(ITEMS))))


def watched(loss: EmbeddingLoss) -> list[list[Any]]:
    """What the loss chooses from now on: positives and negatives of each call."""
    seen: list[list[Any]] = []
    formula = loss.evaluate

    def look(rows: BlockView) -> Any:
        positives, negatives = rows.selection.positives, rows.selection.negatives
        chosen = [positives.index.where(positives.chosen, -1).tolist()]
        if isinstance(negatives, SelectedItems):
            chosen.append(negatives.index.where(negatives.chosen, -1).tolist())
        else:
            chosen.append(torch.as_tensor(negatives.count).tolist())
        seen.append(chosen)
        return formula(rows)

    loss.evaluate = look
    return seen


def task_of(world: ProcessGroup | None, loss: str = "triplet", model: str = "mlp", **options: Any) -> Learner:
    network = build(ModelConfig.parse({"name": model, "width": 6, "embedding_dim": 3}, source="model"), SHAPE, seed=1)
    options = {"optimizer": "sgd", "learning_rate": 0.05, "accelerator": "cpu", "steps": STEPS, **options}
    micro = options.pop("micro", None)
    config = TrainingConfig(**options)
    generator = torch.Generator().manual_seed(3)
    made: EmbeddingLoss | MatryoshkaLoss
    if loss == "matryoshka":  # with parameters at each prefix, and random choices
        made = MatryoshkaLoss([make("margin", positives="random", generator=generator) for _ in "12"], (2, 3))
    else:
        made = make(loss, generator=generator)
    return Learner(network, made, config, seed=5, world=world, micro=micro)


def train(task: Learner, *, workers: int = 0) -> bool:
    data = dataset()
    plan = PKBatches(data.labels["class"], num_classes=CLASSES, samples_per_class=EACH, seed=2)
    batches = Batches(data, "class", plan, None, seed=5, start=0, steps=STEPS, world=task.world)
    return fit(task, batches, workers=workers)


def weights(task: Learner) -> Tensor:
    state = [*task.measured.state_dict().values(), *task.loss.state_dict().values()]
    return torch.cat([value.double().flatten() for value in state])


def same_network(crew: Crew, **options: Any) -> None:
    shared = task_of(world_of(crew), **options)
    choices = watched(of_batch(shared.loss))
    begun = weights(shared)
    train(shared)

    def trained_alone() -> tuple[list[list[Any]], Tensor]:
        alone = task_of(None, **options)
        expected = watched(of_batch(alone.loss))
        train(alone)
        return expected, weights(alone)

    expected, alone = crew.once(trained_alone)
    assert choices == expected
    assert len(choices) == STEPS
    moved = float((alone - begun).norm())
    assert moved > 1e-3, "nothing was learned"
    error = float((weights(shared) - alone).norm()) / moved
    assert error < 1e-4, (options, error)


@check_of_two
def each_loss_trains_the_same_network(crew: Crew) -> None:
    """Nightly; each time one without parameters, one with those of classes, one with proxies and one of prefixes.

    What each loss gathers, `gather_losses.py` compares each time.
    """
    for name in (*LOSSES, "matryoshka") if thorough() else ("triplet", "margin", "proxy-anchor", "matryoshka"):
        same_network(crew, loss=name)


@check_of_two
def batch_norm_is_over_the_whole_batch(crew: Crew) -> None:
    same_network(crew, model="conv3")


@check_of_two
def the_norm_of_the_whole_gradient_is_clipped_and_weights_are_averaged(crew: Crew) -> None:
    same_network(crew, clip_norm=0.05, ema=0.9, optimizer="adam", weight_decay=0.01, learning_rate=0.01)


@check_of_two
def a_part_is_embedded_in_pieces(crew: Crew) -> None:
    same_network(crew, micro=2)


@check_of_two
def what_the_network_does_not_use_stays(crew: Crew) -> None:
    alone, shared = (task_of(world) for world in (None, world_of(crew)))
    for index, task in enumerate((alone, shared)):
        task.model.register_parameter("spare", nn.Parameter(torch.ones(3)))
        first = next(task.model.parameters())
        first.requires_grad_(False)
        task.optimizer = torch.optim.AdamW(task.model.parameters(), lr=0.01, weight_decay=0.5)
        for group in task.optimizer.param_groups:
            group["initial_lr"] = 0.01
        before = first.clone()
        train(task)
        assert torch.equal(first, before), index
        assert torch.equal(task.model.spare, torch.ones(3)), index  # no decay either
    assert torch.allclose(weights(alone), weights(shared), atol=1e-5)


@check_of_two
def a_signal_to_one_stops_all_after_the_same_step(crew: Crew) -> None:
    world = world_of(crew)
    task = task_of(world)

    def after_step() -> None:
        if task.step == 3 and crew.rank == crew.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    task.after_step = after_step
    assert not train(task)
    assert task.step == 3


@check_of_two
def the_main_process_ends_the_training_of_all(crew: Crew) -> None:
    task = task_of(world_of(crew))

    def after_step() -> None:
        task.should_stop = task.step == 5 and crew.rank == 0

    task.after_step = after_step
    assert train(task)
    assert task.step == 5


@check_of_two
def all_get_what_the_main_process_says(crew: Crew) -> None:
    world = world_of(crew)
    said = {"step": 3, "none": None, "nan": [float("inf")]}
    assert world.broadcast(said if world.main else None) == said
    tensors = {"a/b": torch.arange(5), "c": torch.ones(2, 3, dtype=torch.float64)}
    got = world.share(tensors if world.main else None)
    assert set(got) == set(tensors)
    assert all(torch.equal(got[name], value) for name, value in tensors.items())
    assert world.share({} if world.main else None) == {}
    assert world.agree(world.rank == 1, False) == [True, False]
    world.same("equal", what="settings")
    text = message(lambda: world.same(f"of {world.rank}", what="settings"))
    assert text.startswith("every process must have the same settings: those of the")


@check_of_two
def gathered_texts_are_compared_as_by_one_process(crew: Crew) -> None:
    local = slice(crew.rank * 8 // crew.size, (crew.rank + 1) * 8 // crew.size)
    triplets = make("triplet", positives="all", negatives="all", normalize=True)
    for loss, columns, both in (
        (NPairLoss(**SOFTMAX), 2, False),
        (NPairLoss(**SOFTMAX), 3, True),
        (triplets, 1, False),
    ):
        labels = torch.arange(8) % 3 if columns == 1 else None
        alone, network = Encoder(), Encoder()
        expected = SentenceLoss(alone, loss, both_directions=both)(texts(columns, 8), labels)
        expected.backward()
        shared = SentenceLoss(DistributedDataParallel(network), loss, gather=True, both_directions=both)
        own = [{"input_ids": column["input_ids"][local]} for column in texts(columns, 8)]
        value = shared(own, None if labels is None else labels[local])
        value.backward()
        mean = value.detach().clone()
        dist.all_reduce(mean)
        torch.testing.assert_close(mean / crew.size, expected.detach())
        torch.testing.assert_close(network.rows.weight.grad, alone.rows.weight.grad, rtol=1e-4, atol=1e-6)


@check_of_two
def a_batch_smaller_than_the_processes_is_refused(crew: Crew) -> None:
    assert [part.stop - part.start for part in process_slices(12, 7)] == [1, 2, 2, 1, 2, 2, 2]
    text = message(lambda: process_slices(crew.size - 1, crew.size))
    assert text.startswith("a batch must have an item for each process")
