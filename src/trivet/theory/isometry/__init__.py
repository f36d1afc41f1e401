"""Triplet separation, isometric error and Hausdorff distance: how far an embedding is from a zero triplet loss.

Import from here; the files follow the paper: the separated embeddings (3, 5), distances (12-15), the forecast (17).

Source:
    Xu et al., "Mathematical justification of hard negative mining via isometric approximation theorem", ICLR 2024.
"""

# fmt: off
# ruff: isort: skip_file
from __future__ import annotations

from trivet.theory.isometry.measures import (
    SMOOTH, Measure, Reduction, Separation, Triplet, batch_hard_loss, class_hausdorff_distance, diameter,
    displacement, enclosing_radius, hardest_triplet, hausdorff_distance, isometric_error, nearest_images,
    separation_boundaries, thickness, thickness_bound, triplet_separation,
)
from trivet.theory.isometry.nearest import (
    Descent, DescentReduction, DiameterForecast, LossSandwich, NearestSeparated, descend, diameter_forecast,
    distance_on_a_line, distance_to_separation, loss_sandwich,
)

__all__ = [
    "SMOOTH", "Descent", "DescentReduction", "DiameterForecast", "LossSandwich", "Measure", "NearestSeparated",
    "Reduction", "Separation", "Triplet", "batch_hard_loss", "class_hausdorff_distance", "descend", "diameter",
    "diameter_forecast", "displacement", "distance_on_a_line", "distance_to_separation", "enclosing_radius",
    "hardest_triplet", "hausdorff_distance", "isometric_error", "loss_sandwich", "nearest_images",
    "separation_boundaries", "thickness", "thickness_bound", "triplet_separation",
]
