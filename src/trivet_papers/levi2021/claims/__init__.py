"""Statements of Levi et al. 2021, sections 3 and 4 and the appendices, each checked by computation, with the misprints.

Claims about trained networks are in `trivet.commands.demo.run`.
"""

from __future__ import annotations

from trivet_papers.checks import Check
from trivet_papers.levi2021.claims import easy_positives, losses, theorems


def checks() -> list[Check]:
    """Every statement of the sections and appendices that can be computed; takes a few seconds."""
    return [
        *losses.losses(),
        *losses.easy_positives(),
        *losses.without_noise(),
        *theorems.label_model(),
        *theorems.pair_minima(),
        *theorems.triplet_theorem(),
        *theorems.margin_theorem(),
        *theorems.searches(),
        *easy_positives.easy_expectation(),
        *easy_positives.claim_1(),
        *easy_positives.claim_2(),
        *easy_positives.claim_3(),
        *easy_positives.claim_4(),
    ]
