"""Records in, one self-contained HTML page out: nothing is measured here and nothing is fetched."""

from trivet.reports.audit import write_audit_report
from trivet.reports.compare import write_compare_report
from trivet.reports.demo import write_demo_report
from trivet.reports.diagnosis import write_diagnosis_report
from trivet.reports.evaluation import write_evaluation_report
from trivet.reports.forecast import write_forecast_report
from trivet.reports.run import write_run_report
from trivet.reports.sheet import write_sheet
from trivet.reports.simulation import write_simulation_report
from trivet.reports.sweep import write_sweep_report

__all__ = [
    "write_audit_report",
    "write_compare_report",
    "write_demo_report",
    "write_diagnosis_report",
    "write_evaluation_report",
    "write_forecast_report",
    "write_run_report",
    "write_sheet",
    "write_simulation_report",
    "write_sweep_report",
]
