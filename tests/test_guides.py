"""The guides and notebooks run as they are written, and print what they show."""

from __future__ import annotations

import json
import pickle
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trivet
from trivet.collapse import diagnosis
from trivet.metrics import sampling_variance
from trivet.metrics.sampling_variance import DRAWS, LIMIT

pytestmark = pytest.mark.usefixtures("rough_evaluation", "measured_once")

ROOT = Path(__file__).resolve().parents[1]
GUIDES = runpy.run_path(str(ROOT / "docs" / "run_guides.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PAGES = [ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "guides").glob("*.md")), *NOTEBOOKS]
# Pages that train for long: the ladder, which test_ladder.py climbs, and a loop as in test_examples.py.
LONG = {f"{name}.md" for name in ("images", "texts", "vectors", "tags", "pairs", "image_text", "loop")}
LONG |= {"texts.ipynb", "loop.ipynb"}  # the calls of images.ipynb, and the same loop


@pytest.fixture(scope="module")
def measured_once() -> Iterator[None]:
    """What several pages diagnose is measured once; each reads and judges it anew."""
    measure, measured = diagnosis.measure, {}

    def once(embeddings: Any, labels: trivet.Relation, **options: Any) -> Any:
        key = pickle.dumps((embeddings, labels.partition.numpy(), options))
        if type(labels) is not trivet.Classes or key not in measured:
            measured[key] = measure(embeddings, labels, **options)
        return measured[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnosis, "measure", once)
        yield


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=[pytest.mark.nightly] * (page.name in LONG)) for page in PAGES],
)
@pytest.mark.filterwarnings("default:harm detected")  # of the watch in a loop, where it is shown
def test_a_guide_prints_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))  # without pretrained encoders
    if page.name in LONG:  # which choose by intervals
        monkeypatch.setattr(sampling_variance, "LIMIT", LIMIT)
        monkeypatch.setattr(sampling_variance, "DRAWS", DRAWS)
    compared = 0
    for ran in GUIDES["run"](page):
        if ran.expected is not None:
            assert GUIDES["alike"](ran.expected, ran.text), f"{ran.block.text}\nprinted\n{ran.text}"
            compared += 1
    assert compared == sum(block.kind == "text" for block in GUIDES["blocks"](page)) > 0


def test_a_notebook_gets_the_outputs_of_its_cells(tmp_path: Path) -> None:
    notebook = tmp_path / "a.ipynb"
    code = [["class A:\n", "    _repr_html_ = lambda self: '<b>a</b>'\n", "    __repr__ = lambda self: 'a'"]]
    code += [["print('one')\n", "print('two')\n", "A()"], ["1"], ["A = 1"]]
    cells = [{"cell_type": "code", "source": source, "outputs": [{"text": ["old"]}]} for source in code]
    notebook.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ["# Title"]}, *cells]}))
    GUIDES["write_outputs"](notebook, list(GUIDES["run"](notebook)))
    outputs = [cell.get("outputs") for cell in json.loads(notebook.read_text())["cells"]]
    assert outputs[:2] == [None, []]
    assert outputs[2][0] == {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]}
    assert outputs[2][1]["data"] == {"text/plain": ["a"], "text/html": ["<b>a</b>"]}
    assert outputs[3][0]["data"] == {"text/plain": ["1"]}
    assert outputs[4] == []
    answers = [block.text for block in GUIDES["blocks"](notebook) if block.kind == "text"]
    assert answers == ["one\n", "1"]


def test_the_same_words_and_nearly_the_same_numbers_are_alike() -> None:
    alike = GUIDES["alike"]
    printed = "Training helped: seen.\n│ trained │ 92.5 │\n│ raw     │ 58.8 │\nReport: page.html\n"
    assert alike(printed, printed)
    assert alike("Training helped: seen.\n...\n│ raw │ 57.1 │\n...", printed)
    assert not alike("Training helped: seen.\n...\n│ raw │ 78.8 │\n...", printed)
    assert alike("1 digit-7/0118.png", "1 digit-7/0593.png")
    assert not alike("1 digit-7/0118.png", "1 number-7/0118.png")
    assert not alike("Training did not help.\n...", printed)
    assert not alike("Report: page.html\n...\nTraining helped: seen.\n...", printed)
    assert not alike("Training helped: seen.\nReport: page.html", printed)


def test_a_command_that_fails_stops_a_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```sh\ntrivet diagnose nothing.npz\n```\n")
    with pytest.raises(RuntimeError, match=r"trivet diagnose nothing.npz: exit code 2, not 0"):
        list(GUIDES["run"](page))
    page.write_text("```sh\nrm nothing.npz\n```\n")
    with pytest.raises(RuntimeError, match="rm: a guide runs trivet and python only"):
        list(GUIDES["run"](page))
