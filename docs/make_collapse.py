"""Draw the pictures of docs/collapse.md: .venv/bin/python docs/make_collapse.py (about two minutes)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from trivet.commands.demo.run import COARSE, FINE, PICTURE, train_parity
from trivet.datasets import DigitsConfig, load
from trivet.io.atomic_files import write_atomic
from trivet.reports.figure import BLACK, BLUE, COLOURS, ORANGE, encode, panels, style
from trivet.training.embed_dataset import embed

DOCS = Path(__file__).parent
Array = np.ndarray[Any, np.dtype[Any]]
MARKERS = "os^Dv<>PX*"


def embeddings() -> dict[str, tuple[Array, Array, Array]]:
    """Title -> points in the plane, digit, and the label trained on."""
    sys.path.insert(0, str(DOCS.parent / "studies"))
    from fates import trained  # of the studies, which are no package

    points, labels, _ = trained(0, d=2, classes=8, samples=4)
    shrunk, _, _ = trained(0, d=2, classes=8, samples=4, noise=0.3)
    splits = load(DigitsConfig(), None)
    images = splits.evaluation["seen"]
    parity = embed(train_parity(splits, PICTURE, "random", 0).model, images.inputs)
    return {
        "healthy": (points, labels, labels),
        "network collapse": (shrunk, labels, labels),
        "class collapse": (parity, images.labels[FINE], images.labels[COARSE]),
    }


def draw(embedded: dict[str, tuple[Array, Array, Array]]) -> None:
    """Two pictures: the points, and the distances of items of one class and of two."""
    captions = {  # what the network was trained on
        "healthy": "ten digits",
        "network collapse": "30 % of the labels random",
        "class collapse": "odd or even alone",
    }
    with style():
        picture, axes = panels(1, 3, height=3.3)
        reach = 1.1 * np.abs(embedded["healthy"][0] - embedded["healthy"][0].mean(axis=0)).max()
        for axis, (title, (points, digits, _)) in zip(axes[0], embedded.items(), strict=True):
            centred = points - points.mean(axis=0)
            for digit in np.unique(digits).tolist():
                chosen = centred[digits == digit]
                axis.scatter(
                    *chosen.T, s=7, marker=MARKERS[digit], color=COLOURS[digit % 8], label=str(digit), linewidths=0
                )
            limit = reach if title != "class collapse" else 1.1 * np.abs(centred).max()
            axis.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", title=f"{title}\n{captions[title]}")
            axis.set_xlabel("first coordinate")
        axes[0, 0].set_ylabel("second coordinate")
        handles, names = axes[0, 0].get_legend_handles_labels()
        picture.legend(handles, names, ncols=10, loc="outside lower center", title="digit", markerscale=1.8)
        write_atomic(DOCS / "collapse" / "points.png", encode(picture, "png"))
        picture, axes = panels(1, 3, height=2.5, sharey=True)
        unit = pdist(embedded["healthy"][0]).mean()
        for axis, (title, (points, _, labels)) in zip(axes[0], embedded.items(), strict=True):
            distances = pdist(points) / (unit if title != "class collapse" else pdist(points).mean())
            same = pdist(labels[:, None].astype(float)) == 0
            edges = np.linspace(0, 3, 61)
            for chosen, colour, hatch, name in ((same, BLUE, "", "one class"), (~same, ORANGE, "///", "two classes")):
                shares, _ = np.histogram(distances[chosen], edges)
                axis.stairs(100 * shares / chosen.sum(), edges, color=colour, fill=True, alpha=0.45, hatch=hatch)
                axis.stairs(100 * shares / chosen.sum(), edges, color=colour, label=name, linewidth=1.2)
            axis.axvline(distances.mean(), color=BLACK, linestyle=":", linewidth=1)
            axis.set(title=title, xlabel="distance", ylim=(0, 40))
        axes[0, 0].set_ylabel("pairs of the kind (%)")
        axes[0, 0].legend()
        write_atomic(DOCS / "collapse" / "distances.png", encode(picture, "png"))


if __name__ == "__main__":
    draw(embeddings())
