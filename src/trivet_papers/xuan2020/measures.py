"""Measures of the experiments of Xuan et al.: the scatter of a full set, and where steps move triplets."""

from __future__ import annotations

import copy

import numpy as np
import torch

from trivet.datasets import Splits
from trivet.metrics import nearest_pairs
from trivet.mining import MinedTriplets, NegativeName, PositiveName, mine
from trivet.models import Embedder
from trivet.samplers import PKBatches
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.loss_config import LossConfig, loss_settings
from trivet.training.precision import device_of
from trivet_papers.measured import TRAIN, Measured, MeasuredModel, calibrated
from trivet_papers.xuan2020.digits import MINED, joined
from trivet_papers.xuan2020.dynamics import Movement, movement

CLASSES, IMAGES = 8, 16  # of a batch of 128 whose triplets are followed
SLOWER = 500  # the paper's rate of training over that of the steps that are followed, 0.005 / 0.00001
POINTS = 400  # pairs of the whole set that are kept for a picture
FOLLOWED = 150  # triplets whose place and direction are kept for a picture


def full_set(subject: MeasuredModel, *, points: bool, every: bool) -> Measured:
    """Mean similarity of training items to the nearest of the same and of another class of the full set.

    Batch norm of a network that was begun at random has the statistics of training items, which its running ones
    follow only after some fifty steps. That of a pretrained backbone is left as it is.

    Args:
        points: also keep some of the pairs, for a picture.
        every: all training items, however many.
    """
    items = subject.splits.train if every else subject.items(TRAIN)
    begun_at_random = subject.model.backbone is None
    model = calibrated(subject.model, subject.splits) if begun_at_random else subject.model
    labels = items.labels[subject.splits.level]
    usable = np.flatnonzero(np.bincount(labels)[labels] > 1)
    pairs = nearest_pairs(embed(model, items.inputs), labels, sample=usable)
    values: Measured = {
        f"{TRAIN}/s_ap": float(pairs.s_ap.mean()),
        f"{TRAIN}/s_an": float(pairs.s_an.mean()),
        f"{TRAIN}/hard share": float((pairs.s_an > pairs.s_ap).mean()),
    }
    if points:
        sample = np.sort(np.random.default_rng(0).permutation(len(usable))[:POINTS])
        values[f"{TRAIN}/points"] = np.stack([pairs.s_ap[sample], pairs.s_an[sample]]).round(4).tolist()
    return values


def step_movement(subject: MeasuredModel, *, steps: int) -> Measured:
    """Directions in which disjoint triplets of a batch move in the step made with them, over so many steps.

    The steps are those of plain gradient descent with the loss of the settings, at a five hundredth of their rate, on a
    copy of the network in float64, in training mode. Triplets of hard positives and hard negatives, "HPHN", and of easy
    ones, "EPEN", are followed on a copy each. Beside them, "HPHN of another batch" are triplets of the next batch,
    which the step does not see.
    """
    values: Measured = {}
    for name, (positives, negatives) in MINED.items():
        batch_movement, other = _followed(subject, positives, negatives, steps, fresh_batch=name == "HPHN")
        values |= _shares(name, batch_movement)
        if other is not None:
            values |= _shares(f"{name} of another batch", other)
        values[f"{name}/s_ap"], values[f"{name}/s_an"] = batch_movement.before.mean(axis=0).tolist()
        sample = np.sort(np.random.default_rng(0).permutation(len(batch_movement.direction))[:FOLLOWED])
        coordinates = batch_movement.before[sample].T.round(4).tolist()
        values[f"{name}/points"] = [*coordinates, batch_movement.direction[sample].tolist()]
    return values


def _shares(name: str, moved: Movement) -> dict[str, float]:
    return {f"{name}/{way}": share for way, share in moved.shares.items()}


def _followed(
    subject: MeasuredModel, positives: PositiveName, negatives: NegativeName, steps: int, *, fresh_batch: bool
) -> tuple[Movement, Movement | None]:
    """Triplets of all steps before and after their step, and with `fresh_batch` before and after the step before."""
    splits, config = subject.splits, subject.config
    device = device_of(config.training.accelerator)
    model = copy.deepcopy(subject.model).to(device).double().train()
    criterion = _loss(config, positives, negatives).build(
        num_classes=2, embedding_dim=config.model.embedding_dim, generator=torch.Generator()
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=config.training.learning_rate / SLOWER)
    labels = splits.train.labels[splits.level]
    classes = min(CLASSES, len(np.unique(labels)))
    batches = PKBatches(labels, num_classes=classes, samples_per_class=IMAGES, seed=config.seed + 1)
    batch_movement: list[Movement] = []
    other: list[Movement] = []
    for step in range(steps):
        inputs, batch_labels = _batch(splits, batches, step, device)
        before = model(inputs)
        triplets = _triplets(before, batch_labels, positives, negatives)
        unseen = _batch(splits, batches, step + 1, device) if fresh_batch else None
        if unseen is not None:
            unseen_before = _embedded(model, unseen[0])
        optimizer.zero_grad()
        criterion(before, batch_labels).backward()
        optimizer.step()
        batch_movement.append(movement(before.detach(), _embedded(model, inputs), triplets))
        if unseen is not None:
            mined = _triplets(unseen_before, unseen[1], positives, negatives)
            other.append(movement(unseen_before, _embedded(model, unseen[0]), mined))
    return joined(batch_movement), joined(other) if other else None


def _loss(config: RunConfig, positives: str, negatives: str) -> LossConfig:
    """The loss of the settings over disjoint triplets of a strategy."""
    values = config.loss.model_dump() | {"positives": positives, "negatives": negatives, "disjoint": True}
    return loss_settings(config.loss.name).model_validate(values)


def _triplets(
    embeddings: torch.Tensor, labels: torch.Tensor, positives: PositiveName, negatives: NegativeName
) -> MinedTriplets:
    return mine(
        embeddings, labels, positives=positives, negatives=negatives, distance="cosine", normalize=True, disjoint=True
    )


def _batch(splits: Splits, batches: PKBatches, step: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    index = batches.batch(*divmod(step, batches.steps_per_epoch))
    return splits.train.inputs.batch(index).to(device), torch.from_numpy(splits.train.labels[splits.level][index]).to(
        device
    )


def _embedded(model: Embedder, inputs: torch.Tensor) -> torch.Tensor:
    """In training mode, without a graph."""
    with torch.no_grad():
        embeddings: torch.Tensor = model(inputs)
    return embeddings
