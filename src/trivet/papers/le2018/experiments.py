"""The experiments: how far label noise of rate p takes a loss down, beside a share 1 - p of clean items.

A run is told by the data, the method (triplet loss with random or fixed semi-hard negatives, or the marginal loss), the
labels it sees (with noise, or the topline: fewer items, all of them right) and the rate p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trivet.papers.experiment import Arm, Claim, Column, Drawing, Experiment, Factor, Recipe, Size, Table, merged
from trivet.papers.le2018.noise_figures import METHODS, clustering_figure, curves_figure, human_figure
from trivet.papers.runs import SEED
from trivet.papers.stand_ins import AT_THE_END, BANKING, CIFAR, CUB, OMNIGLOT

Of = Callable[..., float]
Cell = Mapping[str, Factor]

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
MIDDLE = (0.3, 0.4, 0.5, 0.6)  # where the paper sees the methods part
ALIKE = 0.05  # of a ratio: what counts as the same robustness
GOOD = 0.8  # of a ratio: what counts as good relative performance
LOSSES: dict[str, dict[str, Any]] = {
    "random": {"name": "triplet", "negatives": "violating"},
    "fixed": {"name": "triplet", "negatives": "semihard-hardest"},
    "marginal": {"name": "margin", "beta": 1.4, "learn_beta": False, "negatives": "violating", "reduction": "mean"},
}


@dataclass(frozen=True)
class Source:
    """A data set, the network trained on it and for how long.

    Attributes:
        split: "SPLIT/LEVEL" that is measured.
        start: what an untrained network is called here.
        classes, items: of a batch.
        raw: whether inputs as they are say something, as they do not after a pretrained network.
    """

    name: str
    settings: Mapping[str, Any]
    split: str
    start: str
    steps: int
    rate: float
    classes: int = 12
    items: int = 5
    raw: bool = False

    @property
    def recall(self) -> str:
        return f"{self.split}/recall@1"

    @property
    def nmi(self) -> str:
        return f"{self.split}/nmi-geometric"


def _published(data: Mapping[str, Any], *, pretrained: bool) -> dict[str, Any]:
    return {
        "data": {"image_size": 224, "resize": 256, "augment": "crop-flip", **data},
        "model": {"name": "timm:resnet34.tv_in1k", "pretrained": pretrained, "embedding_dim": 128},
        "evaluation": AT_THE_END,
    }


SOURCES: dict[Size, dict[str, Source]] = {
    "here": {
        "SOP": Source("Omniglot", OMNIGLOT, "unseen/character", "untrained", 600, 1e-3, raw=True),
        "CUB": Source("CUB-50", CUB, "unseen/class", "pretrained only", 120, 3e-5),
        "Flowers": Source("BANKING77", BANKING, "unseen/intent", "pretrained only", 300, 3e-4),
        "CIFAR": Source("CIFAR-10N", CIFAR, "seen/class", "untrained", 600, 1e-3, classes=10, items=6, raw=True),
    },
    "paper": {
        "SOP": Source("SOP", _published({"name": "sop"}, pretrained=False), "unseen/class", "untrained", 40_000, 1e-3),
        "CUB": Source(
            "CUB", _published({"name": "cub"}, pretrained=True), "unseen/class", "pretrained only", 4000, 1e-5
        ),
        "Flowers": Source(
            "Flowers-102",
            _published({"name": "flowers102"}, pretrained=True),
            "unseen/class",
            "pretrained only",
            4000,
            1e-5,
        ),
        "CIFAR": Source(
            "CIFAR-10N",
            merged(
                _published({"name": "cifar10", "image_size": 32, "resize": 32}, pretrained=False),
                {"model": {"name": "timm:resnet34", "embedding_dim": 128}},
            ),
            "seen/class",
            "untrained",
            20_000,
            1e-3,
            classes=10,
            items=6,
        ),
    },
}
HUMAN = {"aggregate": 0.09, "random1": 0.171, "worse": 0.406}  # labels of people, and the share that is wrong
UNIFORM, INPUTS = "uniform", "pixels"

CHOSEN = (
    "The paper gives no dimension, rate or length, no split and no grid of p. Here: RMSProp, whose rate falls to a "
    "tenth after two thirds of the steps, the same number of steps for all runs; p from 0 to 0.8 in steps of 0.1; "
    "classes of the test are never trained on. All positive pairs, each with one negative; the mean over pairs that "
    "have one. Random: any negative that violates the margin (equation 28 as printed, so also those nearer than the "
    "positive). Fixed: the nearest beyond the positive (29). Marginal: random negatives, beta 1.4 as it is. Each seed "
    "has noise of its own. NMI has as many clusters as classes and the geometric mean of the entropies."
)


def cell(source: Source, method: str, kind: str = "noise", p: float = 0.0) -> Cell:
    """The factors of a run; without noise there is no topline of its own."""
    return {"data": source.name, "method": method, "labels": "noise" if p == 0 else kind, "p": p}


def untrained(source: Source) -> Cell:
    return {"data": source.name, "method": source.start, "labels": "none", "p": 0.0}


def references(source: Source) -> list[tuple[str, Cell]]:
    """What no run has trained, with its name: the network before training, and the inputs as they are."""
    pixels: Cell = {"data": source.name, "method": INPUTS, "labels": "none", "p": 0.0}
    return [(source.start, untrained(source)), *([(INPUTS, pixels)] if source.raw else [])]


def arm(source: Source, one: Cell) -> Arm:
    """The run of a cell, measured at the end; the untrained network before."""
    method, kind, p = str(one["method"]), str(one["labels"]), float(one["p"])
    loss = {"margin": 0.2, "distance": "euclidean", "positives": "all", **LOSSES.get(method, LOSSES["random"])}
    settings = merged(
        source.settings,
        {
            "batch": {"num_classes": source.classes, "samples_per_class": source.items},
            "loss": loss,
            "training": {
                "steps": source.steps,
                "optimizer": "rmsprop",
                "learning_rate": source.rate,
                "schedule": "multi-step",
                "milestones": [2 * source.steps // 3],
            },
        },
    )
    if kind in HUMAN:
        settings = merged(settings, {"data": {"level": kind}})
    elif p > 0:
        noise = {"kind": "symmetric", "rate": p, "seed": SEED} | ({"topline": True} if kind == "topline" else {})
        settings = merged(settings, {"data": {"noise": noise}})
    measures = ("recall", "clusters")
    if kind == "none":
        return Arm(one, settings, ("inputs",) if method == INPUTS else measures, (0,))
    return Arm(one, settings, measures)


def ratio(of: Of, source: Source, measure: str, method: str, p: float) -> float:
    """What noise leaves of the measure that as many clean items reach."""
    return of(measure, **cell(source, method, "noise", p)) / of(measure, **cell(source, method, "topline", p))


def middle(of: Of, source: Source, measure: str, method: str) -> float:
    """The mean of that over the rates where the methods part."""
    return float(np.mean([ratio(of, source, measure, method, p) for p in MIDDLE]))


def half_way(of: Of, source: Source, measure: str, method: str) -> float:
    """The rate at which half of the fall of the ratio between p = 0 and the largest p has happened."""
    falls = [1 - ratio(of, source, measure, method, p) for p in RATES]
    if not np.isfinite(falls).all() or falls[-1] <= 0:
        return math.nan
    later = next(place for place, fall in enumerate(falls) if fall >= falls[-1] / 2)
    low, high = falls[later - 1], falls[later]
    return RATES[later - 1] + (falls[-1] / 2 - low) / (high - low) * (RATES[later] - RATES[later - 1])


OVER = "ratio to the topline, mean over p = 0.3 to 0.6"


def without_noise(source: Source) -> Claim:
    """The claim on clean labels."""
    return Claim(
        "Without noise, fixed semi-hard negatives are slightly better than random ones.",
        lambda of: of(source.recall, **cell(source, "fixed")) - of(source.recall, **cell(source, "random")),
        "fixed less random at p = 0, recall@1",
    )


def fixed_falls_faster(source: Source) -> list[Claim]:
    def less(measure: str) -> Callable[[Of], float]:
        return lambda of: middle(of, source, measure, "random") - middle(of, source, measure, "fixed")

    return [
        Claim(
            f"Under noise, fixed semi-hard negatives lose {name} faster than random ones.",
            less(measure),
            f"random less fixed, {name}, {OVER}",
        )
        for name, measure in (("recall@1", source.recall), ("NMI", source.nmi))
    ]


def as_robust(source: Source) -> list[Claim]:
    """The claims that from a pretrained network the marginal loss is as robust as the triplet loss."""

    def within(measure: str) -> Callable[[Of], float]:
        return lambda of: ALIKE - abs(middle(of, source, measure, "marginal") - middle(of, source, measure, "random"))

    return [
        Claim(
            f"From a pretrained network the marginal loss keeps as much {name} as the triplet loss, random negatives.",
            within(measure),
            f"{ALIKE:g} less the size of the difference, {name}, {OVER}",
        )
        for name, measure in (("recall@1", source.recall), ("NMI", source.nmi))
    ]


def sop_claims(source: Source) -> tuple[Claim, ...]:
    def widens(of: Of) -> float:
        early = 1 - ratio(of, source, source.recall, "fixed", 0.3)
        return ratio(of, source, source.recall, "fixed", 0.3) - ratio(of, source, source.recall, "fixed", 0.6) - early

    def last(measure: str) -> Callable[[Of], float]:
        return lambda of: (
            float(np.min([middle(of, source, measure, method) for method in ("random", "fixed")]))
            - middle(of, source, measure, "marginal")
        )

    def narrower(of: Of) -> float:
        gaps = [
            middle(of, source, measure, "random") - middle(of, source, measure, "fixed")
            for measure in (source.recall, source.nmi)
        ]
        return gaps[0] - gaps[1]

    return (
        without_noise(source),
        *fixed_falls_faster(source),
        Claim(
            "With fixed semi-hard negatives the gap to the topline widens from p = 0.3 on.",
            widens,
            "fall of the ratio from p = 0.3 to 0.6 less that from 0 to 0.3, recall@1",
        ),
        Claim(
            "Random semi-hard negatives still do well, beside the topline, at p = 0.5.",
            lambda of: ratio(of, source, source.recall, "random", 0.5) - GOOD,
            f"ratio to the topline at p = 0.5 less {GOOD:g}, recall@1",
        ),
        *(
            Claim(
                f"From random weights the marginal loss loses {name} faster than both triplet losses.",
                last(measure),
                f"the lower of random and fixed less marginal, {name}, {OVER}",
            )
            for name, measure in (("recall@1", source.recall), ("NMI", source.nmi))
        ),
        Claim(
            "Random and fixed negatives differ less in NMI than in recall@1.",
            narrower,
            f"random less fixed in recall@1, less the same in NMI, {OVER}",
        ),
    )


def cub_claims(source: Source) -> tuple[Claim, ...]:
    return (
        without_noise(source),
        *fixed_falls_faster(source),
        *as_robust(source),
        Claim(
            "The marginal loss breaks down earlier than the triplet loss with random negatives, at 50 % against 60 %.",
            lambda of: half_way(of, source, source.recall, "random") - half_way(of, source, source.recall, "marginal"),
            "p at which half of the fall of the ratio up to p = 0.8 has happened, random less marginal, recall@1",
        ),
    )


def flowers_claims(source: Source) -> tuple[Claim, ...]:
    def fall(of: Of, method: str, kind: str) -> float:
        start = of(source.recall, **cell(source, method))
        return start - float(np.mean([of(source.recall, **cell(source, method, kind, p)) for p in MIDDLE]))

    return (
        without_noise(source),
        *fixed_falls_faster(source),
        *as_robust(source),
        Claim(
            "In plain recall@1 the marginal loss falls slightly faster under noise than the triplet loss.",
            lambda of: fall(of, "marginal", "noise") - fall(of, "random", "noise"),
            "fall of recall@1 from p = 0 to the mean of p = 0.3 to 0.6, marginal less random",
        ),
        Claim(
            "The marginal loss suffers more than the triplet loss from fewer clean items.",
            lambda of: fall(of, "marginal", "topline") - fall(of, "random", "topline"),
            "the same fall of the topline, marginal less random",
        ),
    )


def clustering_claims(sources: Mapping[str, Source]) -> tuple[Claim, ...]:
    def behind(of: Of, source: Source) -> float:
        return middle(of, source, source.nmi, "random") - middle(of, source, source.nmi, "marginal")

    def closer(name: str) -> Callable[[Of], float]:
        return lambda of: behind(of, sources["SOP"]) - behind(of, sources[name])

    def fixed(of: Of) -> float:
        gaps = [middle(of, one, one.nmi, "random") - middle(of, one, one.nmi, "fixed") for one in sources.values()]
        return float(np.mean(gaps))

    return (
        Claim(
            "Over all three data sets, fixed semi-hard negatives lose NMI faster than random ones.",
            fixed,
            f"random less fixed, NMI, {OVER}, mean over data sets",
        ),
        *(
            Claim(
                f"A pretrained start makes the marginal loss robust: on {sources[name].name} it lies less behind the "
                f"triplet loss than on {sources['SOP'].name}, which is trained from random weights.",
                closer(name),
                f"random less marginal on {sources['SOP'].name}, less that on {sources[name].name}, NMI, {OVER}",
            )
            for name in ("CUB", "Flowers")
        ),
    )


def human_cell(source: Source, method: str, kind: str) -> Cell:
    """The factors of a run on the labels of people, or on drawn noise as frequent as the worst of these."""
    p = HUMAN.get(kind, HUMAN["worse"])
    return {"data": source.name, "method": method, "labels": "noise" if kind == UNIFORM else kind, "p": p}


def human_claims(source: Source) -> tuple[Claim, ...]:
    def left(of: Of, method: str, kind: str) -> float:
        p = HUMAN[kind]
        return of(source.recall, **human_cell(source, method, kind)) / of(
            source.recall, **cell(source, method, "topline", p)
        )

    def mean(of: Of, method: str) -> float:
        return float(np.mean([left(of, method, kind) for kind in HUMAN]))

    def slope(of: Of) -> float:
        rates = [0.0, *HUMAN.values()]
        cells = [cell(source, "random"), *(human_cell(source, "random", kind) for kind in HUMAN)]
        values = [of(source.recall, **one) for one in cells]
        return -float(np.polyfit(rates, values, 1)[0]) if np.isfinite(values).all() else math.nan

    return (
        Claim(
            "Labels of people do as drawn noise does: the more of them are wrong, the lower recall@1.",
            slope,
            "fall of recall@1 for each unit of the rate, random negatives",
        ),
        Claim(
            "Under the labels of people, too, fixed semi-hard negatives lose recall@1 faster than random ones.",
            lambda of: mean(of, "random") - mean(of, "fixed"),
            "random less fixed, recall@1, ratio to the topline, mean over three sets of labels",
        ),
        Claim(
            "Under the labels of people, too, the marginal loss from random weights loses recall@1 faster than both "
            "triplet losses.",
            lambda of: min(mean(of, "random"), mean(of, "fixed")) - mean(of, "marginal"),
            "the lower of random and fixed less marginal, recall@1, ratio to the topline, mean over the same",
        ),
    )


def cells(source: Source) -> list[Cell]:
    """All runs of a data set, those without training first."""
    found = [one for _, one in references(source)]
    for p in RATES:
        for method in METHODS:
            found.append(cell(source, method, "noise", p))
            if p > 0:
                found.append(cell(source, method, "topline", p))
    return found


def table(source: Source) -> Table:
    rows = tuple(
        (f"{METHODS[method]}, p = {p:g}{', topline' if kind == 'topline' else ''}", cell(source, method, kind, p))
        for method in METHODS
        for p in (0.0, 0.2, 0.4, 0.6, 0.8)
        for kind in (("noise", "topline") if p else ("noise",))
    )
    columns = (Column("recall@1", source.recall), Column("NMI", source.nmi))
    return Table(f"{source.name}: test items with clean labels", (*references(source), *rows), columns)


def _curves(size: Size, key: str, claims: Callable[[Source], tuple[Claim, ...]], figures: tuple[str, str]) -> Recipe:
    source = SOURCES[size][key]
    shows: list[Table | Drawing] = [
        curves_figure("recall", source.name, source.recall, figures[0], RATES, untrained(source)),
        curves_figure("nmi", source.name, source.nmi, figures[1], RATES, untrained(source)),
        table(source),
    ]
    return _recipe(size, [(source, one) for one in cells(source)], claims(source), tuple(shows), DATA[size][key], key)


DATA: dict[Size, dict[str, str]] = {
    "here": {
        "SOP": "Omniglot, 28 x 28 pixels: 964 characters of 30 alphabets are trained on, those of 20 others tested",
        "CUB": "CUB-50: the first 25 classes of CUB are trained on, the next 25 tested",
        "Flowers": "BANKING77, sentences: every second of 77 intents is trained on, the others tested",
        "CIFAR": "CIFAR-10N: 20,000 training images with labels of people, 10,000 test images of the same classes",
    },
    "paper": {
        "SOP": "Stanford Online Products, half of the classes trained on, half tested",
        "CUB": "CUB-200-2011, classes 1 to 100 trained on, 101 to 200 tested",
        "Flowers": "Flowers-102, classes 1 to 51 trained on, 52 to 102 tested",
        "CIFAR": "CIFAR-10N: 50,000 training images with labels of people, 10,000 test images of the same classes",
    },
}
NETWORKS: dict[Size, dict[str, str]] = {
    "here": {
        "SOP": "conv4 from random weights, 128 dimensions",
        "CUB": "the last stage of an EfficientNet-Lite0 of ImageNet, 1,280 dimensions",
        "Flowers": "a linear map, at first the identity, on vectors of the sentence encoder MiniLM, 384 dimensions",
        "CIFAR": "conv4 from random weights, 64 dimensions",
    },
    "paper": {
        "SOP": "ResNet-34 from random weights, 128 dimensions",
        "CUB": "ResNet-34 of ImageNet, 128 dimensions",
        "Flowers": "ResNet-34 of ImageNet, 128 dimensions",
        "CIFAR": "ResNet-34 from random weights, 128 dimensions",
    },
}
SEEDS = {"SOP": 3, "CUB": 5, "Flowers": 5, "CIFAR": 3, "": 3}
FAIR = {
    "SOP": (
        "Omniglot has, as SOP, many small classes (20 items each, 5 in SOP) and test classes of its own, and the "
        "network starts from random weights, as in the paper. Rate and length are settings known to work from earlier "
        "trials on these data (p = 0, 0.4 and 0.6, two seeds, a network like this one), in which fixed negatives fell "
        "faster than random ones; they were not tuned."
    ),
    "CUB": (
        "Its birds are of the paper's data set, with a pretrained network, of which the last stage learns. The rate "
        "was the best of three (0.00001, 0.00003, 0.0001) in trials of one seed that is not reported, by NMI of six "
        "of the 25 training classes, held out, at p = 0; the methods were seen there at p = 0 and 0.6, and on the "
        "test classes as well. The gain over the pretrained network is small at any rate, so noise can take little."
    ),
    "Flowers": (
        "No images of flowers are at hand: many classes that look alike, and a pretrained start, are what it keeps of "
        "Flowers-102. The rate was one of three (0.0001, 0.0003, 0.001) in trials of one seed that is not reported, "
        "with training classes held out: the highest that loses hardly any recall@1 at p = 0. All three methods were "
        "seen there at p = 0 and 0.6, and on the test classes as well. Recall@1 is near its ceiling before training, "
        "94 %, so NMI tells more."
    ),
    "CIFAR": (
        "An addition of ours: the paper draws its noise. Classes are few and tested on other images of their own. "
        "Earlier trials on these data had shown, with one seed, that recall@1 falls in the order of the "
        "rates of these labels."
    ),
    "": "",
}


def _recipe(
    size: Size,
    runs: Sequence[tuple[Source, Cell]],
    claims: tuple[Claim, ...],
    shows: tuple[Table | Drawing, ...],
    data: str,
    key: str,
) -> Recipe:
    sources = {one.name: one for one, _ in runs}
    names = [name for name, one in SOURCES[size].items() if one.name in sources]
    lengths = [f"{SOURCES[size][name].steps:,} steps at {SOURCES[size][name].rate:g}" for name in names]
    one = SOURCES[size][names[0]]
    setting = (
        f"{'; '.join(NETWORKS[size][name] for name in names)}; unit rows; batches of {one.classes} x {one.items}; "
        f"margin 0.2, beta 1.4; RMSProp, {'; '.join(lengths)}"
    )
    fair = FAIR[key] or " ".join(FAIR[name] for name in names)
    return Recipe(
        data=data,
        setting=setting,
        arms=tuple(arm(source, factors) for source, factors in runs),
        seeds=SEEDS[key] if size == "here" else 3,
        claims=claims,
        shows=shows,
        chosen=CHOSEN,
        fair=fair if size == "here" else "",
    )


def _clustering(size: Size) -> Recipe:
    sources = {key: SOURCES[size][key] for key in ("SOP", "CUB", "Flowers")}
    runs = [(source, one) for source in sources.values() for one in cells(source)]
    shows = (clustering_figure([(source.name, source.nmi) for source in sources.values()], RATES),)
    return _recipe(size, runs, clustering_claims(sources), shows, "; ".join(DATA[size][key] for key in sources), "")


def _human(size: Size) -> Recipe:
    source = SOURCES[size]["CIFAR"]
    rows: list[tuple[str, Cell]] = references(source)
    for method, name in METHODS.items():
        rows.append((f"{name}, clean", cell(source, method)))
        for kind, p in HUMAN.items():
            rows.append((f"{name}, {kind}, {p:.0%} wrong", human_cell(source, method, kind)))
            rows.append((f"{name}, {1 - p:.0%} of the items, clean", cell(source, method, "topline", p)))
        rows.append((f"{name}, drawn, {HUMAN['worse']:.0%} wrong", human_cell(source, method, UNIFORM)))
    columns = (Column("recall@1", source.recall), Column("NMI", source.nmi))
    shows = (
        human_figure(source.name, source.recall, HUMAN, untrained(source)),
        Table(f"{source.name}: test images with clean labels", tuple(rows), columns),
    )
    runs = [(source, one) for _, one in rows]
    return _recipe(size, runs, human_claims(source), shows, DATA[size]["CIFAR"], "CIFAR")


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "le2018-sop",
        "Many small classes, from random weights (figures 1 and 5)",
        "ResNet-34 from random weights on SOP. Curves of recall@1 and NMI over the noise rate, and their ratio to the "
        "topline of 1 - p clean items: fixed semi-hard negatives fall after 30 %, random ones still do well past 50 "
        "%, the marginal loss falls first.",
        _curves("here", "SOP", sop_claims, ("figure 1", "figure 5")),
        _curves("paper", "SOP", sop_claims, ("figure 1", "figure 5")),
    ),
    Experiment(
        "le2018-cub",
        "From a pretrained network: birds (figures 2 and 6)",
        "ResNet-34 of ImageNet on CUB. Fixed semi-hard negatives fall faster than random ones; the marginal loss is "
        "about as robust as the triplet loss with random ones, with the break at 50 against 60 %.",
        _curves("here", "CUB", cub_claims, ("figure 2", "figure 6")),
        _curves("paper", "CUB", cub_claims, ("figure 2", "figure 6")),
    ),
    Experiment(
        "le2018-flowers",
        "From a pretrained network: flowers (figures 3 and 7)",
        "ResNet-34 of ImageNet on Flowers-102. Fixed semi-hard negatives fall faster than random ones; the marginal "
        "loss falls slightly faster than the triplet loss, as it also suffers more from fewer items, and is as robust "
        "beside its topline.",
        _curves("here", "Flowers", flowers_claims, ("figure 3", "figure 7")),
        _curves("paper", "Flowers", flowers_claims, ("figure 3", "figure 7")),
    ),
    Experiment(
        "le2018-clustering",
        "What noise leaves of NMI on all three data sets (figure 4)",
        "The runs of the three data sets. Random semi-hard negatives are more robust than fixed ones; the marginal "
        "loss with a pretrained start is as robust as the triplet loss, and from random weights it is not.",
        _clustering("here"),
        _clustering("paper"),
    ),
    Experiment(
        "le2018-human",
        "Labels of people in place of drawn noise",
        "Not run by the paper, whose noise is drawn and uniform; it says that its analysis can be applied to other "
        "noise. Its sentences on drawn noise, asked of the labels that people gave CIFAR-10.",
        _human("here"),
        _human("paper"),
    ),
)
