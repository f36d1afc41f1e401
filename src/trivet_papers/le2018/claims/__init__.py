"""Le, Odobez: Theoretical Guarantees of Deep Embedding Losses Under Label Noise (2018).

The statements of sections 3 to 5 and 7 and of the supplement that a computation can decide. The theory is in
`trivet_papers.le2018.theory`; here it meets simulation, enumeration and the mining that training uses, and the
equations that are misprinted meet what they must be.
"""

from __future__ import annotations

from trivet_papers.checks import Check
from trivet_papers.le2018.claims import pairs, risk, sampling


def checks() -> list[Check]:
    """One row for each statement; some twenty seconds, seeded."""
    return [
        *pairs.injection_checks(),
        *pairs.pair_rate_checks(),
        *pairs.loss_checks(),
        *pairs.weight_checks(),
        *risk.bound_checks(),
        *risk.risk_checks(),
        *risk.margin_checks(),
        *sampling.sampling_checks(),
        *sampling.skew_checks(),
        *sampling.measure_checks(),
    ]
