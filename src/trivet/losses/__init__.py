"""Losses on pairs and triplets, one per file."""

from trivet.losses.contrastive import ContrastiveLoss
from trivet.losses.margin import MarginLoss
from trivet.losses.multi_similarity import MultiSimilarityLoss
from trivet.losses.triplet import TripletLoss

__all__ = ["ContrastiveLoss", "MarginLoss", "MultiSimilarityLoss", "TripletLoss"]
