"""Is an embedding any good, did it collapse, which way, and why: measures, verdicts, and what to change.

All raise a ValueError where shapes or dtypes disagree, a row is not finite, or there are too few items or classes.
"""

from trivet.collapse.diagnosis import Diagnosis, diagnose
from trivet.collapse.distances import Extent, extent, occupied_spots, root_mean_square_distance
from trivet.collapse.forecast import Forecast
from trivet.collapse.measures import ClassMeasures, Measures, measure, mode_index
from trivet.collapse.modes import ClassModes, Modes, class_modes, count_modes, mode_sharing
from trivet.collapse.monitor import ALARMS, CollapseMonitor, Event
from trivet.collapse.retention import Retention, mode_retention
from trivet.collapse.significance import Comparison
from trivet.collapse.spectrum import effective_rank, singular_values
from trivet.collapse.sphere import alignment, uniformity
from trivet.collapse.spread import ClassSpread, class_spread, fine_coarse_index, strangers
from trivet.collapse.strategy import SamplingStats, SamplingStrategy, sampling
from trivet.collapse.thresholds import THRESHOLDS, Threshold
from trivet.collapse.verdict_type import Verdict

__all__ = [
    "ALARMS",
    "THRESHOLDS",
    "ClassMeasures",
    "ClassModes",
    "ClassSpread",
    "CollapseMonitor",
    "Comparison",
    "Diagnosis",
    "Event",
    "Extent",
    "Forecast",
    "Measures",
    "Modes",
    "Retention",
    "SamplingStats",
    "SamplingStrategy",
    "Threshold",
    "Verdict",
    "alignment",
    "class_modes",
    "class_spread",
    "count_modes",
    "diagnose",
    "effective_rank",
    "extent",
    "fine_coarse_index",
    "measure",
    "mode_index",
    "mode_retention",
    "mode_sharing",
    "occupied_spots",
    "root_mean_square_distance",
    "sampling",
    "singular_values",
    "strangers",
    "uniformity",
]
