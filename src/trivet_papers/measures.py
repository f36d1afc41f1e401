"""Names of the measures that an arm of an experiment may ask for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trivet_papers import measured
from trivet_papers.xuan2020 import measures

PUBLISHED_STEPS = 146  # 2 epochs of 73 batches, as many as the paper makes

MEASURES: dict[str, Callable[[measured.MeasuredModel], measured.Measured]] = {
    "recall": measured.evaluated,
    "ranking": partial(measured.evaluated, measures=("r-precision", "map@r")),  # takes several times as long as recall
    "validation": partial(measured.evaluated, measures=("recall@1", "map@r"), only="validation"),
    "clusters": partial(measured.evaluated, measures=("nmi", "nmi-geometric")),
    "clusters-plus": partial(measured.evaluated, measures=("nmi+",)),
    "whole-training": measured.training_set,
    "sub-clusters": measured.sub_clusters,
    "held-out-map": measured.holdout_map,
    "neighbourhoods": measured.neighbourhoods,
    "inputs": measured.inputs_recall,
    "zero-shot": measured.backbone_recall,
    "collapse": measured.collapse,
    "spread": measured.spread,
    "first-batch": measured.first_batch,
    "whole-set": partial(measures.full_set, points=False, every=False),
    "whole-set-points": partial(measures.full_set, points=True, every=False),
    "whole-set-published": partial(measures.full_set, points=False, every=True),
    "whole-set-published-points": partial(measures.full_set, points=True, every=True),
    "movement": partial(measures.step_movement, steps=20),
    "movement-published": partial(measures.step_movement, steps=PUBLISHED_STEPS),
}
