"""Which step of a run is its result: the last, or the best on classes held out, if that is better than the start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field
from scipy import stats
from torch import Tensor

from trivet.config import Config
from trivet.data import Dataset, Splits, load
from trivet.evaluation import retrieve_levels
from trivet.evaluation.inputs import Metric
from trivet.geometry.arrays import Floats, Integers
from trivet.models import Embedder, Tokenize, tokenize_of
from trivet.training.embedding import embed

if TYPE_CHECKING:
    from trivet.training.config import RunConfig

SPLITS = ("validation", "val")  # by which a step is chosen, the first that is there
RECALL = "recall@1"
LEVEL = 0.95  # of the one-sided interval of a gain over classes


class ChoosingConfig(Config):
    """Which step is the result of a run."""

    keep: Literal["last", "best"] = Field(
        "last",
        description="best: the step with the highest measure on validation, among those that lose no recall@1 there; "
        "the start, if no step is better beyond doubt. It needs data.folds, or a split val, and looks at most at "
        "evaluation.sample items every evaluation.every steps.",
    )
    measure: Literal["map@r", "recall@1"] = Field("map@r", description="What the best step has most of.")


def load_splits(
    config: RunConfig,
    data_root: Path | None,
    progress: Callable[[int, int], None] | None = None,
    *,
    tokenize: Tokenize | None = None,
) -> Splits:
    """The data of a run; what a step is chosen by comes last, so that the main evaluation split is one that is not.

    Args:
        tokenize: of a network of texts that was trained already; the default is that of the settings.

    Raises:
        ValueError: as `trivet.data.load`; also if there is nothing to choose by, or to evaluate beside it.
    """
    splits = load(config.data, data_root, progress, tokenize=tokenize or tokenize_of(config.model))
    if config.choosing.keep == "last":
        return splits
    chosen_by = next((name for name in SPLITS if name in splits.evaluation), None)
    if chosen_by is None or len(splits.evaluation) < 2:
        found = ", ".join(splits.evaluation)
        raise ValueError(
            'choosing.keep = "best" needs items to choose by beside those that are evaluated: there is only '
            f"{found}; set data.folds = 4, which holds out a quarter of the training classes."
        )
    others = {name: part for name, part in splits.evaluation.items() if name != chosen_by}
    evaluation = {**others, chosen_by: splits.evaluation[chosen_by]}
    return replace(splits, evaluation=evaluation)


def followed(config: RunConfig, splits: Splits) -> str:
    """The split that is looked at during training: the one that a step is chosen by, else the main one."""
    return list(splits.evaluation)[-1 if config.choosing.keep == "best" else 0]


class Choosing:
    """The best step so far. A checkpoint keeps its state, and its weights.

    A network in training is better than the start if the gain of the measure, a mean over the classes of the items, has
    a one-sided 95 % interval (Student's t) above 0, and its recall@1 is not lower. Among these the highest measure
    counts, and of equal ones the first.

    Args:
        config: see `ChoosingConfig`.
        items: what is looked at.
        level: the label level trained on.
        distance: how embeddings are compared.

    Attributes:
        looks: {"step", "value", "recall@1", "gain", "low"}, in order: the measure, its gain on the start, and the
            lower end of the interval of the gain, None for a single class.
        step: of the best.
        weights: of the best; empty before the first look, and where nothing is chosen.
    """

    def __init__(self, config: ChoosingConfig, items: Dataset, level: str, distance: Metric) -> None:
        self.config, self._items, self._level, self._distance = config, items, level, distance
        self._start: Floats | None = None
        self.looks: list[dict[str, Any]] = []
        self.step = 0
        self.weights: dict[str, Tensor] = {}

    @property
    def active(self) -> bool:
        """Whether there is anything to choose."""
        return self.config.keep == "best"

    def begin(self, untrained: Embedder) -> None:
        """See the network before its first step, which all others are compared with."""
        if self.active:
            self._start = self._seen(untrained)[0]

    def look(self, step: int, model: Embedder) -> None:
        """See the network after so many steps."""
        if not self.active:
            return
        assert self._start is not None
        values, classes = self._seen(model)
        gains = values[:, 0] - self._start[:, 0]
        means = values.mean(axis=0)
        look: dict[str, Any] = {
            "step": step,
            "value": float(means[0]),
            RECALL: float(means[1]),
            "gain": float(gains.mean()),
            "low": lower_end(gains, classes),
        }
        highest = max((one["value"] for one in self.looks if _better(one, self._start)), default=-math.inf)
        if not self.looks or (_better(look, self._start) and look["value"] > highest):
            self.step = step
            self.weights = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
        self.looks.append(look)

    def go_back(self, step: int, model: Embedder) -> None:
        """Begin anew at the network that a repair returned to."""
        self.looks = []
        self.look(step, model)

    def put_back(self, model: Embedder) -> None:
        """Give the network the weights of the best step, if one was chosen."""
        if self.weights:
            model.load_state_dict(self.weights)

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs beside the weights, as JSON."""
        return {"step": self.step, "looks": self.looks}

    def restore(self, state: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Go on from a `state`; an empty one, of a checkpoint before there was a choice, changes nothing."""
        if state:
            self.step, self.looks, self.weights = state["step"], list(state["looks"]), dict(weights)

    def as_json(self, split: str) -> dict[str, Any] | None:
        """The section "choosing" of the run record; None where the last step is kept.

        {"measure", "split", "items", "classes", "step": the one kept, "looks"}.
        """
        if not self.active:
            return None
        return {
            "measure": self.config.measure,
            "split": split,
            "items": len(self._items),
            "classes": len(np.unique(self._items.labels[self._level])),
            "step": self.step,
            "looks": self.looks,
        }

    def _seen(self, model: Embedder) -> tuple[Floats, Integers]:
        """The measure and recall@1 of each query `(Q, 2)`, and their classes; embeddings not finite find nothing."""
        embeddings = embed(model, self._items.inputs)
        finite = bool(np.isfinite(embeddings).all())
        names = list(dict.fromkeys((self.config.measure, RECALL)))
        asked = self._items.asked(embeddings if finite else np.zeros_like(embeddings))
        found = retrieve_levels(**asked, measures=names, distance=self._distance)[self._level]
        if not finite:
            return np.zeros((len(found.classes), 2)), found.classes
        return found.values[:, [found.measures.index(name) for name in (self.config.measure, RECALL)]], found.classes


def _better(look: Mapping[str, Any], start: Floats) -> bool:
    return look["low"] is not None and look["low"] > 0 and bool(look[RECALL] >= start[:, 1].mean())


def lower_end(gains: Floats, classes: Integers) -> float | None:
    """The lower end of the one-sided 95 % interval of a mean gain, by Student's t over the means of the classes.

    Args:
        gains: `(N,)` of each item.
        classes: `(N,)` of each item.

    Returns:
        None for a single class, of which nothing can be told.
    """
    _, members, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    means = np.bincount(members, weights=gains) / sizes
    if len(means) < 2:
        return None
    half = stats.t.ppf(LEVEL, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means))
    return float(means.mean() - half)
