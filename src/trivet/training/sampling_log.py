"""Label noise of a run: how many wrong labels its strategy tolerates, measured while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from trivet.datasets import Splits
from trivet.label_noise import PickCounts, estimate_skew, loss_picks, strategy_tolerance, unpicked
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.losses.matryoshka import of_batch
from trivet.reports.label_noise_record import Phase, Picks, Skew, ToleranceRecord
from trivet.runtime.json_numbers import as_json

SPACING, CHECKS = 4, 100  # steps between two looks at least, and looks at a run at most
PHASES, FEWEST = 8, 5  # parts of the training that are told apart at most, and looks in each at least


def spacing(steps: int) -> int:
    """Steps between two looks: the same looks are made, or fewer of them, if the run is made longer."""
    between = SPACING
    while steps > between * CHECKS:
        between *= 2
    return between


class SamplingLog:
    """Log of what the loss of a run picked, at some of its steps. A checkpoint keeps it.

    Attributes:
        checks: the optimiser steps done before, and what was picked, in order.
    """

    def __init__(self, splits: Splits, loss: EmbeddingLoss, *, steps: int) -> None:
        sizes = np.unique(splits.train.labels[splits.level], return_counts=True)[1]
        self._classes, self._typical = len(sizes), int(np.median(sizes))
        self._spacing = spacing(steps)
        of_classes = splits.level not in splits.train.relations
        self._reason = unpicked(loss) if of_classes else "wrong labels are known of classes only"
        self.checks: list[tuple[int, PickCounts]] = []

    def state(self) -> list[Mapping[str, Any]]:
        """The looks, as JSON."""
        return [{"step": step} | as_json(counts) for step, counts in self.checks]

    def load(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Go on from a state; looks that are none any more, since steps were added, are left out."""
        self.checks = [
            (check["step"], PickCounts.from_json(check)) for check in state if check["step"] % self._spacing == 0
        ]

    def watch(
        self, loss: EmbeddingLoss | MatryoshkaLoss, step: Callable[[], int], truth: Callable[[int], np.ndarray | None]
    ) -> None:
        """Look at batches of a loss, of whole embeddings where it has prefixes, right after it was evaluated.

        Args:
            step: gives the optimiser steps done.
            truth: gives the true labels of the batch that follows so many steps, where they are known.
        """
        if self._reason is not None:
            return

        def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            done = step()
            if done % self._spacing == 0:
                embeddings, labels = inputs
                counts = loss_picks(of_batch(loss), embeddings, labels, true_labels=truth(done))
                self.checks.append((done, counts))

        loss.register_forward_hook(record)

    def record(self) -> Picks:
        """The part "strategy" of the section "label_noise" of a record; see docs/json.md."""
        if self._reason is not None:
            return Picks(reason=self._reason)
        if not any(counts.picks.sum() for _, counts in self.checks):
            return Picks(reason="the loss picked no negatives")
        skew, tolerance = self._estimate(self.checks)
        phases = min(PHASES, len(self.checks) // FEWEST)
        along = []
        for chunk in np.array_split(np.arange(len(self.checks)), phases) if phases > 1 else []:
            checks = [self.checks[i] for i in chunk]
            estimate, stands = self._estimate(checks)
            along.append(
                Phase(
                    start=checks[0][0],
                    end=checks[-1][0],
                    picks=estimate.picks,
                    active=estimate.active,
                    skew=estimate.skew,
                    wrong_skew=estimate.wrong_skew,
                    gamma=estimate.gamma,
                    tolerance=stands,
                )
            )
        return Picks(checks=len(self.checks), skew=skew, tolerance=tolerance, along=along)

    def _estimate(self, checks: Sequence[tuple[int, PickCounts]]) -> tuple[Skew, ToleranceRecord | None]:
        skew = estimate_skew([counts for _, counts in checks])
        tolerance = strategy_tolerance(skew, num_classes=self._classes, samples_per_class=max(2, self._typical))
        return Skew.read(as_json(skew)), None if tolerance is None else ToleranceRecord.read(as_json(tolerance))
