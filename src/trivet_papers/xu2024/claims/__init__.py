"""Xu et al.: Mathematical justification of hard negative mining via isometric approximation theorem (ICLR 2024).

Checks of its inequalities on small sets of points, of the faults in its proofs, and of its forecast of collapse, which
is put to the test by descending on the loss of free points and by training small networks on digits.
"""

from __future__ import annotations

from trivet_papers.checks import Check
from trivet_papers.xu2024.claims import collapse, sizes, theorems
from trivet_papers.xu2024.point_sets import RANGES, cases


def checks() -> list[Check]:
    """One row for each statement of the paper, or fault of it, that a computation can settle; about a minute."""
    measured = {kind: cases(kind, 12) for kind in RANGES}
    return [
        *sizes.definition_checks(),
        *sizes.vector_checks(),
        *theorems.inequality_checks(measured),
        *theorems.range_checks(measured),
        *theorems.proof_checks(),
        *collapse.forecast_checks(measured),
        *collapse.table_checks(),
        *collapse.hinge_checks(),
        *collapse.training_checks(),
    ]
