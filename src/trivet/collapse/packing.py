"""Numbers of points that fit on a unit sphere a distance apart."""

from __future__ import annotations

import math

from scipy.special import betainc


def most_points(dim: int, distance: float) -> float:
    """A bound on the number of points of the unit sphere of R^dim of which no two are nearer than `distance`.

    It is reached in one and two dimensions, and above the square root of 2 where dim is large enough. Elsewhere it is
    the number of caps of half the angle that the area of the sphere has room for, which is too many.

    Args:
        dim: at least 1.
        distance: Euclidean, from 0 to 2.

    Returns:
        A whole number, or infinity where there is no bound.

    Source:
        Rankin, "The closest packing of spherical caps in n dimensions", Glasgow Mathematical Journal 1955; the area of
        a cap as in Li, "Concise formulas for the area and volume of a hyperspherical cap", 2011.

    Example:
        >>> most_points(2, 1.0), most_points(3, 2.0)
        (6, 2)
    """
    if dim < 1 or not 0 <= distance <= 2:
        raise ValueError(
            f"dim must be at least 1 and distance lie in [0, 2]: got dim = {dim} and distance = {distance}."
        )
    if distance == 0:
        return math.inf
    if dim == 1:
        return 2
    slack = 1 + 1e-12  # rounding must not lose a point
    if dim == 2:
        return math.floor(slack * math.pi / math.asin(distance / 2))
    square = distance * distance
    share = float(betainc((dim - 1) / 2, 0.5, square / 4)) / 2  # of the sphere, that a cap takes
    room = slack / share if share else math.inf
    bound = math.floor(room) if math.isfinite(room) else math.inf  # a share may be too small for a whole number
    if square > 2 * slack:
        return min(bound, dim + 1, math.floor(slack * square / (square - 2)))
    return min(bound, 2 * dim) if square > 2 / slack else bound
