"""Measures of real images against scikit-learn, torchmetrics and pytorch-metric-learning (PML), and where they differ.

All agree to 1e-9, or to float32 where a peer computes in it, wherever no distances tie and every query has a positive.
Each difference of definition is a test below:

1. Ties: PML and torchmetrics keep whatever order their sort gives, so a constant embedding scores by the order of its
   items, from 0 to 1; scikit-learn takes tied items as one threshold, so a constant embedding has AP R / M. Here each
   measure is its mean over all orders. In `roc_auc` a tie counts half everywhere.
2. Queries without a positive: PML leaves them out; torchmetrics counts 0, or leaves them out with
   `empty_target_action="skip"`; here "miss" (0) or "drop".
3. Precision@K where fewer than K items can be retrieved: divided by K here and in torchmetrics, by their number in
   torchmetrics with `adaptive_k=True`. PML has K = 1 only.
4. Average precision of a limited list: PML with `k` divides by all R positives, torchmetrics with `top_k` by those
   among the `top_k`. "map" here is of the whole list, what both give without a limit.
5. MRR of a limited list is 0 for a first positive beyond it, in both; "mrr" here is of the whole list.
6. torchmetrics takes no item with a score of 0 or less as relevant in AP, MRR and precision, so negated distances score
   0; in R-precision and hit rate it does.
7. torchmetrics compares scores, and averages, in float32: distances that differ in the eighth digit tie.
8. PML makes labels float32: from 2^24 on, neighbouring ones become one class.
9. PML takes neighbours in float32 and by products, by faiss or its `CustomKNN`: far from the origin it mistakes them.
10. PML's NMI and AMI are of k-means with one start, in `evaluate` of the best of several; of the same clusters they
    agree.
11. "map@K" here divides by R or K, whichever is smaller, as OML and sentence-transformers do; see 4.
12. nDCG takes the mean over orders of tied items here and in scikit-learn; torchmetrics too, with its default.
13. AMI of clusters that are all of one item is 0 here by definition, in scikit-learn up to rounding errors.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN, FaissKNN
from sklearn.datasets import load_digits
from sklearn.metrics import (
    adjusted_mutual_info_score,
    average_precision_score,
    ndcg_score,
    normalized_mutual_info_score,
)
from torchmetrics.functional.retrieval import (
    retrieval_average_precision,
    retrieval_hit_rate,
    retrieval_normalized_dcg,
    retrieval_precision,
    retrieval_r_precision,
    retrieval_recall,
    retrieval_reciprocal_rank,
)
from torchmetrics.retrieval import (
    RetrievalMAP,
)

from trivet.metrics import cluster, clustering, retrieve
from trivet.metrics.clustering import ami, nmi
from trivet.metrics.retrieval import Average

NAMES = ("recall@1", "recall@5", "precision@1", "precision@5", "r-precision", "map@r", "map", "mrr")
PML = {
    "precision_at_1": "precision@1",
    "r_precision": "r-precision",
    "mean_average_precision_at_r": "map@r",
    "mean_average_precision": "map",
    "mean_reciprocal_rank": "mrr",
}

Data = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def data() -> Data:
    """Images in random order, with so much noise that no two distances tie, as float32."""
    pixels, labels = (column[:700] for column in load_digits(return_X_y=True))
    generator = np.random.default_rng(0)
    order = generator.permutation(len(pixels))
    return (pixels + generator.uniform(0, 1e-2, pixels.shape)).astype(np.float32)[order], labels[order]


def exact(queries: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    return np.stack([np.linalg.norm(gallery.astype(np.float64) - row, axis=1) for row in queries.astype(np.float64)])


def exact_neighbours(
    query: torch.Tensor, k: int, reference: torch.Tensor, ref_includes_query: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """What PML asks of a search: in float64, so that it ranks what it measures."""
    distances = exact(query.numpy(), reference.numpy())
    if ref_includes_query:
        np.fill_diagonal(distances, np.inf)
    found = torch.from_numpy(distances.argsort(axis=1, kind="stable")[:, :k])
    return torch.from_numpy(distances).gather(1, found), found


def pml(points: np.ndarray, labels: np.ndarray, *, knn: Any = exact_neighbours, **options: Any) -> dict[str, float]:
    calculator = AccuracyCalculator(include=tuple(PML), knn_func=knn, device=torch.device("cpu"), **options)
    return calculator.get_accuracy(points, labels)


def ranked(distances: np.ndarray) -> torch.Tensor:
    """Scores in (0, 1] that float32 can hold, in the order of the distances."""
    ranks = distances.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    return torch.from_numpy(1 - ranks / distances.shape[1]).float()


def test_each_query_agrees_with_scikit_learn_and_torchmetrics(data: Data) -> None:
    points, labels = data
    names = (*NAMES, "found@20", "ndcg@20", "ndcg")
    found = retrieve(points, labels, sample=np.arange(0, len(points), 7), measures=names)
    column = {name: found.values[:, i] for i, name in enumerate(names)}
    queries = np.arange(0, len(points), 7)
    for place, query in enumerate(queries.tolist()):
        others = np.delete(np.arange(len(points)), query)
        distances = exact(points[query : query + 1], points[others])
        assert len(np.unique(distances)) == len(others)
        right = labels[others] == labels[query]
        assert column["map"][place] == pytest.approx(average_precision_score(right, -distances[0]), abs=1e-9)
        assert column["ndcg@20"][place] == pytest.approx(ndcg_score(right[None], -distances, k=20), abs=1e-9)
        assert column["ndcg"][place] == pytest.approx(ndcg_score(right[None], -distances), abs=1e-9)
        scores, target = ranked(distances)[0], torch.from_numpy(right)
        for name, value in (
            ("recall@1", retrieval_hit_rate(scores, target, top_k=1)),
            ("recall@5", retrieval_hit_rate(scores, target, top_k=5)),
            ("precision@1", retrieval_precision(scores, target, top_k=1)),
            ("precision@5", retrieval_precision(scores, target, top_k=5)),
            ("r-precision", retrieval_r_precision(scores, target)),
            ("map", retrieval_average_precision(scores, target)),
            ("mrr", retrieval_reciprocal_rank(scores, target)),
            ("found@20", retrieval_recall(scores, target, top_k=20)),
            ("ndcg@20", retrieval_normalized_dcg(scores, target.long(), top_k=20)),
        ):
            assert column[name][place] == pytest.approx(value.item(), abs=1e-6), name


def test_means_agree_with_pytorch_metric_learning(data: Data) -> None:
    points, labels = data
    found = retrieve(points, labels, measures=NAMES)
    averages: list[tuple[Average, dict[str, bool]]] = [("micro", {}), ("macro", {"avg_of_avgs": True})]
    for average, options in averages:
        means = found.mean(average)
        for theirs, value in pml(points, labels, **options).items():
            # Its reciprocal ranks are float32.
            tolerance = 1e-6 if theirs == "mean_reciprocal_rank" else 1e-9
            assert means[PML[theirs]] == pytest.approx(value, abs=tolerance), (average, theirs)
    # Its default search is in float32: near distances change places, and little else.
    for theirs, value in pml(points, labels, knn=FaissKNN()).items():
        assert found.mean()[PML[theirs]] == pytest.approx(value, abs=1e-4)


def test_clusters_agree_with_scikit_learn_and_pytorch_metric_learning(data: Data) -> None:
    points, labels = data
    classes = len(np.unique(labels))
    groups = cluster(points, classes, seed=3, restarts=2).assignment
    averages: tuple[clustering.Average, ...] = ("arithmetic", "geometric")
    for average in averages:
        theirs = normalized_mutual_info_score(labels, groups, average_method=average)
        assert nmi(labels, groups, average=average) == pytest.approx(theirs, abs=1e-9)
        theirs = adjusted_mutual_info_score(labels, groups, average_method=average)
        assert ami(labels, groups, average=average) == pytest.approx(theirs, abs=1e-9)
    same = AccuracyCalculator(
        include=("NMI", "AMI"), device=torch.device("cpu"), kmeans_func=lambda *_: torch.from_numpy(groups)
    ).get_accuracy(points, labels)
    assert nmi(labels, groups) == pytest.approx(same["NMI"], abs=1e-9)
    assert ami(labels, groups) == pytest.approx(same["AMI"], abs=1e-9)
    # Difference 10: other starts of k-means, other clusters.
    alone = AccuracyCalculator(include=("NMI",), device=torch.device("cpu")).get_accuracy(points, labels)["NMI"]
    assert 0 < abs(nmi(labels, groups) - alone) < 0.1


def test_difference_1_a_constant_embedding() -> None:
    points, labels = np.ones((40, 3), np.float32), np.repeat([0, 1], [30, 10])
    for order in (labels, labels[::-1]):
        found = retrieve(points, order, measures=NAMES)
        assert found.mean()["precision@1"] == pytest.approx((30 * 29 + 10 * 9) / (40 * 39), abs=1e-12)
        assert found.mean() == pytest.approx(found.chance, abs=1e-12)
    # In PML one of the first items is everyone's neighbour: the share of its class is the result.
    for knn in (exact_neighbours, FaissKNN()):
        assert pml(points, labels, knn=knn)["precision_at_1"] == 0.75
        assert pml(points, labels[::-1].copy(), knn=knn)["precision_at_1"] == 0.25
    scores, target = torch.full((8,), 0.5), torch.arange(8) < 4
    theirs = [retrieval_r_precision(scores, one).item() for one in (target, ~target)]
    assert sorted(theirs) == [0, 1]
    # One threshold counts all tied items at the last of their ranks.
    assert average_precision_score(target.numpy(), scores.numpy()) == 0.5
    found = retrieve(
        np.zeros((1, 2)),
        np.array([1]),
        gallery=np.ones((8, 2)),
        gallery_labels=target.int(),
        measures=["map", "r-precision"],
    )
    expected = np.mean(
        [average_precision_score(order, -np.arange(8)) for order in set(permutations([1] * 4 + [0] * 4))]
    )
    np.testing.assert_allclose(found.values[0], [expected, 0.5], atol=1e-12)
    assert expected > 0.6


def test_difference_2_queries_without_a_positive() -> None:
    points, labels = np.array([[0.0], [1.0], [3.5], [9.0]], np.float32), np.array([0, 0, 1, 2])
    assert pml(points, labels)["precision_at_1"] == 1
    assert retrieve(points, labels, without_positive="drop").mean()["recall@1"] == 1
    assert retrieve(points, labels, without_positive="miss").mean()["recall@1"] == 0.5
    scores, target = torch.tensor([[0.9, 0.5], [0.8, 0.2]]), torch.tensor([[True, False], [False, False]])
    indexes = torch.tensor([[0, 0], [1, 1]])
    assert RetrievalMAP()(scores, target, indexes=indexes).item() == 0.5
    assert RetrievalMAP(empty_target_action="skip")(scores, target, indexes=indexes).item() == 1
    assert np.isnan(pml(points, np.arange(4))["r_precision"])
    with pytest.raises(ValueError, match="none has"):
        retrieve(points, np.arange(4), without_positive="drop").mean()


def test_difference_3_precision_at_more_places_than_items() -> None:
    points, labels = np.array([[0.0], [1.0], [3.0]]), np.array([0, 0, 1])
    found = retrieve(points, labels, measures=["precision@10"]).values[0, 0]
    scores, target = torch.tensor([0.9, 0.1]), torch.tensor([True, False])
    assert found == pytest.approx(retrieval_precision(scores, target, top_k=10).item(), abs=1e-7) == 0.1
    assert retrieval_precision(scores, target, top_k=10, adaptive_k=True).item() == 0.5


def test_difference_4_and_5_lists_of_limited_length() -> None:
    # Of query 0 the 2nd, the 4th and the 5th are positive.
    points, labels = np.arange(6.0, dtype=np.float32)[:, None], np.array([0, 1, 0, 1, 0, 0])
    whole = retrieve(points, labels, measures=["map", "mrr"], sample=np.array([0])).values[0]
    np.testing.assert_allclose(whole, [(1 / 2 + 2 / 4 + 3 / 5) / 3, 1 / 2], atol=1e-12)
    calculator = AccuracyCalculator(include=tuple(PML), knn_func=exact_neighbours, device=torch.device("cpu"), k=2)
    limited = calculator.get_accuracy(
        points[:1], labels[:1], points[1:], labels[1:], include=("mean_average_precision",)
    )
    assert limited["mean_average_precision"] == pytest.approx((1 / 2) / 3, abs=1e-9)
    scores, target = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5]), torch.tensor([False, True, False, True, True])
    assert retrieval_average_precision(scores, target, top_k=2).item() == pytest.approx(1 / 2)
    assert retrieval_reciprocal_rank(scores, target, top_k=1).item() == 0
    first = AccuracyCalculator(include=tuple(PML), knn_func=exact_neighbours, device=torch.device("cpu"), k=1)
    found = first.get_accuracy(
        points[:1], labels[:1], points[1:], labels[1:], include=("mean_reciprocal_rank", "precision_at_1")
    )
    assert found["mean_reciprocal_rank"] == 0


def test_difference_6_negative_scores() -> None:
    distances, target = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])
    assert retrieval_average_precision(-distances, target).item() == 0
    assert retrieval_reciprocal_rank(-distances, target).item() == 0
    assert retrieval_precision(-distances, target, top_k=1).item() == 0
    assert retrieval_hit_rate(-distances, target, top_k=1).item() == 1
    assert retrieval_r_precision(-distances, target).item() == 0.5
    points = np.array([[0.0], [1.0], [-2.0], [3.0]])
    found = retrieve(points, np.array([0, 0, 1, 0]), sample=np.array([0]), measures=["map", "mrr", "r-precision"])
    np.testing.assert_allclose(found.values[0], [(1 + 2 / 3) / 2, 1, 0.5], atol=1e-12)


def test_difference_7_scores_that_float32_cannot_tell_apart() -> None:
    scores = torch.tensor([0.5, 0.5 + 1e-12], dtype=torch.float64)
    assert scores[1] > scores[0]
    for target in (torch.tensor([True, False]), torch.tensor([False, True])):
        expected = float(target[1])
        assert retrieve(
            np.array([[0.0]]),
            np.array([1]),
            gallery=1 - scores[:, None].numpy(),
            gallery_labels=target.numpy().astype(int),
            measures=["recall@1"],
        ).mean() == {"recall@1": expected}
    theirs = [retrieval_hit_rate(scores, torch.tensor(t), top_k=1).item() for t in ([True, False], [False, True])]
    assert theirs != [0, 1]


def test_difference_8_large_labels() -> None:
    points, labels = np.array([[0.0], [1.0], [2.0]], np.float32), np.array([2**24, 2**24 + 1, 2**24])
    assert retrieve(points, labels, measures=["precision@1"]).mean()["precision@1"] == 0
    assert pml(points, labels)["precision_at_1"] == 1


def test_difference_9_neighbours_far_from_the_origin() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(2000) // 2
    points = 1000 + 0.1 * generator.normal(size=(1000, 64))[labels] + 1e-3 * generator.normal(size=(2000, 64))
    points = points.astype(np.float32)
    assert retrieve(points, labels, measures=["precision@1"]).mean()["precision@1"] == 1
    for knn, count in ((CustomKNN(LpDistance(normalize_embeddings=False)), 200), (FaissKNN(), 2000)):
        calculator = AccuracyCalculator(include=("precision_at_1",), device=torch.device("cpu"), knn_func=knn, k=1)
        assert calculator.get_accuracy(points[:count], labels[:count])["precision_at_1"] < 0.1


def test_difference_11_clusters_of_one_item() -> None:
    for labels, groups in (([0, 0, 1, 1], [0, 1, 2, 3]), ([0, 1, 2, 3], [0, 0, 1, 1]), ([0, 0, 0], [0, 1, 2])):
        assert ami(np.array(labels), np.array(groups)) == 0
        assert adjusted_mutual_info_score(labels, groups) == pytest.approx(0, abs=1e-9)
    for labels, groups in (([0, 0], [0, 0]), ([0, 1, 2], [2, 0, 1])):
        assert ami(np.array(labels), np.array(groups)) == nmi(np.array(labels), np.array(groups)) == 1
        assert adjusted_mutual_info_score(labels, groups) == pytest.approx(1, abs=1e-9)
        assert normalized_mutual_info_score(labels, groups) == pytest.approx(1, abs=1e-9)
    assert nmi(np.zeros(3, int), np.arange(3)) == normalized_mutual_info_score([0, 0, 0], [0, 1, 2]) == 0


def test_ndcg_of_ties_agrees_with_scikit_learn_and_map_at_k_has_three_meanings() -> None:
    generator = np.random.default_rng(0)
    points, labels = generator.integers(0, 3, (60, 2)).astype(np.float64), generator.integers(0, 3, 60)
    found = retrieve(points, labels, measures=("ndcg@7", "ndcg"))
    for query in range(60):
        others = np.delete(np.arange(60), query)
        distances, right = exact(points[query : query + 1], points[others]), labels[others] == labels[query]
        for column, k in ((0, 7), (1, None)):
            expected = ndcg_score(right[None], -distances, k=k)
            assert found.values[query, column] == pytest.approx(expected, abs=1e-9)
    # Relevant at ranks 1 and 3 of five, four relevant in all: (1 + 2/3) over min(3, 4) here, over 2 in torchmetrics.
    points, labels = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]), np.array([0, 0, 1, 0, 0, 0])
    ours = retrieve(points, labels, sample=np.array([0]), measures=["map@3", "found@3"]).values[0]
    assert ours.tolist() == pytest.approx([(1 + 2 / 3) / 3, 2 / 4])
    scores, target = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5]), torch.tensor([True, False, True, True, True])
    assert retrieval_average_precision(scores, target, top_k=3).item() == pytest.approx((1 + 2 / 3) / 2)
