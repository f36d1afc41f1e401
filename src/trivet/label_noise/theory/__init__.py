"""Label noise: how often pairs are wrong, what that does to the risk of unhinged losses, and how much is tolerated.

Each of N items of K classes has a true label and an observed one. The noise is symmetric at rate p if a label is kept
with probability 1 - p and else replaced by one of the K - 1 others, drawn uniformly, independently for each item;
kappa = K / (K - 1). A pair is positive (t = +1) if its true labels agree and else negative (t = -1). Distances d are
Euclidean, between points of the unit sphere, so at most d_max = 2.

Import from here; the files follow the paper's sections.

Source:
    Le, Odobez, "Theoretical Guarantees of Deep Embedding Losses Under Label Noise", 2018; equations by its numbers.
"""

# fmt: off
# ruff: isort: skip_file
from __future__ import annotations

from trivet.label_noise.theory.pairs import (
    PairRates,
    auxiliary_loss,
    class_pair_noise_rates,
    hinged_margin_loss,
    noise_rate_of_pairs,
    pair_noise_rates,
    simulated_pair_rates,
    symmetric_transition,
    unhinged_margin_loss,
    unhinged_triplet_loss,
)
from trivet.label_noise.theory.tolerance import (
    Labelings,
    MarginPartition,
    Reduction,
    ResidualMultipliers,
    RiskFactors,
    implied_skew,
    labelings,
    margin_partition,
    negative_weight,
    noise_rate_bound,
    single_negative_coefficients,
    single_negative_factor,
    residual_multipliers,
    residual_ratio,
    risk_factors,
    skewed_risk_factor,
    tolerated_noise_rate,
)

__all__ = [
    "Labelings",
    "MarginPartition",
    "PairRates",
    "Reduction",
    "ResidualMultipliers",
    "RiskFactors",
    "auxiliary_loss",
    "class_pair_noise_rates",
    "hinged_margin_loss",
    "implied_skew",
    "labelings",
    "margin_partition",
    "negative_weight",
    "noise_rate_bound",
    "noise_rate_of_pairs",
    "pair_noise_rates",
    "residual_multipliers",
    "residual_ratio",
    "risk_factors",
    "simulated_pair_rates",
    "single_negative_coefficients",
    "single_negative_factor",
    "skewed_risk_factor",
    "symmetric_transition",
    "tolerated_noise_rate",
    "unhinged_margin_loss",
    "unhinged_triplet_loss",
]
