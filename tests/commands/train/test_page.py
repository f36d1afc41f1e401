from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pages import page_words, write_run_report
from tests.watched import HOSTILE, Watched

from trivet.commands.train.outcome import cause_lines, how_to_go_on, result_lines
from trivet.commands.train.tolerance import noise_lines
from trivet.reports.diagnosis_record import DiagnosisSection
from trivet.reports.ladder_record import CandidateRecord, LadderRecord
from trivet.reports.page import duration, image, moment, number, percent, points
from trivet.reports.run_record import RunRecord
from trivet.runtime.text import BELOW


def page_text(record: dict[str, Any], folder: Path) -> str:
    write_run_report(record, folder / "report.html")
    return page_words(folder / "report.html")


def evaluation(trained: float, untrained: float, raw: float, chance: float = 0.25) -> dict[str, Any]:
    rows = {"trained": trained, "untrained network": untrained, "raw inputs": raw}
    return {
        "settings": {"data": {"level": "digit"}},
        "evaluation": {
            "unseen": [
                {"name": name, "levels": {"digit": {"recall@1": share, "chance_recall@1": chance, "items": 714}}}
                for name, share in rows.items()
            ]
        },
    }


def test_the_headline_shows_the_trained_and_the_finest_level(tmp_path: Path) -> None:
    levels = {level: {"recall@1": share} for level, share in (("a", 0.5), ("b", 0.6), ("c", 0.7))}
    record = {"settings": {"data": {"level": "b"}}, "evaluation": {"seen": [{"name": "trained", "levels": levels}]}}
    text = page_text(record, tmp_path)
    assert "60.0 % recall@1 by b (level trained on)" in text
    assert "70.0 % recall@1 by c (finest level)" in text
    assert "50.0 % recall@1 by a" not in text
    record["settings"] = {}
    assert "50.0 % recall@1 by a (level trained on)" in page_text(record, tmp_path)  # the default: the coarsest


def test_the_best_of_each_column_is_bold(tmp_path: Path) -> None:
    def row(name: str, recall: float, nmi: float, plus: float | None) -> dict[str, Any]:
        return {"name": name, "levels": {"digit": {"recall@10": recall, "recall@2": recall, "nmi": nmi, "nmi+": plus}}}

    rows = [row("trained", 0.91234, 0.5, None), row("raw inputs", 0.91241, 0.4, 0.3), row("other", 0.5, 0.5, 0.4)]
    write_run_report({"evaluation": {"seen": rows}}, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    start = text.index("<table")
    table = text[start : text.index("</table>", start)]
    assert re.findall(r'<th scope="col">(.*?)</th>', table) == ["embedding", "R@2", "R@10", "NMI", "NMI+"]
    trained, raw, other = (re.findall(r"<td>(.*?)</td>", row) for row in re.split("<tr>", table)[2:])
    assert trained == ["<b>91.2</b>", "<b>91.2</b>", "<b>50.0</b>", "–"]
    assert raw == ["<b>91.2</b>", "<b>91.2</b>", "40.0", "30.0"]
    assert other == ["50.0", "50.0", "<b>50.0</b>", "<b>40.0</b>"]
    write_run_report({"evaluation": {"seen": [*rows, row("equal", 0.91241, 0.4, None)]}}, tmp_path / "report.html")
    assert '<th scope="row" class="name">raw inputs, equal</th>' in (tmp_path / "report.html").read_text()


def test_missing_parts_are_left_out(tmp_path: Path) -> None:
    text = page_text({}, tmp_path)
    assert text.strip() == (
        "Trivet training run unnamed run This run was not evaluated, so there is no result to show. Written by Trivet. "
        "This file is self-contained and loads nothing from the network."
    )
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"<section|<h2|<details|<li>", html[html.index("<main>") : html.index("</main>")]) == []
    one = page_text({"curves": {"step": [1, 2], "loss": [0.1, 0.2]}}, tmp_path)
    assert "Training Training Loss" in one  # in the contents, then the section with its only plot


def compared(trained: float, **others: tuple[float, str]) -> dict[str, Any]:
    """A run beside references, each with its recall and the outcome."""
    names = {"untrained": "untrained network", "zero_shot": "zero-shot backbone", "raw": "raw inputs"}
    record = evaluation(trained, others.get("untrained", (0.2, ""))[0], others.get("raw", (0.2, ""))[0])
    rows = [
        {"reference": names[name], "reference_recall": recall, "outcome": outcome, "recall": trained, "queries": 714}
        | {"difference": trained - recall, "low": trained - recall - 0.02, "high": trained - recall + 0.02}
        for name, (recall, outcome) in others.items()
    ]
    return record | {"comparisons": {"unseen": {"digit": rows}}}


ON = "recall@1 on items not trained on (unseen by digit)"
HELPED = f"90.0 % {ON}, +10.0 points over the 80.0 % of the untrained network (+8.0 to +12.0)."


@pytest.mark.parametrize(
    ("record", "tone", "answer"),
    [
        (compared(0.9, untrained=(0.8, "better"), raw=(0.7, "better")), "good", HELPED),
        (
            compared(0.9, untrained=(0.8, "better"), raw=(0.91, "open")),
            "warn",
            f"90.0 % {ON}, 1.0 points below the 91.0 % of the raw inputs (-3.0 to +1.0; 714 items: too few to be "
            "sure).",
        ),
        (
            compared(0.9, untrained=(0.8, "better"), raw=(0.95, "worse")),
            "bad",
            f"90.0 % {ON}, 5.0 points below the 95.0 % of the raw inputs (-7.0 to -3.0).",
        ),
        (
            compared(0.42, untrained=(0.2, "equal"), zero_shot=(0.522, "worse"), raw=(0.1, "better")),
            "bad",
            f"42.0 % {ON}, 10.2 points below the 52.2 % of the zero-shot backbone (-12.2 to -8.2).",
        ),
        (
            compared(0.9, untrained=(0.895, "equal"), raw=(0.895, "equal")),
            "warn",
            f"90.0 % {ON}, +0.5 points over the 89.5 % of the raw inputs (-1.5 to +2.5; 714 items: "
            "too few to be sure).",
        ),
        (
            compared(0.25, untrained=(0.2, "better")),
            "bad",
            "No better than chance on items not trained on (unseen by digit): 25.0 % recall@1, 25.0 % by chance.",
        ),
    ],
    ids=["helped", "raw open", "raw better", "zero-shot better", "equal", "chance"],
)
def test_the_answer_is_first_beside_the_best_reference(
    record: dict[str, Any], tone: str, answer: str, tmp_path: Path
) -> None:
    text = page_text(record | {"diagnosis": {"unseen": {"verdicts": [{"kind": "healthy"}]}}}, tmp_path)
    assert text.index(answer) < text.index("On unseen 714 items") < text.index("Healthy")
    assert result_lines(RunRecord.read(record)) == [(tone, answer.replace(" %", "\u00a0%"))]


def test_known_and_new_classes_apart_and_the_split_that_chose_in_no_answer() -> None:
    record = compared(0.9, untrained=(0.8, "open"))
    record["settings"]["model"] = {"name": "timm:lite"}
    rows, others = record["evaluation"]["unseen"], record["comparisons"]["unseen"]
    for row in others["digit"]:
        row |= {"reference": "zero-shot backbone"}
    rows[0]["levels"]["digit"]["classes"] = 5
    counts = {"classes": {"digit": 5}}
    record |= {
        "evaluation": {"unseen": rows, "seen": rows, "validation": rows},
        "comparisons": {"unseen": others, "seen": {"digit": [others["digit"][0] | {"known_classes": True}]}},
        "data": {
            "evaluation": {
                "unseen": counts | {"trained_classes": {"digit": 0}},
                "seen": counts | {"trained_classes": {"digit": 5}},
            }
        },
        "choosing": {"keep": "best", "split": "validation", "step": 20, "checks": []},
    }
    record["comparisons"]["seen"]["digit"][0]["queries"] = 40
    beside = "+10.0 points over the 80.0 % of the features of lite (+8.0 to +12.0;"
    assert [line.replace("\u00a0", " ") for _, line in result_lines(RunRecord.read(record))] == [
        f"90.0 % recall@1 on new classes (unseen by digit), {beside} 5 classes: too few to be sure).",
        f"90.0 % recall@1 on known classes (seen by digit), {beside} 40 items: too few to be sure).",
    ]


@pytest.mark.parametrize("step", [0, 5])
def test_a_result_that_is_the_encoder_is_said_first_and_no_failure(step: int) -> None:
    record = compared(0.9, zero_shot=(0.9, "equal"), raw=(0.5, "better")) | {"step": step}
    record["settings"]["model"] = {"name": "timm:lite"}
    record["evaluation"]["unseen"][1]["name"] = "zero-shot backbone"
    checks = [{"step": at, "value": 0.5, "recall@1": 0.5, "gain": 0.0} for at in (0, 5)]
    record["choosing"] = {"keep": "best", "split": "validation", "step": 0, "checks": checks} if step else None
    ((tone, answer),) = result_lines(RunRecord.read(record))
    assert tone == "good"
    start = f"The result is lite as it is: 90.0 % {ON}, +40.0 points over the 50.0 % of the raw inputs ("
    assert answer.replace("\u00a0", " ").startswith(start)


@pytest.mark.parametrize(
    ("others", "advice"),
    [
        (
            [(0.04, -0.01), (0.06, -0.02), (-0.01, -0.03)],
            "try C1 all the same, +6.0 points of MAP@R",
        ),
        ([(-0.01, -0.03), (0.06, 0.01)], None),
        ([(0.009, -0.001), (0.0002, -0.0001)], None),  # no gain of a point
        ([], None),
    ],
)
def test_where_the_encoder_stays_the_candidate_that_is_in_doubt_can_be_tried(
    others: list[tuple[float, float]], advice: str | None
) -> None:
    ladder = LadderRecord(
        candidates=[
            CandidateRecord(name="lite", rung="encoder", better=True),
            *(
                CandidateRecord(name=f"C{i}", rung="head", difference=mean, low=low, high=2 * mean - low)
                for i, (mean, low) in enumerate(others)
            ),
        ],
        best="lite",
        result="lite",
    )
    record = RunRecord.read(compared(0.9, zero_shot=(0.9, "equal"))).model_copy(update={"ladder": ladder})
    line = str(how_to_go_on(record, Path("run")))
    assert ("all the same" in line) == (advice is not None)
    if advice is not None:
        assert line.startswith(
            f"{advice} on held-out classes (-2.0 to +14.0): trivet train run/candidates/C1.toml -o run-2; "
        )


CHECK = "Check that inputs and labels are in the same order"


@pytest.mark.parametrize("is_ladder", [True, False])
@pytest.mark.parametrize(
    "section", [{"verdicts": [{"kind": "no-better-than-chance", "changes": [f"{CHECK}: so."]}]}, {}]
)
@pytest.mark.parametrize("step", [0, 20])
def test_after_a_result_of_chance_comes_what_its_verdict_says(
    step: int, section: dict[str, Any], is_ladder: bool
) -> None:
    candidates = [
        CandidateRecord(name="lite", rung="encoder", better=True),
        CandidateRecord(name="C0", rung="head", difference=0.06, low=-0.02, high=0.14),
    ]
    ladder = LadderRecord(candidates=candidates, best="lite", result="lite") if is_ladder else None
    diagnosis = {"unseen": {"level": "digit", **section}, "train": {"verdicts": [{"kind": "noisy-labels"}]}}
    record = RunRecord.read(compared(0.25) | {"diagnosis": diagnosis, "step": step})
    line = how_to_go_on(record.model_copy(update={"ladder": ladder}), Path("run"))
    checked = (
        "embeddings and labels are in the same order" if step and not section else CHECK.removeprefix("Check that ")
    )
    assert line is not None
    assert line.startswith(f"check that {checked}")
    assert "trivet" not in line


@pytest.mark.parametrize(
    ("items", "classes", "few"),
    [
        (4, None, "4 items"),
        (4, 2, "4 items of 2 classes"),
        (40, 1, "40 items of 1 class"),
        (5, 2, ""),
        (None, None, ""),
    ],
)
@pytest.mark.parametrize(
    ("result", "begin", "otherwise"),
    [
        ("lite", "lite, unchanged, as", " the candidate beside it was not surely a point better"),
        ("C0", "C0, the best of 2 candidates", ""),
    ],
)
def test_items_too_few_to_tell_candidates_apart(
    items: int | None, classes: int | None, few: str, result: str, begin: str, otherwise: str
) -> None:
    candidates = [
        CandidateRecord.read({"name": "lite", "rung": "encoder", "better": True, "recall@1": 0.5}),
        CandidateRecord.read(
            {"name": "C0", "rung": "head", "recall@1": 0.5, "difference": 0.06, "low": -0.02, "high": 0.14}
        ),
    ]
    ladder = LadderRecord(candidates=candidates, best=result, result=result, items=items, classes=classes)
    record = RunRecord.read(compared(0.9, zero_shot=(0.9, "equal"))).model_copy(update={"ladder": ladder})
    said = f"{' ' if result == 'lite' else ', though '}{few} cannot tell candidates apart" if few else otherwise
    assert f"the result is {begin}{said}" in result_lines(record)[0][1]
    line = str(how_to_go_on(record, Path("run")))
    if few or result == "lite":
        assert line.startswith("label more classes or items, for a surer answer; to search") == (few != "")
    assert ("all the same" in line) == (few == "" and result == "lite")


def ranked(*, worse: bool = True, reference: str = "zero-shot backbone") -> dict[str, Any]:
    """MAP@R beside a reference; perhaps a point lower where it is not worse beyond doubt."""
    scores = {"map_at_r": 0.067, "reference_map_at_r": 0.17, "difference": -0.103, "low": -0.12, "high": -0.08}
    if not worse:
        scores |= {"reference_map_at_r": 0.082, "difference": -0.015, "low": -0.05, "high": 0.02, "queries": 300}
    return scores | {"reference": reference, "level": "digit", "worse": worse}


def test_a_lower_map_at_r_is_in_the_answer() -> None:
    rows = [ranked(), ranked(worse=False, reference="raw inputs"), ranked(reference="untrained network")]
    section = {"level": "digit", "verdicts": [{"kind": "spread-out"}], "measures": {"rankings": rows}}
    record = compared(0.9, untrained=(0.8, "better")) | {"diagnosis": {"unseen": section}}
    clause = "; 6.7 % MAP@R, 10.3 points below the 17.0 % of the zero-shot backbone (-12.0 to"
    ((tone, answer),) = result_lines(RunRecord.read(record))
    assert (tone, answer.replace("\u00a0", " ")) == ("bad", f"{HELPED[:-1]}{clause} -8.0).")
    worse = {"diagnosis": {"unseen": section | {"verdicts": [{"kind": "worse-than-reference"}]}}}
    assert "MAP@R" not in result_lines(RunRecord.read(record | worse))[0][1]
    perhaps = {"diagnosis": {"unseen": section | {"measures": {"rankings": rows[1:2]}}}}
    ((tone, answer),) = result_lines(RunRecord.read(record | perhaps))
    assert tone == "warn"
    assert "; 6.7\u00a0% MAP@R, 1.5 points below the 8.2\u00a0% of the raw inputs (-5.0 to +2.0; 300 " in answer
    equal = rows[1] | {"difference": -0.005}
    ((tone, answer),) = result_lines(
        RunRecord.read(record | {"diagnosis": {"unseen": section | {"measures": {"rankings": [equal]}}}})
    )
    assert (tone, "MAP@R" in answer) == ("good", False)


@pytest.mark.parametrize(
    ("raw", "measure", "tried", "clause"),
    [
        ((0.91, "open"), {"map@r": 0.132}, 2, "; by MAP@R, which chose it, 13.2 % against 10.0 %."),
        ((0.89, "equal"), {"map@r": 0.132}, 2, ""),  # not below
        ((0.91, "open"), {}, 2, ""),  # not measured
        ((0.91, "open"), {"map@r": 0.132}, 1, ""),  # nothing to choose from
    ],
)
def test_a_result_below_by_recall_says_by_what_it_was_chosen(
    raw: tuple[float, str], measure: dict[str, float], tried: int, clause: str
) -> None:
    record = compared(0.9, untrained=(0.8, "better"), raw=raw)
    for row, share in zip(record["evaluation"]["unseen"], (measure, {"map@r": 0.2}, {"map@r": 0.1}), strict=True):
        row["levels"]["digit"] |= share
    names = [("lite", "encoder"), ("C0", "head")][-tried:]
    candidates = [
        CandidateRecord.read({"name": name, "rung": rung, "recall@1": 0.5, "map@r": 0.5}) for name, rung in names
    ]
    ladder = LadderRecord(candidates=candidates, best="C0", result="C0")
    ((_, line),) = result_lines(RunRecord.read(record).model_copy(update={"ladder": ladder}))
    line = line.replace("\u00a0", " ")
    assert ("which chose it" in line) == (clause != "")
    assert clause in line


def by_choice(value: float, *ends: float, outcome: str, reference: str = "untrained network") -> dict[str, Any]:
    """MAP@R beside a reference, with the interval of the difference."""
    found = {"measure": "map@r", "reference": reference, "value": value, "low": ends[0], "high": ends[1]}
    middle = (ends[0] + ends[1]) / 2
    return found | {"reference_value": value - middle, "difference": middle, "outcome": outcome}


def test_the_measure_that_a_step_was_chosen_by_comes_first(tmp_path: Path) -> None:
    choice = {"keep": "best", "measure": "map@r", "level": "digit", "checks": []}
    record = compared(0.9, untrained=(0.95, "worse")) | {"choosing": choice}
    record["chosen_comparisons"] = {"unseen": {"digit": [by_choice(0.578, 0.016, 0.028, outcome="better")]}}
    expected = (
        "57.8 % MAP@R on items not trained on (unseen by digit), +2.2 points over the 55.6 % of the untrained network "
        "(+1.6 to +2.8); 90.0 % recall@1, 5.0 points below the 95.0 % of the untrained network (-7.0 to -3.0)."
    )
    assert expected in page_text(record, tmp_path)
    of_another_level = record | {"choosing": choice | {"level": "parity"}}
    assert "57.8 % MAP@R" not in page_text(of_another_level, tmp_path)


def test_prefixes_stand_beside_the_whole_and_say_whether_they_were_helped(tmp_path: Path) -> None:
    def cut(prefix: int, trained: float, before: float, outcome: str) -> dict[str, Any]:
        shares = {"trained": trained, "untrained network": before}
        reference = {"reference": "untrained network", "reference_recall": before, "outcome": outcome}
        reference |= {"difference": trained - before, "low": trained - before - 0.02, "high": trained - before + 0.02}
        return {
            "prefix": prefix,
            "evaluated": [{"name": name, "levels": {"digit": {"recall@1": one}}} for name, one in shares.items()],
            "comparisons": {"digit": [reference | {"recall": trained}]},
        }

    whole = compared(0.9, untrained=(0.8, "better"))
    cuts = [cut(16, 0.6, 0.7, "worse"), cut(32, 0.85, 0.6, "better"), cut(64, 0.88, 0.7, "better")]
    text = page_text(whole | {"prefixes": {"unseen": cuts}}, tmp_path)
    worse = (
        "The first 16 numbers alone: 60.0 % recall@1, 10.0 points below the 70.0 % of the untrained network (-12.0 to"
    )
    evaluation = "Evaluation In per cent"
    places = [text.index(one) for one in (HELPED, worse, "On unseen 714 items", evaluation, "trained, first 16 60.0")]
    assert places == sorted(places)
    assert "untrained network, first 16 70.0" in text


def test_nothing_is_green_where_something_is_red(tmp_path: Path) -> None:
    worse = {"kind": "worse-than-reference", "rule": "recall@1 22.0 %, against 52.2 % of the zero-shot backbone"}
    good = compared(0.9, untrained=(0.5, "better")) | {"status": "finished"}
    sections = {"train": {"verdicts": [{"kind": "healthy"}]}, "unseen": {"verdicts": [worse]}}
    write_run_report(good | {"diagnosis": sections}, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    body = html[html.index("<main>") : html.index("</main>")]
    assert not re.findall(r'class="[^"]*-good', body)
    assert body.index("Worse than reference") < body.index("Healthy")
    write_run_report(good | {"diagnosis": {"train": sections["train"]}}, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(re.findall(r'class="[^"]*-good', html)) == 3  # the status, that training helped, the card


def test_noise_is_told_from_its_verdict(tmp_path: Path) -> None:
    record = compared(0.27, untrained=(0.2, "better"))
    section = {"level": "digit", "verdicts": [{"kind": "no-better-than-chance"}]}
    assert "No better than chance on items not trained on (unseen by digit)" in page_text(
        record | {"diagnosis": {"unseen": section}}, tmp_path
    )


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_an_unfinished_run_says_so(status: str, tmp_path: Path) -> None:
    record = {"status": status, "curves": {"step": [0, 1], "loss": [0.2, None], "d_ap": []}, "warnings": ["Hot."]}
    text = page_text(record, tmp_path)
    assert "the page shows what was recorded until then" in text
    assert text.index("Hot.") < text.index("Training Loss")
    assert "Loss" in text
    assert "Mean distance" not in text


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"maps": {"s": {"coordinates": {"PCA": [[0, 0]]}, "labels": {"a": ["x", "y"]}}}}, "1 PCA coordinates, 2 a"),
        ({"curves": {"step": [1, 2], "loss": [0.1]}}, "2 steps, 1 loss"),
        ({"scatter": {"s": {"a": {"s_ap": [1.0], "s_an": []}}}}, "1 s_ap, 0 s_an"),
    ],
    ids=["map", "curves", "scatter"],
)
def test_series_of_different_length_are_refused(part: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"must have one length: got .*{words}"):
        write_run_report(part, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new folder" / "report.html"
    write_run_report({"run": "first"}, path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_run_report({"run": "second"}, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_long_series_are_thinned_with_both_ends_and_the_counts_stay_whole(tmp_path: Path) -> None:
    count = 9000
    record = {
        "curves": {"step": list(range(count)), "loss": [1.0] * count},
        "scatter": {"s": {"a": {"s_ap": [0.5] * count, "s_an": [0.6] * 100 + [0.4] * (count - 100)}}},
    }
    text = page_text(record, tmp_path)
    assert "Long curves show a sample of the steps" in text
    assert "100 of 9 000 items lie above the diagonal; the plot shows an evenly spaced sample of 2 000" in text
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    steps = re.search(r'"step":\[([\d,]*)\]', html)
    assert steps is not None
    drawn = [int(step) for step in steps[1].split(",")]
    assert (len(drawn), drawn[0], drawn[-1]) == (2000, 0, count - 1)
    dots = re.search(r'"s_ap":\[([\d.,]*)\]', html)
    assert dots is not None
    assert len(dots[1].split(",")) == 2000


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("data:image/png;base64,iVBORw0KGgo=", True),
        ("data:image/svg+xml;base64,iVBORw0KGgo=", False),
        ("data:text/html;base64,iVBORw0KGgo=", False),
        ('data:image/png;base64,iVBORw0KGgo=" onerror="alert(1)', False),
        ("https://example.org/a.png", False),
        ("javascript:alert(1)", False),
        (None, False),
    ],
)
def test_only_inline_pictures_are_shown(uri: str | None, kept: bool) -> None:
    assert image(uri) == (uri if kept else None)


def test_classes_are_listed_in_reading_order(tmp_path: Path) -> None:
    names = ["class10", "class9", "odd", "even", "class9"]
    write_run_report(
        {"maps": {"s": {"coordinates": {"PCA": [[0, 0]] * 5}, "labels": {"a": names}}}}, tmp_path / "r.html"
    )
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert '"levels":{"a":{"names":["class9","class10","even","odd"],"classes":[1,0,3,2,0]}}' in html


def test_numbers_in_words() -> None:
    assert [percent(0.87349), percent(1.0), percent(None), percent(float("nan"))] == ["87.3", "100.0", "–", "–"]
    assert [points(-0.012), points(0.05)] == ["-1.2", "+5.0"]
    assert [number(1199042), number(None)] == ["1\u202f199\u202f042", "–"]
    lengths = [duration(seconds) for seconds in (3.14, 59.99, 72.4, 7260)]
    assert lengths == ["3.1 s", "1 min 0 s", "1 min 12 s", "2 h 1 min"]
    assert [moment("2026-01-03T12:00:00Z"), moment("last week")] == ["3 January 2026, 12:00 UTC", "last week"]


def test_intervals_stand_beside_the_main_result(tmp_path: Path) -> None:
    levels = {"digit": {"recall@1": 0.9, "chance_recall@1": 0.1, "items": 50, "classes": 5}}
    record = {
        "evaluation": {"seen": [{"name": "trained", "levels": levels}]},
        "intervals": {"seen": {"digit": {"recall@1": {"queries": [0.85, 0.95], "classes": None}}}},
    }
    write_run_report(record, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "95&nbsp;% interval: 85.0 to 95.0 for other items</p>" in page


def test_items_of_a_diagnosis_join_those_of_the_run(tmp_path: Path) -> None:
    """A split that the evaluation shows keeps its map and scatter; one that is diagnosed alone adds its own."""
    point = {"coordinates": {"PCA": [[0, 0]]}, "labels": {"a": ["x"]}}
    section = {"level": "a", "map": point, "scatter": {"s_ap": [0.1, 0.2], "s_an": [0.3, 0.3]}}
    record = {
        "maps": {"unseen": {**point, "ids": ["of the run"]}},
        "scatter": {"unseen": {"b": {"s_ap": [0.9], "s_an": [0.1]}}},
        "diagnosis": {"train": section, "unseen": section},
    }
    text = page_text(record, tmp_path)
    assert "unseen , by b : 0 of 1 items lie above the diagonal" in text
    assert "unseen , by a" not in text
    assert "train , by a : 2 of 2 items lie above the diagonal" in text
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r'"(unseen|train)":\{"coordinates"', page) == ["unseen", "train"]
    assert '"ids":["of the run"]' in page


def test_verdicts_follow_the_results(tmp_path: Path) -> None:
    verdict = {"kind": "class-collapse", "severity": "full", "rule": "items of a class are 0.02 x as far apart"}
    record = evaluation(0.9, 0.8, 0.7) | {"diagnosis": {"train": {"verdicts": [verdict], "level": "digit"}}}
    text = page_text(record, tmp_path)
    assert text.index("90.0 % recall@1 on items") < text.index("Class collapse, full")
    assert "Items of a class are 0.02 × as far apart." in text


def event(step: int, kind: str = "network-collapse") -> dict[str, Any]:
    return {
        "step": step,
        "kind": kind,
        "evidence": {"relative_spread": 0.012, "norm": None},
        "rule": "risk of 89 %",
        "changes": ["Use semi-hard negatives."],
        "forecast": 0.887,
        "healthy": 20,
    }


def watched(*events: dict[str, Any], **guard: Any) -> dict[str, Any]:
    """A record with these events, of a run that is measured every 10 steps."""
    steps = [0, 10, 20, 30, 40]
    series = {"step": steps, "recall": [0.5, 0.6, 0.7, 0.8, 0.9], "relative_spread": [0.5, 0.4, 0.3, 0.2, None]}
    monitor = {"series": series, "events": list(events)}
    return {"guard": {"action": "warn", **guard}, "monitor": monitor}


def test_a_run_without_events_says_so_in_a_sentence(tmp_path: Path) -> None:
    text = page_text(watched(), tmp_path)
    assert "The monitor detected no collapse in 5 checks, the last at step 40." in text
    assert "The guard stopped" not in text
    assert "What to change" not in text


def test_what_was_foretold_asked_and_kept_stands_over_the_curves(tmp_path: Path) -> None:
    record = watched(event(20), action="stop", snapshot=12)
    series = {"step": [0, 20, 40], "recall": [0.5, 0.55, 0.58], "fine_recall": [None] * 3, "relative_spread": [0.5] * 3}
    record["monitor"]["probe"] = {"items": 150, "cost": 0.0123, "start": {"recall": 0.6}, "series": series}
    record["foreseen"] = {
        "steps": 20,
        "sentence": "This run will probably collapse: so it is.",
        "changes": {},
        "tried": [],
    }
    text = page_text(record, tmp_path)
    assert "This run will probably collapse: so it is." in text
    assert "The guard asked 150 held-out items 3 times, an estimated 1.2 % of the cost of the steps." in text
    assert "The result is the network of step 12, as the last one was worse on these items." in text
    assert text.index("so it is.") < text.index("150 held-out items that the guard asked")
    page = (tmp_path / "report.html").read_text()
    assert "collapse foretold" in page
    quiet = watched()
    quiet["foreseen"] = {
        "steps": 20,
        "sentence": None,
        "changes": {},
        "tried": [{"sentence": "None is.", "foreseen": False}],
    }
    assert "Trial steps before the first: None is." in page_text(quiet, tmp_path)
    assert "held-out items that the guard asked" not in page_text(quiet, tmp_path)


def test_an_event_is_a_card(tmp_path: Path) -> None:
    text = page_text(watched(event(30), event(40, "dead-sampler")), tmp_path)
    assert "Network collapse At step 30: risk of 89 %." in text
    assert "Use semi-hard negatives." in text
    assert "relative spread 0: all items equal; 1: spread around the origin 0.012" in text
    assert "forecast probability that the embedding shrinks to a point 88.7 %" in text
    assert text.index("At step 30") < text.index("Dead sampler At step 40")


def test_a_stopped_run_names_the_event_on_top(tmp_path: Path) -> None:
    record = watched(event(30), action="stop", stopped_by="network collapse detected at step 30: risk of 89 %")
    text = page_text(record | {"status": "stopped"}, tmp_path)
    top = "The guard stopped this training: network collapse detected at step 30: risk of 89 %."
    assert text.index(top) < text.index("What to change")
    assert "The guard stopped the training here." in text


def test_curves_of_recall_begin_at_step_0_beside_references_of_the_same_items(tmp_path: Path) -> None:
    levels = {"untrained network": 0.5, "raw inputs": 0.5, "zero-shot backbone": 0.4, "trained": 0.9}
    rows = [{"name": name, "levels": {"digit": {"recall@1": share}}} for name, share in levels.items()]
    checks = [
        {"step": 0, "value": 0.3, "recall@1": 0.8, "gain": 0.0, "low": None},
        {"step": 10, "value": 0.4, "recall@1": 0.9, "gain": 0.1, "low": 0.05},
    ]
    record: dict[str, Any] = {
        "level": "digit",
        "data": {"evaluation": {"unseen": {"items": 40}}},
        "evaluation": {"unseen": rows},
        "validation": {"split": "unseen", "items": 40, "step": [10], "recall@1": {"digit": [0.9]}},
        "choosing": {"measure": "map@r", "split": "unseen", "known": 7, "step": 10, "checks": checks},
    }

    def curves(**validation: Any) -> list[Any]:
        page_text(record | {"validation": record["validation"] | validation}, tmp_path)
        found = re.search(r'"curves":(\[.*?\]),"maps"', (tmp_path / "report.html").read_text(encoding="utf-8"))
        assert found is not None
        return [(each["title"], each["step"], each["series"]) for each in json.loads(found[1])]

    recall, chosen = curves()
    lines = {"digit": [0.5, 0.9], "before training, raw inputs": [0.5, 0.5], "zero-shot backbone": [0.4, 0.4]}
    assert recall == ("Recall@1 within 40 of the unseen items", [0, 10], lines)
    lines = {"recall@1": [0.8, 0.9], "MAP@R": [0.3, 0.4], "before training": [0.3, 0.3]}
    lines |= {"at least (95 %, classes)": [None, pytest.approx(0.35)]}
    assert chosen == ("MAP@R on unseen, among 7 training items, by which the step was chosen", [0, 10], lines)
    assert curves(items=30)[0] == ("Recall@1 within 30 of the unseen items", [10], {"digit": [0.9]})


def test_curves_show_the_events(tmp_path: Path) -> None:
    curves = {"step": [10, 20, 30], "loss": [1.0, 2.0, 3.0]}
    page_text(watched(event(20), event(20, "dead-sampler"), event(40)) | {"curves": curves}, tmp_path)
    found = re.search(r'"curves":(\[.*?\]),"maps"', (tmp_path / "report.html").read_text(encoding="utf-8"))
    assert found is not None
    (curve,) = json.loads(found[1])
    assert (curve["step"], curve["series"]) == ([10, 20, 30], {"loss": [1, 2, 3]})
    marks = [{"step": 20, "text": "network collapse, dead sampler"}, {"step": 40, "text": "network collapse"}]
    assert curve["marks"] == marks


def test_events_are_drawn_and_can_inject_nothing(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    def record(names: list[str]) -> dict[str, Any]:
        bad = event(20) | {"kind": names[3], "rule": names[2], "changes": names, "evidence": {names[1]: 1.0}}
        curves = {"step": [10, 20, 30], "loss": [1.0, 2.0, 3.0]}
        return watched(bad, stopped_by=names[1]) | {"curves": curves, "status": "stopped"}

    write_run_report(record(HOSTILE), tmp_path / "hostile.html")
    write_run_report(record([f"name {k}" for k in range(len(HOSTILE))]), tmp_path / "tame.html")
    hostile, tame = watch(tmp_path / "hostile.html"), watch(tmp_path / "tame.html")
    elements = "() => document.querySelectorAll('*:not(.plot *)').length"
    assert hostile.page.evaluate(elements) == tame.page.evaluate(elements)
    assert hostile.page.locator(".plot a, .plot img, main img").count() == 0
    assert HOSTILE[2] in hostile.page.locator("#events").inner_text()
    assert tame.page.locator("[data-curve] .shapelayer path").count() == 1
    assert tame.page.locator("[data-curve] .annotation").first.text_content() == "name 3"
    assert tame.page.locator("[data-curve] .scatter").count() == 1
    tame.page.set_viewport_size({"width": 390, "height": 800})
    assert tame.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert hostile.offences == []
    assert tame.offences == []


def noise_record(stands: float, *, put_in: float | None = None, negatives: str = "hard") -> dict[str, Any]:
    def told(value: float) -> dict[str, Any]:
        return {"value": value, "interval": [value - 0.02, value + 0.02]}

    tolerance = {"by": "skew", "skew": told(2.8), "rate": told(stands), "uniform": 0.83}
    skew = {"picks": 3600, "active": 1974, "relative": [2.8, *[0.8] * 8, None], "skew": told(2.8), "gamma": None}
    measures = {"wrong_skew": None, "gamma": None, "tolerance": tolerance}
    along = [
        {"from": 40 * part, "to": 40 * part + 36, "picks": 400, "skew": told(2 + part)} | measures for part in range(3)
    ]
    return {
        "run": "noisy",
        "settings": {"loss": {"negatives": negatives}},
        "data": {"noise": None if put_in is None else {"rate": put_in, "topline": False}},
        "label_noise": {
            "strategy": {"checks": 75, "skew": skew | {"easy_skew": {"value": None, "interval": [1.5, None]}}}
            | {"tolerance": tolerance, "along": along}
        },
    }


STANDS = "This strategy tolerates about p = 0.20 [0.18, 0.22] of wrong labels"
AUDIT = "run trivet audit noisy, which judges labels by networks that have not seen them"
UNEVEN = 'or sample more evenly: with loss.negatives = "random" the skew is 1'


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (noise_record(0.2, put_in=0.17), []),
        (noise_record(0.2, put_in=0.21), [f"That may be more than the strategy tolerates: {AUDIT}; {UNEVEN}."]),
        (noise_record(0.2, put_in=0.3), [f"That is more than the strategy tolerates: {AUDIT}; {UNEVEN}."]),
        (noise_record(0.2, put_in=0.3, negatives="random"), [f"That is more than the strategy tolerates: {AUDIT}."]),
    ],
)
def test_labels_made_wrong_on_purpose_are_held_against_the_strategy(record: dict[str, Any], said: list[str]) -> None:
    put_in = record["data"]["noise"]["rate"]
    assert noise_lines(RunRecord.read(record), run="noisy") == [
        f"{STANDS}; {put_in:.2f} were made wrong on purpose.",
        *said,
    ]


def test_a_run_does_not_judge_its_own_labels() -> None:
    older = noise_record(0.2)
    pointed = [f"{STANDS}; trivet audit noisy estimates how many there are, by networks that have not seen them."]
    assert noise_lines(RunRecord.read(older), run="noisy") == pointed
    judged = {"rate": 0.68, "interval": [0.61, 0.72]}
    older["label_noise"]["labels"] = {"trained": judged, "untrained": judged, "items": 649}
    assert noise_lines(RunRecord.read(older), run="noisy") == pointed
    topline = noise_record(0.2) | {"data": {"noise": {"rate": 0.0, "topline": True}}}
    assert noise_lines(RunRecord.read(topline), run="noisy") == [f"{STANDS}."]


def test_labels_as_given_are_not_those_that_a_cleaned_run_was_trained_on() -> None:
    look = {"step": 28, "suspects": 9, "noise_rate": 0.3, "left_out": 9, "relabelled": 0}
    cleaned = noise_record(0.2, put_in=0.3) | {"cleaning": [look]}
    assert noise_lines(RunRecord.read(cleaned), run="noisy") == [
        f"{STANDS}, measured on the cleaned labels; 0.30 of those given were made wrong on purpose."
    ]
    nothing = noise_record(0.2, put_in=0.3) | {"cleaning": [look | {"suspects": 0, "left_out": 0}]}
    plain = RunRecord.read(noise_record(0.2, put_in=0.3))
    assert noise_lines(RunRecord.read(nothing), run="noisy") == noise_lines(plain, run="noisy")


def test_random_negatives_are_no_advice_where_gamma_decides() -> None:
    record = noise_record(0.2, put_in=0.3)
    record["label_noise"]["strategy"]["tolerance"]["by"] = "gamma"
    assert noise_lines(RunRecord.read(record), run="noisy")[1] == f"That is more than the strategy tolerates: {AUDIT}."


def test_what_is_not_known_about_wrong_labels_is_said(tmp_path: Path) -> None:
    unpicked = {"label_noise": {"strategy": {"reason": "the loss picked no negatives"}}}
    assert noise_lines(RunRecord.read(unpicked), run="noisy") == [
        "How many wrong labels this strategy tolerates is unknown: the loss picked no negatives."
    ]
    assert "the loss picked no negatives" in page_text(unpicked, tmp_path)
    assert noise_lines(RunRecord.read({}), run="noisy") == []
    assert "Wrong labels" not in page_text({"run": "old"}, tmp_path)


def test_the_skew_is_shown_over_training(tmp_path: Path, watch: Callable[[Path], Watched]) -> None:
    record = noise_record(0.2) | {"run": HOSTILE[0]}
    text = page_text(record, tmp_path)
    assert "Counted at 75 steps: 3 600 picked negatives, 1 974 of them with a loss" in text
    assert "80 to 116 400 4 (3.98 to 4.02)" in text
    opened = watch(tmp_path / "report.html")
    opened.page.locator("#noise summary").click()
    opened.page.locator("#noise .plot-container").wait_for()
    (trace,) = opened.plot("Skew of the picked negatives")
    assert (trace["x"], trace["y"]) == ([36, 76, 116], [2, 3, 4])
    assert HOSTILE[0] in opened.page.locator("#noise").inner_text()
    assert opened.offences == []


def test_labels_judged_while_training_are_a_table(tmp_path: Path) -> None:
    checks = [
        {"step": 200, "suspects": 1234, "noise_rate": 0.2, "left_out": 1240, "relabelled": 0},
        {"step": 400, "suspects": 0, "noise_rate": None, "left_out": 0, "relabelled": 0},
        {"step": 600, "suspects": 90, "noise_rate": None, "least": 0.07, "left_out": 90, "relabelled": 0},
    ]
    text = page_text({"cleaning": checks}, tmp_path)
    assert "dropped relabelled 200 1 234 20.0 % 1 240 0 400 0 – 0 0 600 90 at least 7.0 % 90 0" in text
    assert "cleaning.csv" not in page_text({}, tmp_path)


def test_a_cause_names_its_split_and_what_stands_below() -> None:
    def verdict(kind: str, cause: str) -> dict[str, Any]:
        return {"kind": kind, "rule": f"rule of {kind}", "cause": cause, "changes": [f"against {kind}"]}

    def told(**verdicts: list[dict[str, Any]]) -> list[str]:
        diagnosed = {split: DiagnosisSection.read({"verdicts": found}) for split, found in verdicts.items()}
        return cause_lines(RunRecord(evaluation={"seen": [], "unseen": []}, diagnosis=diagnosed))

    worse, healthy = verdict("worse-than-reference", "It began lower."), [verdict("healthy", "Well spread.")]
    assert told(train=healthy, unseen=[worse]) == ["Cause: It began lower.", "Change 1: against worse-than-reference"]
    assert told(train=[worse], seen=[worse], unseen=healthy)[0] == "Cause (seen): It began lower."
    below = [verdict("worse-than-reference", BELOW), verdict("network-collapse", "All came together.")]
    assert told(seen=below) == [
        "Cause: network collapse: rule of network-collapse. All came together.",
        "Change 1: against network-collapse",
    ]
    assert told(seen=healthy) == []
