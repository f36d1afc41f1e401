"""The experiment of section 6.1 on handwritten digits, and what the paper varies: losses, gamma, entanglement."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from trivet.mining import NegativeName, PositiveName, mine
from trivet_papers.xuan2020.dynamics import EntanglementFactor, Movement, SimulatedLoss, movement

LOSSES: tuple[SimulatedLoss, ...] = get_args(SimulatedLoss)
FACTORS: tuple[EntanglementFactor, ...] = get_args(EntanglementFactor)
GAMMAS, STRENGTHS, LEARNING_RATE = (0.2, 0.5, 0.8), (0.4, 0.8), 0.1
Phase = Literal["initial", "late"]
PHASES: tuple[Phase, ...] = get_args(Phase)
MINED: dict[str, tuple[PositiveName, NegativeName]] = {"HPHN": ("hard", "hard"), "EPEN": ("easy", "easy")}
CLASSES_PER_BATCH, SAMPLES_PER_CLASS = 8, 16  # 128 images, as in the paper
MEASURED_STEPS = 28  # two epochs of 14 batches of the 1797 digits


def centred_digits() -> tuple[Tensor, Tensor]:
    """The handwritten digits of scikit-learn and their classes: `(1797, 64)` float64, `(1797,)` int64.

    One mean and one spread over all pixels are taken out, as those of the channels are of photographs.
    """
    from sklearn.datasets import load_digits  # here: no other check needs it

    pixels, labels = load_digits(return_X_y=True)
    return torch.from_numpy((pixels - pixels.mean()) / pixels.std()), torch.from_numpy(labels)


def digit_movement(loss: SimulatedLoss, *, seed: int = 0) -> dict[tuple[Phase, str], Movement]:
    """The experiment of section 6.1 on a stand-in: handwritten digits and a network with one hidden layer.

    The paper trains a ResNet on photographs of cars. Here the network is 64 - 128 - 32; "initial" is as drawn at
    random, "late" after 300 steps of easy positives and hard negatives with learning rate 0.1. From either, two epochs
    of 14 steps with learning rate 0.001 are measured, each on a batch of 16 images of 8 classes in which every image
    is in at most one triplet. Gradients go through the network and the normalisation.

    Args:
        loss: "first-order", "vanilla" (hinged, margin 0.2) or "second-order".
        seed: of the network and the batches.

    Returns:
        For each phase and each of "HPHN" and "EPEN" the triplets of all steps, before and after their own step.

    Source:
        Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020, section 6.1 and figure 3.
    """
    images, labels = centred_digits()
    start = random_weights((64, 128, 32), seed)
    trained = [weight.clone() for weight in start]
    train(trained, images, labels, loss=loss, mined=("easy", "hard"), steps=300, learning_rate=0.1, seed=seed)
    movements: dict[tuple[Phase, str], Movement] = {}
    for (phase, weights), (name, mined) in product(zip(PHASES, (start, trained), strict=True), MINED.items()):
        steps = train(
            [weight.clone() for weight in weights],
            images,
            labels,
            loss=loss,
            mined=mined,
            steps=MEASURED_STEPS,
            learning_rate=1e-3,
            seed=seed + 1,
            measured=True,
        )
        movements[phase, name] = joined(steps)
    return movements


def joined(steps: list[Movement]) -> Movement:
    """The triplets of all steps."""
    return Movement(
        before=np.concatenate([step.before for step in steps]),
        after=np.concatenate([step.after for step in steps]),
        direction=np.concatenate([step.direction for step in steps]),
    )


def random_weights(sizes: tuple[int, ...], seed: int) -> list[Tensor]:
    """Random matrices between layers of these sizes."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float64, generator=generator) / shape[0] ** 0.5 for shape in pairwise(sizes)]


def hidden_embedding(inputs: Tensor, weights: list[Tensor]) -> Tensor:
    """A network with one hidden layer."""
    return (inputs @ weights[0]).relu() @ weights[1]


def train(
    weights: list[Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    loss: SimulatedLoss,
    mined: tuple[PositiveName, NegativeName],
    steps: int,
    learning_rate: float,
    seed: int,
    measured: bool = False,
) -> list[Movement]:
    """Change the weights by steps on batches of random classes; when measured, on triplets that share no image."""
    positives, negatives = mined
    generator = torch.Generator().manual_seed(seed)
    members = [torch.where(labels == label)[0] for label in range(int(labels.max()) + 1)]
    moved = []
    for _ in range(steps):
        classes = torch.randperm(len(members), generator=generator)[:CLASSES_PER_BATCH].tolist()
        batch = torch.cat(
            [members[c][torch.randperm(len(members[c]), generator=generator)[:SAMPLES_PER_CLASS]] for c in classes]
        )
        leaves = [weight.requires_grad_() for weight in weights]
        before = hidden_embedding(images[batch], leaves)
        triplets = mine(
            before, labels[batch], positives=positives, negatives=negatives, distance="cosine", disjoint=measured
        )
        chosen = normalize(before, dim=1)[torch.stack(list(triplets), dim=1)]
        gradients = torch.autograd.grad(free_losses(chosen, loss).relu().mean(), leaves)  # only vanilla is hinged
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= learning_rate * gradient
            if measured:
                moved.append(movement(before, hidden_embedding(images[batch], weights), triplets))
    for weight in weights:
        weight.requires_grad_(False)
    return moved


def free_losses(triplets: Tensor, loss: SimulatedLoss) -> Tensor:
    """The loss of each triplet of vectors `(T, 3, d)`, without normalisation."""
    anchor, positive, negative = triplets.unbind(dim=1)
    s_ap, s_an = (anchor * positive).sum(dim=1), (anchor * negative).sum(dim=1)
    if loss == "vanilla":
        return (anchor - positive).square().sum(dim=1) - (anchor - negative).square().sum(dim=1) + 0.2
    return softplus(s_an - s_ap if loss == "first-order" else s_an**2 / 2 - s_ap + s_ap**2 / 2)
