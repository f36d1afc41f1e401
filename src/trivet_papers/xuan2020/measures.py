"""What is measured for the experiments of Xuan et al.: the scatter of a whole set, and where steps move triplets."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from trivet.collapse.dynamics import Movement, movement
from trivet.datasets import Splits
from trivet.metrics import nearest_pairs
from trivet.mining import NegativeName, PositiveName, Triplets, mine
from trivet.models import Embedder
from trivet.samplers import PKBatches
from trivet.training.config import RunConfig
from trivet.training.embed_dataset import embed
from trivet.training.loss_config import LossConfig, loss_settings
from trivet.training.precision import device_of
from trivet_papers.measured import TRAIN, Subject, calibrated

MINED: dict[str, tuple[PositiveName, NegativeName]] = {"HPHN": ("hard", "hard"), "EPEN": ("easy", "easy")}
CLASSES, IMAGES = 8, 16  # of a batch of 128 whose triplets are followed
SLOWER = 500  # the paper's rate of training over that of the steps that are followed, 0.005 / 0.00001
POINTS = 400  # pairs of the whole set that are kept for a picture
FOLLOWED = 150  # triplets whose place and direction are kept for a picture


def whole_set(subject: Subject, *, points: bool) -> dict[str, Any]:
    """Of training items, the mean similarity to the nearest of the same and of another class of the whole set.

    Batch norm of a network that was begun at random has the statistics of training items, which its running ones
    follow only after some fifty steps. That of a pretrained backbone is left as it is.

    Args:
        points: also keep some of the pairs, for a picture.
    """
    items = subject.items(TRAIN)
    begun_at_random = subject.model.backbone is None
    model = calibrated(subject.model, subject.splits) if begun_at_random else subject.model
    labels = items.labels[subject.splits.level]
    usable = np.flatnonzero(np.bincount(labels)[labels] > 1)
    pairs = nearest_pairs(embed(model, items.inputs), labels, sample=usable)
    found: dict[str, Any] = {
        f"{TRAIN}/s_ap": float(pairs.s_ap.mean()),
        f"{TRAIN}/s_an": float(pairs.s_an.mean()),
        f"{TRAIN}/hard share": float((pairs.s_an > pairs.s_ap).mean()),
    }
    if points:
        shown = np.sort(np.random.default_rng(0).permutation(len(usable))[:POINTS])
        found[f"{TRAIN}/points"] = np.stack([pairs.s_ap[shown], pairs.s_an[shown]]).round(4).tolist()
    return found


def step_movement(subject: Subject, *, steps: int) -> dict[str, Any]:
    """Which way disjoint triplets of a batch move in the step that is made with them, over so many steps.

    The steps are those of plain gradient descent with the loss of the settings, at a five hundredth of their rate, on a
    copy of the network in float64, in training mode. Triplets of hard positives and hard negatives, "HPHN", and of easy
    ones, "EPEN", are followed on a copy each. Beside them, "HPHN of another batch" are triplets of the next batch,
    which the step does not see.
    """
    found: dict[str, Any] = {}
    for name, (positives, negatives) in MINED.items():
        own, other = _followed(subject, positives, negatives, steps, beside=name == "HPHN")
        found |= _shares(name, own)
        if other is not None:
            found |= _shares(f"{name} of another batch", other)
        found[f"{name}/s_ap"], found[f"{name}/s_an"] = own.before.mean(axis=0).tolist()
        shown = np.sort(np.random.default_rng(0).permutation(len(own.direction))[:FOLLOWED])
        places = own.before[shown].T.round(4).tolist()
        found[f"{name}/points"] = [*places, own.direction[shown].tolist()]
    return found


def _shares(name: str, moved: Movement) -> dict[str, float]:
    return {f"{name}/{way}": share for way, share in moved.shares.items()}


def _followed(
    subject: Subject, positives: PositiveName, negatives: NegativeName, steps: int, *, beside: bool
) -> tuple[Movement, Movement | None]:
    """Triplets of all steps before and after their own step, and with `beside` before and after the step before."""
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
    own: list[Movement] = []
    other: list[Movement] = []
    for step in range(steps):
        inputs, own_labels = _batch(splits, batches, step, device)
        before = model(inputs)
        triplets = _triplets(before, own_labels, positives, negatives)
        unseen = _batch(splits, batches, step + 1, device) if beside else None
        if unseen is not None:
            unseen_before = _embedded(model, unseen[0])
        optimizer.zero_grad()
        criterion(before, own_labels).backward()
        optimizer.step()
        own.append(movement(before.detach(), _embedded(model, inputs), triplets))
        if unseen is not None:
            mined = _triplets(unseen_before, unseen[1], positives, negatives)
            other.append(movement(unseen_before, _embedded(model, unseen[0]), mined))
    return _joined(own), _joined(other) if other else None


def _loss(config: RunConfig, positives: str, negatives: str) -> LossConfig:
    """The loss of the settings over disjoint triplets of a strategy."""
    values = config.loss.model_dump() | {"positives": positives, "negatives": negatives, "disjoint": True}
    return loss_settings(config.loss.name).model_validate(values)


def _triplets(
    embeddings: torch.Tensor, labels: torch.Tensor, positives: PositiveName, negatives: NegativeName
) -> Triplets:
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
        found: torch.Tensor = model(inputs)
    return found


def _joined(moved: list[Movement]) -> Movement:
    return Movement(
        before=np.concatenate([one.before for one in moved]),
        after=np.concatenate([one.after for one in moved]),
        direction=np.concatenate([one.direction for one in moved]),
    )
