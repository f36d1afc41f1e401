"""Plots of an audit drawn by matplotlib: probabilities of its suspects, and the transition matrix."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from trivet.commands.audit.record import AuditRecord
from trivet.reports.figure import BLUE, panels, style

MOST_CLASSES = 20  # of a matrix whose cells can be told apart
BINS = 20


def draw_audit(record: AuditRecord) -> Figure:
    """Number of items by the probability that they are wrong; of few classes, the shares of labels in each."""
    suspects = record.suspects or record.tag_suspects or record.pair_suspects
    probabilities = [suspect.probability_wrong or 0 for suspect in suspects]
    transition = record.transition
    matrix = transition if transition is not None and len(transition.classes) <= MOST_CLASSES else None
    with style():
        picture, axes = panels(1, 1 if matrix is None else 2, height=3.4)
        left = axes[0, 0]
        left.hist(probabilities, bins=np.linspace(0, 1, BINS + 1), color=BLUE, log=True)
        left.set(xlabel="probability that the label is wrong", ylabel="items")
        left.set_title(f"{record.name}: {record.level}".replace("$", r"\$"), loc="left")
        if matrix is not None:
            right = axes[0, 1]
            shares = np.array([[math.nan if share is None else share for share in row] for row in matrix.matrix])
            # The root shows small shares, which are the ones to be seen.
            right.imshow(np.sqrt(shares.clip(0, 1)), cmap="Blues", vmin=0, vmax=1, origin="upper")
            names = [name.replace("$", r"\$") for name in matrix.classes]
            right.set_xticks(range(len(names)), names, rotation=90)
            right.set_yticks(range(len(names)), names)
            right.set(xlabel="label", ylabel="true class")
    return picture
