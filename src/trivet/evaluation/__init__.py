"""Retrieval and clustering measures of `(N, d)` embeddings with one or more label levels."""

from trivet.evaluation.clustering import Clustering, cluster, nmi, nmi_plus
from trivet.evaluation.levels import LevelResult, evaluate
from trivet.evaluation.retrieval import NearestPairs, Neighbours, hits_at_k, nearest_pairs, neighbours, recall_at_k

__all__ = [
    "Clustering",
    "LevelResult",
    "NearestPairs",
    "Neighbours",
    "cluster",
    "evaluate",
    "hits_at_k",
    "nearest_pairs",
    "neighbours",
    "nmi",
    "nmi_plus",
    "recall_at_k",
]
