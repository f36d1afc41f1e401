"""Results of runs that nobody made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trivet_papers.experiment import Arm, Experiment, Results, Size, Verdict, judge

Values = Callable[[Arm, int, int], Mapping[str, Any]]  # of arm, seed and step


def filled(arms: tuple[Arm, ...], value: Values, seeds: int = 3) -> Results:
    """Results of these values."""
    rows = {
        number: {seed: {step: value(arm, seed, step) for step in arm.steps} for seed in range(seeds)}
        for number, arm in enumerate(arms)
    }
    return Results(rows, arms)


def verdicts(one: Experiment, size: Size, value: Values, seeds: int = 3) -> dict[str, Verdict]:
    """The verdict on each claim, by its sentence."""
    recipe = one.recipe(size)
    found = filled(recipe.arms, value, seeds)
    return {claim.sentence: judge(claim, found).verdict for claim in recipe.claims}
