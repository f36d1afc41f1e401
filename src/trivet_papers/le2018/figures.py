"""`trivet simulate noise`: Le, Odobez, "Theoretical Guarantees of Deep Embedding Losses Under Label Noise" (2018).

The paper prints no figure of its theory; these draw its equations, as corrected in `theory`, beside what is printed
where that is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trivet.reports.figure import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY, panels, style
from trivet.runtime.arguments import check_at_least, check_count
from trivet.runtime.arrays import Floats
from trivet_papers.figure import (
    DIVERGING,
    Columns,
    Figure,
    direct_label,
    in_percent,
    legend_above,
    name_ends,
    plain_ticks,
    tidy,
)
from trivet_papers.le2018 import theory
from trivet_papers.le2018.claims.pairs import printed_pair_rates
from trivet_papers.le2018.margin_figures import NOISE_RATE, SAMPLE_STYLES, noise_rate_axis, partition, residual
from trivet_papers.lines import handle

CLASS_COLOURS, MARKERS = (BLUE, ORANGE, GREEN, RED, SKY, PINK), ("o", "s", "^", "D", "v", "P")
SIMULATED = np.linspace(0, 1, 11)  # the noise rates at which pairs are drawn
MOST_ITEMS = 10_000  # of num_classes * samples_per_class: the factor of more takes minutes
SKEWS = (1.0, 10.0)  # from and to
BREAKS = (0.3, 0.5, 0.6)  # noise rates at which the paper sees methods break


def figures(
    *,
    classes: Sequence[int] = (2, 3, 10, 100),
    samples_per_class: Sequence[int] = (2, 5, 20),
    grid: int = 101,
    draws: int = 20_000,
    margin: float = 0.2,
    beta: float = 1.4,
    gamma: float = 0.75,
    seed: int = 0,
) -> list[Figure]:
    """Draw all figures of the subject.

    Args:
        classes: K, one to six different numbers, each at least 2.
        samples_per_class: s of balanced classes, one to four different numbers, each at least 2. No K times s may
            exceed 10,000.
        grid: points of each curve, 11 to 401.
        draws: pairs that are drawn for each point of the simulation, 100 to a million.
        margin, beta: of the margin loss, in units of the embedding: the margin in (0, 1], beta in (0, 2).
        gamma: eta^- / eta^+ of the residual, in (0, 1).
        seed: of the simulation, at least 0.

    Raises:
        ValueError: if an option is out of range.
    """
    classes = _different(classes, most=len(CLASS_COLOURS), name="classes")
    samples = _different(samples_per_class, most=len(SAMPLE_STYLES), name="samples_per_class")
    if classes[-1] * samples[-1] > MOST_ITEMS:
        raise ValueError(
            f"classes times samples_per_class must not exceed {MOST_ITEMS}: got {classes[-1]} times {samples[-1]}; "
            "take smaller ones, which differ more from the limit of many."
        )
    for value, low, high, name in ((grid, 11, 401, "grid"), (draws, 100, 10**6, "draws")):
        if not low <= check_count(value, name=name) <= high:
            raise ValueError(f"{name} must be a whole number from {low} to {high}: got {value}.")
    if not 0 < margin <= 1:
        raise ValueError(f"margin must lie in (0, 1], where distances lie in [0, 2]: got {margin}.")
    if not 0 < beta < 2:
        raise ValueError(f"beta must lie in (0, 2), as the distances do: got {beta}.")
    if not 0 < gamma < 1:
        raise ValueError(f"gamma must lie in (0, 1), where z is finite: got {gamma}.")
    check_at_least(0, seed, name="seed")
    generator = np.random.default_rng(seed)
    return [
        pair_rates(classes, grid=grid, draws=draws, generator=generator),
        tolerance(classes, samples, grid=grid),
        risk(classes, samples, grid=grid),
        partition(grid=grid, margin=margin, beta=beta),
        residual(classes, grid=grid, gamma=gamma),
    ]


def pair_rates(classes: Sequence[int], *, grid: int, draws: int, generator: np.random.Generator) -> Figure:
    """Rates of wrong pairs: by the formulas, by the print, and counted among drawn labels."""
    p = np.linspace(0, 1, grid)
    samples: list[Columns] = []
    for number in classes:
        for source, at, rates in (
            ("corrected", p, theory.pair_noise_rates(p, number)),
            ("printed", p, printed_pair_rates(p, number)),
            ("simulated", SIMULATED, _simulated(number, draws, generator)),
        ):
            positive, negative = rates
            samples.append(
                {"source": source, "num_classes": number, "noise_rate": at, "positive": positive, "negative": negative}
            )
    with style():
        picture, axes = panels(1, 2, height=3.7)
        of_positive, of_negative = axes[0]
        for sample in samples:
            index = classes.index(sample["num_classes"])
            lines = of_positive.plot(sample["noise_rate"], sample["positive"], color=CLASS_COLOURS[index])
            if sample["source"] != "printed":  # equation 7 is right
                lines += of_negative.plot(sample["noise_rate"], sample["negative"], color=CLASS_COLOURS[index])
            for line in lines:
                if sample["source"] == "printed":
                    line.set(linestyle=(0, (2, 1.5)), linewidth=1.2)
                elif sample["source"] == "simulated":
                    line.set(linestyle="none", marker=MARKERS[index], markersize=4.5, clip_on=False)
        for ax, kind, title in (
            (of_positive, "positive", "Positive pairs that turn negative"),
            (of_negative, "negative", "Negative pairs that turn positive"),
        ):
            ends = [float(sample[kind][-1]) for sample in samples if sample["source"] == "corrected"]
            name_ends(ax, [(f"$K$ = {number}", end) for number, end in zip(classes, ends, strict=True)], CLASS_COLOURS)
            noise_rate_axis(ax, title=title)
            in_percent(ax.yaxis)
        of_positive.set_ylabel("share of wrong pairs $q_{+1}$ (%)")
        of_negative.set_ylabel("share of wrong pairs $q_{-1}$ (%)")
        of_negative.set_ylim(bottom=0)
        low, high = of_positive.get_ylim()
        if low < -0.1:
            of_positive.axhspan(low, 0, color="#eeeeee", zorder=0, linewidth=0)
            of_positive.set_ylim(low, high)
            of_positive.text(0.04, -0.12, "below 0: impossible", color=BLACK, va="top")
        legend_above(
            picture,
            [
                handle("exact", BLACK),
                handle("eq. 8 as printed", BLACK, (0, (2, 1.5)), linewidth=1.2),
                handle(f"counted among {draws:,} drawn pairs", BLACK, "", "o"),
            ],
        )
    return Figure(
        "pair-rates",
        "How often pairs are wrong when labels are",
        "eq. 7 and 8 of section 3.3",
        "Find the noise rate of the labels on the horizontal axis. The curves give the share of wrong pairs of one "
        "class (left) and of two classes (right), for each number of classes K. The marks, counted among drawn labels, "
        "lie on the full curves. The dotted curves, equation 8 as printed, miss them: by more for fewer classes, and "
        "with two classes they fall below 0.",
        tidy(samples),
        picture,
    )


def tolerance(classes: Sequence[int], samples: Sequence[int], *, grid: int) -> Figure:
    """Up to which noise rate Q is at least 0: by the number of classes, the weights and the skew of the sampling."""
    p = np.linspace(0, 1, grid)
    by_rate: list[Columns] = [
        {
            "panel": "a",
            "num_classes": number,
            "weight": 1 / number,
            "noise_rate": p,
            "q": theory.risk_factors(theory.pair_noise_rates(p, number), 1 / number).smallest,
        }
        for number in classes
    ]
    many = {"panel": "a", "num_classes": np.inf, "weight": 0.0, "noise_rate": p, "q": theory.skewed_risk_factor(p, 1)}
    sizes = np.unique(np.geomspace(2, 1000, grid).round())
    weights = [(np.nan, 1 / sizes), *((s, theory.negative_weight(sizes, s)) for s in (*samples, np.inf))]
    by_size: list[Columns] = [
        {
            "panel": "b",
            "num_classes": sizes,
            "samples_per_class": s,
            "weight": weight,
            "noise_rate": theory.tolerated_noise_rate(sizes, weight),
            "q": 0.0,
        }
        for s, weight in weights
    ]
    skews = np.geomspace(*SKEWS, grid)
    by_skew: list[Columns] = [
        {
            "panel": "c",
            "num_classes": np.inf,
            "skew": skews,
            "noise_rate": theory.noise_rate_bound(skews, least=least),
            "q": least,
        }
        for least in (0.0, 0.5)
    ]
    implied: Columns = {
        "panel": "c, marks",
        "num_classes": np.inf,
        "skew": theory.implied_skew(BREAKS),
        "noise_rate": BREAKS,
        "q": 0.0,
    }
    gammas = np.linspace(1 / SKEWS[1], 1, grid)
    region = {
        "panel": "d",
        "num_classes": np.inf,
        "skew": 1 / gammas,
        "noise_rate": p[:, None],
        "q": theory.skewed_risk_factor(p[:, None], 1 / gammas),
    }
    with style():
        picture, axes = panels(2, 2, height=6.4)
        (q_of_rate, rate_of_size), (rate_of_skew, q_of_both) = axes

        q_of_rate.axhline(0, color=BLACK, linewidth=0.8)
        for index, sample in enumerate(by_rate):
            colour, number = CLASS_COLOURS[index], sample["num_classes"]
            limit = float(theory.tolerated_noise_rate(number, sample["weight"]))
            label = f"$K$ = {number}: {100 * limit:.1f} %"
            q_of_rate.plot(p, sample["q"], color=colour, label=label, linestyle=SAMPLE_STYLES[index % 4])
            q_of_rate.plot(limit, 0, color=colour, marker=MARKERS[index], markersize=6, clip_on=False)
        q_of_rate.plot(p, many["q"], color=BLACK, linestyle=(0, (1, 1)), label="$K$ → ∞: $(1-p)^2$")
        noise_rate_axis(q_of_rate, title="(a) $Q$ with the paper's weight 1/$K$", ylabel="smallest factor $Q$")
        q_of_rate.set_ylim(top=1.25 + 0.15 * max(0, len(classes) - 4))  # room for the legend above the curves
        q_of_rate.legend(
            title="$Q$ ≥ 0 up to",
            loc="upper center",
            bbox_to_anchor=(0.58, 1),
            handlelength=1.8,
            labelspacing=0.3,
            borderaxespad=0,
        )

        names = ["paper", *(f"$s$ = {s}" for s in samples), "$s$ → ∞"]
        styles = [(BLACK, "-"), *zip((BLUE, ORANGE, GREEN, RED), SAMPLE_STYLES, strict=True)]
        styles = [*styles[: len(samples) + 1], (PINK, "-")]
        for sample, (colour, line) in zip(by_size, styles, strict=True):
            rate_of_size.plot(sizes, sample["noise_rate"], color=colour, linestyle=line, clip_on=False)
        rate_of_size.set_xscale("log")
        rate_of_size.set(
            title="(b) $Q$ ≥ 0, by classes",
            xlabel="number of classes $K$",
            ylabel="tolerated noise rate $p$ (%)",
            xlim=(2, 1000),
            ylim=(0, 1),
        )
        plain_ticks(rate_of_size, (2, 5, 10, 30, 100, 300, 1000))
        ends = [(name, float(sample["noise_rate"][-1])) for name, sample in zip(names, by_size, strict=True)]
        name_ends(rate_of_size, ends, [colour for colour, _ in styles], x=1000)
        in_percent(rate_of_size.yaxis)

        for sample, colour, line, name in zip(
            by_skew, (BLUE, ORANGE), ("-", "--"), ("$Q$ ≥ 0", "$Q$ ≥ 0.5"), strict=True
        ):
            rate_of_skew.plot(skews, sample["noise_rate"], color=colour, linestyle=line, label=name)
        for rate, skew in zip(BREAKS, np.asarray(implied["skew"]), strict=True):
            rate_of_skew.plot([1, skew], [rate, rate], color=BLACK, linewidth=0.8, linestyle=":")
            rate_of_skew.plot(skew, rate, color=BLUE, marker="o", markersize=5)
            direct_label(rate_of_skew, skew, rate, f"breaks at {100 * rate:.0f} %: {skew:.2f}", BLACK, xytext=(7, 3))
        rate_of_skew.set_xscale("log")
        rate_of_skew.set(
            title="(c) $Q$ ≥ 0, skewed sampling",
            xlabel="skew $\\eta$ of the sampling (times uniform)",
            ylabel="tolerated noise rate $p$ (%)",
            xlim=SKEWS,
            ylim=(0, 1),
        )
        plain_ticks(rate_of_skew, (1, 1.5, 2, 3, 5, 10))
        rate_of_skew.legend(loc="upper right", borderaxespad=0)
        in_percent(rate_of_skew.yaxis)

        width = gammas[1] - gammas[0]  # of a pixel, whose centre is a number of the grid
        image = q_of_both.imshow(
            region["q"],
            cmap=DIVERGING.removesuffix("_r"),  # blue where noise is tolerated
            vmin=-1,
            vmax=1,
            extent=(gammas[0] - 0.5 * width, 1 + 0.5 * width, -0.5 / (grid - 1), 1 + 0.5 / (grid - 1)),
            aspect="auto",
            interpolation="bilinear",
        )
        for least, line, colour, at, name in (
            (0.0, "-", BLACK, 0.62, "$Q$ = 0"),
            (0.5, "--", BLACK, 0.78, "$Q$ = 0.5"),
        ):
            bound = theory.noise_rate_bound(1 / gammas, least=least)
            q_of_both.plot(gammas, bound, color=colour, linestyle=line)
            height = float(theory.noise_rate_bound(1 / at, least=least))
            direct_label(q_of_both, at, height, name, colour, xytext=(0, 5), ha="right")
        q_of_both.set(
            title="(d) $Q$ against $\\gamma$ = 1/skew",
            xlabel="least over largest skew $\\gamma = \\eta^-/\\eta^+$",
            ylabel=NOISE_RATE,
            xlim=(gammas[0], 1),
            ylim=(0, 1),
        )
        in_percent(q_of_both.yaxis)
        bar = picture.colorbar(image, ax=q_of_both, extend="min", ticks=(-1, -0.5, 0, 0.5, 1))
        bar.set_label("smallest factor $Q$")
    return Figure(
        "tolerance",
        "Up to which noise rate the paper's condition holds",
        "eq. 24 to 27, 37 and 46",
        "The paper's guarantee ends where a curve of (a) crosses 0. Panel (b) shows that noise rate for every number "
        "of classes, with the paper's weights of negative pairs and with exact ones. In (c), a sampling with the skew "
        "on the horizontal axis keeps Q at 0 or more up to the curve: a method that breaks at 50 % has a skew of 1.33. "
        "Panel (d) shows Q itself against 1/skew, blue where it is positive.",
        tidy([*by_rate, many, *by_size, *by_skew, implied, region]),
        picture,
    )


def risk(classes: Sequence[int], samples: Sequence[int], *, grid: int) -> Figure:
    """The part of the clean risk left under 1-1 sampling: exact, in the limit of large classes, and the paper's Q."""
    p = np.linspace(0, 1, grid)
    curves: list[Columns] = []
    for number in classes:
        rates = theory.pair_noise_rates(p, number)
        limit = theory.risk_factors(rates, theory.negative_weight(number, np.inf)).smallest
        paper = theory.risk_factors(rates, 1 / number).smallest
        shared: Columns = {"num_classes": number, "noise_rate": p, "large_classes": limit, "q_of_the_paper": paper}
        factors = {s: theory.single_negative_factor(p, num_classes=number, samples_per_class=s) for s in samples}
        curves += [shared | {"samples_per_class": s, "factor": factor} for s, factor in factors.items()]
    numbers = tidy(curves)
    rows = -(-len(classes) // 2)
    with style():
        picture, axes = panels(rows + 1, 2, height=2.2 * rows + 2.7)
        for index, ax in enumerate(axes[:-1].flat):
            if index >= len(classes):
                ax.remove()
                continue
            number = classes[index]
            mine = [sample for sample in curves if sample["num_classes"] == number]
            ax.axhline(0, color=BLACK, linewidth=0.8)
            ax.plot(p, mine[0]["q_of_the_paper"], color=RED, linestyle=(0, (1, 1)), linewidth=2)
            for sample, colour, line in zip(mine, (BLUE, GREEN, ORANGE, SKY), SAMPLE_STYLES, strict=False):
                ax.plot(p, sample["factor"], color=colour, linestyle=line)
            ax.plot(p, mine[0]["large_classes"], color=BLACK, linewidth=0.9)
            negative = float(theory.tolerated_noise_rate(number, 1 / number))
            ax.plot(negative, 0, color=RED, marker="X", markersize=7, linestyle="none")
            ax.plot(1 - 1 / number, 0, color=BLACK, marker="o", fillstyle="none", markersize=7, clip_on=False)
            ax.text(
                0.52,
                0.97,
                f"$Q$ < 0 from {100 * negative:.1f} %\n$c$ = 0 at {100 * (1 - 1 / number):.1f} % only",
                transform=ax.transAxes,
                ha="center",
                va="top",
            )
            noise_rate_axis(ax, title=f"$K$ = {number} classes", ylabel="factor of the risk")
        across = axes[-1, 0].get_gridspec()[-1, :]
        for ax in axes[-1]:
            ax.remove()
        gap_axes = picture.add_subplot(across)
        gap_axes.axhline(0, color=BLACK, linewidth=0.8)
        for sample in curves:
            colour = CLASS_COLOURS[classes.index(sample["num_classes"])]
            line = SAMPLE_STYLES[samples.index(sample["samples_per_class"])]
            gap_axes.plot(p, sample["factor"] - sample["large_classes"], color=colour, linestyle=line)
        difference = "$c(p) - (1-\\kappa p)^2$"
        noise_rate_axis(gap_axes, title="How far the exact factor is above $(1-\\kappa p)^2$", ylabel=difference)
        gap_axes.set_ylim(top=1.4 * gap_axes.get_ylim()[1])  # room for the legend above the curves
        gap_axes.legend(
            handles=[
                *(handle(f"$K$ = {number}", CLASS_COLOURS[i], linewidth=3) for i, number in enumerate(classes)),
                *(handle(f"$s$ = {s}", BLACK, line) for s, line in zip(samples, SAMPLE_STYLES, strict=False)),
            ],
            loc="upper center",
            ncols=4,
            handlelength=3,
        )
        legend_above(
            picture,
            [
                *(
                    handle(f"exact $c$, $s$ = {s}", colour, line)
                    for s, colour, line in zip(samples, (BLUE, GREEN, ORANGE, SKY), SAMPLE_STYLES, strict=False)
                ),
                handle("$(1-\\kappa p)^2$", BLACK, linewidth=0.9),
                handle("$Q$ of the paper", RED, (0, (1, 1)), linewidth=2),
            ],
        )
    return Figure(
        "risk",
        "What noise leaves of the clean risk under 1-1 sampling",
        "proposition 1, made exact for classes of finite size",
        "At each noise rate, the expected risk of every embedding is c(p) times its clean risk, plus a constant. Where "
        "c is above 0, the clean minimiser therefore stays the minimiser. The factor c stays near (1 - kappa p)^2, "
        "never changes its sign, and is 0 (circle) only for uniformly random labels. The dotted Q, from the paper's "
        "weights, changes its sign earlier, at the cross. The lowest panel shows how little c differs from its limit "
        "of large classes.",
        numbers,
        picture,
    )


def _different(values: Sequence[int], *, most: int, name: str) -> list[int]:
    """The numbers, sorted."""
    usable = all(isinstance(value, int) and not isinstance(value, bool) and value >= 2 for value in values)
    if not usable or not 1 <= len(values) <= most or len(set(values)) < len(values):
        raise ValueError(
            f"{name} must be 1 to {most} different whole numbers of at least 2: got "
            f"{', '.join(map(str, values)) or 'none'}."
        )
    return sorted(values)


def _simulated(num_classes: int, draws: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    every = [theory.simulated_pair_rates(p, num_classes, draws=draws, generator=generator) for p in SIMULATED.tolist()]
    return np.array([rates.positive for rates in every]), np.array([rates.negative for rates in every])
