"""Classes that are never trained on, retrieved on the benchmarks of the field: tables 2, 5 and 6."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

from trivet_papers.experiment import (
    BEST,
    Arm,
    Cell,
    Claim,
    Experiment,
    Recipe,
    ResultColumn,
    ResultTable,
    SeedValue,
    Settings,
    Size,
    arms,
    merged,
    where_training_gains,
)
from trivet_papers.levi2021.experiments import common, omniglot
from trivet_papers.levi2021.experiments.common import BEFORE, EASY, LOSSES, ROWS, USUAL
from trivet_papers.stand_ins import CLINC, CUB, OMNIGLOT

Row = tuple[str, Cell]
CARS_BIRDS = {"Cars": {"data": {"name": "cars196"}}, "CUB": {"data": {"name": "cub"}}}
LEVEL = "unseen/class/{}"
DOMAIN, INTENT = "seen/domain/{}", "seen/intent/{}"  # domains are trained on; the intents, of these, are none
MEASURE = {"Cars": LEVEL, "CUB": LEVEL, "birds": LEVEL, "sentences": DOMAIN, "intents": INTENT}

BIRDS: Settings = merged(
    CUB,
    {
        "batch": {"num_classes": 8, "samples_per_class": 8},
        "training": {"steps": 150, "learning_rate": 3e-5},
        "evaluation": {"nmi_plus": 10},
    },
)
SENTENCES: Settings = merged(
    CLINC,
    {
        "data": {"level": "domain"},
        "batch": {"num_classes": 4, "samples_per_class": 32},
        "training": {"steps": 200, "learning_rate": 1e-3},
        "evaluation": {"nmi_plus": 10},
    },
)
PAPER: Settings = {
    "data": {"name": "cub", "image_size": 224, "resize": 256, "augment": "random-resized-crop"},
    "batch": {"num_classes": 20, "samples_per_class": 8},
    "model": common.RESNET50,
    "training": common.ADAM,
    "evaluation": {**common.AT_THE_END, "nmi_plus": 10},
}
MEASURED = ("recall", "clusters", "clusters-plus")
NO_CARS = "no photographs of Cars196 were at hand"


def _on(data: str, made: tuple[Arm, ...]) -> tuple[Arm, ...]:
    """Arms with their data as one more factor."""
    return tuple(replace(arm, factors={"data": data, **arm.factors}) for arm in made)


def _published(name: str) -> Settings:
    return merged(PAPER, {"data": {**PAPER["data"], "name": name}})


HERE_SETS = {"birds": BIRDS, "sentences": SENTENCES}
HERE_ARMS = tuple(
    arm for name, base in HERE_SETS.items() for arm in _on(name, common.seven(base, threshold=0.5, measures=MEASURED))
)
HERE_BEFORE = tuple(arm for name, base in HERE_SETS.items() for arm in _on(name, common.untrained(base, *MEASURED)))
PUBLISHED = {"Cars": _published("cars196"), "CUB": _published("cub")}
PAPER_MEASURED = {"at": common.PAPER_EPOCHS, "last": ("clusters", "clusters-plus", "sub-clusters")}
PAPER_ARMS = tuple(
    arm
    for name, base in PUBLISHED.items()
    for arm in _on(name, common.seven(base, threshold=1.0, proxy_learning_rate=5e-4, **PAPER_MEASURED))
)
PAPER_SEMIHARD = tuple(
    arm for name, base in PUBLISHED.items() for arm in _on(name, common.semihard(base, **PAPER_MEASURED))
)
PAPER_BEFORE = tuple(
    arm
    for name, base in PUBLISHED.items()
    for arm in _on(
        name,
        arms(
            merged(base, {"loss": common.TRIPLET}),
            measures=(*MEASURED, "zero-shot"),
            at=(0,),
            loss={BEFORE: {}},
            positives={USUAL: {}},
        ),
    )
)

TABLE2_HEADS = ("R@1", "R@2", "R@4", "NMI", "NMI+")
TABLE2_PRINTED = {
    "Cars": common.printed(
        TABLE2_HEADS,
        [
            "76.1 84.4 90.0 65.1 68.5",
            "77.1 85.2 91.2 65.6 68.9",
            "79.6 86.5 91.9 69.1 70.4",
            "81.2 89.1 93.5 60.5 71.1",
            "78.3 85.9 91.4 59.8 69.8",
            "83.6 89.5 93.6 67.3 72.4",
            "82.9 89.4 93.2 60.0 72.0",
        ],
    ),
    "CUB": common.printed(
        TABLE2_HEADS,
        [
            "61.5 73.4 82.5 66.2 68.1",
            "63.1 74.8 83.8 67.2 68.7",
            "63.6 74.4 83.1 69.0 68.7",
            "62.3 73.3 82.1 59.8 68.0",
            "61.8 73.6 82.4 62.4 68.0",
            "64.7 75.2 84.3 68.2 69.4",
            "63.3 74.2 82.5 61.2 68.2",
        ],
    ),
}


def _columns(data: str) -> tuple[ResultColumn, ...]:
    names = ("recall@1", "recall@2", "recall@4", "nmi", "nmi+")
    return tuple(ResultColumn(head, MEASURE[data].format(name)) for head, name in zip(TABLE2_HEADS, names, strict=True))


def _rows(data: str, *more: Row) -> tuple[Row, ...]:
    return tuple((head, {"data": data, **factors}) for head, factors in (*ROWS, *more))


def _table2(data: str, what: str, *more: Row, level: str = "") -> ResultTable:
    columns = (*_columns(level or data), *_best(data))
    numbers = TABLE2_PRINTED.get(data, {})
    if numbers:  # the baseline of the paper stands for both readings of it
        numbers = {**numbers, common.SEMIHARD_ROW[0]: numbers["triplet, semi-hard"]}
    return ResultTable(what, _rows(data, *more), columns, numbers)


def _best(data: str) -> tuple[ResultColumn, ...]:
    """A column of the published size, whose runs are measured at several epochs."""
    return (ResultColumn("best R@1", LEVEL.format("recall@1"), BEST),) * (data in CARS_BIRDS)


def _claims(size: Size, data: str, items: str) -> tuple[Claim, ...]:
    """Those of one data set."""
    recall, nmi = MEASURE[data].format("recall@1"), MEASURE[data].format("nmi")
    plain = Claim(
        f"{data}: plain NMI, with a cluster for each class, falls with easy positives, as it prefers collapsed "
        "classes.",
        lambda of: -sum(common.gain(nmi, loss, data=data)(of) for loss in LOSSES) / len(LOSSES),
        f"usual less easy positives, NMI, mean of {common.with_lambda('the three losses', size)}",
    )
    return (
        *common.gains(size, recall, f"{data}: with easy positives the {{}} retrieves {items} better.", data=data),
        common.all_gain(
            f"{data}: easy positives improve NMI+, with ten clusters for each class, with {common.each_loss(size)}.",
            MEASURE[data].format("nmi+"),
            "easy less usual positives, NMI+",
            recall=recall,
            data=data,
        ),
        where_training_gains(plain, common.gained(recall, *LOSSES, data=data)),
        common.best_with_easy(
            f"{data}: {common.with_lambda('of the seven losses', size)} one with easy positives retrieves {items} "
            "best.",
            recall,
            data=data,
        ),
    )


def _over_semihard(data: str, items: str) -> Claim:
    """The claim of section 5.2.3 on semi-hard sampling of positives too."""
    recall = MEASURE[data].format("recall@1")
    claim = Claim(
        f"{data}: with easy positives in the place of semi-hard ones the triplet loss retrieves {items} better.",
        lambda of: (
            of(recall, data=data, loss="triplet", positives=EASY)
            - of(recall, data=data, loss="triplet", positives=common.SEMIHARD)
        ),
        "easy less semi-hard positives, recall@1",
    )
    return where_training_gains(claim, common.gained(recall, "triplet", data=data))


# Claims of table 3 on characters, of the finer classes of sentences, which are no label here: an addition
INTENTS = common.gains(
    "here",
    INTENT.format("recall@1"),
    "sentences: with easy positives the {} retrieves intents that were never a label better.",
    ours=True,
    data="sentences",
)


def _absent(sentence: str, says: str) -> Claim:
    return Claim(sentence, lambda of: math.nan, says, not_comparable=NO_CARS)


TABLE2_RAN = (
    "A ResNet-50 with 128 dimensions was trained on half of the classes of Cars196 and CUB-200-2011 with seven losses, "
    "eight seeds each, and measured on the other half. With easy positives the triplet, margin and multi-similarity "
    "losses had a recall@1 of 78.3, 83.6 and 82.9 % on Cars, 76.1, 79.6 and 81.2 % without; on CUB 61.8, 64.7 and "
    "63.3 %, 61.5, 63.6 and 62.3 % without. The caption says that easy positives improve all cases; NMI+ of "
    "the triplet loss on CUB is 68.1 without and 68.0 with them."
)
PAPER_CHOSEN = (
    "The paper gives the largest batch, 160, and not its make-up: 20 classes with 8 images, so that there is a choice "
    "among positives. Training images are random parts of the photograph, mirrored, of 224 pixels; those measured are "
    f"resized to 256 and cut: the habit of the framework. {common.FRAMEWORK}"
)

FAIR = (
    "Birds: the paper's task with a quarter of its classes; all but the last stage of the network keeps its weights "
    "from ImageNet. Sentences: what views are within a model of cars, intents are within a domain, with names; the "
    "paper's classes are unseen, these domains are trained on, by other intents than are measured. Looked "
    "at before, with another seed and usual positives alone, on a quarter of the training classes or domains held out: "
    "of birds two rates at 50 and 150 steps, of which the best mean recall@1 of the three losses was taken (79.8 %, "
    "the others 79.2 to 79.5); of sentences two rates at 200 steps, of which the smaller changed next to nothing."
)

TABLE2 = Experiment(
    key="levi2021-table2",
    title="Seven losses on classes of many modes, by the label of training",
    ran=TABLE2_RAN,
    here=Recipe(
        data="CUB for photographs: the first 50 kinds of birds, trained on 25 and measured on the others. CLINC150 for "
        "classes of many modes: sentences of 10 domains, the label of training and of the measures; those measured are "
        "of intents none of which is trained on.",
        setting="Birds: the last stage of a pretrained EfficientNet-Lite0, 1,280 features; 8 kinds with 8 images in a "
        "batch; Adam, rate 0.00003, 150 steps. Sentences: vectors of MiniLM and a residual head, 384 dimensions; 4 "
        "domains with 32 sentences; Adam, rate 0.001, 200 steps.",
        arms=(*HERE_ARMS, *HERE_BEFORE),
        seeds=5,
        claims=(
            *_claims("here", "birds", "unseen kinds"),
            *_claims("here", "sentences", "domains, by sentences of unseen intents,"),
            *INTENTS,
            _absent(
                "Cars: easy positives improve the retrieval of unseen models of cars.", "easy less usual positives"
            ),
        ),
        shows=(
            _table2("birds", "Birds, unseen kinds", *omniglot.BEFORE_ROWS),
            _table2("sentences", "Sentences of unseen intents, by domain", *omniglot.BEFORE_ROWS),
            _table2("sentences", "The same by intent, which is no label", *omniglot.BEFORE_ROWS, level="intents"),
        ),
        chosen=f"The multi-similarity loss has lambda = 0.5, as its authors' code. {common.HERE_CHOSEN}",
        fair=FAIR,
    ),
    paper=Recipe(
        data="Cars196: trained on 98 models, measured on 98 others. CUB-200-2011: 100 and 100 kinds. Whole images.",
        setting="ResNet-50 with the weights of torchvision, average pooling, 128 dimensions; 20 classes with 8 images "
        "in a batch; Adam, rate 0.00001, weight decay 0.0004, batch norm frozen, 150 epochs.",
        arms=(*PAPER_ARMS, *PAPER_SEMIHARD, *PAPER_BEFORE),
        seeds=common.PAPER_SEEDS,
        claims=tuple(
            claim
            for data, items in (("Cars", "unseen models"), ("CUB", "unseen kinds"))
            for claim in (*_claims("paper", data, items), _over_semihard(data, items))
        ),
        shows=tuple(
            _table2(
                data,
                f"{data}, unseen classes",
                common.SEMIHARD_ROW,
                ("before training", {"loss": BEFORE, "positives": USUAL}),
            )
            for data in CARS_BIRDS
        ),
        chosen=f"{PAPER_CHOSEN} {common.SEMIHARD_RULE}",
    ),
)

# Table 5: the same runs, and those of table 3, by their deviation

TABLE5_PRINTED = {  # without and with easy positives; the 29.8 of the margin loss on CUB must be a slip
    ("Cars", "margin"): (".17", ".27"),
    ("Cars", "MS"): (".24", ".29"),
    ("Cars", "triplet"): (".20", ".47"),
    ("CUB", "margin"): ("29.8", ".33"),
    ("CUB", "MS"): (".43", ".36"),
    ("CUB", "triplet"): (".52", ".35"),
    ("characters", "margin"): (".73", ".58"),
    ("characters", "MS"): (".52", ".71"),
    ("characters", "triplet"): (".34", ".61"),
}
RECALL = {**{data: pattern.format("recall@1") for data, pattern in MEASURE.items()}, "characters": omniglot.CHARACTER}


def _three(*made: Arm) -> tuple[Arm, ...]:
    """Those of the three losses, and the network before training."""
    return tuple(arm for arm in made if arm.factors["loss"] in (*LOSSES, BEFORE))


def _table5(*names: str) -> tuple[ResultTable, ...]:
    return tuple(
        ResultTable(
            f"Recall@1 with its deviation over the seeds: {data}",
            tuple(
                (f"{'EPS + ' if positives == EASY else ''}{loss}", {"data": data, "loss": loss, "positives": positives})
                for loss in LOSSES
                for positives in (USUAL, EASY)
            ),
            (ResultColumn("R@1", RECALL[data]),),
            {
                f"{'EPS + ' if positives == EASY else ''}{loss}": {"R@1": f"deviation {printed}"}
                for loss in LOSSES
                if (data, loss) in TABLE5_PRINTED
                for positives, printed in zip((USUAL, EASY), TABLE5_PRINTED[data, loss], strict=True)
            },
        )
        for data in names
    )


def _certain(size: Size, *names: str) -> tuple[Claim, ...]:
    return tuple(
        common.all_gain(
            f"{data}: the gain by easy positives is beyond the scatter of seeds with {common.each_loss(size)}.",
            RECALL[data],
            "easy less usual positives, recall@1",
            recall=RECALL[data],
            data=data,
        )
        for data in names
    )


TRAINED = {**MEASURE, "characters": "unseen/alphabet/{}"}  # by the labels that are trained on


def _grows(size: Size, *names: str) -> Claim:
    """The claim of section 5.2.3 on data sets in the order in which their classes fall into sub-clusters."""

    def recall(data: str) -> str:
        return TRAINED[data].format("recall@1")

    def mended(of: SeedValue, data: str) -> float:
        shares = [
            common.gain(recall(data), loss, data=data)(of)
            / (1 - of(recall(data), data=data, loss=loss, positives=USUAL))
            for loss in LOSSES
        ]
        return sum(shares) / len(shares)

    def gained(of: SeedValue) -> dict[str, float]:
        each = {data: common.gained(recall(data), *LOSSES, data=data)(of) for data in names}
        return {f"{data}, {loss}": gain for data, gains in each.items() for loss, gain in gains.items()}

    claim = Claim(
        "The gain by easy positives grows the more naturally classes fall into a few sub-clusters, in the order "
        f"{', '.join(names)}.",
        lambda of: {f"{more} over {less}": mended(of, more) - mended(of, less) for less, more in pairwise(names)},
        "share of errors that easy positives mend, recall@1 of the labels trained on, mean of "
        f"{common.with_lambda('the three losses', size)}, less the same of the set before",
    )
    return where_training_gains(claim, gained)


ORDER = (
    "The order of the data sets by their sub-clusters is ours, but that the paper names Cars and Omniglot. A gain is a "
    "share of errors, as the sets leave room for gains of different sizes."
)
TABLE5 = Experiment(
    key="levi2021-table5",
    title="Deviation of recall@1 over the seeds",
    ran="Each run of tables 2 and 3 was made with eight seeds; recall@1 deviated by .17 to .73 points, and once by "
    "29.8, which must be a slip. The differences with and without easy positives are said to be significant in all "
    "cases. The printed numbers do not bear this out for the triplet loss on CUB: a gain of .3 with deviations of "
    ".52 and .35.",
    here=Recipe(
        data=f"{TABLE2.here.data} Characters: {omniglot.HERE_DATA}",
        setting=f"{TABLE2.here.setting} Characters: {omniglot.HERE_SETTING}",
        arms=_three(*HERE_ARMS, *HERE_BEFORE, *_on("characters", (*omniglot.HERE_ARMS, *omniglot.HERE_BEFORE))),
        seeds=5,
        claims=(
            *_certain("here", "birds", "sentences", "characters"),
            _grows("here", "birds", "sentences", "characters"),
            _absent("Cars: the gain by easy positives is beyond the scatter of seeds.", "the least gain"),
        ),
        shows=_table5("birds", "sentences", "characters"),
        chosen=f"{TABLE2.here.chosen} {ORDER}",
        fair=f"{TABLE2.here.fair} Characters: {omniglot.HERE_FAIR}",
    ),
    paper=Recipe(
        data=f"{TABLE2.paper.data} Characters: {omniglot.PAPER_DATA}",
        setting="As tables 2 and 3.",
        arms=_three(*PAPER_ARMS, *PAPER_BEFORE, *_on("characters", (*omniglot.PAPER_ARMS, *omniglot.PAPER_BEFORE))),
        seeds=common.PAPER_SEEDS,
        claims=(*_certain("paper", "Cars", "CUB", "characters"), _grows("paper", "CUB", "Cars", "characters")),
        shows=_table5("Cars", "CUB", "characters"),
        chosen=f"{PAPER_CHOSEN} {ORDER}",
    ),
)

# Table 6

LARGE_BATCH = {
    "birds": merged(BIRDS, {"model": {"embedding_dim": 512}, "batch": {"num_classes": 25, "samples_per_class": 10}}),
    "characters": merged(
        OMNIGLOT,
        {
            "data": {"level": "alphabet"},
            "model": {"name": "conv3", "embedding_dim": 512},
            "batch": {"num_classes": 8, "samples_per_class": 32},
            "training": {"steps": 400, "learning_rate": 1e-3},
        },
    ),
}
INCEPTION = {
    "model": {"name": "torchvision:googlenet", "pretrained": True, "embedding_dim": 512},
    "batch": {"num_classes": 52, "samples_per_class": 5},
}
TABLE6_HEADS = ("R@1", "R@2", "R@4", "R@8")
TABLE6_PRINTED = {
    "Cars": ("84.1 90.4 94.0 96.5", "85.5 90.7 94.3 96.7"),
    "CUB": ("65.7 77.0 86.3 91.2", "66.7 77.2 86.4 90.9"),
}


def _table6(*names: str) -> tuple[ResultTable, ...]:
    heads = ("MS", "EPS + MS")
    return tuple(
        ResultTable(
            f"{data}, unseen classes",
            tuple(
                (head, {"data": data, "loss": "MS", "positives": positives})
                for head, positives in zip(heads, (USUAL, EASY), strict=True)
            ),
            (
                *(
                    ResultColumn(head, RECALL[data].replace("recall@1", f"recall@{k}"))
                    for head, k in zip(TABLE6_HEADS, (1, 2, 4, 8), strict=True)
                ),
                *_best(data),
            ),
            {
                head: dict(zip(TABLE6_HEADS, row.split(), strict=True))
                for head, row in zip(heads, TABLE6_PRINTED.get(data, ()), strict=False)
            },
        )
        for data in names
    )


def _multi_gains(size: Size, data: str, network: str = "another network, ", *, ours: bool = False) -> Claim:
    return Claim(
        f"{data}: also with {network}512 dimensions and a large batch the {common.named('MS', size)} retrieves better "
        "with easy positives.",
        common.gain(RECALL[data], "MS", data=data),
        "easy less usual positives, recall@1",
        ours=ours,
    )


TABLE6 = Experiment(
    key="levi2021-table6",
    title="The multi-similarity loss with another network, 512 dimensions and a large batch",
    ran="An Inception network with batch norm and 512 dimensions, batches of 260: recall@1 of 84.1 without and 85.5 % "
    "with easy positives on Cars196, 65.7 and 66.7 % on CUB-200-2011.",
    here=Recipe(
        data="Birds: as table 2. Characters: as table 3.",
        setting="Birds: the network of table 2 with a projection to 512 dimensions, begun at random; 25 kinds with 10 "
        "images in a batch; 150 steps. Characters: conv3, 512 dimensions; 8 alphabets with 32 images; Adam, rate "
        "0.001, 400 steps.",
        arms=tuple(
            arm
            for data, base in LARGE_BATCH.items()
            for arm in _on(data, common.both(base, {**common.MULTI, "threshold": 0.5}, "MS"))
        ),
        seeds=5,
        claims=(
            _multi_gains("here", "birds", network=""),
            _multi_gains("here", "characters", ours=True),
            _absent(
                "Cars: also with another network the multi-similarity loss retrieves better with easy positives.",
                "easy less usual positives",
            ),
        ),
        shows=_table6("birds", "characters"),
        chosen="As tables 2 and 3.",
        fair="Of characters another network, four times the dimensions of table 3 and twice its batch: an addition, as "
        "the paper has Cars and CUB alone. Birds keep their network. No setting was tried: all others are those of "
        "tables 2 and 3.",
    ),
    paper=Recipe(
        data=TABLE2.paper.data,
        setting="GoogLeNet of torchvision, an Inception network with batch norm, 512 dimensions; 52 classes with 5 "
        "images in a batch; Adam, rate 0.00001, weight decay 0.0004, batch norm frozen, 150 epochs.",
        arms=tuple(
            arm
            for data, base in PUBLISHED.items()
            for arm in _on(data, common.both(merged(base, INCEPTION), common.MULTI, "MS", at=common.PAPER_EPOCHS))
        ),
        seeds=common.PAPER_SEEDS,
        claims=(_multi_gains("paper", "Cars"), _multi_gains("paper", "CUB")),
        shows=_table6("Cars", "CUB"),
        chosen="The weights of the paper's network, BN-Inception, are in no library that Trivet loads: GoogLeNet of "
        "torchvision has the same blocks with batch norm. Five images of each class, as the authors of the loss. "
        f"{PAPER_CHOSEN.partition('. ')[2]}",
    ),
)

# Appendix C: the multi-similarity loss and the batch

SMALL, LARGE, OF_BATCHES = "small", "large", ("margin", "MS")


def _batches(known: tuple[Arm, ...], data: str, batches: dict[str, Settings]) -> tuple[Arm, ...]:
    """Two losses with usual positives, with each batch; `known` are those of tables 2 and 3."""
    usual = [arm for arm in known if (arm.factors["loss"] in OF_BATCHES, arm.factors["positives"]) == (True, USUAL)]
    return tuple(
        replace(
            arm if not changes else replace(arm, settings=merged(arm.settings, changes), at=(), last=()),
            factors={"data": data, "loss": arm.factors["loss"], "batch": batch},
        )
        for batch, changes in batches.items()
        for arm in usual
    )


def _batch_claims(size: Size, data: str) -> tuple[Claim, ...]:
    measure = RECALL[data]

    def gained(of: SeedValue, loss: str) -> float:
        large, small = (of(measure, data=data, loss=loss, batch=batch) for batch in (LARGE, SMALL))
        return large - small

    return (
        Claim(
            f"{data}: the {common.named('MS', size)} is better with a larger batch.",
            lambda of: gained(of, "MS"),
            "large less small batch, recall@1",
        ),
        Claim(
            f"{data}: the {common.named('MS', size)} depends on the size of the batch more than another.",
            lambda of: gained(of, "MS") - gained(of, "margin"),
            "large less small batch, recall@1, multi-similarity less margin loss",
        ),
    )


def _batch_table(data: str, *batches: str) -> ResultTable:
    rows = tuple(
        (f"{loss}, {batch} batch", {"data": data, "loss": loss, "batch": batch})
        for loss in OF_BATCHES
        for batch in batches
    )
    return ResultTable(f"{data[0].upper()}{data[1:]}", rows, (ResultColumn("R@1", RECALL[data]),))


BATCHES = Experiment(
    key="levi2021-batch",
    title="The multi-similarity loss and the size of the batch: appendix C",
    ran="The multi-similarity loss is said to be highly affected by the size of the batch, which a ResNet-50 restricts "
    "to 160, and to be inferior to the other losses for that. No numbers are printed but those of table 6.",
    here=Recipe(
        data=f"Characters: {omniglot.HERE_DATA}",
        setting=omniglot.HERE_SETTING,
        arms=_batches(omniglot.HERE_ARMS, "characters", {LARGE: {}}),
        seeds=5,
        claims=tuple(
            replace(claim, value=lambda of: math.nan, not_comparable="the stand-in has batches of one size")
            for claim in _batch_claims("here", "characters")
        ),
        shows=(_batch_table("characters", LARGE),),
        chosen=f"Positives are the usual ones. {omniglot.NETWORK} {common.HERE_CHOSEN}",
        fair=f"The runs are those of table 3; none was made with smaller batches. {omniglot.HERE_FAIR}",
    ),
    paper=Recipe(
        data=TABLE2.paper.data,
        setting="As table 2, with 20 or 32 classes of 8 images in a batch.",
        arms=tuple(
            arm
            for data in CARS_BIRDS
            for arm in _batches(
                tuple(arm for arm in PAPER_ARMS if arm.factors["data"] == data),
                data,
                {SMALL: {}, LARGE: {"batch": {"num_classes": 32}}},
            )
        ),
        seeds=common.PAPER_SEEDS,
        claims=tuple(claim for data in CARS_BIRDS for claim in _batch_claims("paper", data)),
        shows=tuple(_batch_table(data, SMALL, LARGE) for data in CARS_BIRDS),
        chosen=f"The larger batch has 256 images, about the 260 of table 6. {PAPER_CHOSEN}",
    ),
)

EXPERIMENTS = (TABLE2, TABLE5, TABLE6, BATCHES)
