"""`retrieve` on the queries of all processes at once, see `mining/gather_worker.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tests.mining.crew import Crew, check_of_two

from trivet.metrics import Retrieval, evaluate, positive_ranks, retrieve

NAMES = (
    "recall@1", "recall@5", "precision@5", "r-precision", "map@r", "map", "mrr", "found@5", "map@5", "ndcg@5", "ndcg",
)  # fmt: skip


def assert_same_bits(alone: Retrieval, shared: Retrieval) -> None:
    np.testing.assert_array_equal(alone.values.view(np.int64), shared.values.view(np.int64))
    np.testing.assert_array_equal(alone.positives, shared.positives)
    np.testing.assert_array_equal(alone.classes, shared.classes)
    assert alone.chance == shared.chance
    assert alone.gallery == shared.gallery
    assert len(alone.values) > 1


def assert_shared(points: Any, labels: Any, **options: Any) -> Retrieval:
    """The processes together find what one finds; what that is."""
    alone = retrieve(points, labels, measures=NAMES, **options)
    assert_same_bits(alone, retrieve(points, labels, measures=NAMES, distributed=True, **options))
    return alone


@check_of_two
def small_and_large_classes_at_several_levels(crew: Crew) -> None:
    generator = np.random.default_rng(0)
    points = generator.normal(size=(150, 7)).astype(np.float32)
    labels = {
        "fine": generator.integers(0, 70, 150),  # some are alone in their class
        "coarse": generator.integers(0, 2, 150),
        "uneven": np.minimum(generator.geometric(0.4, 150), 5),
    }
    assert len(standing_blocks(points, labels)) > crew.size
    found = [
        evaluate(points, labels, measures=NAMES, without_positive="drop", distributed=distributed)
        for distributed in (False, True)
    ]
    for level in labels:
        alone, shared = (one[level].retrieval for one in found)
        assert alone is not None
        assert shared is not None
        assert_same_bits(alone, shared)
        assert alone.mean("macro") == shared.mean("macro")
    assert found[0]["fine"].retrieval.without_positive > 0


def standing_blocks(points: np.ndarray, labels: dict[str, np.ndarray]) -> list[Any]:
    from trivet.metrics.protocols import retrieval_task

    task = retrieval_task(points, labels, None, None, None, None, None, None, None, "euclidean")
    return positive_ranks.ExactSearch(task).blocks()


@check_of_two
def ties(crew: Crew) -> None:
    generator = np.random.default_rng(1)
    points, labels = generator.integers(0, 3, (150, 3)).astype(np.float64), generator.integers(0, 40, 150)
    assert 0 < assert_shared(points, labels).mean()["map"] < 1
    constant = assert_shared(np.ones((150, 3)), labels)
    np.testing.assert_allclose(list(constant.mean().values()), list(constant.chance.values()), rtol=1e-12)


@check_of_two
def gallery_with_cameras_junk_and_the_query_itself(crew: Crew) -> None:
    generator = np.random.default_rng(2)
    gallery, labels, cameras = (
        generator.normal(size=(280, 8)).astype(np.float32),
        generator.integers(-1, 22, 280),
        generator.integers(0, 4, 280),
    )
    asked = generator.choice(280, 150, replace=False)
    found = assert_shared(
        gallery[asked],
        labels[asked],
        gallery=gallery,
        gallery_labels=labels,
        cameras=cameras[asked],
        gallery_cameras=cameras,
        self_rows=asked,
        junk=labels == -1,
    )
    assert found.gallery == (labels != -1).sum()


@check_of_two
def array_on_disk_of_which_some_are_asked(crew: Crew) -> None:
    generator = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "embeddings.npy"
        np.save(file, generator.normal(size=(280, 16)).astype(np.float16))
        mapped = np.load(file, mmap_mode="r")
        sample = generator.choice(280, 150, replace=False)
        assert_shared(mapped, np.arange(280) % 31, sample=sample, distance="cosine")


@check_of_two
def more_processes_than_blocks(crew: Crew) -> None:
    points, labels = np.array([[0.0], [1.0], [3.0], [4.5]]), np.array([0, 0, 1, 0])
    assert len(standing_blocks(points, {"class": labels})) == 1
    assert_shared(points, labels)


@check_of_two
def progress_ends_with_all_queries(crew: Crew) -> None:
    points, labels = np.random.default_rng(4).normal(size=(280, 2)), np.arange(280) % 37
    seen: list[tuple[int, int]] = []
    retrieve(points, labels, distributed=True, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {280}
    assert all(0 < done <= 280 for done, _ in seen)
