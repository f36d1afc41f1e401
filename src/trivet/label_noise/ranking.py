"""The order in which labels are suspected: by a transition counted where nothing overlaps."""

from __future__ import annotations

import numpy as np

from trivet.geometry.arrays import Floats, Integers
from trivet.label_noise.posterior import COUNTED, PSEUDO, even_transition, odds_against
from trivet.label_noise.views import Views

LINEAR = 4.0  # times that the linear view counts as much as the fit has found


def suspicion(views: Views, classes: Integers, powers: Floats, table: Floats | None) -> Floats:
    """Log odds `(N,)` that a label is wrong, for the order of the items: the larger, the more suspect.

    A transition counted on all items explains two things, and takes one for the other. Where two classes overlap, many
    labels disagree in the same way: their entries grow, and right labels there come first. A mistake near another class
    is one of many kinds, each rare: its entry stays small, and it comes last. So the order uses the transition of the
    sure items (`sure_transition`), on which overlap leaves no trace.

    The powers were fitted to the labels as they are. Mistakes near another class have the label of their neighbours, so
    that the fit takes the neighbours for better than they are. The linear view counts four times as much here.

    Args:
        views: of the items, their own labels left out.
        classes: `(N,)` of the labels.
        powers: `(2,)` of the linear view and the neighbours, as fitted.
        table: `(C, C)` T[true, label]; None for one that is the same for all wrong labels.

    Source:
        Chosen here; 4 is the smallest whole number with which the AUROC is at least that of cleanlab on the sets that
        benchmarks/label_noise.py was chosen on.
    """
    logs = views.scores @ (powers * np.array([LINEAR, 1.0])) + np.where(views.repeated, -np.inf, 0.0)
    if table is not None:
        logs += np.log(table[views.candidates, classes[:, None]])
    return odds_against(logs)


def sure_transition(best: Integers, classes: Integers, count: int) -> Floats | None:
    """Transition `(C, C)` of sure items, of most probable classes `(n,)` and labels `(n,)`; None over 1,000 classes.

    Each row is shrunk towards even noise by as many items as give the label of each item the highest likelihood when it
    is left out of the counts itself.

    Example:
        >>> best = np.repeat([0, 1, 2], 200)
        >>> labels = np.where(np.arange(600) % 5 == 0, (best + 1) % 3, best)
        >>> sure_transition(best, labels, 3).round(3)
        array([[0.8  , 0.198, 0.002],
               [0.002, 0.8  , 0.198],
               [0.198, 0.002, 0.8  ]])
    """
    if count > COUNTED:
        return None
    counts = np.bincount(best * count + classes, minlength=count * count).reshape(count, count).astype(np.float64)
    sizes = counts.sum(axis=1)
    rate = float(np.clip(1 - counts.trace() / len(best), 1e-3, 1 - 1e-3))
    even = even_transition(rate, count)
    same, size, expected = counts[best, classes] - 1, sizes[best] - 1, even[best, classes]
    pseudo = max(PSEUDO, key=lambda one: float(np.log((same + one * expected) / (size + one)).mean()))
    return np.asarray((counts + pseudo * even) / (sizes[:, None] + pseudo))


def in_order(values: Floats, suspicion: Floats) -> Floats:
    """The same values, the largest given to the most suspect item; equally suspect ones share the mean of theirs.

    Example:
        >>> in_order(np.array([3.0, 1.0, 2.0]), np.array([0.1, 0.2, 0.9]))
        array([1., 2., 3.])
    """
    _, group = np.unique(suspicion, return_inverse=True)
    place = np.argsort(suspicion, kind="stable")
    total = np.bincount(group[place], weights=np.sort(values))
    return np.asarray((total / np.bincount(group))[group])
