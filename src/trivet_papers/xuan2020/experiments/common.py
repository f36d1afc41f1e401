"""Shared by the experiments of Xuan et al.: data sets, the ways to choose and weigh triplets, and their arms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trivet_papers.experiment import Arm, Cell, SeedValue, Settings, merged
from trivet_papers.stand_ins import CLINC, CUB, OMNIGLOT

FIRST, SECOND, BEFORE = "first order", "second order", "none"
EPHN, EPSHN = "EPHN", "EPSHN"
ORDERS: dict[str, Settings] = {FIRST: {"name": "nca"}, SECOND: {"name": "second-order"}}
MINED: dict[str, Settings] = {
    EPHN: {"positives": "easy", "negatives": "hard"},
    EPSHN: {"positives": "easy", "negatives": "semihard-hardest"},
}
S_AP, S_AN = "train/s_ap", "train/s_an"  # of the nearest of the whole training set
SIMILARITIES = {"S_ap": S_AP, "S_an": S_AN}
FALLEN = 0.9  # nearest positive and nearest negative both beyond it, on average: a set fallen to (1, 1)


@dataclass(frozen=True, eq=False)
class RetrievalSet:
    """A data set as the arms of a recipe name it, and its settings but for the loss and the make-up of a batch.

    Attributes:
        base: those settings.
        recall: the name of its recall without the K.
        batch: items of a batch.
        groups: the numbers of items of a class in a batch that are tried.
        best: the one of table 1.
        scatter: the measure of the scatter of the training set; "-points" after it keeps some for a picture.
    """

    name: str
    base: Settings
    recall: str
    batch: int
    groups: tuple[int, ...]
    best: int
    scatter: str = "whole-set"

    def settings(self, mined: str, order: str, group: int) -> Settings:
        """The settings of a run."""
        batch = {"num_classes": self.batch // group, "samples_per_class": group}
        return {**self.base, "batch": batch, "loss": self.base.get("loss", {}) | ORDERS[order] | MINED[mined]}


def _here(stand_in: Settings, steps: int, rate: float) -> Settings:
    return merged(stand_in, {"training": {"optimizer": "sgd", "steps": steps, "learning_rate": rate}})


OMNIGLOT_HERE = RetrievalSet(
    "Omniglot", _here(OMNIGLOT, 400, 0.5), "unseen/character/recall@{}", 128, groups=(2, 4, 8, 16), best=4
)
CUB_HERE = RetrievalSet("CUB", _here(CUB, 150, 0.1), "unseen/class/recall@{}", 48, groups=(2, 4, 8), best=4)
CLINC_HERE = RetrievalSet(
    "CLINC150", _here(CLINC, 300, 1.0), "unseen/intent/recall@{}", 128, groups=(2, 4, 8, 16), best=16
)
HERE = (OMNIGLOT_HERE, CUB_HERE, CLINC_HERE)

EPOCHS, FALLS = 40, (20, 30)
CARS_EPOCH = 73  # batches, of section 6.1


def _paper(name: str, level: str, ks: Sequence[int], *, rate: float, epoch: int) -> Settings:
    """The published protocol on a data set.

    Args:
        epoch: batches of an epoch.
    """
    return {
        "data": {"name": name, "level": level, "image_size": 256, "augment": "pad-crop"},
        "model": {
            "name": "timm:resnet50.tv_in1k",
            "pretrained": True,
            "embedding_dim": 512,
            "batch_norm": "train",
        },
        "loss": {"reduction": "sum"},
        "training": {
            "optimizer": "sgd",
            "learning_rate": rate,
            "steps": EPOCHS * epoch,
            "schedule": "multi-step",
            "milestones": [fall * epoch for fall in FALLS],
        },
        "evaluation": {"every": 10_000_000, "sample": 100, "k": list(ks), "distance": "cosine"},
    }


CUB_PAPER = RetrievalSet(
    "CUB",
    _paper("cub", "class", (1, 2, 4), rate=0.0025, epoch=46),
    "unseen/class/recall@{}",
    128,
    (2, 4, 8, 16),
    8,
    "whole-set-published",
)
CARS_PAPER = RetrievalSet(
    "Cars",
    _paper("cars196", "class", (1, 2, 4), rate=0.005, epoch=CARS_EPOCH),
    "unseen/class/recall@{}",
    128,
    (2, 4, 8, 16),
    16,
    "whole-set-published",
)
SOP_PAPER = RetrievalSet(
    "SOP",
    _paper("sop", "class", (1, 10, 100), rate=0.005, epoch=466),
    "unseen/class/recall@{}",
    128,
    (2, 4, 8),
    2,
    "whole-set-published",
)
IN_SHOP_PAPER = RetrievalSet(
    "In-shop",
    _paper("in-shop", "item", (1, 10, 20), rate=0.005, epoch=203),
    "unseen/item/recall@{}",
    128,
    (2, 4, 8),
    2,
    "whole-set-published",
)
PAPER = (CUB_PAPER, CARS_PAPER, SOP_PAPER, IN_SHOP_PAPER)


def _smaller(dataset: RetrievalSet) -> RetrievalSet:
    """The same with the other network that the paper ran."""
    model = {**dataset.base["model"], "name": "timm:resnet18.tv_in1k"}
    return replace(dataset, name=f"{dataset.name} (ResNet-18)", base={**dataset.base, "model": model})


CUB_SMALLER, CARS_SMALLER, SOP_SMALLER, IN_SHOP_SMALLER = map(_smaller, PAPER)
SMALLER = (CUB_SMALLER, CARS_SMALLER, SOP_SMALLER, IN_SHOP_SMALLER)
PAPER_SEEDS = 3


def factors(dataset: RetrievalSet, mined: str, order: str, group: int) -> Cell:
    """Those of an arm of table 1 and figure 4."""
    return {"set": dataset.name, "mined": mined, "order": order, "n": group}


def trained(dataset: RetrievalSet, groups: Sequence[int], mined: Sequence[str] = (EPHN, EPSHN)) -> tuple[Arm, ...]:
    """Arms of both orders on a data set."""
    return tuple(
        Arm(factors(dataset, rule, order, group), dataset.settings(rule, order, group), ("recall", dataset.scatter))
        for rule in mined
        for group in groups
        for order in ORDERS
    )


def untrained(dataset: RetrievalSet) -> Arm:
    """The network before its first step."""
    return Arm(before(dataset), dataset.settings(EPHN, FIRST, 2), ("recall", dataset.scatter), at=(0,))


def before(dataset: RetrievalSet) -> Cell:
    """The factors of the network before its first step."""
    return {"set": dataset.name, "order": BEFORE}


def gap(dataset: RetrievalSet, group: int, k: int = 1) -> Callable[[SeedValue], float]:
    """Recall of EPHN with the second-order loss less that with the first-order loss, of one seed."""
    measure = dataset.recall.format(k)

    def value(of: SeedValue) -> float:
        second, first = (of(measure, **factors(dataset, EPHN, order, group)) for order in (SECOND, FIRST))
        return second - first

    return value


def hard_gap(of: SeedValue, dataset: RetrievalSet, order: str, group: int) -> float:
    """Recall@1 of EPHN less that of EPSHN, of one seed."""
    hard, semi = (of(dataset.recall.format(1), **factors(dataset, rule, order, group)) for rule in MINED)
    return hard - semi


def gained(dataset: RetrievalSet, *groups: int) -> Callable[[SeedValue], dict[str, float]]:
    """The gain of recall@1 by training with EPHN, of the better order and n, of one seed."""
    measure = dataset.recall.format(1)

    def value(of: SeedValue) -> dict[str, float]:
        trained = [of(measure, **factors(dataset, EPHN, order, group)) for order in ORDERS for group in groups]
        return {"best": max(trained) - of(measure, **before(dataset))}

    return value


def mean(values: Sequence[float]) -> float:
    """NaN if one is."""
    return sum(values) / len(values)
