"""What runs and commands write, as types: one file for each command; `complete` makes them of parsed JSON."""

from trivet.records.audit import AuditRecord
from trivet.records.compare import CompareRecord
from trivet.records.complete import complete
from trivet.records.demo import DemoRecord
from trivet.records.diagnosis import Diagnosis, DiagnosisRecord, DiagnosisSection
from trivet.records.evaluation import ComparisonRecord, EvaluationRecord
from trivet.records.forecast import ForecastRecord
from trivet.records.history import History
from trivet.records.monitor import Repair
from trivet.records.run import RunRecord, read_run
from trivet.records.search import SearchRecord
from trivet.records.simulation import SimulationRecord
from trivet.records.sweep import SweepRecord

__all__ = [
    "AuditRecord",
    "CompareRecord",
    "ComparisonRecord",
    "DemoRecord",
    "Diagnosis",
    "DiagnosisRecord",
    "DiagnosisSection",
    "EvaluationRecord",
    "ForecastRecord",
    "History",
    "Repair",
    "RunRecord",
    "SearchRecord",
    "SimulationRecord",
    "SweepRecord",
    "complete",
    "read_run",
]
