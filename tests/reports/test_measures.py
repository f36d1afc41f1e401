"""The table of measures: units and ends that pages know, and a name for every measure of a diagnosis."""

from __future__ import annotations

from typing import get_args, get_type_hints

from trivet.reports.diagnosis_record import DiagnosisMeasures
from trivet.reports.measures import DIAGNOSIS, EVALUATION, Measure


def test_measures_have_units_and_ends_that_pages_know() -> None:
    kinds = get_type_hints(Measure)
    for measure in (*EVALUATION.values(), *DIAGNOSIS.values()):
        assert measure.unit in get_args(kinds["unit"]), measure
        assert measure.better in (None, "more", "less"), measure
    assert (EVALUATION["roc-auc"].chance, EVALUATION["map"].chance) == (0.5, None)
    assert (DIAGNOSIS["recall"].better, DIAGNOSIS["norm"].better) == ("more", None)


def test_every_number_of_a_diagnosis_has_a_name() -> None:
    numbers = [name for name, field in DiagnosisMeasures.model_fields.items() if field.default is None]
    assert [name for name in numbers if name not in DIAGNOSIS] == ["sampling"]
