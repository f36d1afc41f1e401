"""`trivet simulate dynamics`: triplets on the scatter diagram, and where a gradient step moves them.

Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020: its figures 1, 2, 3 and 5, and the shares of the
diagram that move each way, which it states in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.patches import Polygon, Rectangle
from matplotlib.ticker import PercentFormatter

from trivet.io.embedding_table import class_numbers
from trivet.io.read_embeddings import read_vectors
from trivet.mining import NegativeName, PositiveName
from trivet.reports.figure import BLUE, GREEN, ORANGE, PINK, RED, SKY, panels, style
from trivet.runtime.arguments import check_count, check_name
from trivet_papers.figure import Columns, Figure, label_outer, tidy
from trivet_papers.xuan2020 import dynamics, field_maps
from trivet_papers.xuan2020.digits import GAMMAS, LOSSES, STRENGTHS, Phase, centred_digits, digit_movement

SHORT = {"first-order": "first-order loss", "vanilla": "vanilla loss", "second-order": "second-order loss"}
STRATEGIES: dict[str, tuple[PositiveName, NegativeName]] = {
    "EPHN": ("easy", "hard"),
    "EPSHN": ("easy", "semihard-hardest"),
    "HPHN": ("hard", "hard"),
    "random": ("random", "random"),
}
MEANING = {
    "EPHN": "easy positive, hard negative",
    "EPSHN": "easy positive, semi-hard negative",
    "HPHN": "hard positive, hard negative",
    "random": "random positive and negative",
}
MARKS = dict(zip(STRATEGIES, zip((BLUE, ORANGE, GREEN, PINK), "osD^", strict=True), strict=True))
DRAWN = 150  # triplets of each strategy in the scatter diagram
BAND = 0.1  # width of the named regions; the paper gives no number
Field = Callable[..., dynamics.VectorField]  # of loss, gamma, strength and size
ARROWS, FIELD_ARROWS, AREA_CELLS = 20, 14, 200  # on a side: of arrows, and of the cells that shares are taken over


def figures(
    *,
    loss: Sequence[dynamics.SimulatedLoss] | None = None,
    gamma: Sequence[float] = GAMMAS,
    entanglement: Sequence[float] = STRENGTHS,
    factor: dynamics.EntanglementFactor = "sqrt",
    learning_rate: float = 0.1,
    grid: int = 50,
    seed: int = 0,
    embeddings: str | None = None,
    labels: str | None = None,
) -> list[Figure]:
    """The figures of `trivet simulate dynamics`.

    Args:
        loss: "first-order", "vanilla" or "second-order", each drawn once; by default those of each figure of the
            paper, which leaves the vanilla loss out of figures 2 and 3.
        gamma: in [-1, 1]; the middle one is that of the figures for one gamma.
        entanglement: strengths p in [0, 1]; none is drawn too.
        factor: the form of q, "sqrt" or "prod".
        learning_rate: of the simulated step, finite and > 0; the paper gives none.
        grid: cells on a side of the maps, at least 2.
        seed: of the triplets that are drawn, of random ones, and of the small network.
        embeddings: a file of embeddings, or a run folder, for the scatter diagram; by default handwritten digits.
        labels: the column of classes; by default the only one.

    Raises:
        ValueError: if an option is out of range, or the file is not one of embeddings with that column.
    """
    for name in loss or ():
        check_name(name, get_args(dynamics.SimulatedLoss), name="loss")
    check_count(grid, name="grid")
    if grid < 2:
        raise ValueError(f"grid must be at least 2: got {grid}; a zero line needs cells on both sides.")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must lie in [0, 2^63): got {seed}.")
    if labels is not None and embeddings is None:
        raise ValueError(f"labels names a column of a file: got {labels!r} without embeddings; add --embeddings FILE.")
    if not all(0 <= strength <= 1 for strength in entanglement):
        raise ValueError(
            f"entanglement must lie in [0, 1]: got {', '.join(map(str, entanglement))}; 0 means no entanglement."
        )
    gammas, strengths = sorted(set(gamma)), sorted({0.0, *entanglement})
    every = tuple(dict.fromkeys(loss)) if loss else LOSSES
    two = every if loss else tuple(name for name in LOSSES if name != "vanilla")
    field = partial(dynamics.vector_field, factor=factor, learning_rate=learning_rate)
    for strength, each in product(strengths, gammas):  # what is wrong with an option shows before the work
        field(loss="first-order", gamma=each, strength=strength, size=1)
    middle = gammas[len(gammas) // 2]
    with style():
        return [
            _scatter(embeddings, labels, seed),
            *(_entanglement(name, middle, strengths, grid, field) for name in two),
            *(_changes(name, gammas, strengths, grid, field) for name in every),
            *(_fields(every, gammas, strength, field) for strength in strengths if strength or len(strengths) == 1),
            _areas(every, gammas, strengths, field),
            *(_movement(name, seed) for name in two),
        ]


def _scatter(embeddings: str | None, level: str | None, seed: int) -> Figure:
    """Like figure 1: triplets of several strategies, and the regions of the diagram."""
    if embeddings is None:
        what = "the handwritten digits of scikit-learn"
        rows, classes = centred_digits()
    else:
        read = read_vectors(Path(embeddings), levels=None if level is None else [level])
        if len(read.labels) != 1:
            known = ", ".join(read.labels) or "none"
            raise ValueError(f"one column of classes must be chosen: {read.name} has {known}; add --labels NAME.")
        ((name, column),) = read.labels.items()
        (numbers,), _ = class_numbers(column)
        what = f"{read.name}, classes {name}"
        rows, classes = torch.from_numpy(np.array(read.embeddings, dtype=np.float64)), torch.from_numpy(numbers)
    samples: list[Columns] = []
    generator = torch.Generator().manual_seed(seed)
    for strategy, (positives, negatives) in STRATEGIES.items():
        placed = dynamics.triplet_scatter(rows, classes, positives=positives, negatives=negatives, generator=generator)
        some = torch.randperm(len(placed.s_ap), generator=generator)[:DRAWN].sort().values.numpy()
        s_ap, s_an = placed.s_ap[some], placed.s_an[some]
        index = dict(zip(("anchor", "positive", "negative"), placed.triplets[some].T, strict=True))
        flags = {name: flag.astype(int) for name, flag in vars(dynamics.regions(s_ap, s_an, width=BAND)).items()}
        samples.append({"strategy": strategy} | index | {"s_ap": s_ap, "s_an": s_an} | flags)
    columns = tidy(samples)
    if not columns["s_ap"]:
        raise ValueError(
            f"triplets need a class of two items and a second class: {what} has none; choose other labels."
        )
    s_ap, s_an = np.array(columns["s_ap"]), np.array(columns["s_an"])
    correct, strategies = np.array(columns["correct"], dtype=bool), np.array(columns["strategy"])

    picture, ((left, right),) = panels(1, 2, height=3.95)
    for axes, low in ((left, -1.0), (right, 0.0)):
        axes.plot([low, 1], [low, 1], color="black", linewidth=1)
        axes.set(xlim=(low, 1), ylim=(low, 1), aspect="equal", xlabel=field_maps.S_AP, ylabel=field_maps.S_AN)
        axes.spines[["top", "right"]].set_visible(True)
        axes.set_axisbelow(True)
        axes.set_xticks(np.linspace(low, 1, 5))
        axes.set_yticks(np.linspace(low, 1, 5))
    for chosen, colour, mark, name in ((correct, BLUE, "o", "correct"), (~correct, RED, "x", "wrong")):
        left.plot(s_ap[chosen], s_an[chosen], mark, color=colour, markersize=3.2, alpha=0.75, label=name)
    left.text(-0.55, 0.45, "wrong:\nthe negative is\nmore similar", color=RED, ha="center", va="center")
    left.text(0.42, -0.6, "correct:\nthe positive is\nmore similar", color=BLUE, ha="center", va="center")
    _bands(right)
    for strategy, (colour, mark) in MARKS.items():
        of = strategies == strategy
        hollow = strategy == "EPSHN"  # it often takes the triplet of EPHN, which shows inside
        right.plot(
            s_ap[of],
            s_an[of],
            mark,
            color=colour,
            markersize=4.6 if hollow else 3.2,
            alpha=0.85,
            markerfacecolor="none" if hollow else colour,
            markeredgewidth=0.8 if hollow else 0,
            label=strategy,
        )
    left.set_title("the whole diagram, all strategies")
    right.set_title("similarities above 0, by strategy")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, handletextpad=0.2)
    right.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, handletextpad=0, columnspacing=0.8, markerscale=1.6
    )
    return Figure(
        name="scatter",
        title=f"The triplet scatter diagram of {what}",
        source="like figure 1, with real triplets",
        reading=(
            "Each dot is a triplet, placed by the similarity of anchor and positive (to the right) and of anchor and "
            f"negative (upwards), up to {DRAWN} of each strategy. Below the diagonal the anchor is nearer to its "
            "positive and retrieval gets it right, above it not. The bands of the right panel, each "
            f"{BAND:g} wide, are where a step goes wrong most easily. Easy positives lie at the right edge, hard "
            "negatives at the top, semi-hard triplets just below the diagonal ("
            + "; ".join(f"{name}: {MEANING[name]}" for name in STRATEGIES if name != "random")
            + ")."
        ),
        numbers=columns,
        picture=picture,
    )


def _bands(axes: Axes) -> None:
    """Shade and name the regions of `regions` on [0, 1]^2."""
    axes.add_patch(Rectangle((0, 1 - BAND), 1, BAND, facecolor=SKY, alpha=0.35, hatch="//", edgecolor="white"))
    axes.add_patch(Rectangle((1 - BAND, 0), BAND, 1, facecolor=ORANGE, alpha=0.35, hatch="\\\\", edgecolor="white"))
    axes.add_patch(Polygon([(0, 0), (1, 1), (1, 1 - BAND), (BAND, 0)], facecolor="#bbbbbb", alpha=0.45, linewidth=0))
    box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1}
    axes.text(0.25, 1 - BAND / 2, "hard negatives", ha="center", va="center", bbox=box)
    axes.text(1 - BAND / 2, 0.25, "easy positives", rotation=90, ha="center", va="center", bbox=box)
    axes.text(0.3, 0.3 - BAND / 2, "semi-hard", rotation=45, ha="center", va="center", rotation_mode="anchor", bbox=box)


def _entanglement(
    loss: dynamics.SimulatedLoss, gamma: float, strengths: Sequence[float], grid: int, field: Field
) -> Figure:
    """Like figure 2, one loss: two rows of maps and one of arrows, a column for each strength."""
    maps, coarse = (
        {each: field(loss=loss, gamma=gamma, strength=each, size=size) for each in strengths} for size in (grid, ARROWS)
    )
    picture, axes = panels(3, len(strengths), width=_wide(len(strengths)), height=7.5, sharex=True, sharey=True)
    steps = field_maps.colour_steps(maps.values())
    for column, strength in enumerate(strengths):
        field_maps.draw_map(axes[0, column], maps[strength], "ap", steps)
        field_maps.draw_map(axes[1, column], maps[strength], "an", steps)
        field_maps.draw_arrows(axes[2, column], coarse[strength])
        axes[0, column].set_title(_strength(strength))
    for row, name in enumerate(("change of $S_{ap}$", "change of $S_{an}$", "direction of the step")):
        axes[row, 0].set_ylabel(name, fontweight="bold")
    field_maps.colour_bar(picture, axes[:2], steps, "bottom")
    field_maps.name_axes(picture)
    return Figure(
        name=f"entanglement-{loss}",
        title=f"What one step with the {SHORT[loss]} does, gamma = {gamma:g}",
        source="like figure 2; equations 9 to 12",
        reading=(
            "Colours show how much one gradient step changes the similarity of a triplet at that place: of anchor and "
            "positive in the first row, of anchor and negative in the second. Black lines are where nothing changes. "
            "Blue in the first row and red in the second are where the step goes against the loss. The arrows show "
            "both changes as a movement: colour and line its quarter, length the square root of the change. To the "
            "right, shared weights entangle the pairs with strength p."
        ),
        numbers=tidy(
            [
                field_maps.field_columns(fields[strength], drawn=drawn, gamma=gamma, p=strength)
                for drawn, fields in (("map", maps), ("arrow", coarse))
                for strength in strengths
            ]
        ),
        picture=picture,
    )


def _changes(
    loss: dynamics.SimulatedLoss,
    gammas: Sequence[float],
    strengths: Sequence[float],
    grid: int,
    field: Field,
) -> Figure:
    """Like a third of figure 5: maps of both changes for every gamma and strength."""
    maps = {key: field(loss=loss, gamma=key[0], strength=key[1], size=grid) for key in product(gammas, strengths)}
    picture, axes = panels(
        2 * len(gammas),
        len(strengths),
        width=_wide(len(strengths)),
        height=1 + 4.2 * len(gammas),
        sharex=True,
        sharey=True,
    )
    steps = field_maps.colour_steps(maps.values())
    for (row, gamma), (column, strength) in product(enumerate(gammas), enumerate(strengths)):
        for offset, change in enumerate(("ap", "an")):
            panel = axes[row + offset * len(gammas), column]
            field_maps.draw_map(panel, maps[gamma, strength], change, steps)
            if column == 0:
                panel.set_ylabel(f"change of $S_{{{change}}}$, $\\gamma$ = {gamma:g}", fontweight="bold")
    for column, strength in enumerate(strengths):
        axes[0, column].set_title(_strength(strength))
    field_maps.colour_bar(picture, axes, steps, "top")
    field_maps.name_axes(picture)
    return Figure(
        name=f"changes-{loss}",
        title=f"Changes of similarity with the {SHORT[loss]}",
        source="like figure 5; equations 9 to 12 and 32 to 39"
        if loss == "vanilla"
        else "like figure 5; equations 9 to 12",
        reading=(
            "Each panel is the triplet scatter diagram. Its colour is the change of one similarity in one step, its "
            "black line where that change is 0. In the upper rows the loss wants red (the positive comes nearer), in "
            "the lower rows blue (the negative leaves). Along a row the wrong areas grow with the entanglement p. Down "
            "a column they grow with gamma, the cosine between the directions from the anchor to the positive and to "
            "the negative."
        ),
        numbers=tidy(
            [field_maps.field_columns(each, gamma=gamma, p=strength) for (gamma, strength), each in maps.items()]
        ),
        picture=picture,
    )


def _fields(losses: Sequence[dynamics.SimulatedLoss], gammas: Sequence[float], strength: float, field: Field) -> Figure:
    """The vector fields that belong to figure 5, for one strength."""
    picture, axes = panels(
        len(losses), len(gammas), width=_wide(len(gammas)), height=0.9 + 2.15 * len(losses), sharex=True, sharey=True
    )
    blocks = []
    for (row, loss), (column, gamma) in product(enumerate(losses), enumerate(gammas)):
        arrows = field(loss=loss, gamma=gamma, strength=strength, size=FIELD_ARROWS)
        field_maps.draw_arrows(axes[row, column], arrows)
        blocks.append(field_maps.field_columns(arrows, loss=loss, gamma=gamma, p=strength))
        if column == 0:
            axes[row, 0].set_ylabel(SHORT[loss], fontweight="bold")
    for column, gamma in enumerate(gammas):
        axes[0, column].set_title(f"$\\gamma$ = {gamma:g}")
    field_maps.name_axes(picture)
    numbers = tidy(blocks)
    field_maps.legend_of_ways(
        picture, set(dynamics.directions(numbers["change_ap"], numbers["change_an"], tolerance=0).tolist())
    )
    return Figure(
        name=f"fields-p{100 * strength:g}".replace(".", "_"),
        title=f"Where the losses move triplets, {_strength(strength)}",
        source="like figure 5 and the third row of figure 2; equations 11 and 12",
        reading=(
            "An arrow shows where one step moves a triplet of that place, its length as the square root of the change. "
            "Triplets should move to the ideal point, bottom right at (1, 0). Upward arrows at the top are problem 1: "
            "hard negatives drawn nearer and on to (1, 1). Steep arrows at the right edge are problem 2: negatives "
            "pushed on at S_an = 0. With the second-order loss the arrows shrink towards (1, 0) and turn back before "
            "(1, 1)."
        ),
        numbers=numbers,
        picture=picture,
    )


def _areas(
    losses: Sequence[dynamics.SimulatedLoss],
    gammas: Sequence[float],
    strengths: Sequence[float],
    field: Field,
) -> Figure:
    """Shares of the diagram by direction, and the two problems in numbers."""
    areas = {
        key: dynamics.movement_areas(field(loss=key[0], gamma=key[1], strength=key[2], size=AREA_CELLS))
        for key in product(losses, gammas, strengths)
    }
    lines = list(product(gammas, strengths))
    width = max(_wide(len(losses)), _wide(3))
    picture = Picture(figsize=(width, 4.2 + 0.24 * len(lines)), layout="constrained")
    subfigures: Any = picture.subfigures(2, 1, height_ratios=(1.0 + 0.24 * len(lines), 3.2))
    upper, lower = subfigures
    bars: Any = upper.subplots(1, len(losses), sharey=True, squeeze=False)[0]
    for axes, loss in zip(bars, losses, strict=True):
        start = np.zeros(len(lines))
        for way, (colour, hatch) in field_maps.WAYS.items():
            share = 100 * np.array([getattr(areas[loss, *line], way.replace("-", "_")) for line in lines])
            axes.barh(
                range(len(lines)),
                share,
                left=start,
                height=0.78,
                color=colour,
                alpha=0.75,
                edgecolor="white",
                hatch=hatch,
                label=way,
            )
            for y, (left, size) in enumerate(zip(start, share, strict=True)):
                if size >= 11:
                    axes.text(
                        left + size / 2, y, f"{size:.0f}", ha="center", va="center", fontsize=8.5,
                        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.8},
                    )  # fmt: skip
            start += share
        axes.set(
            xlim=(0, 100),
            ylim=(len(lines) - 0.5, -0.5),
            title=SHORT[loss],
            xlabel="share of the diagram",
            xticks=(0, 50, 100),
        )
        axes.xaxis.set_major_formatter(PercentFormatter(decimals=0))
    bars[0].set_yticks(range(len(lines)), [f"$\\gamma$ = {gamma:g}, p = {strength:g}" for gamma, strength in lines])
    handles, names = bars[0].get_legend_handles_labels()
    upper.legend(handles, names, loc="outside upper center", ncols=4)

    problems: Any = lower.subplots(1, 3)
    middle = gammas[len(gammas) // 2]
    lower.suptitle(f"the two problems at $\\gamma$ = {middle:g}", fontsize=9.5)
    dashes = ("-", "--", ":")
    for axes, (key, title, unit) in zip(
        problems,
        (
            ("top", f"negatives drawn nearer\nwhere $S_{{an}}$ > {dynamics.STRIP:g}", "share of that strip"),
            ("box", "moved to (1, 1) in the corner\nof similarities above 0.8", "share of that corner"),
            ("right", f"push on negatives\nwhere $S_{{ap}}$ > {dynamics.STRIP:g}", "mean change of $S_{an}$"),
        ),
        strict=True,
    ):
        for loss, colour, mark, dash in zip(LOSSES, (BLUE, ORANGE, GREEN), "osD", dashes, strict=True):
            if loss in losses:
                scale = 1 if key == "right" else 100
                values = [scale * getattr(areas[loss, middle, strength], key) for strength in strengths]
                axes.plot(
                    strengths, values, dash, color=colour, marker=mark, markersize=4, label=SHORT[loss], clip_on=False
                )
        axes.set(title=title, xlabel="entanglement p", xticks=strengths, ylabel=unit)
        axes.set_ylim(*((None, 0) if key == "right" else (0, 100)))
        if key != "right":
            axes.yaxis.set_major_formatter(PercentFormatter(decimals=0))
    handles, names = problems[0].get_legend_handles_labels()
    lower.legend(handles, names, loc="outside lower center", ncols=3)
    numbers = tidy([{"loss": key[0], "gamma": key[1], "p": key[2], **vars(area)} for key, area in areas.items()])
    return Figure(
        name="areas",
        title="How much of the diagram moves which way",
        source="section 4 in numbers; equations 9 to 12",
        reading=(
            "A bar divides the diagram of similarities from 0 to 1 by the direction in which one step moves a triplet. "
            "With more entanglement p, less of it moves to the bottom right, where all should go. The lower panels "
            "measure problem 1: the share that moves up at the top (left), and to the top right in the corner "
            "(middle). They also measure problem 2: how far negatives are pushed down where the positive is easy "
            "(right). The second-order loss clears the corner and weakens the push, but most of the top strip still "
            "moves up once p is large."
        ),
        numbers=numbers,
        picture=picture,
    )


def _movement(loss: dynamics.SimulatedLoss, seed: int) -> Figure:
    """Like one row of figure 3: real triplets by the direction in which an optimiser's step moved them."""
    movements = digit_movement(loss, seed=seed)
    positions = {"top-left": (0, 0), "top-right": (0, 1), "bottom-left": (1, 0), "bottom-right": (1, 1)}
    styles: dict[tuple[Phase, str], tuple[str, str]] = {
        ("initial", "HPHN"): (BLUE, "o"),
        ("initial", "EPEN"): (SKY, "s"),
        ("late", "HPHN"): (RED, "^"),
        ("late", "EPEN"): (ORANGE, "x"),
    }
    picture, axes = panels(2, 2, height=7.2, sharex=True, sharey=True)
    box = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.5}
    for way, position in positions.items():
        panel = axes[position]
        lines = []
        for key, (colour, mark) in styles.items():
            moved = movements[key]
            here = moved.direction == dynamics.DIRECTIONS.index(way)
            panel.plot(
                *moved.before[here].T,
                mark,
                color=colour,
                markersize=2.6,
                alpha=0.5,
                markeredgewidth=0.7 if mark == "x" else 0,
            )
            lines.append(f"{100 * moved.shares[way]:.0f} %")
        panel.plot([-1, 1], [-1, 1], color="#888888", linewidth=0.8, zorder=0)
        panel.set(xlim=(-1, 1), ylim=(-1, 1), aspect="equal", title=f"moved to the {way.replace('-', ' ')}")
        panel.set_xticks((-1, -0.5, 0, 0.5, 1))
        panel.set_yticks((-1, -0.5, 0, 0.5, 1))
        for line, ((phase, name), (colour, mark)) in enumerate(styles.items()):
            panel.plot(-0.94, 0.9 - 0.13 * line, mark, color=colour, markersize=5)
            panel.text(-0.88, 0.9 - 0.13 * line, f"{phase}, {name}: {lines[line]}", va="center", fontsize=8.5, bbox=box)
    label_outer(axes, field_maps.S_AP, field_maps.S_AN)
    numbers = tidy(
        [
            {"phase": phase, "mining": name}
            | dict(zip(("s_ap", "s_an"), moved.before.T, strict=True))
            | dict(zip(("change_ap", "change_an"), (moved.after - moved.before).T, strict=True))
            | {"direction": np.array(dynamics.DIRECTIONS)[moved.direction]}
            for (phase, name), moved in movements.items()
        ]
    )
    return Figure(
        name=f"movement-{loss}",
        title=f"Triplets before a real step with the {SHORT[loss]}, by where it moved them",
        source="like figure 3, on a stand-in",
        reading=(
            "This is a stand-in for the paper's cars and ResNet: handwritten digits and a network with one hidden "
            "layer. Each panel shows where triplets lay whose step moved them in the panel's direction, in a fresh "
            "network (initial) and in a trained one (late). HPHN are hard positives with hard negatives, EPEN easy "
            "positives with easy negatives. Compare the shares of one colour over the four panels: "
            + (
                "initial HPHN triplets move down now, away from (1, 1), and late easy negatives, beyond 0, are pulled "
                "back up."
                if loss == "second-order"
                else "initial HPHN triplets crowd the top right panel, problem 1, and late ones the bottom right."
            )
        ),
        numbers=numbers,
        picture=picture,
    )


def _wide(columns: int) -> float:
    """Inches for so many square panels side by side and their labels."""
    return 0.7 + 2.1 * max(columns, 2)


def _strength(strength: float) -> str:
    return f"entangled, p = {strength:g}" if strength else "not entangled"
