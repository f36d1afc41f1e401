"""Commands as functions of arrays: the records, words and pages of the commands on files of the same numbers."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trivet
from trivet.commands.call_options import INSTEAD
from trivet.commands.evaluate.run import WAYS
from trivet.commands.group import Commands
from trivet.knn.postprocessing import RerankedIndex
from trivet.reports.result import Result
from trivet.runtime.caller import in_python

pytestmark = pytest.mark.usefixtures("few_digits")

Call = Callable[..., tuple[int, str, str]]
RANDOM = np.random.default_rng(0)
NUMBERS = np.arange(120) % 6
NAMES = np.array(["ash", "bay", "elm", "fir", "gum", "oak"])[NUMBERS]
KINDS = np.array(["leaf", "needle"])[(NUMBERS == 3).astype(int)]
BEFORE = RANDOM.normal(size=(6, 5))[NUMBERS] + 0.4 * RANDOM.normal(size=(120, 5))
AFTER = RANDOM.normal(size=(6, 5))[NUMBERS] + 0.8 * RANDOM.normal(size=(120, 5))
LABELS = {"tree": NAMES, "kind": KINDS}
WRONG = np.where(np.arange(120) % 17 == 0, np.roll(NAMES, 1), NAMES)
TAGS = [[name, kind] for name, kind in zip(NAMES.tolist(), KINDS.tolist(), strict=True)]
TIMES = ("created", "seconds", "command")  # of a run of a command
QUICK = ["recall@1", "map@r", "nmi"]


def saved(path: Path, rows: np.ndarray, **columns: Any) -> Path:
    np.savez(path, embeddings=rows, **columns)
    return path


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in TIMES}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def evaluated(folder: Path) -> tuple[Result, list[object]]:
    path = saved(folder / "embeddings", BEFORE, **LABELS)
    return trivet.evaluate(BEFORE, LABELS, measures=QUICK, folds=2), ["evaluate", path, "--folds", 2, *quick()]


def evaluated_tags(folder: Path) -> tuple[Result, list[object]]:
    path = saved(folder / "embeddings", BEFORE, label=[";".join(tags) for tags in TAGS])
    options = ["--separator", ";", "--match", "all", *quick()[:4]]
    return trivet.evaluate(BEFORE, TAGS, match="all", measures=QUICK[:2]), ["evaluate", path, *options]


def evaluated_gallery(folder: Path) -> tuple[Result, list[object]]:
    paths = [saved(folder / name, rows, label=names) for name, rows, names in (
        ("embeddings", BEFORE[:50], NAMES[:50]), ("gallery", BEFORE[50:], NAMES[50:]))]  # fmt: skip
    result = trivet.evaluate(
        BEFORE[:50], NAMES[:50], gallery=BEFORE[50:], gallery_labels=NAMES[50:], measures="recall@1"
    )
    return result, ["evaluate", "--query", paths[0], "--gallery", paths[1], "--measures", "recall@1"]


def compared(folder: Path) -> tuple[Result, list[object]]:
    paths = [saved(folder / name, rows, **LABELS) for name, rows in (("before", BEFORE), ("after", AFTER))]
    return trivet.compare((BEFORE, AFTER), LABELS, measures=QUICK), ["evaluate", *paths, *quick()]


def evaluated_forms(folder: Path) -> tuple[Result, list[object]]:
    path = saved(folder / "embeddings", BEFORE, label=NAMES)
    options: dict[str, Any] = {"prefixes": [4], "quantize": ["int8", "binary"], "rescore": True, "nmi_plus": 2}
    result = trivet.evaluate(BEFORE, NAMES, measures=["recall@1", "nmi+"], distance="euclidean", **options)
    return result, ["evaluate", path, "--measures", "recall@1,nmi+", "--distance", "euclidean", "--prefixes", 4,
                    "--quantize", "int8,binary", "--rescore", "--nmi-plus", 2]  # fmt: skip


def postprocessed(folder: Path) -> tuple[Result, list[object]]:
    path = saved(folder / "embeddings", BEFORE, label=NAMES)
    command = ["evaluate", path, "--postprocess", "whitening", "--measures", "map@r"]
    return trivet.evaluate(BEFORE, NAMES, postprocess="whitening", measures="map@r"), command


def diagnosed(folder: Path) -> tuple[Result, list[object]]:
    path = saved(folder / "embeddings", AFTER, **LABELS)
    reference = saved(folder / "before", BEFORE, **LABELS)
    result = trivet.diagnose(AFTER, LABELS, {"before": BEFORE}, level="kind")
    return result, ["diagnose", path, "--labels", "kind", "--reference", reference]


def diagnosed_tags(folder: Path) -> tuple[Result, list[object]]:
    path = saved(folder / "embeddings", AFTER, label=[";".join(tags) for tags in TAGS])
    return trivet.diagnose(AFTER, trivet.Tags(TAGS)), ["diagnose", path, "--separator", ";"]


def audited(folder: Path) -> tuple[Result, list[object]]:
    texts = [f"item {number}" for number in range(120)]
    ids = [f"i{number}" for number in range(120)]
    path = saved(folder / "embeddings", BEFORE, tree=WRONG, text=texts, id=ids)
    return trivet.audit(BEFORE, {"tree": WRONG}, ids=ids, texts=texts), ["audit", path]


def audited_tags(folder: Path) -> tuple[Result, list[object]]:
    path = saved(folder / "embeddings", BEFORE, label=[";".join(tags) for tags in TAGS])
    return trivet.audit(BEFORE, TAGS, distance="euclidean"), [
        "audit", path, "--separator", ";", "--distance", "euclidean"]  # fmt: skip


def quick() -> list[object]:
    return [option for name in QUICK for option in ("--measures", name)]


CASES = {
    "evaluate": evaluated,
    "evaluate tags": evaluated_tags,
    "evaluate gallery": evaluated_gallery,
    "compare": compared,
    "evaluate forms": evaluated_forms,
    "evaluate post-processed": postprocessed,
    "diagnose": diagnosed,
    "diagnose tags": diagnosed_tags,
    "audit": audited,
    "audit tags": audited_tags,
}


def plain(text: str) -> str:
    """What a command prints, with embeddings and options called as in Python."""
    return in_python(text.replace(".npz", "").replace(" in gallery", ""))


def words(text: str) -> Counter[str]:
    """The words, without frames, and however heads of columns are folded."""
    return Counter(text.translate(dict.fromkeys(map(ord, "│┃━─┏┓┗┛┡┩┢┪┳┻╇┴┬┼└┘├┤┌┐╭╮╰╯"), " ")).split())


def sentences(value: Any) -> Iterator[str]:
    """All texts in a record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from sentences(each)


@pytest.mark.parametrize("case", CASES)
def test_a_function_gives_what_its_command_gives(
    case: str, tmp_path: Path, run_command: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, command = CASES[case](tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    named = [tmp_path / f"{path.name}.npz" if isinstance(path, Path) else path for path in command]
    _, out, err = run_command(*named, "--json")
    assert err == ""
    record = json.loads(json.dumps(result.record.as_json(unset=False)))
    assert without_times(record) == without_times(json.loads(plain(out)))
    report, page = tmp_path / "report.html", tmp_path / "page.html"
    _, out, _ = run_command(*named, "--report", report)
    assert f"Report: {report}\n" in out
    assert words(str(result)) == words(plain(out.replace(f"Report: {report}\n", "")))
    result.save(page)
    assert len(page.read_text()) == pytest.approx(len(report.read_text()), rel=0.02)
    assert repr(result).splitlines()[0] == str(result).splitlines()[0]
    assert len(repr(result).splitlines()) <= 8
    assert result.figure().axes
    assert result.rows()
    assert all(in_python(sentence) == sentence for sentence in sentences([str(result), record]))


def test_a_note_names_an_option_of_the_command_and_in_python_the_argument(tmp_path: Path, run_command: Call) -> None:
    known, folder = NAMES[50:] != "ash", tmp_path
    saved(folder / "queries", BEFORE[:50], label=NAMES[:50])
    saved(folder / "gallery", BEFORE[50:][known], label=NAMES[50:][known])
    files = ["--query", folder / "queries.npz", "--gallery", folder / "gallery.npz"]
    (typed,) = json.loads(run_command("evaluate", *files, "--measures", "recall@1", "--json")[1])["warnings"]
    result = trivet.evaluate(
        BEFORE[:50], NAMES[:50], gallery=BEFORE[50:][known], gallery_labels=NAMES[50:][known], measures="recall@1"
    )
    assert "(--without-positive drop)" in typed
    assert result.record.as_json()["warnings"] == [
        typed.replace("(--without-positive drop)", '(without_positive="drop")')
    ]


QUERIES = np.random.default_rng(1).normal(size=(120, 6)).astype(np.float32)
ANSWERS = QUERIES[:112] + 0.5 * np.random.default_rng(2).normal(size=(112, 6)).astype(np.float32)
LISTED = [(row, (row + 1) % 4 if row < 4 else row % 112) for row in range(120)]  # four are wrong, eight come twice
PAIRS = trivet.Pairs(120, 112, LISTED, aligned=False)


def test_pairs_are_judged_as_those_of_a_table(tmp_path: Path, run_command: Call) -> None:
    sides = [[f"{side}{row}" for row in range(count)] for side, count in (("q", 120), ("a", 112))]
    order = list(dict.fromkeys(right for _, right in LISTED))  # of a table
    rows = [f"{sides[0][left]},{sides[1][right]}" for left, right in LISTED]
    (tmp_path / "pairs.csv").write_text("\n".join(["query,answer", *rows]))
    files = [saved(tmp_path / name, of_side, id=ids) for name, of_side, ids in (
        ("left", QUERIES, sides[0]), ("right", ANSWERS, sides[1]))]  # fmt: skip
    left, right = (f"{file}.npz" for file in files)
    options = ["--left-vectors", left, "--right-vectors", right, "--json"]
    commands = (["evaluate", "--measures", "recall@1,mrr"], ["diagnose"], ["audit", "--pairs"])
    evaluation, diagnosis, audit = (
        json.loads(run_command(name, tmp_path / "pairs.csv", *others, *options)[1]) for name, *others in commands
    )
    both = QUERIES, ANSWERS[order]
    pairs = trivet.Pairs(120, 112, [(one, order.index(other)) for one, other in LISTED], aligned=False)
    texts = [*sides[0], *(sides[1][row] for row in order)]
    result = trivet.evaluate(both, pairs, measures=["recall@1", "mrr"])
    assert result.record.as_json()["evaluation"] == evaluation["evaluation"]
    assert result.record.as_json()["intervals"] == evaluation["intervals"]
    assert trivet.evaluate(np.concatenate(both), pairs, measures="mrr").evaluations[0].levels.keys() == {*WAYS}
    judged = json.loads(json.dumps(trivet.diagnose(both, pairs, ids=texts).record.as_json()))
    assert judged["verdicts"] == json.loads(in_python(json.dumps(diagnosis)))["verdicts"]
    suspects = trivet.audit(both, pairs, ids=texts, texts=texts)
    ours, theirs = (
        [[row[key] for key in ("left", "right", "kind", "probability_wrong", "evidence")] for row in rows_of]
        for rows_of in (suspects.rows(), audit["pair_suspects"])
    )
    assert ours == theirs != []
    assert str(suspects).splitlines()[0] == audit["headline"]
    assert "q1" in suspects.save(tmp_path / "page.html").read_text()


def test_rows_of_pairs_with_equal_content_are_one_item_and_a_side_retrieves_from_the_other() -> None:
    twice = trivet.Pairs([*range(120), 5, 5], 112, [*LISTED, (120, 5), (121, 60)], aligned=False)
    once = trivet.Pairs(120, 112, [*LISTED, (5, 60)], aligned=False)
    rows = np.concatenate([QUERIES, QUERIES[[5, 5]]])
    records = [
        trivet.evaluate((left, ANSWERS), pairs, measures="map").record.evaluation
        for left, pairs in ((rows, twice), (QUERIES, once))
    ]
    assert records[0] == records[1]
    one_way = trivet.evaluate(QUERIES, PAIRS.left, gallery=ANSWERS, gallery_labels=PAIRS.right, measures="mrr")
    both_ways = trivet.evaluate((QUERIES, ANSWERS), PAIRS, measures="mrr")
    assert one_way.record.evaluation["pair"]["mrr"] == both_ways.record.evaluation["left to right"]["mrr"]


def test_a_reference_of_pairs_is_of_both_sides() -> None:
    result = trivet.diagnose((QUERIES, ANSWERS), PAIRS, (QUERIES[:, :1], ANSWERS[:, :1]))
    assert result.record.as_json()["verdicts"][0]["kind"] == "healthy"


def test_finer_classes_without_a_name_are_a_level_of_their_own() -> None:
    assert str(trivet.diagnose(AFTER, KINDS, fine=NAMES)) == str(trivet.diagnose(AFTER, KINDS, fine={"fine": NAMES}))


MISTAKES: dict[str, Callable[[], object]] = {
    r"folds must be at most the number of classes: got 9 for 6 at level label": lambda: trivet.evaluate(
        BEFORE, NAMES, folds=9
    ),
    r"sample draws queries from one set: leave it out with gallery_labels and gallery": lambda: trivet.evaluate(
        BEFORE, NAMES, gallery=AFTER, gallery_labels=NAMES, sample=3
    ),
    r"gallery and gallery_labels go together: got one of them; give both": lambda: trivet.evaluate(
        BEFORE, NAMES, gallery=AFTER
    ),
    r"queries and gallery must have the same label levels: got \['label'\] and \['tree'": lambda: trivet.evaluate(
        BEFORE, NAMES, gallery=AFTER, gallery_labels=LABELS
    ),
    r"evaluation needs a label for each row: embeddings has no label column; name one with labels": lambda: (
        trivet.evaluate(BEFORE, {})
    ),
    r"measures must be among .*: got 'recal@1'; did you mean 'recall@1'": lambda: trivet.evaluate(
        BEFORE, NAMES, measures="recal@1"
    ),
    r"compared embeddings must be two, or more by name: got 1; pass a dict": lambda: trivet.compare([BEFORE], NAMES),
    r"compared embeddings must be two, or more by name: got 3; pass a dict": lambda: trivet.compare(
        [BEFORE, AFTER, AFTER], NAMES
    ),
    r"labels of 'label' must be one for each embedding: got 120 for 119": lambda: trivet.compare(
        (BEFORE, AFTER[1:]), NAMES
    ),
    r"a reference must embed the same items in the same order: before has 119 rows and embeddings 120": lambda: (
        trivet.diagnose(AFTER, NAMES, {"before": BEFORE[1:]})
    ),
    r"a reference must be another embedding of the same items: the reference holds the very": lambda: trivet.diagnose(
        AFTER, NAMES, AFTER
    ),
    r"level must be one of the labels: there is no 'tee'; did you mean 'tree'": lambda: trivet.audit(
        BEFORE, LABELS, level="tee"
    ),
    r"each of the compared embeddings must have a gallery of its own: got 1": lambda: trivet.compare(
        (BEFORE, AFTER), NAMES, gallery=[AFTER], gallery_labels=NAMES
    ),
    r"distance must be as trivet evaluate takes it: 'cosin' is not one of": lambda: trivet.evaluate(
        BEFORE,
        NAMES,
        distance="cosin",  # type: ignore[arg-type]  # the mistake that is tried
    ),
    r"folds must be at least 0: got -1; it means: .* class-disjoint folds\.": lambda: trivet.evaluate(
        BEFORE, NAMES, folds=-1
    ),
    r"minutes must be a number: got '1 min'; it means: Minutes within": lambda: trivet.train(
        BEFORE,
        NAMES,
        minutes="1 min",  # type: ignore[arg-type]  # the mistake that is tried
    ),
    r".*minutes must be above 0: got 0.0": lambda: trivet.train(BEFORE, NAMES, minutes=0),
    r"items must have a row for each label: got shape \(5, 120\) for 120 labels": lambda: trivet.train(BEFORE.T, NAMES),
    r"a reference must embed the same items .*, or transpose it": lambda: trivet.diagnose(AFTER, NAMES, BEFORE.T),
    r"queries must have the 5 dimensions of the index: got 2; .* one in each row": lambda: trivet.search(
        BEFORE, BEFORE[:2].T
    ),
    r"prefixes must lie between 1 and 5, .* embeddings: got 9": lambda: trivet.evaluate(BEFORE, NAMES, prefixes=9),
    r"only quantize gives codes, whose finds are ranked anew: leave out rescore\.": lambda: trivet.evaluate(
        BEFORE, NAMES, rescore=True
    ),
    r"none of the measures ranks neighbours: leave out folds\.": lambda: trivet.evaluate(
        BEFORE, NAMES, measures="nmi", folds=2
    ),
    r"embeddings of both sides must have one length to be compared: got 6 and 2": lambda: trivet.evaluate(
        (QUERIES, ANSWERS[:, :2]), PAIRS
    ),
    r"embeddings of pairs must be a left and a right side: got 3": lambda: trivet.evaluate((QUERIES,) * 3, PAIRS),
    r"labels of 'pair' must be one for each embedding: got 232 for 240": lambda: trivet.evaluate((QUERIES,) * 2, PAIRS),
    r"folds divides classes: the items of embeddings have pairs at level pair": lambda: trivet.evaluate(
        (QUERIES, ANSWERS), PAIRS, folds=2
    ),
    r"neighbours says nothing of pairs, which are all judged, by cosine: leave it out": lambda: trivet.audit(
        (QUERIES, ANSWERS), PAIRS, neighbours=3
    ),
    r"fine holds classes inside classes, and pairs have none": lambda: trivet.diagnose(
        (QUERIES, ANSWERS), PAIRS, fine=NUMBERS
    ),
    r"items of pairs must be a tuple of both sides: got list": lambda: trivet.train(["a"] * 232, PAIRS),
    r"items of pairs must be texts, .*: got vectors and vectors; write a table": lambda: trivet.train(
        (QUERIES, ANSWERS), PAIRS
    ),
    r"ids is of single items, and these are pairs: leave it out": lambda: trivet.train(("ab", "cd"), PAIRS, ids=[1]),
    r"both sides must have as many items as the pairs say: got \[1, 2\] for \[120, 112\]": lambda: trivet.train(
        (["a"], ["b", "c"]), PAIRS
    ),
    r"each item must belong to another: 1 of 5 belong to none, first row 2 on the right": lambda: trivet.train(
        (["a", "b"], ["c", "d", "e"]), trivet.Pairs(2, 3, [(0, 0), (1, 1)], aligned=False)
    ),
    r"labels must have a level: got none": lambda: trivet.audit(BEFORE, {}),
    r"neighbours is for classes, and these are tags: leave it out": lambda: trivet.audit(BEFORE, TAGS, neighbours=3),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named_by_parameters(message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        MISTAKES[message]()
    assert "\n" not in str(caught.value)
    assert in_python(str(caught.value)) == str(caught.value)


FUNCTIONS = {"evaluate": "evaluate", "compare": "evaluate", "diagnose": "diagnose", "audit": "audit", "train": "train",
             "search": "search"}  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_takes_each_option_of_its_command_or_says_what_to_do_instead(function: str) -> None:
    call, parameters = getattr(trivet, function), Commands()[FUNCTIONS[function]].params
    options = {option.name for option in parameters if option.param_type_name == "option"}
    missing = options - {*inspect.signature(call).parameters}
    assert missing <= INSTEAD.keys()
    for name in missing:
        with pytest.raises(TypeError, match=f"^{function} takes no {name}: {re.escape(INSTEAD[name])}\\.$"):
            call(BEFORE, NAMES, **{name: 1})


@pytest.mark.parametrize(
    ("function", "name", "guess"),
    [("evaluate", "measure", "measures"), ("audit", "neighbors", "neighbours"), ("compare", "quantise", "quantize")],
)
def test_a_misspelt_option_gets_the_nearest(function: str, name: str, guess: str) -> None:
    with pytest.raises(TypeError, match=f"^{function} takes no {name}: did you mean '{guess}'\\? Allowed: "):
        getattr(trivet, function)(BEFORE, NAMES, **{name: 1})


def test_what_to_do_instead_is_of_options_that_some_function_lacks() -> None:
    lacking = [
        {option.name for option in Commands()[command].params} - {*inspect.signature(getattr(trivet, name)).parameters}
        for name, command in FUNCTIONS.items()
    ]
    assert INSTEAD.keys() <= set.union(*lacking)


def test_each_of_several_galleries_is_that_of_its_embeddings() -> None:
    split = (BEFORE[:50], AFTER[:50]), (BEFORE[50:], AFTER[50:])
    both = trivet.compare(split[0], NAMES[:50], gallery=split[1], gallery_labels=NAMES[50:], measures="recall@1")
    for rows, found in zip((BEFORE, AFTER), both.evaluations, strict=True):
        alone = trivet.evaluate(
            rows[:50], NAMES[:50], gallery=rows[50:], gallery_labels=NAMES[50:], measures="recall@1"
        )
        assert found.record.evaluation == alone.record.evaluation


def test_a_search_among_vectors_is_post_processed_as_that_of_an_index() -> None:
    index = trivet.knn.index.build_index(BEFORE, distance="cosine")
    nearest = RerankedIndex(index, "reciprocal").search(AFTER[:3], 5)
    result = trivet.search(BEFORE, AFTER[:3], k=5, postprocess="reciprocal")
    np.testing.assert_array_equal(result.indices, nearest.indices)
    assert result.record.postprocess == "reciprocal"
    plain_order = trivet.search(BEFORE, AFTER[:3], k=5, postprocess="none").indices
    np.testing.assert_array_equal(plain_order, index.search(AFTER[:3], 5).indices)
    assert (plain_order != nearest.indices).any()


def test_what_must_have_a_name_is_listed() -> None:
    words = r"^audit must be given all but embeddings and labels by name: got 3 values .*, neighbours, .*, texts, "
    with pytest.raises(TypeError, match=words):
        trivet.audit(BEFORE, NAMES, ["text"] * 120)  # type: ignore[misc]


def test_a_diagnosis_has_its_verdicts_and_the_measures_of_classes() -> None:
    fine = {"half": 2 * NUMBERS + np.arange(120) % 12 // 6}
    other = 4 * NUMBERS + np.arange(120) % 24 // 6  # a finer level that is not asked for
    result = trivet.diagnose(AFTER, {"label": NAMES, "other": other}, BEFORE, fine=fine)
    expected = trivet.collapse.diagnose(AFTER, NUMBERS, BEFORE, fine=fine, level="label", distance="cosine")
    assert result.verdicts == expected.verdicts
    assert (result.good, result.collapsed) == (expected.good, expected.collapsed)
    assert result.measures.per_class is not None
    assert expected.measures.per_class is not None
    np.testing.assert_array_equal(result.measures.per_class.spread, expected.measures.per_class.spread)
    assert list(result.measures.fine) == ["half"]


def test_frames_hold_the_numbers_of_the_record(tmp_path: Path) -> None:
    rows = compared(tmp_path)[0].rows()
    (first, second) = [row for row in rows if (row["level"], row["measure"]) == ("tree", "recall@1")]
    assert second["difference"] == pytest.approx(second["value"] - first["value"])
    assert first["low_classes"] <= first["value"] <= first["high_classes"]
    suspects = audited(tmp_path)[0].rows()
    assert len(suspects) == 120
    assert all(row["id"] == f"i{row['row']}" and row["text"] == f"item {row['row']}" for row in suspects)
    (recall,) = [row for row in diagnosed(tmp_path)[0].rows() if row["measure"] == "recall@1"]
    assert recall["embeddings"] == trivet.diagnose(AFTER, KINDS).measures.recall
