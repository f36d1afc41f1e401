"""Pages of records with parts left out, as tests write them; the records are completed first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trivet import records, reports


def write_run_report(record: Mapping[str, Any], path: Path) -> None:
    reports.write_run_report(records.read_run(record), path)


def write_diagnosis_report(record: Mapping[str, Any], path: Path) -> None:
    reports.write_diagnosis_report(records.complete(records.DiagnosisRecord, record), path)


def write_evaluation_report(record: Mapping[str, Any], path: Path) -> None:
    reports.write_evaluation_report(records.complete(records.ComparisonRecord, record), path)


def write_audit_report(record: Mapping[str, Any], path: Path) -> None:
    reports.write_audit_report(records.complete(records.AuditRecord, record), path)


def write_forecast_report(record: Mapping[str, Any], path: Path) -> None:
    reports.write_forecast_report(records.complete(records.ForecastRecord, record), path)


def write_demo_report(record: Mapping[str, Any], path: Path) -> None:
    reports.write_demo_report(records.complete(records.DemoRecord, record), path)


def write_compare_report(record: Mapping[str, Any], path: Path) -> None:
    reports.write_compare_report(records.complete(records.CompareRecord, record), path)
