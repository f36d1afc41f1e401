"""Retrieval and clustering measures of `(N, d)` embeddings with one or more label levels."""

from trivet.evaluation.clustering import Clustering, cluster, nmi, nmi_plus
from trivet.evaluation.levels import ALL, LevelResult, evaluate, standard
from trivet.evaluation.measures import MEASURES
from trivet.evaluation.nearest import NearestPairs, Neighbours, nearest_pairs, neighbours
from trivet.evaluation.query_gallery import QueryGallery
from trivet.evaluation.retrieval import Retrieval, recall_at_k, retrieve, retrieve_levels

__all__ = [
    "ALL",
    "MEASURES",
    "Clustering",
    "LevelResult",
    "NearestPairs",
    "Neighbours",
    "QueryGallery",
    "Retrieval",
    "cluster",
    "evaluate",
    "nearest_pairs",
    "neighbours",
    "nmi",
    "nmi_plus",
    "recall_at_k",
    "retrieve",
    "retrieve_levels",
    "standard",
]
