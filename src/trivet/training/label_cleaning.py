"""Cleaning: drops or relabels items during training whose label is probably wrong in the present embedding."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from trivet.config.base import Config
from trivet.label_noise import find_suspects
from trivet.label_noise.estimate import FEW
from trivet.reports.label_noise_record import CleaningCheck
from trivet.runtime.record import Record

EPOCHS, LATEST = 2, 200  # when labels are first judged: after so many epochs, or steps if that is sooner


class CleaningConfig(Config):
    """Treatment of labels that are probably wrong while training, judged in the present embedding.

    Args:
        action: "drop" trains without suspects; "relabel" on them with their most probable class, where items are few.
        after: step of the first check: later for a better judge, earlier as labels are memorised; else two epochs.
        every: steps between checks, each of all labels as given: more to save time.
        until: step from which all labels count as given, for a warm-up on labels that look right; by default never.
        above: probability of being wrong above which a label is treated: higher to touch fewer right ones.
    """

    action: Literal["drop", "relabel"]
    after: int | None = Field(None, ge=0)
    every: int = Field(100, ge=1)
    until: int | None = Field(None, ge=1)
    above: float = Field(0.5, gt=0, lt=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.until is not None and self.after is not None and self.until <= self.after:
            raise ValueError(
                f"until must be greater than after, or no label is ever judged: got {self.until} and {self.after}."
            )
        return self


class CleaningState(Record):
    """Looks at the labels, and what they have changed: `relabelled` holds a position and its label each."""

    checks: list[CleaningCheck]
    left_out: list[int]
    relabelled: list[list[int]]


class LabelCleaning:
    """The items and labels that a run trains on. A checkpoint keeps its state.

    Args:
        config: None for labels as given.
        labels: `(N,)` as given, of the training items.
        batch_size: items of a batch.

    Attributes:
        labels: `(N,)` in force.
        rows: ascending positions of the items in force; each class among them has two or more.
        checks: looks at the labels.
    """

    def __init__(self, config: CleaningConfig | None, labels: np.ndarray, *, batch_size: int) -> None:
        self.config, self._original = config, labels
        self._after = min(LATEST, EPOCHS * -(-len(labels) // batch_size))
        if config is not None and config.after is not None:
            self._after = config.after
        if config is not None and config.until is not None and config.until <= self._after:
            raise ValueError(
                f"cleaning.until must be greater than the step of the first check, {self._after}, or no label is ever "
                f"judged: got {config.until}; raise it, or set cleaning.after."
            )
        self.checks: list[CleaningCheck] = []
        self._put_in_force(labels, np.arange(len(labels)))

    @property
    def changed(self) -> bool:
        """True if anything is not as given."""
        return len(self.rows) < len(self.labels) or bool((self.labels != self._original).any())

    def warnings(self, steps: int) -> list[str]:
        """Warnings of settings that would surprise the person who made them, for a run of so many steps."""
        if self.config is None:
            return []
        if self._after >= steps:
            never = (
                f"No label is judged: the first check would be at step {self._after}, but the run has {steps} steps."
            )
            return [never]
        if len(self.labels) < FEW:
            few = f"Cleaning may find no wrong label: of fewer than {FEW} items, here {len(self.labels)},"
            return [f"{few} few can be told from right ones where classes overlap."]
        return []

    def reset(self) -> None:
        """Take all labels as given until the next look."""
        self._put_in_force(self._original, np.arange(len(self._original)))

    def due(self, step: int) -> bool:
        """True if there is something to be done between this many steps and the next one."""
        if self.config is None or (self.checks and self.checks[-1].step >= step) or step < self._after:
            return False
        return step == self.config.until or self.judges(step)

    def judges(self, step: int) -> bool:
        """True if what is to be done needs embeddings."""
        assert self.config is not None
        within = self.config.until is None or step < self.config.until
        return within and (step - self._after) % self.config.every == 0

    def measure(self, step: int, embeddings: np.ndarray | None, *, num_classes: int, seed: int) -> str:
        """Judge all labels, or take those given again where none are due; returns a line that says what was done.

        Args:
            embeddings: `(N, d)` of all training items, if `judges(step)`.
            num_classes: as many as batches need; nothing is changed where fewer classes would be left.
            seed: of the estimate of the noise.
        """
        assert self.config is not None
        if embeddings is None:
            self.reset()
            self._note(step, suspects=0, rate=None)
            return f"step {step}: cleaning ends; all labels are used as given"
        if not np.isfinite(embeddings).all():
            self._note(step, suspects=0, rate=None)
            return f"step {step}: the embeddings are not finite, so no label is judged"
        # A network hides what it has memorised; the labels as given stay as wrong as an earlier look has shown.
        least = max((check.least or 0.0 for check in self.checks), default=0.0)
        judged = find_suspects(embeddings, self._original, seed=seed, least=least)
        noise = judged.noise
        if noise.verdict == "uninformative":
            self._note(step, suspects=0, rate=None)
            return f"step {step}: the embedding knows too little of the labels, so none is judged"
        suspect = judged.probability_wrong > self.config.above
        labels, retained = self._original, ~suspect
        if self.config.action == "relabel":
            suspect &= judged.proposed != self._original
            labels, retained = np.where(suspect, judged.proposed, self._original), np.ones(len(suspect), bool)
        rows = np.flatnonzero(retained)
        rows = rows[np.bincount(labels[rows])[labels[rows]] > 1]
        message = f"step {step}: {suspect.sum()} of {len(suspect)} labels look wrong"
        if len(np.unique(labels[rows])) < num_classes:
            self._note(step, suspects=int(suspect.sum()), rate=noise.rate, least=noise.least)
            return f"{message}; nothing is changed, as fewer classes would be left than batches need, {num_classes}"
        self._put_in_force(labels, rows)
        self._note(step, suspects=int(suspect.sum()), rate=noise.rate, least=noise.least)
        return f"{message}; {len(labels) - len(rows)} items dropped, {(labels != self._original).sum()} relabelled"

    def _put_in_force(self, labels: np.ndarray, rows: np.ndarray) -> None:
        self.labels, self.rows = labels, rows

    def _note(self, step: int, *, suspects: int, rate: float | None, least: float | None = None) -> None:
        self.checks.append(
            CleaningCheck(
                step=step,
                suspects=suspects,
                noise_rate=rate,
                least=least,
                left_out=len(self.labels) - len(self.rows),
                relabelled=int((self.labels != self._original).sum()),
            )
        )

    def decisions(self) -> list[tuple[int, str, int]]:
        """(position, "drop" or "relabel", label) of the items that are not trained on as given."""
        out = np.setdiff1d(np.arange(len(self.labels)), self.rows).tolist()
        changed = self.rows[self.labels[self.rows] != self._original[self.rows]].tolist()
        dropped = [(i, "drop", int(self._original[i])) for i in out]
        return sorted(dropped + [(i, "relabel", int(self.labels[i])) for i in changed])

    def state(self) -> CleaningState:
        """All that a resumed run needs."""
        changed = np.flatnonzero(self.labels != self._original)
        return CleaningState(
            checks=self.checks,
            left_out=np.setdiff1d(np.arange(len(self.labels)), self.rows).tolist(),
            relabelled=np.stack([changed, self.labels[changed]], axis=1).tolist(),
        )

    def load(self, state: CleaningState) -> None:
        """Go on from a state; without settings it has no effect."""
        labels, rows = self._original.copy(), np.arange(len(self._original))
        self.checks = []
        if self.config is not None:
            for position, label in state.relabelled:
                labels[position] = label
            rows = np.setdiff1d(rows, np.array(state.left_out, dtype=np.int64))
            self.checks = list(state.checks)
        self._put_in_force(labels, rows)
