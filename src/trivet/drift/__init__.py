"""Drift: is new data like a reference, by a test with a stated rate of false alarms, and where it is not."""

from trivet.drift.changes import ClassChange, Drift, find_drift
from trivet.drift.scope import NewCluster, ScopeShare

__all__ = ["ClassChange", "Drift", "NewCluster", "ScopeShare", "find_drift"]
