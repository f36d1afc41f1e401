"""Causes of a network that did worse than what it began as: searched for in the run, and put into the verdict."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from trivet.collapse.causes import (
    Cause,
    began_below,
    learned_by_heart,
    moved_statistics,
    rate_too_high,
    steps_too_large,
    wrong_labels,
)
from trivet.collapse.significance import RAW, UNTRAINED, ZERO_SHOT, Comparison, compare
from trivet.collapse.weight_motion import displacement
from trivet.commands.diagnose.inputs import class_names
from trivet.datasets import Dataset
from trivet.label_noise import estimate_noise
from trivet.metrics import Retrieval, retrieve
from trivet.models import Embedder
from trivet.reports.diagnosis_record import DiagnosisSection, RecallComparison
from trivet.reports.history_record import HistoryRecord
from trivet.training.class_sample import class_sample, level_sample
from trivet.training.config import TrainingConfig
from trivet.training.embed_dataset import embed, raw_inputs
from trivet.training.optimizer import parameter_groups

ITEMS = 1000  # of a split that are embedded with other batch-norm statistics
JUDGED = 2000  # items of a split whose labels are judged
WIDEST = 4096  # raw numbers of an item by which labels are judged; linear classifiers of more take long
CHANGES = 3  # at most so many are proposed


@dataclass(frozen=True, eq=False)
class Trained:
    """A run that was diagnosed.

    Attributes:
        datasets: split -> what was diagnosed.
        level: the label level trained on.
        history: of the run record.
        model, untrained: the network as it is, and as it began, if that is still there.
        steps: of the optimiser between the two, all with the learning rates of the settings; None if that is not known.
        training, distance, seed: settings of the run.
        batch_norm_items: over which batch norm was computed.
    """

    datasets: Mapping[str, Dataset]
    level: str
    history: HistoryRecord | None
    model: Embedder
    untrained: Embedder | None
    steps: int | None
    training: TrainingConfig
    distance: Literal["euclidean", "cosine"]
    batch_norm_items: int
    seed: int


def name_causes(diagnosed: Mapping[str, DiagnosisSection], run: Trained) -> None:
    """Replace cause and changes of the verdict "worse-than-reference" where the run shows why; else leave them.

    Args:
        diagnosed: split -> section, "train" among them; changed in place.
    """
    for split, section in diagnosed.items():
        verdicts = {verdict.kind: verdict for verdict in section.verdicts}
        if "worse-than-reference" not in verdicts or "network-collapse" in verdicts:
            continue
        by_reference = {comparison.reference: comparison for comparison in _comparisons(section, run.level)}
        begun_as = [comparison for name, comparison in by_reference.items() if name in (UNTRAINED, ZERO_SHOT)]
        worst = min(
            (comparison for comparison in begun_as if comparison.worse),
            key=lambda comparison: comparison.difference,
            default=None,
        )
        if worst is not None:
            causes = list(_causes(split, worst, diagnosed, run))
        elif begun_as and RAW in by_reference and by_reference[RAW].worse:
            begun = max(begun_as, key=lambda comparison: comparison.reference_score)
            causes = [
                cause for cause in (began_below(begun, by_reference[RAW]), _overwritten(run)) if cause is not None
            ]
        else:
            continue
        causes = [*_labels(split, run), *causes]  # the others may follow from them
        if causes:
            verdict = verdicts["worse-than-reference"]
            verdict.cause = " ".join(cause.text for cause in causes)
            verdict.changes = [*dict.fromkeys(comparison for cause in causes for comparison in cause.changes)][:CHANGES]


def _causes(split: str, lost: Comparison, diagnosed: Mapping[str, DiagnosisSection], run: Trained) -> Iterator[Cause]:
    """Causes of a result below that before training, other than wrong labels."""
    datasets, level = run.datasets, run.level
    train = next(
        (
            comparison
            for comparison in _comparisons(diagnosed.get("train"), level)
            if comparison.reference == lost.reference
        ),
        None,
    )
    # Statistics follow weights that are overwritten, and such as moved look like a high rate in the history.
    if cause := _overwritten(run) or _moved(lost, datasets[split], run) or _fallen(run, train):
        yield cause
    trained_on = set(class_names(datasets["train"], level)) if "train" in datasets else set()
    if train is not None and not trained_on & set(class_names(datasets[split], level)):
        cause = learned_by_heart(train, lost)
        if cause is not None:
            yield cause


def _fallen(run: Trained, train: Comparison | None) -> Cause | None:
    """See `rate_too_high`; None without a history."""
    if run.history is None:
        return None
    moments, rate = run.history.moments, run.training.learning_rate
    steps, recalls = [moment.step for moment in moments], [moment.recall for moment in moments]
    return rate_too_high(steps, recalls, items=run.history.items or 0, rate=rate, train=train)


def _overwritten(run: Trained) -> Cause | None:
    """See `steps_too_large`, of the parameters of one rate that moved the most."""
    if run.untrained is None or run.steps is None:
        return None
    names = {id(value): name for name, value in run.untrained.named_parameters()}
    trained = dict(run.model.named_parameters())
    displacements = []
    for group in parameter_groups(run.untrained, run.training):
        pairs = [(value, trained[names[id(value)]]) for value in group["params"] if names[id(value)] in trained]
        displacements.append((displacement(pairs), group.get("lr", run.training.learning_rate)))
    moved, rate = max(displacements)
    return steps_too_large(moved, steps=run.steps, rate=rate)


def _labels(split: str, run: Trained) -> Iterator[Cause]:
    """See `wrong_labels`."""
    if split == "train" or "train" not in run.datasets:
        return
    train = _judged(run.datasets["train"], run)
    if train is None or wrong_labels(train[1], 0.0, judge=train[0], split=split) is None:  # whatever the split shows
        return
    other = _judged(run.datasets[split], run)
    if other is not None:
        cause = wrong_labels(train[1], other[2], judge=train[0], split=split)
        if cause is not None:
            yield cause


def _judged(items: Dataset, run: Trained) -> tuple[str, float, float] | None:
    """A judge of labels that no label has shaped, and two shares of wrong labels: at least so many where the judge is
    surest, and at most so many in all. None where it cannot judge.
    """
    if run.level in items.relations:  # whose labels say nothing each by itself
        return None
    items = items.subset(class_sample(items.labels[run.level], JUDGED, least=20, seed=run.seed))
    labels = items.labels[run.level]
    backbone = None if run.untrained is None else run.untrained.backbone
    if len(np.unique(labels)) < 2 or (backbone is None and int(np.prod(items.inputs.shape)) > WIDEST):
        return None
    rows = raw_inputs(items.inputs) if backbone is None else embed(backbone, items.inputs)
    noise = estimate_noise(rows, labels, seed=run.seed)
    if noise.interval is None:
        return None
    return RAW if backbone is None else ZERO_SHOT, noise.surest[0], noise.interval[1]


def _comparisons(section: DiagnosisSection | None, level: str) -> list[Comparison]:
    rows = [] if section is None else section.measures.comparisons
    names = ("reference", "level", "queries", "recall", "reference_recall", "low", "high")

    def compared(row: RecallComparison) -> Comparison:
        first, ranked = Comparison(*(getattr(row, name) for name in names)), row.rank_biased
        if ranked is None:
            return first
        of_ranks = replace(
            first, score=ranked.value, reference_score=ranked.reference_value, low=ranked.low, high=ranked.high
        )
        return replace(first, rank_biased=of_ranks)

    return [compared(row) for row in rows if row.level == level]


def _moved(lost: Comparison, dataset: Dataset, run: Trained) -> Cause | None:
    """See `moved_statistics`; None for a network without batch norm."""
    level, model, untrained = run.level, run.model, run.untrained
    if untrained is None:
        return None
    after, before = _statistics(model), _statistics(untrained)
    if not after or after.keys() != before.keys():
        return None
    some = dataset.subset(level_sample(dataset, level, ITEMS, least=2, seed=run.seed))

    labels = some.relation(level)

    def retrieved(network: Embedder, statistics: Mapping[str, Tensor], *, alone: bool = False) -> list[Retrieval]:
        network = copy.deepcopy(network)
        network.load_state_dict(dict(statistics), strict=False)
        encoder = network.backbone if alone else None
        embeddings = embed(encoder or network, some.inputs)
        return [retrieve(embeddings, labels, measures=("recall@1",), distance=run.distance)]

    alone = lost.reference == ZERO_SHOT
    pairs = (
        (retrieved(untrained, after, alone=alone), retrieved(untrained, before, alone=alone)),
        (retrieved(model, before), retrieved(model, after)),
    )
    moved, restored = (compare(*pair, reference=lost.reference, level=level) for pair in pairs)
    return moved_statistics(lost, moved, restored, batch=run.batch_norm_items)


def _statistics(network: nn.Module) -> dict[str, Tensor]:
    """The running statistics of the batch-norm layers, by their names in the state of the network."""
    return {
        f"{module}.{name}" if module else name: value.detach().clone()
        for module, layer in network.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.track_running_stats
        for name, value in layer.named_buffers(recurse=False)
        if torch.is_floating_point(value)
    }
