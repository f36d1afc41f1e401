"""Retrieval and clustering measures of `(N, d)` embeddings with one or more label levels; retrieval by relations.

All raise a ValueError where shapes or dtypes disagree, a row is not finite, or an argument is out of its range.
"""

from trivet.io.query_gallery import QueryGallery
from trivet.metrics.clustering import Clustering, cluster, nmi, nmi_plus
from trivet.metrics.label_levels import ALL, LevelResult, evaluate, standard
from trivet.metrics.nearest import NearestPairs, Neighbours, nearest_pairs, neighbours
from trivet.metrics.relation_retrieval import retrieve_both_ways, retrieve_by_tag
from trivet.metrics.retrieval import Retrieval, recall_at_k, retrieve, retrieve_levels
from trivet.metrics.tie_expectations import MEASURES
from trivet.runtime.counterparts import explain_missing

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
    "retrieve_both_ways",
    "retrieve_by_tag",
    "retrieve_levels",
    "standard",
]

explain_missing(__name__, __all__)
