"""Pages of records with parts left out, as tests write them; the records are completed first."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from trivet.commands.audit import page as audit_page
from trivet.commands.audit.record import AuditRecord
from trivet.commands.compare import page as compare_page
from trivet.commands.compare.record import CompareRecord
from trivet.commands.demo import page as demo_page
from trivet.commands.demo.record import DemoRecord
from trivet.commands.diagnose import page as diagnose_page
from trivet.commands.evaluate import page as evaluate_page
from trivet.commands.evaluate.record import ComparisonRecord
from trivet.commands.forecast import page as forecast_page
from trivet.commands.train import page as train_page
from trivet.reports.diagnosis_record import DiagnosisRecord
from trivet.reports.forecast_record import ForecastRecord
from trivet.reports.run_record import RunRecord


def write_run_report(record: Mapping[str, Any], path: Path) -> None:
    train_page.write_run_report(RunRecord.read(record), path)


def write_diagnosis_report(record: Mapping[str, Any], path: Path) -> None:
    diagnose_page.write_diagnosis_report(DiagnosisRecord.read(record), path)


def write_evaluation_report(record: Mapping[str, Any], path: Path) -> None:
    evaluate_page.write_evaluation_report(ComparisonRecord.read(record), path)


def write_audit_report(record: Mapping[str, Any], path: Path) -> None:
    audit_page.write_audit_report(AuditRecord.read(record), path)


def write_forecast_report(record: Mapping[str, Any], path: Path) -> None:
    forecast_page.write_forecast_report(ForecastRecord.read(record), path)


def write_demo_report(record: Mapping[str, Any], path: Path) -> None:
    demo_page.write_demo_report(DemoRecord.read(record), path)


def write_compare_report(record: Mapping[str, Any], path: Path) -> None:
    compare_page.write_compare_report(CompareRecord.read(record), path)


def page_words(path: Path) -> str:
    """The words of a page: tags, styles and scripts taken out, white space made one."""
    text = path.read_text(encoding="utf-8")
    body = re.sub(r"<style>.*?</style>", " ", text[text.index("<main>") : text.index("</main>")], flags=re.S)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", body)))


def picture(shade: int) -> str:
    """A small grey picture as a data URI."""
    sink = io.BytesIO()
    Image.new("L", (4, 4), shade % 256).save(sink, "PNG")
    return f"data:image/png;base64,{base64.b64encode(sink.getvalue()).decode()}"
