"""Label noise of a run: how many wrong labels its strategy tolerates, measured while it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from trivet.datasets import Splits
from trivet.label_noise import PickCounts, estimate_skew, loss_picks, strategy_tolerance, unpicked
from trivet.label_noise.skew import json_values
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.losses.matryoshka import of_batch

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
        looks: {"step": the optimiser steps done before, and the counts of `PickCounts`}, in order.
    """

    def __init__(self, splits: Splits, loss: EmbeddingLoss, *, steps: int) -> None:
        sizes = np.unique(splits.train.labels[splits.level], return_counts=True)[1]
        self._classes, self._typical = len(sizes), int(np.median(sizes))
        self._spacing = spacing(steps)
        self._reason = unpicked(loss)
        self.checks: list[dict[str, Any]] = []

    def state_dict(self) -> list[dict[str, Any]]:
        """The looks."""
        return self.checks

    def load_state_dict(self, state: Sequence[dict[str, Any]]) -> None:
        """Go on from a `state_dict`; looks that are none any more, since steps were added, are left out."""
        self.checks = [check for check in state if check["step"] % self._spacing == 0]

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
                self.checks.append({"step": done} | json_values(counts))

        loss.register_forward_hook(record)

    def as_json(self) -> dict[str, Any]:
        """The part "strategy" of the section "label_noise" of a record; see docs/json.md.

        {"checks", "skew": `SkewEstimate`, "tolerance": `Tolerance`, "along": [{"from", "to", "skew", "wrong_skew",
        "tolerance"}]}, or {"reason"} where there is no skew.
        """
        if self._reason is not None:
            return {"reason": self._reason}
        if not any(sum(check["picks"]) for check in self.checks):
            return {"reason": "the loss picked no negatives"}
        total = self._estimate(self.checks)
        phases = min(PHASES, len(self.checks) // FEWEST)
        chunks = np.array_split(np.arange(len(self.checks)), max(1, phases))
        along = []
        for phase in chunks if phases > 1 else []:
            checks = [self.checks[i] for i in phase]
            estimate = self._estimate(checks)
            along.append(
                {"from": checks[0]["step"], "to": checks[-1]["step"]}
                | {name: estimate["skew"][name] for name in ("picks", "active", "skew", "wrong_skew", "gamma")}
                | {"tolerance": estimate["tolerance"]}
            )
        return {"checks": len(self.checks), **total, "along": along}

    def _estimate(self, checks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        skew = estimate_skew([PickCounts.from_json(check) for check in checks])
        tolerance = strategy_tolerance(skew, num_classes=self._classes, samples_per_class=max(2, self._typical))
        return {"skew": json_values(skew), "tolerance": json_values(tolerance)}
