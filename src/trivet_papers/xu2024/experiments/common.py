"""Runs and claims that the experiments share, and what the paper leaves open."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trivet_papers.experiment import (
    Arm,
    Cell,
    Claim,
    Drawing,
    Lengths,
    Recipe,
    ResultColumn,
    ResultTable,
    SeedValue,
    Settings,
    Size,
)
from trivet_papers.stand_ins import AT_THE_END
from trivet_papers.xu2024.collapse_figures import COLLAPSED, FACTOR, Panel

CLASSES, BATCH, SMALLEST, DIMENSION = (2, 4, 8, 18), (8, 4), (2, 2), 128
ITEMS: dict[Size, tuple[int, ...]] = {"here": (2, 4, 8, 16, 20), "paper": (2, 4, 8, 16, 32)}
DIMENSIONS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
MARGINS = (0.01, 0.05)
PUBLISHED = 40_000  # steps
STEPS: dict[Size, tuple[int, ...]] = {"here": (250, 500), "paper": (10_000, 20_000, PUBLISHED)}
LENGTHS: dict[Size, Lengths] = {
    "here": Lengths((500, 1000, 2000), PUBLISHED),
    "paper": Lengths(STEPS["paper"], PUBLISHED),
}
MANY = 16.0  # items for each dimension: many more
FLOOR = 1e-4  # what has kept less counts as this in logarithms
NETWORK: dict[Size, str] = {"here": "conv4", "paper": "ResNet-18"}
NETWORKS: dict[str, Settings] = {
    "conv4": {"name": "conv4"},
    "conv3": {"name": "conv3"},
    "mlp": {"name": "mlp"},
    "two convolutions": {"name": "conv2"},
    "ResNet-18": {"name": "timm:resnet18"},
    "ResNet-50": {"name": "timm:resnet50"},
    "GoogLeNet": {"name": "torchvision:googlenet"},
}
DATA: dict[str, Settings] = {
    "Omniglot": {"name": "omniglot", "image_size": 14, "level": "character"},
    "CUB-50": {"name": "cub", "image_size": 32},
    "Fashion-MNIST": {"name": "fashion-mnist", "image_size": 14, "level": "item"},
    "Market-1501": {"name": "market1501", "image_size": [256, 128], "augment": "crop-flip"},
    "SOP": {"name": "sop", "image_size": 224, "resize": 256, "augment": "crop-flip"},
    "CUB": {"name": "cub", "image_size": 224, "resize": 256, "augment": "crop-flip"},
    "Cars196": {"name": "cars196", "image_size": 224, "resize": 256, "augment": "crop-flip"},
}
CHOSEN = (
    "The paper gives no optimiser, rate, image size or augmentation, and does not say which of its embeddings are "
    "measured. Here: Adam at 0.001, constant; the largest distance among 1,000 held-out items; before training the "
    "statistics of batch norm are taken from training items. Collapsed is what keeps less than 5 % of their mean "
    "distance. Judged is what is kept, not the diameter itself: that of the untrained network grows with the root of "
    "d. The bound (17) takes this diameter before training and the hardest triplet of the first batch."
)
FAIR = (
    "Omniglot has, as Market-1501, many classes (964 against 751) of few items (20 against 17 on average), and its "
    "held-out classes are others. Its network is small, its images have 14 x 14 pixels. Before the recipe was fixed, "
    "an earlier map of ours had been seen (docs/results.md, The shape of the batch: 200 steps, two seeds, the same "
    "data and network), and trials of one seed that is not reported: 1,000 steps of three batches, three dimensions "
    "and four networks, then 500 of six batches. What is kept falls as long as one trains; 500 steps were taken since "
    "8 x 4 at d = 128 then still lies above collapse, as in the paper (0.17; after 1,000 it was 0.058)."
)
FAIR_LENGTHS = (
    " These runs make 2,000 and are measured three times: those of 500 steps, and some of 2,000 at 256 dimensions and "
    "more, had been seen before. Collapse is of the scale; whether retrieval is lost with it is another claim."
)


def cell(
    size: Size, batch: tuple[int, int] = BATCH, d: int = DIMENSION, margin: float = 0.0, network: str = ""
) -> Cell:
    """The factors of a run with P classes x K items."""
    p, k = batch
    return {"network": network or NETWORK[size], "P": p, "K": k, "d": d, "margin": margin}


def arm(size: Size, cell: Cell, steps: Sequence[int]) -> Arm:
    """The run of a cell, measured before training and after each of these steps."""
    data = str(cell.get("data", "Omniglot" if size == "here" else "Market-1501"))
    network = NETWORKS[str(cell.get("network", NETWORK[size]))]
    batch = {"size": cell["N"]} if "N" in cell else {"num_classes": cell["P"], "samples_per_class": cell["K"]}
    return Arm(
        cell,
        {
            "data": {**DATA[data], **({"channels": 3} if ":" in network["name"] else {})},
            "batch": batch,
            "model": {**network, "embedding_dim": cell["d"], "normalize": False},
            "loss": {
                "name": "triplet",
                "positives": "hard",
                "negatives": "hard",
                "distance": "euclidean",
                "margin": cell.get("margin", 0.0),
            },
            "training": {"steps": steps[-1], "learning_rate": 1e-3},
            "evaluation": {**AT_THE_END, "distance": "euclidean"},
        },
        measures=("spread", "first-batch"),
        at=(0, *steps),
    )


def items(cell: Cell) -> int:
    """The items of a batch."""
    return int(cell["N"]) if "N" in cell else int(cell["P"]) * int(cell["K"])


def shrinkage(of: SeedValue, cell: Cell, at: int | None = None) -> float:
    """The share of the mean distance before training that is left, at the end or at a step."""
    share = of("distance mean", at=at, **cell) / of("distance mean", at=0, **cell)
    return share if math.isnan(share) else max(share, FLOOR)


def slope(of: SeedValue, cells: Sequence[Cell], across: Callable[[Cell], float]) -> float:
    """Slope of log2 of the shrinkage, for each doubling of the batch or the dimension, by least squares."""
    x = [math.log2(across(cell)) for cell in cells]
    y = [math.log2(shrinkage(of, cell)) for cell in cells]
    return float(np.polyfit(x, y, 1)[0]) if np.isfinite(y).all() else math.nan


def dimension(cell: Cell) -> float:
    return float(cell["d"])


def by_batch(cell: Cell) -> str:
    return f"{cell['P']} x {cell['K']} = {items(cell)}" if "P" in cell else f"N = {cell['N']}"


def by_dimension(cell: Cell) -> str:
    return f"d = {cell['d']}"


def named(cell: Cell) -> str:
    """A run among those of a claim."""
    return f"{by_batch(cell)}, {by_dimension(cell)}"


def falls_with_batch(cells: Sequence[Cell], where: str = "") -> Claim:
    return Claim(
        f"{where}The larger the batch, the more the embedding shrinks.",
        lambda of: -slope(of, cells, items),
        "fall of log2(kept) for each doubling of N",
        unit="",
    )


def above_collapse(of: SeedValue, cell: Cell, at: int | None = None) -> float:
    return math.log2(shrinkage(of, cell, at)) - math.log2(COLLAPSED)


def collapses(cells: Sequence[Cell], sentence: str) -> Claim:
    says = f"log2({COLLAPSED:g}) less log2(kept)"
    return Claim(sentence, lambda of: {named(cell): -above_collapse(of, cell) for cell in cells}, says, unit="")


def survives(cells: Sequence[Cell], sentence: str) -> Claim:
    says = f"log2(kept) less log2({COLLAPSED:g})"
    return Claim(sentence, lambda of: {named(cell): above_collapse(of, cell) for cell in cells}, says, unit="")


def whatever_the_stop(size: Size, cells: Sequence[Cell], claim: Claim) -> Claim:
    """The claim, for runs of one length that have collapsed, or would not at this pace in half as many steps again."""
    half = STEPS[size][-2]

    def decided(of: SeedValue, cell: Cell) -> float:
        above = above_collapse(of, cell)
        return 2 * above - above_collapse(of, cell, half) if above > 0 else 1.0 + 0 * above  # NaN stays NaN

    why = "the stop decides: it still shrinks, and at this pace would collapse in half as many steps again"
    return replace(claim, requires=lambda of: {named(cell): decided(of, cell) for cell in cells}, untested=why)


def recall_gain(of: SeedValue, cell: Cell) -> float:
    """recall@1 of held-out items after training, less that before."""
    return of("sample recall@1", **cell) - of("sample recall@1", at=0, **cell)


def costs_retrieval(cells: Sequence[Cell], where: str = "") -> Claim:
    """The claim of section 5 on what a collapse, which is one of scale, does downstream.

    Args:
        cells: batches, the largest last; each that has collapsed is compared with the largest that has not.
    """

    def lost(of: SeedValue) -> float:
        stands = [above_collapse(of, cell) > 0 for cell in cells]
        recalls = [of("sample recall@1", **cell) for cell in cells]
        standing = [recall for recall, stood in zip(recalls, stands, strict=True) if stood]
        collapsed = [recall for recall, stood in zip(recalls, stands, strict=True) if not stood]
        return standing[-1] - max(collapsed) if standing and collapsed else math.nan

    return Claim(
        f"{where}Collapse costs retrieval: with each batch that collapses recall@1 is lower than with the largest that "
        "does not.",
        lost,
        "recall@1 of held-out items with the largest batch that has not collapsed, less the best of those that have",
        requires=lambda of: -above_collapse(of, cells[-1]),
        untested="it does not collapse",
    )


def keeps_retrieval(cells: Sequence[Cell], where: str) -> Claim:
    """The claim that retrieval is not lost, whatever the scale."""
    says = "recall@1 of held-out items after training less that before"
    sentence = f"{where} recall@1 does not fall below that before training."
    return Claim(sentence, lambda of: {named(cell): recall_gain(of, cell) for cell in cells}, says, ours=True)


def promises_no_retrieval(size: Size, networks: Sequence[str], where: str = "") -> Claim:
    """The claim of section 5 that avoiding collapse by a small batch need not be good; one network can show it."""
    small = [cell(size, SMALLEST, network=network) for network in networks]
    other = [cell(size, network=network) for network in networks]

    def gain(of: SeedValue) -> float:
        pairs = zip(small, other, strict=True)
        return float(np.max([of("sample recall@1", **high) - of("sample recall@1", **low) for low, high in pairs]))

    return Claim(
        f"No collapse does not promise retrieval: batches of {by_batch(small[0])} do not collapse, and{where} recall@1 "
        f"is lower than with {by_batch(other[0])}.",
        gain,
        f"recall@1 of held-out items with {by_batch(other[0])} less that with {by_batch(small[0])}"
        + (", the largest of these networks" if len(networks) > 1 else ""),
        requires=lambda of: float(np.min([above_collapse(of, each) for each in small])),
        untested="the smallest batch collapses",
    )


def grows_with_dimension(cells: Sequence[Cell], where: str = "") -> Claim:
    return Claim(
        f"{where}The fewer dimensions, the more the embedding shrinks.",
        lambda of: slope(of, cells, dimension),
        "rise of log2(kept) for each doubling of d",
        unit="",
        requires=lambda of: above_collapse(of, cells[-1]),
        untested="it collapses with the most dimensions, too, so they decide nothing",
    )


def for_single_length(size: Size, claim: Claim) -> Claim:
    """The claim on dimensions, where runs of one length are all there is: here it depends on how long one trains."""
    why = "only 500 steps were made; with margin 0 (xu2024-B) it depends on how long one trains"
    return replace(claim, not_comparable=why) if size == "here" else claim


def fails_with_many(cells: Sequence[Cell]) -> Claim:
    """The claim of the discussion of the short version (2022), on the batch beside the dimension."""
    above = {f"{cell['data']}, {named(cell)}": cell for cell in cells if items(cell) >= MANY * dimension(cell)}
    below = {f"{cell['data']}, {named(cell)}": cell for cell in cells if items(cell) < dimension(cell)}

    def both(of: SeedValue) -> dict[str, float]:
        falls = {name: -above_collapse(of, cell) for name, cell in above.items()}
        return falls | {name: above_collapse(of, cell) for name, cell in below.items()}

    return Claim(
        "Hard negatives fail where a batch has many more items than the embedding dimensions, and not otherwise (short "
        "version, 2022).",
        both,
        f"from {MANY:g} times as many on log2({COLLAPSED:g}) less log2(kept), with fewer the reverse, of each run",
        unit="",
    )


def bound_holds(cells: Sequence[Cell], where: str) -> Claim:
    """The claim that no diameter falls below the bound (17), whose factor is 2.

    It is of each run, not of their means: one that falls below breaks it, so the number of a seed is the least.
    """

    def slack(of: SeedValue, cell: Cell) -> float:
        before = of("diameter", at=0, **cell)
        bound = before - FACTOR * of("first loss max", at=0, **cell)
        return (of("diameter", **cell) - bound) / before

    return Claim(
        f"The diameter stays above that before training less twice the loss of the first batch, {where}.",
        lambda of: float(np.min([slack(of, cell) for cell in cells])),
        "the least, over all of these runs, of diameter less bound, over the diameter before",
        unit="",
    )


def table(title: str, cells: Sequence[Cell], name: Callable[[Cell], str]) -> ResultTable:
    columns = (
        ResultColumn("mean distance before", "distance mean", at=0, share=False),
        ResultColumn("after", "distance mean", share=False),
        ResultColumn("diameter before", "diameter", at=0, share=False),
        ResultColumn("diameter after", "diameter", share=False),
        ResultColumn("recall@1 before", "sample recall@1", at=0),
        ResultColumn("recall@1 after", "sample recall@1"),
    )
    return ResultTable(title, tuple((name(cell), cell) for cell in cells), columns)


def grid(size: Size, **changes: Any) -> list[Cell]:
    """All batches of the paper's grid, small ones first."""
    cells = [cell(size, (p, k), **changes) for p in CLASSES for k in ITEMS[size]]
    return sorted(cells, key=items)


def swept(size: Size, dimensions: Sequence[int] = DIMENSIONS, **changes: Any) -> list[Cell]:
    """All dimensions."""
    return [cell(size, d=d, **changes) for d in dimensions]


def batch_panel(title: str, cells: Sequence[Cell]) -> Panel:
    return Panel(title, "batch size N", tuple((items(cell), cell) for cell in cells))


def dimension_panel(title: str, cells: Sequence[Cell]) -> Panel:
    return Panel(title, "dimension d", tuple((int(cell["d"]), cell) for cell in cells))


DATA_OF: dict[Size, str] = {
    "here": "Omniglot, 964 characters of 30 alphabets, 14 x 14 pixels; measured on 1,000 drawings of other alphabets",
    "paper": "Market-1501, 751 identities; measured on 1,000 images of others",
}


def recipe(
    size: Size,
    cells: Sequence[Cell],
    claims: tuple[Claim, ...],
    shows: tuple[ResultTable | Drawing, ...],
    fair: str = "",
    seeds: int = 3,
    lengths: Lengths | None = None,
) -> Recipe:
    """The recipe of any of these experiments; with lengths, all claims are judged after each of them."""
    steps = lengths.steps if lengths else STEPS[size]
    unique = list({frozenset(cell.items()): cell for cell in cells}.values())
    data = sorted({str(cell["data"]) for cell in cells if "data" in cell})
    networks = list(dict.fromkeys(str(cell.get("network", NETWORK[size])) for cell in cells))
    setting = (
        f"{', '.join(networks)} from random weights, rows of any length, Adam at 0.001, {steps[-1]:,} steps; the "
        "farthest positive and the nearest negative of each anchor, plain distances"
    )
    repeats = (
        " Of a class with fewer than K items a batch holds all, none twice: K = 20 are all drawings of a character, "
        "and stand for the paper's 32."
        if size == "here"
        else " Of a class with fewer than K images a batch holds all, none twice. Images have 256 x 128 pixels; in the "
        "other data sets 224 x 224 of 256; cut and mirrored at random."
    )
    return Recipe(
        data=DATA_OF[size] if not data else f"{', '.join(data)}: batches of items as they come",
        setting=setting,
        arms=tuple(arm(size, cell, steps) for cell in unique),
        seeds=seeds if size == "here" else 3,
        claims=tuple(replace(claim, lengths=lengths) for claim in claims),
        shows=shows,
        chosen=CHOSEN + repeats,
        fair=FAIR + (FAIR_LENGTHS if lengths else "") + fair if size == "here" else "",
    )
