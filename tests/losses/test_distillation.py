"""Distillation of the similarities of a teacher."""

from __future__ import annotations

import math

import pytest
import torch
from tests import reference
from tests.reference import Row
from torch import Tensor

import trivet
from trivet.losses import distillation

GENERATOR = torch.Generator().manual_seed(0)
STUDENT = torch.randn(7, 3, dtype=torch.float64, generator=GENERATOR)
TEACHER = torch.randn(7, 5, dtype=torch.float64, generator=GENERATOR)
STUDENT[4], TEACHER[5] = STUDENT[2], TEACHER[1]  # ties, of other items for each
OTHERS = {
    "references": torch.randn(6, 3, dtype=torch.float64, generator=GENERATOR),
    "teacher_references": torch.randn(6, 5, dtype=torch.float64, generator=GENERATOR),
}


def shares(row: Row, others: list[Row], temperature: float) -> list[float]:
    scores = [sum(x * y for x, y in zip(reference.unit(row), reference.unit(other), strict=True)) for other in others]
    weights = [math.exp(score / temperature) for score in scores]
    return [weight / math.fsum(weights) for weight in weights]


def divergence(
    student: list[Row], teacher: list[Row], temperature: float, others: tuple[list[Row], list[Row]] | None
) -> float:
    """The mean over the items of sum_j q_j log(q_j / p_j)."""
    total = 0.0
    for a in range(len(student)):
        ours, theirs = others or ([r for i, r in enumerate(rows) if i != a] for rows in (student, teacher))
        p, q = shares(student[a], ours, temperature), shares(teacher[a], theirs, temperature)
        total += math.fsum(y * math.log(y / x) for x, y in zip(p, q, strict=True))
    return total / len(student)


@pytest.mark.parametrize("block_size", [None, 1, 3])
@pytest.mark.parametrize("with_references", [False, True])
def test_it_is_its_definition(block_size: int | None, with_references: bool) -> None:
    others = OTHERS if with_references else {}
    loss = trivet.DistillationLoss(temperature=0.3, block_size=block_size)
    lists = (OTHERS["references"].tolist(), OTHERS["teacher_references"].tolist()) if with_references else None
    expected = divergence(STUDENT.tolist(), TEACHER.tolist(), 0.3, lists)
    assert loss(STUDENT, TEACHER, **others).item() == pytest.approx(expected, rel=1e-11)

    def value(rows: Tensor, references: Tensor) -> Tensor:
        return loss(rows, TEACHER, **(others and {**others, "references": references}))

    leaves = STUDENT.clone().requires_grad_(), OTHERS["references"].clone().requires_grad_()
    assert torch.autograd.gradcheck(value, leaves)


def test_a_student_that_agrees_and_the_gradient_of_the_teacher() -> None:
    turned = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=GENERATOR)).Q
    student, teacher = (3 * TEACHER @ turned).requires_grad_(), TEACHER.clone().requires_grad_()
    value = trivet.DistillationLoss()(student, teacher)
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-12)
    assert student.grad.abs().max() < 1e-9
    assert teacher.grad is None


@pytest.mark.parametrize(("rows", "others"), [(0, {}), (1, {}), (7, {name: rows[:0] for name, rows in OTHERS.items()})])
def test_nothing_to_compare_with(rows: int, others: dict[str, Tensor]) -> None:
    leaf = STUDENT[:rows].clone().requires_grad_()
    value = trivet.DistillationLoss()(leaf, TEACHER[:rows], **others)
    value.backward()
    assert value.item() == 0
    assert not leaf.grad.any()


def test_only_one_block_of_similarities_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the rows, what autograd stores does not grow with the number of blocks."""
    monkeypatch.setattr(distillation, "NUMBERS_PER_BLOCK", 8 * 7)
    stored: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: stored.append(tensor) or tensor, lambda tensor: tensor
    ):
        value = trivet.DistillationLoss()(STUDENT.clone().requires_grad_(), TEACHER)
    assert value > 0
    assert all(tensor.shape != (1, 7) for tensor in stored)


@pytest.mark.parametrize("others", [{}, OTHERS], ids=["batch", "references"])
def test_half_precision_and_others_of_another_dtype(others: dict[str, Tensor]) -> None:
    value = trivet.DistillationLoss(temperature=0.3)(STUDENT.bfloat16(), TEACHER, **others)
    expected = trivet.DistillationLoss(temperature=0.3)(STUDENT.bfloat16().double(), TEACHER, **others)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"teacher": TEACHER[:5]}, "embeddings and teacher must be of the same items: got 7 and 5 rows"),
        ({"references": STUDENT}, "references and teacher_references must be given together: got one"),
        (
            {**OTHERS, "references": STUDENT[:, :2][:6]},
            "references must have the dimension of embeddings: got 2 and 3",
        ),
        (
            {**OTHERS, "teacher_references": STUDENT[:6]},
            "teacher_references must have the dimension of teacher: got 3 and 5",
        ),
        ({**OTHERS, "teacher_references": TEACHER}, "references and teacher_references must be of the same items"),
        ({"teacher": TEACHER * math.nan}, "teacher must be finite"),
    ],
    ids=["teacher", "alone", "dimension", "dimension of the teacher", "items", "finite"],
)
def test_inputs_that_do_not_fit(arguments: dict[str, Tensor], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        trivet.DistillationLoss()(STUDENT, **{"teacher": TEACHER, **arguments})


def test_options_out_of_range() -> None:
    with pytest.raises(ValueError, match="temperature must be a finite number above 0: got 0"):
        trivet.DistillationLoss(temperature=0)
    with pytest.raises(ValueError, match="block_size must be at least 1 item: got 0"):
        trivet.DistillationLoss(block_size=0)
    assert "temperature=0.05" in repr(trivet.DistillationLoss())
