"""The rule book: retrieval that was lost, and shapes that explain it."""

from __future__ import annotations

import pytest

from trivet.collapse.rules import EmbeddingShape, network_collapse, retrieval_lost, shape_note
from trivet.collapse.significance import Comparison


def beside(score: float, reference: float, *, doubt: bool = False) -> Comparison:
    low, high = (score - reference - 0.01, 0.1 if doubt else score - reference + 0.01)
    return Comparison("before", "labels", 500, score, reference, low, high)


@pytest.mark.parametrize(
    ("recall", "high", "references", "lost"),
    [
        (0.1, 0.13, [], True),
        (0.1, 0.4, [], False),  # too few items to tell
        (0.14, 0.13, [], False),
        (0.5, None, [], False),
        (0.49, None, [0.9], True),  # nearer to chance of 0.1 than to 0.9
        (0.51, None, [0.9], False),
        (0.3, None, [0.9, 0.25], False),  # better than one of them
        (0.3, None, [0.9, 0.8], True),
        (0.1, 0.13, [0.9, 0.12], True),  # one that knows no label is left out
        (0.1, 0.13, [0.12], False),  # nothing was there to lose
    ],
)
def test_retrieval_is_lost_at_chance_or_nearer_to_it_than_to_every_reference(
    recall: float, high: float | None, references: list[float], lost: bool
) -> None:
    compared = [beside(recall, reference) for reference in references]
    rule = retrieval_lost(recall, 0.1, chance_high=high, comparisons=compared)
    assert (rule is not None) == lost
    assert rule is None or f"{100 * recall:.1f} %" in rule
    doubtful = [beside(recall, reference, doubt=True) for reference in references]
    assert not references or retrieval_lost(recall, 0.1, chance_high=high, comparisons=doubtful) is None


@pytest.mark.parametrize(
    ("measures", "severity"),
    [
        ({"relative_spread": 0.009}, "full"),
        ({"relative_spread": 0.05}, None),  # narrow before, too, for all that is known
        ({"relative_spread": 0.05, "narrowing": 0.4}, "partial"),
        ({"relative_spread": 0.009, "narrowing": 0.6}, None),
        ({"relative_spread": 0.009, "narrowing": 0.01, "shrinkage": 0.9}, None),  # the origin alone is far away
        ({"shrinkage": 0.04, "narrowing": 0.4}, "full"),
        ({"shrinkage": 0.2, "narrowing": 0.4}, "partial"),
        ({"shrinkage": 0.001, "narrowing": 0.6}, None),  # the scale alone is smaller
        ({"first_axis": 0.95}, "partial"),
        ({"spots": 0.4}, "partial"),
        ({"shrinkage": 0.3, "first_axis": 0.8, "spots": 0.6, "narrowing": 0.3}, None),
    ],
)
def test_a_collapse_needs_a_loss_and_a_shape(measures: dict[str, float], severity: str | None) -> None:
    shape = EmbeddingShape(**{"relative_spread": 0.5, "precision": 1e-7} | measures)
    found = network_collapse("retrieval was lost", shape, above=True)
    assert (None if found is None else found[0]) == severity
    assert network_collapse(None, shape, above=True) is None
    noted = measures.get("relative_spread", 1) < 0.1 or measures.get("shrinkage", 1) < 0.25 or severity is not None
    assert (shape_note(shape) is not None) == noted


def test_rounding_alone_tells_nothing_apart() -> None:
    equal, near = (EmbeddingShape(relative_spread=spread, precision=1e-7) for spread in (7e-7, 9e-7))
    assert network_collapse(None, equal, above=False) is not None
    assert network_collapse(None, near, above=False) is None
    assert network_collapse(None, equal, above=True) is None
