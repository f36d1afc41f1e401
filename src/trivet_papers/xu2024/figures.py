"""`trivet simulate isometry`: nearest separated embeddings, how they shrink, and what training does.

Xu et al., "Mathematical justification of hard negative mining via isometric approximation theorem", ICLR 2024.
"""

from __future__ import annotations

import math
from itertools import product
from statistics import fmean, median

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from scipy.spatial import ConvexHull
from scipy.spatial.distance import cdist, pdist

from trivet.reports.figure import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY, panels, style
from trivet.runtime.arrays import Floats, Integers
from trivet_papers.figure import Figure, columns, label_outer
from trivet_papers.lines import SOFT, Dashes, Row, handle
from trivet_papers.xu2024 import isometry, nearest_separated, point_sets
from trivet_papers.xu2024.nearest_separated import DescentReduction
from trivet_papers.xu2024.scaling_figures import UNIT, scaling, training

PANELS = 4  # random sets in figure "collapse"
_CLASS: tuple[tuple[str, str, Dashes], ...] = ((BLUE, "o", "--"), (RED, "s", "-."))


def figures(
    *,
    seed: int = 0,
    points: int = 20,
    dimension: int = 2,
    starts: int = 24,
    margin: float = 0.0,
    repeats: int = point_sets.REPEATS,
    steps: int = point_sets.LONG,
    cases: int = 12,
    trainings: int = 2,
) -> list[Figure]:
    """All figures of `trivet simulate isometry`; about a minute as they stand.

    Args:
        seed: of the first random set or network; the others follow.
        points: in each set of "collapse", in two classes, 4 .. 200.
        dimension: of "collapse" and "descent", 2 .. 1024; above 2 "collapse" shows the two main axes.
        starts: local searches of "five-points" and "collapse", >= 1.
        margin: alpha of all figures but "ranges", whose sets have their own, and "training", >= 0.
        repeats: sets that "descent" and "scaling" give the mean of, >= 1.
        steps: of descent, >= 1.
        cases: random sets of a kind in "ranges", >= 1.
        trainings: networks of each setting in "training", >= 0; 0 leaves that figure out.

    Raises:
        ValueError: if an option is out of its range.
    """
    for name, value, low, high in (
        ("points", points, 4, 200),
        ("dimension", dimension, 2, 1024),
        ("repeats", repeats, 1, math.inf),
        ("steps", steps, 1, math.inf),
        ("cases", cases, 1, math.inf),
        ("starts", starts, 1, math.inf),
        ("trainings", trainings, 0, math.inf),
        ("seed", seed, 0, 2**31),
    ):
        if not low <= value <= high:
            allowed = f"at least {low}" if math.isinf(high) else f"between {low} and {high}"
            raise ValueError(f"{name} must be {allowed}: got {value}; give such a number.")
    drawn = [
        five_points(starts=starts, margin=margin),
        collapse(seed=seed, points=points, dimension=dimension, starts=starts, margin=margin),
        descent(seed=seed, dimension=dimension, steps=steps, repeats=repeats, margin=margin),
        scaling(seed=seed, repeats=repeats, margin=margin),
        ranges(seed=seed, cases=cases),
    ]
    return [*drawn, training(seed=seed, repeats=trainings)] if trainings else drawn


def five_points(*, starts: int, margin: float) -> Figure:
    """Five points, their nearest separated images by either distance, and the hardest triplet."""
    f, classes = point_sets.PLANE, point_sets.PLANE_CLASSES
    sandwich = nearest_separated.loss_sandwich(f, classes, margin=margin, starts=starts)
    triplet = isometry.hardest_triplet(f, classes, margin=margin)
    embeddings = {"f": f, "f*_haus": sandwich.hausdorff.witness, "f*_iso": sandwich.isometric.witness}
    moved = np.linalg.norm(embeddings["f*_haus"] - f, axis=1)
    changed = np.abs(cdist(embeddings["f*_iso"], embeddings["f*_iso"]) - cdist(f, f))
    # Several pairs share the largest change, up to what the search leaves.
    i, j = (int(at) for at in np.argwhere(changed >= changed.max() * (1 - 1e-3))[0])
    rows: list[Row] = []
    for what, images in embeddings.items():
        rows += [
            {"what": what, "class": "AB"[c], "item": k + 1, "x": x, "y": y}
            for k, (c, (x, y)) in enumerate(zip(classes, images, strict=True))
        ]
    borders = {
        what: isometry.separation_boundaries(embeddings[what], classes, margin=margin)
        for what in ("f", "f*_haus", "f*_iso")
    }
    for what, of_classes in borders.items():
        for c, arcs in enumerate(of_classes):
            for number, arc in enumerate(arcs):
                rows += [
                    {"what": f"boundary of {what}", "class": "AB"[c], "arc": number, "x": x, "y": y} for x, y in arc
                ]
    roles = {"anchor": triplet.anchor, "positive": triplet.positive, "negative": triplet.negative}
    rows += [{"what": role, "item": item + 1} for role, item in roles.items()]
    rows += [{"what": f"isometric pair, {end}", "item": k + 1} for end, k in (("first", i), ("second", j))]
    values = {
        "margin": margin,
        "loss": sandwich.loss,
        "d_haus": sandwich.hausdorff.value,
        "d_iso": sandwich.isometric.value,
        "d_iso / loss": sandwich.isometric_per_loss,
        "d_haus / d_iso": sandwich.hausdorff_per_isometric,
    }
    rows += [{"what": name, "value": value} for name, value in values.items()]
    with style():
        picture, axes = panels(2, 2, height=6.9)
        setup, haus, iso, hard = axes.ravel()
        for panel, what in ((setup, "f"), (haus, "f*_haus"), (iso, "f*_iso")):
            for arcs, (colour, _, line) in zip(borders[what], _CLASS, strict=True):
                for arc in arcs:
                    panel.plot(*arc.T, color=colour, linestyle=line, linewidth=1.1)
        for panel in (setup, haus, iso, hard):
            _marks(panel, f, classes, size=6)
        for panel, what in ((haus, "f*_haus"), (iso, "f*_iso")):
            _marks(panel, embeddings[what], classes, size=11, edge=0.7)
        longest = moved >= moved.max() * (1 - 1e-3)
        for k in range(len(f)):
            if moved[k] > 0:
                _arrow(haus, f[k], embeddings["f*_haus"][k], _CLASS[classes[k]][0], outlined=bool(longest[k]))
        before, after = math.dist(f[i], f[j]), math.dist(embeddings["f*_iso"][i], embeddings["f*_iso"][j])
        iso.plot(*f[[i, j]].T, color=SOFT, linewidth=1.4, zorder=1)
        iso.plot(*embeddings["f*_iso"][[i, j]].T, color=BLACK, linewidth=2.2, zorder=1)
        for role, colour, dashes in (("positive", GREEN, (1, 0)), ("negative", PINK, (2, 1))):
            ends = f[[triplet.anchor, roles[role]]].T
            hard.plot(*ends, color=colour, linestyle=(0, dashes), linewidth=2.4, zorder=1)
        for role, item in roles.items():
            hard.annotate(
                f"{role} ({item + 1})",
                f[item],
                textcoords="offset points",
                xytext=(0, 8 if role == "anchor" else -15),
                ha="center",
                zorder=5,
            )
        to_positive = math.dist(f[triplet.anchor], f[triplet.positive])
        to_negative = math.dist(f[triplet.anchor], f[triplet.negative])
        plus = f" + {margin:g}" if margin else ""
        setup.set_title("(a) five points and what each class forbids")
        haus.set_title(f"(b) nearest by $d_{{haus}}$ = {sandwich.hausdorff.value:.3f},\nthe length of the edged arrows")
        iso.set_title(
            f"(c) nearest by $d_{{iso}}$ = {sandwich.isometric.value:.3f},\n"
            f"|{before:.3f} − {after:.3f}| between {i + 1} and {j + 1}"
        )
        hard.set_title(f"(d) hardest triplet: loss {to_positive:.3f} − {to_negative:.3f}{plus} = {sandwich.loss:.3f}")
        for k in range(len(f)):
            _number(setup, k, f[k], f[k] - np.ones(2))
            _number(haus, k, f[k], embeddings["f*_haus"][k])
            _number(iso, k, f[k], embeddings["f*_iso"][k])
        label_outer(axes, f"first coordinate ({UNIT})", f"second coordinate ({UNIT})")
        for panel, what in ((setup, "f"), (haus, "f*_haus"), (iso, "f*_iso"), (hard, "")):
            shapes = [f, *(arc for arcs in borders.get(what, []) for arc in arcs)]
            low, high = (getattr(np.concatenate(shapes), end)(axis=0) for end in ("min", "max"))
            middle, half = (low + high) / 2, (0.55 if what else 0.72) * float((high - low).max())
            panel.set_xlim(middle[0] - half, middle[0] + half)
            panel.set_ylim(middle[1] - half, middle[1] + half)
            panel.set_aspect("equal")
        keys = [
            handle(f"class {'AB'[c]}, border", colour, line, marker, linewidth=1.1)
            for c, (colour, marker, line) in enumerate(_CLASS)
        ]
        keys += [
            handle("images under $f^*$", BLACK, "", "*", markersize=10),
            handle("to the positive", GREEN, linewidth=2.4),
            handle("to the negative", PINK, (0, (4, 1.5)), linewidth=2.4),
        ]
        picture.legend(handles=keys, loc="outside lower center", ncols=5, columnspacing=1.2, handlelength=2.2)
    return Figure(
        name="five-points",
        title="Five points, the nearest separated images, and the hardest triplet",
        source="Xu et al. (2024), figures 2 and 3; short version, figures 2 to 5",
        reading=(
            "An embedding has zero loss if no point lies inside the border of the other class, as the stars in (b) and "
            "(c) show. In (b) no point moves farther than the black-edged arrows. In (c) no distance changes by more "
            "than that of the joined pair (grey before, black after); others may change as much. Panel (d) is the "
            "triplet that hard negative mining trains on. "
            f"Here d_iso is {sandwich.isometric_per_loss:.2f} times the loss (at least 0.5 by theorem 3.3), and d_haus "
            f"is {sandwich.hausdorff_per_isometric:.2f} times d_iso (at least 0.5 by theorem 3.2). The paper has 0.53 "
            "for points that it does not give."
        ),
        numbers=columns(rows, ("what", "class", "item", "arc", "x", "y", "value")),
        picture=picture,
    )


def _marks(axes: Axes, points: Floats, classes: Integers, *, size: float, edge: float = 0.0) -> None:
    """The points in the colours of their classes; with an edge as stars, which are images."""
    for c, (colour, marker, _) in enumerate(_CLASS):
        (marks,) = axes.plot(*points[classes == c].T, linestyle="", color=colour, markersize=size, marker=marker)
        if edge:
            marks.set(marker="*", markeredgecolor="white", markeredgewidth=edge, zorder=4)


def _arrow(axes: Axes, start: Floats, end: Floats, colour: str, *, outlined: bool) -> None:
    edge = [withStroke(linewidth=4.2, foreground=BLACK)] if outlined else []
    way = {"arrowstyle": "-|>", "shrinkA": 4, "shrinkB": 4, "mutation_scale": 9, "linewidth": 1.6}
    axes.annotate("", tuple(end), tuple(start), arrowprops={**way, "color": colour, "path_effects": edge})


def _number(axes: Axes, item: int, at: Floats, away_from: Floats) -> None:
    way = at - away_from
    length = float(np.linalg.norm(way)) or 1.0
    offset = 11 * way / length
    axes.annotate(str(item + 1), tuple(at), textcoords="offset points", xytext=tuple(offset), ha="center", va="center")


def collapse(*, seed: int, points: int, dimension: int, starts: int, margin: float) -> Figure:
    """Random points of two classes with arrows to the nearest separated ones, for several seeds."""
    classes = np.arange(points) % 2
    rows: list[Row] = []
    drawn = []
    for at in range(seed, seed + PANELS):
        f = point_sets.gaussian(at, points, dimension)
        nearest = nearest_separated.distance_to_separation(f, classes, margin=margin, starts=starts)
        values = {
            "loss": isometry.batch_hard_loss(f, classes, margin=margin),
            "mean_loss": isometry.batch_hard_loss(f, classes, margin=margin, reduction="mean"),
            "d_haus": nearest.value,
            "diameter_before": isometry.diameter(f),
            "diameter_after": isometry.diameter(nearest.witness),
            "mean_distance_before": float(pdist(f).mean()),
            "mean_distance_after": float(pdist(nearest.witness).mean()),
        }
        middle = f.mean(axis=0)
        axes_of = np.eye(dimension) if dimension == 2 else np.linalg.svd(f - middle, full_matrices=False)[2][:2]
        before, after = (f - middle) @ axes_of.T, (nearest.witness - middle) @ axes_of.T
        if dimension == 2:
            before, after = before + middle, after + middle
        drawn.append((before, after, values))
        rows += [
            {"seed": at, "item": k + 1, "class": "AB"[classes[k]], "x": x, "y": y, "nearest_x": u, "nearest_y": v}
            | values
            for k, ((x, y), (u, v)) in enumerate(zip(before, after, strict=True))
        ]
    with style():
        picture, axes = panels(2, 2, height=7.4, sharex=True, sharey=True)
        for at, panel, (before, after, values) in zip(range(seed, seed + PANELS), axes.ravel(), drawn, strict=True):
            for cloud, colour, line in ((before, SOFT, ":"), (after, GREEN, "-")):
                if np.linalg.matrix_rank(cloud - cloud[0], tol=1e-9) == 2:
                    hull = cloud[ConvexHull(cloud).vertices]
                    panel.fill(*hull.T, facecolor=colour, alpha=0.1, linewidth=0)
                    panel.plot(*hull[[*range(len(hull)), 0]].T, color=colour, linestyle=line, linewidth=1.2)
            _marks(panel, before, classes, size=4.5)
            for k in range(points):
                if not np.array_equal(before[k], after[k]):
                    panel.plot(
                        *np.stack([before[k], after[k]]).T, color=_CLASS[classes[k]][0], linewidth=0.7, alpha=0.6
                    )
            _marks(panel, after, classes, size=9, edge=0.6)
            panel.set_title(
                f"seed {at}: $d_{{haus}}$ ≤ {values['d_haus']:.2f}, loss {values['loss']:.2f}\n"
                f"diameter {values['diameter_before']:.2f} → {values['diameter_after']:.2f}, "
                f"mean {values['mean_distance_before']:.2f} → {values['mean_distance_after']:.2f}"
            )
            panel.set_aspect("equal")
        kind = "coordinate" if dimension == 2 else "principal axis"
        label_outer(axes, f"first {kind} ({UNIT})", f"second {kind} ({UNIT})")
        keys = [
            handle(f"class {'AB'[c]}", colour, "", marker, markersize=5) for c, (colour, marker, _) in enumerate(_CLASS)
        ]
        keys += [
            handle("nearest separated", BLACK, "", "*", markersize=9),
            handle("all points before", SOFT, ":"),
            handle("all nearest points", GREEN),
        ]
        picture.legend(handles=keys, loc="outside lower center", ncols=5, columnspacing=1.2)
    shrinkages = [values["mean_distance_after"] / values["mean_distance_before"] for _, _, values in drawn]
    return Figure(
        name="collapse",
        title=f"{points} random points and the nearest separated ones",
        source="Xu et al. (2024), figure 4; short version, figure 6",
        reading=(
            "Each point is joined to its image under the nearest separated embedding found; the longest line is "
            "d_haus. The green outline, beside the dotted one, shows how much smaller the images are. The paper calls "
            f"this collapse, but the mean distance falls to {100 * min(shrinkages):.0f} % to "
            f"{100 * max(shrinkages):.0f} % of that before, not to 0: a class keeps several stars."
        ),
        numbers=columns(rows, tuple(rows[0])),
        picture=picture,
    )


def descent(*, seed: int, dimension: int, steps: int, repeats: int, margin: float) -> Figure:
    """Diameter along gradient descent on the loss of free points, by number of points."""
    reductions: tuple[DescentReduction, DescentReduction] = ("sum", "max")
    curves: dict[tuple[DescentReduction, int], Floats] = {}
    for reduction, n in product(reductions, point_sets.DESCENTS):
        ways = [
            nearest_separated.descend(
                point_sets.gaussian(at, n, dimension), np.arange(n) % 2, reduction=reduction, steps=steps, margin=margin
            )
            for at in range(seed, seed + repeats)
        ]
        curves[reduction, n] = np.array(
            [fmean(way.diameter_after(at) / way.diameters[0] for way in ways) for at in range(steps + 1)]
        )
    early = min(point_sets.SHORT, steps)
    recorded_steps = sorted({0, early, steps, *np.geomspace(1, steps, 140).astype(int).tolist()})
    ends = {reduction: min((curves[reduction, n][-1], n) for n in point_sets.DESCENTS) for reduction in reductions}
    rows = [
        {"reduction": reduction, "points": n, "step": at, "diameter_ratio": float(curve[at])}
        for (reduction, n), curve in curves.items()
        for at in recorded_steps
    ]
    with style():
        picture, axes = panels(1, 3, height=3.2, sharey=True)
        colours = (BLUE, SKY, GREEN, ORANGE, RED, BLACK)
        styles: tuple[Dashes, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
        lines = dict(zip(point_sets.DESCENTS, zip(colours, styles, strict=True), strict=True))
        for panel, reduction in zip(axes[0], reductions, strict=False):
            for n, (colour, line) in lines.items():
                panel.plot(recorded_steps, 100 * curves[reduction, n][recorded_steps], color=colour, linestyle=line)
            panel.set_xscale("symlog", linthresh=1)
            ticks = [0, *(10**k for k in range(1 + int(math.log10(steps))))]
            panel.set_xticks(ticks, [str(tick) for tick in ticks])
            panel.set_xlim(0, steps)
            panel.set_xlabel("step of descent")
        axes[0, 0].set_title("sum over anchors")
        axes[0, 1].set_title("hardest triplet alone")
        by_size = axes[0, 2]
        for reduction, colour, marker in (("sum", BLUE, "o"), ("max", RED, "s")):
            for at, line, filled in ((early, "--", "white"), (steps, "-", colour)):
                by_size.plot(
                    point_sets.DESCENTS,
                    [100 * curves[reduction, n][at] for n in point_sets.DESCENTS],
                    color=colour,
                    linestyle=line,
                    marker=marker,
                    markerfacecolor=filled,
                    markersize=5,
                    label=f"{'sum' if reduction == 'sum' else 'hardest'}, {at} steps",
                )
        by_size.set_xscale("log", base=2)
        by_size.set_xticks(point_sets.DESCENTS, [str(n) for n in point_sets.DESCENTS])
        by_size.minorticks_off()
        by_size.set_xlabel("points $N$")
        by_size.set_title("by number of points")
        axes[0, 0].set_ylabel("diameter, % of that before")
        axes[0, 0].set_ylim(0, 105)
        keys = [handle(f"N = {n}", colour, line) for n, (colour, line) in lines.items()]
        picture.legend(
            handles=[*keys, *by_size.get_legend_handles_labels()[0]],
            loc="outside lower center",
            ncols=5,
            columnspacing=1.2,
            handlelength=2.6,
        )
    return Figure(
        name="descent",
        title="Diameter of points that descend on their own loss",
        source="Trivet's experiment on section 3.3 of Xu et al. (2024)",
        reading=(
            "Each line is the diameter, in percent of the first, of points that move down the gradient of their "
            "triplet loss until it is 0. With the sum over anchors (left) the largest sets shrink most, as the paper "
            f"says of larger batches, and end at {100 * ends['sum'][0]:.0f} % or more. With the hardest triplet alone "
            "(middle) only three points move in a step, so large sets are slower. The smallest end, "
            f"{100 * ends['max'][0]:.0f} %, is that of {ends['max'][1]} points (right)."
        ),
        numbers=columns(rows, ("reduction", "points", "step", "diameter_ratio")),
        picture=picture,
    )


def ranges(*, seed: int, cases: int) -> Figure:
    """The three ratios of theorems 3.2 and 3.3 on random sets of points."""
    names = ("d_iso_per_loss", "d_haus_per_d_iso", "d_haus_per_loss")
    rows: list[Row] = []
    measured = {}
    for kind in point_sets.RANGES:
        measured[kind] = [case.ratios for case in point_sets.cases(kind, cases, seed=seed)]
        rows += [
            {"points": kind.points, "dimension": kind.dimension, "classes": kind.classes, "margin": kind.margin}
            | {"case": k + 1}
            | dict(zip(names, ratios, strict=True))
            for k, ratios in enumerate(measured[kind])
        ]
    every = [[ratios[which] for of_kind in measured.values() for ratios in of_kind] or [math.nan] for which in range(3)]
    with style():
        picture, axes = panels(1, 3, height=3.9, width=7.4, sharey=True)
        styles = (
            ("$d_{iso}$ / loss", 0.5, BLUE),
            ("$d_{haus}$ / $d_{iso}$", 0.5, GREEN),
            ("$d_{haus}$ / loss", 0.25, RED),
        )
        for which, (panel, (name, bound, colour)) in enumerate(zip(axes[0], styles, strict=True)):
            for index, of_kind in enumerate(measured.values()):
                values = sorted(ratios[which] for ratios in of_kind)
                lifted = 0.22 * np.sin(2.4 * np.arange(len(values)))  # apart, though equal
                panel.plot(values, index + lifted, linestyle="", marker="o", markersize=3.6, color=colour, alpha=0.65)
                if values:
                    panel.plot([median(values)] * 2, [index - 0.36, index + 0.36], color=BLACK, linewidth=1.8)
            panel.axvline(bound, color=SOFT, linestyle="--", linewidth=1.2)
            panel.set_xlim(bound - 0.1)
            panel.set_xlabel(f"{name} (no unit)")
        axes[0, 1].plot([0.53], [-0.75], marker="v", color=ORANGE, markersize=7, clip_on=False)
        axes[0, 1].annotate(
            "the paper's 0.53", (0.53, -0.75), textcoords="offset points", xytext=(7, -3), fontsize=8.5, color=BLACK
        )
        axes[0, 0].set_yticks(range(len(measured)), [_kind(kind) for kind in measured])
        axes[0, 0].set_ylim(len(measured) - 0.5, -1.1)
        axes[0, 0].set_ylabel("points : dimension : classes")
        picture.legend(
            handles=[
                handle("a random set", SOFT, "", "o", markersize=4),
                handle("median", BLACK, linewidth=1.8),
                handle("proven lower bound", SOFT, "--"),
            ],
            loc="outside lower center",
            ncols=3,
        )
    return Figure(
        name="ranges",
        title="How far the three sizes are from each other",
        source="Xu et al. (2024), theorems 3.2 and 3.3, and the ratio 0.53 of section 3.2.4",
        reading=(
            "Each dot is one set of normally distributed points. No dot lies left of the proven bound. With room "
            "enough (three dimensions or more) d_iso is half the loss. The largest d_haus is "
            f"{max(every[2]):.2f} times the loss, where equation (17) with c = 2 needs 1 or less. The upper bounds "
            "the paper claims, 2 (left) and a constant (middle), have no valid proof, but the largest dots are only at "
            f"{max(every[0]):.2f} and {max(every[1]):.2f}. Its own 0.53 is at the lower end of the middle panel."
        ),
        numbers=columns(rows, ("points", "dimension", "classes", "margin", "case", *names)),
        picture=picture,
    )


def _kind(kind: point_sets.PointSet) -> str:
    name = f"{kind.points} : {kind.dimension} : {kind.classes}"
    return f"{name}\nmargin {kind.margin:g}" if kind.margin else name
