"""`trivet reproduce`: what it says before it runs, and the pages it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure as Picture
from tests.trivet_papers.test_runs import BASE, RECALL, line

from trivet.commands.group import app
from trivet_papers import catalogue
from trivet_papers.experiment import Claim, Drawing, Experiment, Recipe, ResultColumn, Results, ResultTable, arms
from trivet_papers.figure import Figure
from trivet_papers.reproduce import run as reproduce
from trivet_papers.reproduce.page import VERDICTS, verdict_counts
from trivet_papers.reproduce.training_work import RATE, work_of
from trivet_papers.run_record import Hardware
from trivet_papers.runs import Runner, planned, store_of

pytestmark = pytest.mark.usefixtures("rough_evaluation")

HARDWARE = Hardware(device="cpu", threads=1, cores=2)


def drawn(results: Results) -> Figure:
    values = results.numbers(RECALL, positives="easy")
    picture = Picture()
    picture.subplots().plot(values)
    return Figure("recall", "Recall <b>of</b> seeds", "figure 1", "Higher is better.", {"recall": values}, picture)


def small() -> Experiment:
    both = arms(BASE, positives={"usual": {}, "easy": {"loss": {"positives": "easy"}}})
    claims = (
        Claim("Recall lies above a third.", lambda of: of(RECALL, positives="easy") - 1 / 3, "recall@1 less a third"),
        Claim("It lies above one.", lambda of: of(RECALL, positives="easy") - 1, "recall@1 less one"),
        Claim("Cars are found.", lambda of: of(RECALL, positives="easy"), "recall", not_comparable="no cars | here"),
        Claim("It lies above one, too.", lambda of: of(RECALL, positives="easy") - 1, "the same"),
        Claim("Ours is known.", lambda of: of(RECALL, positives="usual"), "recall", ours=True),
    )
    table = ResultTable(
        "Recall", (("easy", {"positives": "easy"}), ("usual", {"positives": "usual"})), (ResultColumn("R@1", RECALL),),
        {"easy": {"R@1": "65.8"}},
    )  # fmt: skip
    recipe = Recipe("digits", "a linear map", both, 3, claims, (table, Drawing(drawn)), "The rate.", "It is small.")
    return Experiment("levi2021-table0", "A small one", "It ran.", recipe, recipe)


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    made = small()

    def found(*keys: str) -> list[Experiment]:
        return [made] if set(keys) & {"all", "levi2021", "levi2021-table0"} else [_other(keys[0])]

    def _other(key: str) -> Experiment:
        return Experiment(f"{key}-none", "None", "", made.here, made.paper)

    monkeypatch.setattr(reproduce, "experiments", found)
    monkeypatch.setattr(catalogue, "experiments", found)
    return made


def run(*words: str) -> Any:
    return app(["reproduce", *words], standalone_mode=False)


def test_runs_then_pages(one: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("levi2021-table0", "-o", str(tmp_path / "out"), "--pages", str(tmp_path / "pages")) == 0
    said = capsys.readouterr()
    assert "levi2021-table0, here: 6 runs, 0 done" in said.err
    assert "6 runs to do: about" in said.err
    assert "holds: Recall lies above a third. recall@1 less a third: +" in said.out
    assert "does not hold: It lies above one." in said.out
    assert "not comparable: Cars are found." in said.out
    assert "(no cars | here)" in said.out
    front = (tmp_path / "pages" / "README.md").read_text()
    assert "3 claims of 1 experiment: 1 holds, 1 does not hold, 1 not comparable." in front
    assert "Beside them: 1 that share their number with another, and 1 of ours." in front
    assert "**does not hold**: the number of levi2021-table0" in front
    assert "| Ours is known. | **holds**: a claim of ours |" in front
    assert "| **table0** A small one | Recall lies above a third. | **holds** |" in front
    assert "no cars \\| here" in front
    assert "| levi2021-table0 | 6 of 6 |" in front
    assert "In all: 6 runs, " in front
    assert "| paper | holds | does not hold | cannot tell | not comparable | not run |" in front
    assert "](#levi2021) | 1 | 1 | 0 | 1 | 0 |" in front
    page = (tmp_path / "pages" / "levi2021-here.html").read_text()
    assert "Recall &lt;b&gt;of&lt;/b&gt; seeds" in page
    assert '<i class="beside">65.8</i>' in page
    assert "data:image/png;base64," in page
    assert "<script" not in page
    record = json.loads((tmp_path / "pages" / "levi2021-here.json").read_text())
    (told,) = record["experiments"]
    assert [claim["verdict"] for claim in told["claims"]] == [
        "holds",
        "does not hold",
        "not comparable",
        "does not hold",
        "holds",
    ]
    assert "picture" not in told["figures"][0]
    (cell,) = told["tables"][0]["rows"][0]["cells"]
    assert len(cell["values"]) == 3
    assert cell["printed"] == "65.8"

    assert run("all", "-o", str(tmp_path / "out"), "--pages", str(tmp_path / "pages"), "--as-is", "--json") == 0
    again = json.loads(capsys.readouterr().out)["papers"][0]["experiments"][0]
    assert again["claims"] == told["claims"]
    assert again["tables"] == told["tables"]


def test_nothing_run_is_said(one: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="--as-is needs runs"):
        run("levi2021", "-o", str(tmp_path), "--as-is")
    (tmp_path / "levi2021-here.jsonl").write_text("")
    assert run("levi2021", "-o", str(tmp_path), "--as-is") == 0
    assert "not run: Recall lies above a third." in capsys.readouterr().out
    assert "| levi2021-table0 | 0 of 6 |" in (tmp_path / "README.md").read_text()


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with runs of two experiments of one paper and one of another: of three seeds, and of losses apart."""
    made: dict[str, Experiment] = {}
    for key, loss in (("levi2021-a", "triplet"), ("levi2021-b", "margin"), ("xu2024-c", "margin")):
        both = arms({**BASE, "loss": {"name": loss}}, positives={"easy": {"loss": {"positives": "easy"}}})
        claim = Claim("It is good.", lambda of: of(RECALL, positives="easy") - 0.5, "recall")
        recipe = Recipe("digits", "a linear map", both, 3, (claim,), ())
        made[key] = Experiment(key, key, "", recipe, recipe)

    def found(*keys: str) -> list[Experiment]:
        return [one for key, one in made.items() if {*keys} & {"all", key, key.partition("-")[0]}] or [
            Experiment(f"{keys[0]}-none", "None", "", recipe, recipe)
        ]

    monkeypatch.setattr(reproduce, "experiments", found)
    monkeypatch.setattr(catalogue, "experiments", found)
    for one in made.values():
        for each in planned(one, "here", None):
            values = {str(each.steps[-1]): {RECALL: 0.8 + 0.01 * each.seed}}
            store_of(tmp_path, one, "here").add(line(each.key, values=values, hardware=HARDWARE))
    return tmp_path


def test_other_experiments_keep_the_seeds_of_their_recipes(three: Path) -> None:
    assert run("levi2021-a", "-o", str(three), "--as-is", "--seeds", "1") == 0
    found = {}
    for paper in ("levi2021", "xu2024"):
        record = json.loads((three / f"{paper}-here.json").read_text())
        found |= {one["key"]: (one["seeds"], one["claims"][0]["verdict"]) for one in record["experiments"]}
    assert found == {"levi2021-a": (1, "cannot tell"), "levi2021-b": (3, "holds"), "xu2024-c": (3, "holds")}


def test_what_cannot_have_a_change_is_left_out(three: Path) -> None:
    words = ("-o", str(three), "--as-is", "--set", "loss.beta=1.0")
    assert run("levi2021-b", *words) == 0
    record = json.loads((three / "levi2021-here-changed.json").read_text())
    assert [one["key"] for one in record["experiments"]] == ["levi2021-b"]
    assert not (three / "xu2024-here-changed.json").exists()  # nothing of it was asked
    with pytest.raises(ValueError, match=r"unknown setting 'loss\.beta'"):
        run("levi2021-a", *words)


def test_an_interrupt_says_what_is_kept(
    one: Experiment, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "run_all", interrupted)
    assert run(one.key, "-o", str(tmp_path / "out")) == 130
    said = capsys.readouterr().err
    assert f"what has been run is in {tmp_path / 'out'}; the same command goes on from there" in said


def test_a_page_of_somebody_else_is_not_replaced(one: Experiment, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Mine\n")
    (tmp_path / "levi2021-here.jsonl").write_text("")
    with pytest.raises(ValueError, match="replaces only a file that it wrote itself"):
        run("levi2021", "-o", str(tmp_path), "--as-is")


def test_a_key_that_is_none_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"there is no experiment 'levi2021-tabel3'; .*levi2021-table3"):
        run("levi2021-tabel3")


def test_the_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["experiments"]
    assert len({row["key"] for row in rows}) == len(rows) >= 18
    assert all(row["runs"]["here"] > 0 and row["runs"]["paper"] > 0 for row in rows)
    assert run("list", "xu2024", "--json") == 0
    few = json.loads(capsys.readouterr().out)["experiments"]
    assert [row["key"] for row in few] == [f"xu2024-{letter}" for letter in "ABCDE"]


def test_the_list_in_paper_size_tells_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "levi2021-table1", "xu2024-A", "--size", "paper", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    digits, people = (row["paper"] for row in answer["experiments"])
    assert (digits["runs"], digits["images"]) == (32, 16 * 3000 * 60)  # half of the runs are not trained
    sizes = [p * k for p in (2, 4, 8, 18) for k in (2, 4, 8, 16, 32)]
    assert (people["runs"], people["images"]) == (60, 3 * 40_000 * sum(sizes))
    # ResNet-18 at 256 x 128 pixels: 1.2e9 multiplications, and as many again for each of two gradients
    assert people["operations"] / people["images"] == pytest.approx(6 * 1.19e9, rel=0.05)
    assert people["hours"] == pytest.approx(people["operations"] / RATE / 3600)
    assert answer["paper"] == pytest.approx({key: digits[key] + people[key] for key in digits})
    assert run("list", "levi2021-table1", "--size", "paper") == 0
    assert "(32 runs, 2.9 million images, " in capsys.readouterr().out


def test_an_epoch_has_the_published_images_and_shared_runs_count_once() -> None:
    (table,) = catalogue.experiments("levi2021-table2")
    runs = planned(table, "paper", None)
    assert work_of([*runs, *runs]) == work_of(runs)
    assert work_of(runs).images == 8 * 8 * 150 * (8_054 + 5_864)


@pytest.mark.nightly
def test_the_hours_of_the_docs_are_those_of_the_protocols(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--size", "paper", "--json") == 0
    lines = (ROOT / "docs" / "reproduce.md").read_text().splitlines()
    for row in json.loads(capsys.readouterr().out)["experiments"]:
        paper, _, name = row["key"].partition("-")
        hours = row["paper"]["hours"]
        text = "under 0.1" if hours < 0.1 else f"{hours:.1f}" if hours < 9.95 else f"{hours:.0f}"
        (line,) = (line for line in lines if line.startswith(f"| {paper} | "))
        assert f"{name} {text}" in line.strip("| ").replace(" | ", ", ").split(", ")


ROOT = Path(__file__).parents[2]
AUTHORS = {"levi2021": "Levi, Xiao", "xuan2020": "Xuan", "le2018": "Le, Odobez", "xu2024": "Xu et"}


@pytest.mark.parametrize("paper", catalogue.PAPERS)
def test_the_counts_of_the_docs_are_those_of_the_lines(paper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "Drawing", type(None))  # no picture
    folder = ROOT / "studies" / "results" / "reproduce"
    record = reproduce.record_of(paper, "here", folder, wanted=())
    (row,) = (
        line
        for line in (ROOT / "docs" / "reproduce.md").read_text().splitlines()
        if line.startswith(f"| {AUTHORS[paper]}")
    )
    counts = verdict_counts(record.experiments)
    assert [int(cell) for cell in row.split("|")[2:-1]] == [counts[verdict] for verdict in VERDICTS[:4]]


@pytest.mark.parametrize("paper", catalogue.PAPERS)
def test_all_runs_of_the_repository_are_still_found_by_their_settings(paper: str) -> None:
    folder = ROOT / "studies" / "results" / "reproduce"
    every = catalogue.experiments(paper)
    known = store_of(folder, every[0], "here").rows()
    missing = {one.key: sum(run.key not in known for run in planned(one, "here", None)) for one in every}
    assert not any(missing.values()), f"settings, measures or steps have new names: rename them in {folder}: {missing}"
