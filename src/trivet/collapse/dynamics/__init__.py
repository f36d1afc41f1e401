"""Motion of triplets: their scatter diagram, one simulated gradient step on it, and steps really taken.

Import from here.

Source:
    Xuan et al., "Extreme Triplet Learning", submission to ICLR 2020.
"""

# fmt: off
# ruff: isort: skip_file
from __future__ import annotations

from trivet.collapse.dynamics.diagram import (
    EPS,
    Regions,
    TripletScatter,
    triplet_coordinates,
    positive_negative_similarity,
    regions,
    triplet_scatter,
    triplet_vectors,
)
from trivet.collapse.dynamics.step import (
    BOX,
    DIRECTIONS,
    SIGN_TOLERANCE,
    STRIP,
    EntanglementFactor,
    Movement,
    MovementAreas,
    SimulatedLoss,
    SimulatedStep,
    VectorField,
    directions,
    entangle,
    first_order_rates,
    loss_slopes,
    loss_value,
    movement,
    movement_areas,
    simulated_step,
    vector_field,
)

__all__ = [
    "BOX",
    "DIRECTIONS",
    "EPS",
    "SIGN_TOLERANCE",
    "STRIP",
    "EntanglementFactor",
    "Movement",
    "MovementAreas",
    "Regions",
    "SimulatedLoss",
    "SimulatedStep",
    "TripletScatter",
    "VectorField",
    "directions",
    "entangle",
    "first_order_rates",
    "loss_slopes",
    "loss_value",
    "movement",
    "movement_areas",
    "positive_negative_similarity",
    "regions",
    "simulated_step",
    "triplet_coordinates",
    "triplet_scatter",
    "triplet_vectors",
    "vector_field",
]
