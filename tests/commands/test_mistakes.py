"""What a user can mend in audit, diagnose, evaluate and compare is one sentence on standard error and exit code 2."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.commands.conftest import Call
from tests.made_runs import make_run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Good and broken files and runs, in a folder that is entered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIVET_DATA", raising=False)
    labels = np.repeat(np.arange(5), 24)
    points = np.random.default_rng(0).normal(size=(120, 6))
    np.savez("good.npz", embeddings=points, label=labels, kind=np.repeat(np.arange(10), 12))
    np.savez("one-class.npz", embeddings=points, label=np.zeros(120, int))
    np.savez("few.npz", embeddings=points[[0, 1, 30, 31]], label=labels[[0, 1, 30, 31]])
    np.savez("bare.npz", embeddings=points)
    np.savez("short.npz", embeddings=points[:50])
    points[[3, 70], 2] = np.nan
    np.savez("broken.npz", embeddings=points, label=labels)
    Path("pets.csv").write_text("name,text,kind\n" + "".join(f"{i},text {i},{'ab'[i % 2]}\n" for i in range(20)))
    Path("wordless.csv").write_text("words,kind\na,b\n")
    Path("blank.csv").write_text("text,kind\na,b\n,c\n")
    Path("folder").mkdir()
    Path("run/embeddings").mkdir(parents=True)
    Path("run/config.toml").write_text('[data]\nname = "digits"\n[loss]\nname = "triplet"\n')


@pytest.fixture
def runs(files: None) -> None:
    """Runs of two seeds, and such as cannot be compared with them."""
    make_run(Path("left"))
    make_run(Path("right"), [1, 2], seed=1)
    make_run(Path("lost"))
    Path("lost/record.json").unlink()
    make_run(Path("other"), split="unseen", labels=np.arange(20) // 10)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("audit", "Missing argument"),
        ("audit one-class.npz", "labels must hold at least two classes: got 1"),
        ("audit few.npz --neighbours 4", "must not exceed the 3 others that each item can be compared with: got 4"),
        ("audit good.npz --neighbours 0", "neighbours must be a whole number of at least 1: got 0"),
        ("audit broken.npz", "embeddings must be finite: row"),
        ("audit bare.npz", "has no label column; add one"),
        ("audit good.npz --level kine", "did you mean 'kind'?"),
        ("audit good.npz --text wordz", "has no 'wordz'"),
        ("audit good.npz --split test", "must have a column 'split'"),
        ("audit good.npz --folds 3", "good.npz is a file, so leave out --folds"),
        ("audit gone.npz", "gone.npz does not exist"),
        ("audit good.npz --encoder small", "good.npz holds embeddings; leave it out"),
        ("audit wordless.csv", "must have a column 'text': wordless.csv has 'words', 'kind'"),
        ("audit blank.csv", "every row of blank.csv must have a text: 1 of 2 have none, line 3"),
        ("audit pets.csv --level kine", "did you mean 'kind'?"),
        ("audit pets.csv --level text", "a different column from the texts: got 'text' for both"),
        ("audit run --encoder small", "leave out --split, --text and --encoder"),
        ("audit folder", "a run folder must hold config.toml"),
        ("audit run --level digits", "run has no 'digits'; did you mean 'digit'?"),
        ("audit run --folds 1", "from 2 to half the number of items, 324, or 0 for none: got 1"),
        ("audit run --folds 0", "a run has a model once it has ended: run has none"),
        ("audit good.npz --out good.npz", "--out must not name what is read: got good.npz"),
        ("audit good.npz --out pets.csv --force", "a file that it wrote itself: pets.csv exists and is none"),
        ("audit good.npz --report nowhere/page.html", "make the folder first"),
        ("audit good.npz --relabel-above 0.5", "name one with --decisions FILE"),
        ("audit good.npz --drop-above 0.5", "--drop-above fills in a decision file: name one with --decisions FILE"),
        ("audit good.npz --distance far", "--distance"),
        ("audit good.npz --apply d.csv", "--apply writes a new file: name it with --output FILE"),
        ("audit good.npz --output x.npz", "--output is for --apply; an audit writes to --out, --report and"),
        ("audit good.npz --apply d.csv -o x.npz --force --top 3", "judges nothing: leave out --top, --force"),
        ("audit good.npz --apply gone.csv -o x.npz", "a decision file must exist: gone.csv does not exist"),
        ("audit run --apply d.csv -o x.npz", "for a run, use trivet train --labels"),
        ("diagnose", "Missing argument"),
        ("diagnose one-class.npz", "must name at least two classes: got 1"),
        ("diagnose broken.npz", "embeddings must be finite: rows 3, 70"),
        ("diagnose bare.npz", "has no label column; add one"),
        ("diagnose good.npz --labels lable", "did you mean 'label'?"),
        ("diagnose good.npz --fine kin", "did you mean 'kind'?"),
        ("diagnose good.npz --labels kind --fine label", "fine must split at least one coarse class"),
        ("diagnose good.npz --reference short.npz", "short.npz has 50 rows and good.npz 120"),
        ("diagnose good.npz --reference gone.npz", "gone.npz does not exist"),
        ("diagnose good.npz --split test", "must have a column 'split'"),
        ("diagnose folder", "a folder of embeddings must be a run"),
        ("diagnose run", "a run must hold embeddings: run has no embeddings/*.parquet"),
        ("diagnose good.npz --report nowhere/page.html", "make the folder first"),
        ("diagnose good.npz --fail-on rain", "--fail-on"),
        ("evaluate", "evaluate needs embeddings"),
        ("evaluate gone.npz", "gone.npz does not exist"),
        ("evaluate good.npz --measures recal@1", "got 'recal@1'"),
        ("evaluate good.npz --report nowhere/page.html", "make the folder first"),
        ("evaluate good.npz --labels lable", "label"),
        ("evaluate good.npz --prefixes 7", "between 1 and 6, the length of an embedding of good.npz: got 7"),
        ("evaluate good.npz --prefixes a", "--prefixes must be whole numbers, such as 16,64: got a"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(line: str, sentence: str, files: None, run_command: Call) -> None:
    code, out, err = run_command(*shlex.split(line))
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())
    assert len([line for line in err.splitlines() if line.startswith("trivet:")]) == 1
    assert "Traceback" not in err


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("left", "compare takes 2 to 24 runs: got 1"),
        ("left left/../left", "compared runs must be different: left/../left is given twice"),
        ("left good.npz", "compare takes the folders of runs: good.npz is a file"),
        ("left folder", "a run folder must hold config.toml: folder does not"),
        ("left lost", "a compared run must have a record: lost has none that can be read"),
        ("left nowhere", "an input must exist: nowhere does not exist"),
        ("left right --report good.npz", "--report replaces only a file that it wrote itself"),
        ("left right --report left/report.html", "--report must lie outside of what is read"),
        ("left right --data-root .", "the data are read only for the pictures of a --report"),
        ("left other", "compared runs must share an evaluation split with the same items: other and left"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(line: str, sentence: str, runs: None, run_command: Call) -> None:
    before = Path("good.npz").read_bytes()
    code, out, err = run_command("compare", *shlex.split(line))
    assert (code, out) == (2, "")
    assert sentence in err.splitlines()[-1]  # after what a slow machine says of its progress
    assert "Traceback" not in err
    assert Path("good.npz").read_bytes() == before


def remedied(words: list[str], message: str) -> list[str]:
    """The words of a command line as its error message says."""
    changed = list(words)
    if left_out := re.search(r"leave (?:it|out) ?((?:(?:, | and )?--[a-z-]+)*)", message):
        for option in re.findall("--[a-z-]+", left_out[1] or message)[: None if left_out[1] else 1]:
            position = changed.index(option)
            del changed[position : position + (2 if changed[position + 1 : position + 2] else 1)]
    elif meant := re.search(r"did you mean '([^']+)'", message):
        wrong = re.findall(r"'([^']+)'", message.partition("did you mean")[0])
        leaf = wrong[-1].rpartition(".")[2]  # of section.key
        changed = [re.sub(rf"(?<!\w){re.escape(leaf)}(?!\w)", meant[1], word) for word in words]
    elif "add --force" in message:
        changed.append("--force")
    elif named := re.search(r"name (?:one|it) with (--[a-z]+) FILE", message):
        changed += [named[1], "new.csv"]
    elif most := re.search(r"at most (\d+) will do", message):
        changed[-1] = changed[-1].partition("=")[0] + f"={most[1]}"
    return changed


HEAD = "train head.toml -o new --set training.steps=3 --set evaluation.map_points=9"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("files", "undiagnosed")
@pytest.mark.parametrize(
    "line",
    [
        "audit good.npz --folds 3",
        "audit good.npz --encoder small",
        "audit good.npz --level kine",
        "audit pets.csv --level kinds",
        "diagnose good.npz --labels lable",
        "diagnose good.npz --fine kin --labels label",
        "evaluate good.npz --labels lable",
        "evaluate good.npz --labels label --measures recal@1",
        "evaluate good.npz --labels label --data-root .",
        "index good.npz -o old",
        "index good.npz -o new --kind exact --recall 0.9",
        "index good.npz -o new --text-prefix x",
        "search old 0 --data-root .",
        "mine good.npz --labels lable -o new.parquet",
        f"{HEAD} --set training.stepps=3",
        f"{HEAD} --set loss.name=tripplet",
        f"{HEAD} --set training.warmup_steps=9",
        "train good.npz --labels lable -o new --set 'ladder.rungs=[\"encoder\"]' --set evaluation.map_points=9",
        "settings trainin",
    ],
)
def test_what_a_sentence_says_to_do_works(line: str, run_command: Call) -> None:
    assert run_command("index", "good.npz", "-o", "old")[0] == 0
    Path("head.toml").write_text(
        '[data]\nname = "vectors"\npath = "good.npz"\nlevels = ["label"]\n[loss]\nname = "triplet"\n'
        '[model]\nname = "residual"\nembedding_dim = 6\n[batch]\nnum_classes = 3\n'
    )
    words = shlex.split(line)
    code, _, err = run_command(*words)
    assert code == 2
    again = remedied(words, err.splitlines()[-1])
    assert again != words, err
    code, _, err = run_command(*again)
    assert code == 0, err
