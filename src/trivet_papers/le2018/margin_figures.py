"""The margin loss with its hinge under label noise: which pairs it uses, and its residual."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from trivet.reports.figure import BLACK, BLUE, GREEN, ORANGE, RED, SKY, panels, style
from trivet_papers.figure import Columns, Figure, in_percent, legend_above, tidy
from trivet_papers.le2018 import theory
from trivet_papers.lines import Dashes, handle

SAMPLE_STYLES: tuple[Dashes, ...] = ("-", (0, (5, 1.5)), (0, (3, 1.5, 1, 1.5)), (0, (1, 1)))
NOISE_RATE = "noise rate $p$ of the labels (%)"


def noise_rate_axis(axes: Axes, **words: str) -> None:
    """The noise rate from 0 to 100 % along the x axis, with the title and y label given."""
    axes.set(xlabel=NOISE_RATE, xlim=(0, 1), **words)
    in_percent(axes.xaxis)


def partition(*, grid: int, margin: float, beta: float) -> Figure:
    """Pairs that the margin loss uses with the true and with the wrong label, by their distance."""
    edges = [edge for edge in (beta - margin, beta + margin) if 0 < edge < 2]
    d = np.union1d(np.linspace(0, 2, grid), edges)
    bounds = np.array([0.0, *edges, 2.0])
    samples: list[Columns] = []
    for positive in (True, False):
        true, wrong = (
            theory.hinged_margin_loss(d, np.full(d.shape, flag), margin=margin, beta=beta)
            for flag in (positive, not positive)
        )
        sets = theory.margin_partition(d, np.full(d.shape, positive), margin=margin, beta=beta)
        samples.append(
            {
                "t": 1 if positive else -1,
                "distance": d,
                "loss_true_label": true,
                "loss_wrong_label": wrong,
                **{name: mask.astype(int) for name, mask in sets._asdict().items()},
            }
        )
    fills = {  # fill, hatch, name
        "both": ("#ffffff", "", "$T_m$"),
        "clean_only": ("#d5ebe2", "", "$T_m^+$"),
        "noisy_only": ("#fbe3c4", "///", "$T_m^-$"),
    }
    with style():
        picture, axes = panels(1, 2, height=3.5, sharey=True)
        for ax, sample in zip(axes[0], samples, strict=True):
            top = 1.25 * max(sample["loss_true_label"].max(), sample["loss_wrong_label"].max())
            middles = (bounds[:-1] + bounds[1:]) / 2
            masks = theory.margin_partition(middles, np.full(middles.shape, sample["t"] == 1), margin=margin, beta=beta)
            for k, middle in enumerate(middles):
                fill, hatch, name = fills[next(name for name, mask in masks._asdict().items() if mask[k])]
                ax.axvspan(bounds[k], bounds[k + 1], facecolor=fill, hatch=hatch, edgecolor="#eeb96a", linewidth=0)
                ax.text(middle, 0.93 * top, name, ha="center", va="center", fontsize=11, bbox={"color": fill, "pad": 1})
            ax.plot(d, sample["loss_true_label"], color=BLUE)
            ax.plot(d, sample["loss_wrong_label"], color=RED, linestyle="--")
            ax.axvline(beta, color=BLACK, linewidth=0.8, linestyle=":")
            ax.annotate("$\\beta$", (beta, 0.83 * top), xytext=(3, 0), textcoords="offset points")
            ax.set(
                title="Pairs of one class ($t$ = +1)" if sample["t"] == 1 else "Pairs of two classes ($t$ = −1)",
                xlabel="distance $d$ (in units of the embedding)",
                xlim=(0, 2),
                ylim=(0, top),
                xticks=np.arange(0, 2.01, 0.5),
            )
        axes[0, 0].set_ylabel("loss of the pair (in units of the embedding)")
        legend_above(picture, [handle("with its true label", BLUE), handle("with the wrong one", RED, "--")])
    return Figure(
        "partition",
        "Which pairs the margin loss uses, with the right label and with the wrong one",
        "eq. 2 and 33 to 35 of section 5.3",
        "Find the distance of a pair. Where the full line is above 0, the pair is used with its true label; where the "
        "dashed one is, with the wrong label. Noise takes away the loss of the pairs in T_m^+ (plain shade) and adds a "
        "false one to those in T_m^- (hatched). Near the boundary beta, in T_m, both labels give a loss.",
        tidy(samples),
        picture,
    )


def residual(classes: Sequence[int], *, grid: int, gamma: float) -> Figure:
    """The multipliers of the residual of the margin loss, and whether z makes the first outweigh the second."""
    number = classes[-1]
    p = np.linspace(0, 1, grid)
    multipliers = theory.residual_multipliers(p, number, positive_skew=1 / gamma, negative_skew=1.0)
    by_rate: list[Columns] = [
        {
            "panel": "a",
            "num_classes": number,
            "gamma": gamma,
            "noise_rate": p,
            "pair": name,
            "t": -1 if name.endswith("negative") else 1,
            "positive_skew": 1 / gamma,
            "negative_skew": 1.0,
            "value": values,
        }
        for name, values in multipliers._asdict().items()
    ]
    gammas = np.linspace(0.02, 0.98, grid)
    by_gamma: list[Columns] = []
    for name, t, extreme in (("extreme", 1, True), ("extreme", -1, True), ("equal", -1, False)):
        values = np.empty(grid)
        for k, share in enumerate(gammas):
            # Pairs of skews (largest, smallest), and of (largest, largest).
            each = theory.residual_multipliers(
                0.3, number, positive_skew=[1 / share, 1 / share], negative_skew=[1.0, 1 / share]
            )
            first = each.clean_only_positive if t == 1 else each.clean_only_negative
            second = each.noisy_only_positive if t == 1 else each.noisy_only_negative
            pair = 0 if extreme else 1
            values[k] = theory.residual_ratio(share) * first[pair] / second[pair]
        by_gamma.append(
            {
                "panel": "b",
                "num_classes": number,
                "gamma": gammas,
                "noise_rate": 0.3,
                "pair": name,
                "t": t,
                "positive_skew": 1 / gammas,
                "negative_skew": 1.0 if extreme else 1 / gammas,
                "value": values,
            }
        )
    with style():
        picture, axes = panels(1, 2, height=3.9)
        of_rate, of_gamma = axes[0]
        for sample, colour, line, mark in zip(
            by_rate, (BLUE, SKY, RED, ORANGE), SAMPLE_STYLES, ("o", "s", "^", "D"), strict=True
        ):
            where = "$T_m^+$" if sample["pair"].startswith("clean") else "$T_m^-$"
            of_rate.plot(
                p[1:],
                sample["value"][1:],
                color=colour,
                linestyle=line,
                marker=mark,
                markevery=max(1, grid // 6),
                markersize=9 if mark == "s" else 5,  # two of the curves may be one
                fillstyle="none" if mark == "s" else "full",
                label=f"{where}, $t$ = {'−1' if sample['t'] < 0 else '+1'}",
            )
        of_rate.set_yscale("log")
        noise_rate_axis(of_rate, title="(a) Multipliers of the residual", ylabel="multiplier of the change in loss")
        of_rate.legend(title=f"$K$ = {number}, $\\gamma$ = {gamma:g}", loc="lower right", handlelength=3.2)
        for sample, colour, line, name in zip(
            by_gamma,
            (BLUE, SKY, GREEN),
            SAMPLE_STYLES[:3],
            ("$t$ = +1, extreme skews", "$t$ = −1, extreme skews: $z$", "$t$ = −1, equal skews"),
            strict=True,
        ):
            of_gamma.plot(gammas, sample["value"], color=colour, linestyle=line, label=name)
        of_gamma.axhspan(of_gamma.get_ylim()[0], 1, color="#fbe3c4", zorder=0, linewidth=0)
        of_gamma.axhline(1, color=BLACK, linewidth=0.8)
        of_gamma.set_yscale("log")
        of_gamma.set(
            title="(b) Is $z$ enough?",
            xlabel="least over largest skew $\\gamma = \\eta^-/\\eta^+$",
            ylabel="$z$ × multiplier of $T_m^+$ / that of $T_m^-$",
            xlim=(0, 1),
        )
        of_gamma.set_ylim(bottom=0.01)
        of_gamma.text(0.97, 0.6, "not enough", ha="right", va="top", transform=of_gamma.get_yaxis_transform())
        of_gamma.legend(loc="upper center")
    return Figure(
        "residual",
        "What decides whether noise hurts the margin loss: the residual",
        "eq. 44 to 48 of the supplement",
        "In (a), each curve weights the change in the loss of a pair. Pairs lost to noise (T_m^+) count for the clean "
        "minimiser, pairs that noise adds (T_m^-) against it. The paper holds that z times the first outweighs the "
        "second; (b) shows that ratio. It falls below 1, into the shade, for negative pairs of extreme skews when "
        "gamma is below one half. So z |T_m^+| > |T_m^-| is a rule of thumb.",
        tidy([*by_rate, *by_gamma]),
        picture,
    )
