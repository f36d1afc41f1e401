from __future__ import annotations

import pytest

from trivet.losses import ContrastiveLoss, MarginLoss, MultiSimilarityLoss, TripletLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.training.components import Components, load_splits
from trivet.training.config import RunConfig
from trivet.training.dimension_check import check_width, too_narrow


@pytest.mark.parametrize(
    ("loss", "dim", "most"),
    [
        (TripletLoss(margin=1.0, distance="euclidean"), 2, 6),  # the corners of a hexagon
        (TripletLoss(margin=1.0), 2, 6),
        (TripletLoss(margin=1.0, distance="cosine"), 2, 4),  # right angles
        (TripletLoss(margin=1.0), 1, 2),
        (ContrastiveLoss(margin=1.0, distance="euclidean"), 2, 6),
        (MarginLoss(margin=0.5, distance="euclidean"), 2, 6),
    ],
)
def test_as_many_classes_as_have_room(loss: EmbeddingLoss, dim: int, most: int) -> None:
    assert too_narrow(loss, most, dim) is None
    said = too_narrow(loss, most + 1, dim)
    assert said is not None
    assert f"room for {most};" in said
    assert f"the {most + 1} classes of a batch cannot all lie 1 apart" in said


def test_losses_that_want_no_distance_say_nothing() -> None:
    for loss in (TripletLoss(margin=0.0), TripletLoss(margin=0.0, soft=True), MultiSimilarityLoss()):
        assert too_narrow(loss, 1000, 2) is None


@pytest.mark.parametrize(
    ("model", "batch", "says"),
    [
        ({"embedding_dim": 2}, {"num_classes": 5}, True),
        ({"embedding_dim": 2}, {"num_classes": 4}, False),
        ({"embedding_dim": 2, "normalize": False}, {"num_classes": 5}, False),  # a plane is as wide as one likes
        ({"embedding_dim": 2}, {"size": 30}, False),  # of whatever classes
    ],
)
def test_a_run_is_told_before_its_first_step(model: dict[str, object], batch: dict[str, object], says: bool) -> None:
    values = {"data": {"name": "digits", "level": "digit"}, "model": {"name": "linear", **model}, "batch": batch}
    config = RunConfig.parse({**values, "loss": {"name": "triplet", "margin": 2.0}}, source="test")
    note = check_width(Components(config, load_splits(config, None, None)))
    assert (note is not None) == says
    assert not says or "the 5 classes of a batch" in str(note)
