"""The weights of a network at its best by held-out items, copied while it trains, and loaded again at the end."""

from __future__ import annotations

from torch import Tensor, nn

from trivet.collapse.probe import LEVELS, ProbeResult, ProbeTracker


class BestWeights:
    """The weights of a network at the best call of a probe: a copy on the CPU, made when it is called.

    At the end they are loaded if the network is then behind them by a point of recall@1 or more and beyond chance at
    95 %, see `ProbeTracker.behind`; else the last step is as good, as far as can be told.

    Args:
        probing: the results of the probe.

    Attributes:
        weights: name -> tensor, of the best call; empty before one.
        restored: the result whose weights were loaded; None if none were.
    """

    def __init__(self, probing: ProbeTracker) -> None:
        self._probing = probing
        self._of: ProbeResult | None = None
        self.weights: dict[str, Tensor] = {}
        self.restored: ProbeResult | None = None

    def follow(self, network: nn.Module) -> None:
        """Copy the network from now on, whenever the probe was called and its result is the best so far."""

        def copy(result: ProbeResult) -> None:
            self._of = result
            self.weights = {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}

        self._probing.on_best = copy

    def load(self, weights: dict[str, Tensor]) -> None:
        """Go on with the weights of the best call so far, those of a resumed run."""
        self.weights, self._of = weights, self._probing.best if weights else None

    def restore(self, network: nn.Module, step: int) -> str | None:
        """Load the best weights if the network is behind them; returns a sentence on it, None if nothing was trained.

        Args:
            step: optimiser steps done, at which the probe was just called: the network is left alone if it failed.
        """
        best, last = self._probing.best, self._probing.last
        if best is None or last is None or last.step != step:
            first = self._probing.reference
            unknown = f"the network of step {step} is the result, as held-out items were not judged there"
            return None if first is not None and first.step == step else unknown
        if not self._probing.behind(best):
            reason = (
                "the best by held-out items" if best is last else f"not behind that of step {best.step} beyond doubt"
            )
            return f"the network of step {last.step} is the result, {reason}"
        measured = (
            f"recall@1 by {LEVELS[len(last.scores) - 1]} of {self._probing.items} held-out items is "
            f"{100 * best.score:.1f} % with it, and {100 * last.score:.1f} % at the end"
        )
        if self._of is not best:
            return (
                f"the network of step {best.step} was better, but there is no copy of it, as training was resumed "
                f"later: {measured}"
            )
        network.load_state_dict(self.weights)
        self.restored = best
        return f"the network of step {best.step} is the result: {measured}"
