"""The model card says what the record of a run says, and no name in it becomes more than a text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trivet.commands.export.card import escaped, model_card
from trivet.reports.run_record import RunRecord

ROW = {"recall@1": 0.5, "map@r": 0.25, "chance_recall@1": 0.1}
RECORD: dict[str, Any] = {
    "status": "finished",
    "level": "class",
    "step": 40,
    "settings": {
        "data": {"name": "python:/home/me/mine.py:Birds", "image_size": [64, 96]},
        "model": {"name": "text:/home/me/MiniLM", "normalize": True},
        "loss": {"name": "triplet", "positives": {"name": "easy", "k": 2}},
    },
    "data": {
        "train": {"items": 90, "classes": {"order": 2, "class": 9}},
        "evaluation": {"unseen": {"items": 30, "classes": {"class": 3}, "trained_classes": {"class": 0}}},
        "noise": {"kind": "uniform", "rate": 0.3},
    },
    "evaluation": {
        "unseen": [
            {"name": "trained", "levels": {"class": ROW}},
            {"name": "zero-shot backbone", "levels": {"class": {"recall@1": 0.75}}},
        ]
    },
    "intervals": {"unseen": {"class": {"recall@1": {"queries": [0.45, 0.55], "classes": [0.4, 0.6]}}}},
    "diagnosis": {
        "unseen": {
            "name": "run",
            "distance": "cosine",
            "verdicts": [
                {"kind": "class-collapse", "severity": "partial", "evidence": {}, "rule": "too near", "cause": ""}
            ],
        }
    },
    "warnings": ["2 tensors of /home/me/weights.safetensors were left out."],
}


def card(**changes: Any) -> str:
    record = RunRecord.read({**RECORD, **changes})
    return model_card(record, title="run", use="Call it.", checked="Checked.")


def test_every_part_is_there() -> None:
    text = card()
    heads = re.findall("^#+ (.*)$", text, re.MULTILINE)
    assert heads == ["run", "Use", "Trained on", "Settings", "Measures", "Diagnosis", "Limits", "Licence"]
    for line in (
        "python:mine.py:Birds, labelled by class.",
        "- For training: 90 items, 2 classes by order, 9 classes by class.",
        "- unseen, held out: 30 items, 3 classes; none of these classes were trained on.",
        "| data.image_size | \\[64, 96\\] |",
        "| model.name | text:MiniLM |",
        "| model.normalize | true |",
        "| last step | 40 |",
        "| | recall@1 | MAP@R |",
        "| trained | 50.0 \\[40.0 to 60.0\\] | 25.0 |".replace("\\", ""),
        "| zero-shot backbone | 75.0 | – |",
        "| by chance | 10.0 | – |",
        "- unseen: class collapse, partial: too near.",
        "- The classes of unseen were never trained on: its measures are for unknown classes.",
        "- Of the training labels, 30.0 % were made wrong on purpose.",
        "- Images are seen at 64 x 96 pixels: smaller details are lost.",
        "- 2 tensors of weights.safetensors were left out.",
    ):
        assert line in text.splitlines(), line
    assert "/home" not in text


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"evaluation": {}, "diagnosis": {}}, "This run was not evaluated."),
        ({"diagnosis": {}}, "This run was not diagnosed."),
        ({"status": "interrupted"}, "- The run is not finished: its status is interrupted."),
        ({"data": {"train": None}}, "- Nothing was held out: how it does on other items is not known."),
        (
            {"data": {"evaluation": {"seen": {"items": 3, "classes": {"class": 3}, "trained_classes": {"class": 3}}}}},
            "- All classes of seen were trained on: how it does on classes never seen is not known.",
        ),
    ],
)
def test_what_is_not_known_is_said(changes: dict[str, Any], line: str) -> None:
    assert line in card(**changes).splitlines()


def test_without_a_record_only_the_use_is_told() -> None:
    text = model_card(None, title="run", use="Call it.", checked="Checked.")
    assert "The run has no record" in text
    assert "Measures" not in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<img src=x onerror=alert(1)>", "\\<img src=x onerror=alert\\(1\\)\\>"),
        ("[a](http://x) | b", "\\[a\\]\\(http\\://x\\) \\| b"),
        ("a\n# b `c` *d* @me", "a \\# b \\`c\\` \\*d\\* \\@me"),
        ("- 1", "\\- 1"),
        ("1. one", "1\\. one"),
        ("www.x.org & \x1b[2J", "www\\.x.org \\& \\\\x1b\\[2J"),
        ("recall@1 of zero-shot: 5.0", "recall@1 of zero-shot: 5.0"),
    ],
)
def test_a_name_stays_a_text(name: str, shown: str) -> None:
    assert escaped(name) == shown
    text = card(level=name, evaluation={name: RECORD["evaluation"]["unseen"]}, warnings=[name], status=name)
    assert text.count(shown) >= 4
    assert name not in text.replace(shown, "") or name == shown


def test_prefixes_are_measured_too() -> None:
    cut = {"prefix": 8, "evaluated": [{"name": "trained", "levels": {"class": {"recall@1": 0.375}}}], "comparisons": {}}
    text = card(prefixes={"unseen": [cut]})
    assert re.search(r"^\| trained, first 8 \| 37\.5 \|", text, re.MULTILINE)
    assert "Rows named first N" in text
    assert "first" not in card().partition("## Measures")[2].partition("## Diagnosis")[0].replace("The first row", "")
