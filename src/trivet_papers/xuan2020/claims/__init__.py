"""Xuan et al.: Extreme Triplet Learning, effectively optimizing easy positives and hard negatives (2020).

What the paper says of single triplets and of one gradient step, each statement computed: where a step goes wrong on the
scatter diagram, what entanglement and the second-order loss change, and which printed formulas do not hold.
"""

from __future__ import annotations

from trivet_papers.checks import Check
from trivet_papers.xuan2020.claims import diagram, equations, real_steps


def checks() -> list[Check]:
    """Every statement of sections 3 to 5, 6.1 and the appendices that one machine can compute, and the errors printed.

    Seeded, under a minute on two cores.
    """
    return [
        *equations.closed_form_checks(),
        *equations.geometry_checks(),
        *equations.similarity_checks(),
        *equations.norm_checks(),
        *equations.loss_checks(),
        *equations.small_step_checks(),
        *diagram.edge_checks(),
        *diagram.top_left_checks(),
        *diagram.sign_area_checks(),
        *diagram.movement_type_checks(),
        *diagram.problem_checks(),
        *diagram.mining_checks(),
        *diagram.group_size_checks(),
        *real_steps.free_movement_checks(),
        *real_steps.network_movement_checks(),
        *real_steps.digit_movement_checks(),
    ]
