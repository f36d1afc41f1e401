"""Losses on pairs, triplets, sets and proxies, one per file."""

from trivet.losses.approx_ndcg import ApproxNDCGLoss
from trivet.losses.arcface import ArcFaceLoss
from trivet.losses.circle import CircleLoss
from trivet.losses.contrastive import ContrastiveLoss
from trivet.losses.cosface import CosFaceLoss
from trivet.losses.distillation import DistillationLoss as DistillationLoss  # no name in settings: it takes a teacher
from trivet.losses.engine import EmbeddingLoss
from trivet.losses.margin import MarginLoss
from trivet.losses.matryoshka import MatryoshkaLoss as MatryoshkaLoss  # no name in settings: it takes a loss
from trivet.losses.multi_similarity import MultiSimilarityLoss
from trivet.losses.n_pair import NPairLoss
from trivet.losses.nca import NCATripletLoss
from trivet.losses.proxy_anchor import ProxyAnchorLoss
from trivet.losses.proxy_nca import ProxyNCALoss
from trivet.losses.second_order import SecondOrderTripletLoss
from trivet.losses.selectively_contrastive import SelectivelyContrastiveLoss
from trivet.losses.supcon import SupConLoss
from trivet.losses.symmetric import SymmetricLoss as SymmetricLoss  # nor has this one, for the same reason
from trivet.losses.triplet import TripletLoss
from trivet.losses.unhinged import UnhingedMarginLoss, UnhingedTripletLoss
from trivet.runtime.counterparts import explain_missing

LOSSES: dict[str, type[EmbeddingLoss]] = {
    "triplet": TripletLoss,
    "contrastive": ContrastiveLoss,
    "margin": MarginLoss,
    "multi-similarity": MultiSimilarityLoss,
    "nca": NCATripletLoss,
    "second-order": SecondOrderTripletLoss,
    "selectively-contrastive": SelectivelyContrastiveLoss,
    "n-pair": NPairLoss,
    "supcon": SupConLoss,
    "circle": CircleLoss,
    "approx-ndcg": ApproxNDCGLoss,
    "proxy-nca": ProxyNCALoss,
    "proxy-anchor": ProxyAnchorLoss,
    "arcface": ArcFaceLoss,
    "cosface": CosFaceLoss,
    "unhinged-triplet": UnhingedTripletLoss,
    "unhinged-margin": UnhingedMarginLoss,
}

__all__ = [
    "ApproxNDCGLoss",
    "ArcFaceLoss",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NCATripletLoss",
    "NPairLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "SecondOrderTripletLoss",
    "SelectivelyContrastiveLoss",
    "SupConLoss",
    "TripletLoss",
    "UnhingedMarginLoss",
    "UnhingedTripletLoss",
]

explain_missing(__name__, __all__)
