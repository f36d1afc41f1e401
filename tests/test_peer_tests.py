"""How the tests of pytorch-metric-learning are judged with Trivet in place of its losses: on tests written here."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import trivet

pytest.importorskip("pytorch_metric_learning")
ROOT = Path(__file__).resolve().parents[1]
WRITTEN = """
import unittest
import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import NTXentLoss, SupConLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from .. import TEST_DTYPES

rows, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])

class Written(unittest.TestCase):
    def test_held(self):
        for dtype in TEST_DTYPES:
            self.assertEqual(SupConLoss()(rows.to(dtype), labels).dtype, dtype)

    def test_differs(self):
        self.assertEqual(SupConLoss()(torch.ones(3, 2), torch.zeros(3, dtype=int)), 0)
        self.assertTrue(SupConLoss()(rows, labels) > 0)

    def test_in_part(self):
        there, none = NTXentLoss()(rows, labels), NTXentLoss(distance=LpDistance())(rows, labels)
        self.assertTrue(torch.isclose(2 * none, there))
        self.assertTrue(there > 0)

    def test_none(self):
        self.assertTrue(NTXentLoss(distance=LpDistance())(rows, labels) == 0)

    def test_mined(self):
        anchors, positives, _, _ = MultiSimilarityMiner(distance=LpDistance())(rows, labels)
        self.assertTrue(torch.equal(labels[anchors], labels[positives]))
        self.assertTrue(all(len(each) == 4 for each in MultiSimilarityMiner()(rows, labels)[:2]))

    def test_nothing_of_ours(self):
        self.assertTrue(True)

    def test_wrong_there_too(self):
        self.assertTrue(SupConLoss()(rows, labels) < 0)
        self.assertRaises(ValueError, lambda: SupConLoss(temperature=1))

    def test_stops(self):
        SupConLoss()(rows, labels)
        raise KeyError("here")
"""


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    return importlib.import_module("peer_tests")


@pytest.fixture
def verdicts(peer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    tests = tmp_path / "tests"
    for folder in ("zzz_testing_utils", "losses"):
        (tests / folder).mkdir(parents=True)
        (tests / folder / "__init__.py").touch()
    (tests / "__init__.py").touch()
    (tests / "zzz_testing_utils" / "testing_utils.py").touch()
    (tests / "losses" / "test_written.py").write_text(WRITTEN)
    files = ("losses/test_written.py",)
    theirs, ours = (peer.Run(tmp_path, ours=ours).outcomes(files, "") for ours in (False, True))

    def found(*differences: tuple[str, int, int]) -> dict[str, Any]:
        named = tuple(peer.Difference(f"{files[0]}: Written.test_{n}", line, k, "why") for n, line, k in differences)
        monkeypatch.setattr(peer, "DIFFERENCES", named)
        return {
            f"{test.split('test_')[-1]} {precision}".strip(): peer.judged(
                test, precision, outcome, theirs[test][precision]
            )
            for test, each in ours.items()
            for precision, outcome in each.items()
        }

    return found


def test_each_check_is_judged_by_itself(verdicts: Any) -> None:
    found = verdicts(("differs", 17, 1))
    assert {name: (each.status, each.passed, each.differs, each.missing) for name, each in found.items()} == {
        "held float16": ("passed", 1, 0, 0),
        "held float32": ("passed", 1, 0, 0),
        "held float64": ("passed", 1, 0, 0),
        "differs": ("differs", 1, 1, 0),
        "in_part": ("passed in part", 1, 0, 1),
        "none": ("no counterpart", 0, 0, 1),
        "mined": ("passed in part", 1, 0, 1),
        "nothing_of_ours": ("no counterpart", 1, 0, 0),
        "wrong_there_too": ("fails there too", 0, 0, 0),
        "stops": ("fails there too", 0, 0, 0),
    }
    assert found["differs"].why == ["why"]
    assert found["in_part"].why == ["distance=LpDistance"]


def test_what_is_not_met_as_described_is_a_failure(verdicts: Any) -> None:
    assert verdicts()["differs"].status == "failed"
    assert verdicts(("differs", 17, 2))["differs"].status == "failed"
    assert verdicts(("differs", 17, 1), ("differs", 18, 1))["differs"].why == ["line 18 holds, and was to differ: why"]
    assert verdicts(("differs", 17, 1), ("held", 14, 1))["held float32"].status == "failed"


def test_the_adapters_are_what_the_migration_page_names(peer: ModuleType) -> None:
    from pytorch_metric_learning import distances, reducers

    adapters = importlib.import_module("peer_adapters")
    theirs = {**vars(distances), **vars(reducers), **{each.__name__: each for each in adapters.LOSSES}}
    ours = {name: getattr(trivet, name) for name in trivet.__all__} | {"math": math}
    page = (ROOT / "docs" / "coming_from.md").read_text()
    rows = re.findall(
        r"^\| `(\w+Loss\([^`]*\))` \| `(\w+Loss\([^`]*\))` \| equal", page.split("## sentence-tr")[0], re.MULTILINE
    )
    assert len(rows) == 16
    for there, here in rows:
        options = [repr(loss) for loss in (eval(there, theirs).ours, eval(here, ours))]
        options = [re.sub(r"(?<==)\d+(\.\d+)?", lambda found: f"{float(found[0]):.3f}", each) for each in options]
        assert options[0] == options[1]


def test_the_migration_page_counts_as_the_results(peer: ModuleType) -> None:
    results = (ROOT / "studies" / "results" / "peer_tests.md").read_text()
    page = (ROOT / "docs" / "coming_from.md").read_text().split("### Its own tests")[1].split("| test of |")[0]
    words = {
        "passed": "passed",
        "passed in part": "passed in part",
        "differs": "differ",
        "no counterpart": "have no counterpart",
    }
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in results.splitlines()]
    rows = [row for row in rows if row[0].startswith("`")]
    counted = {status: sum(len(row[1].split(", ")) for row in rows if row[2] == status) for status in peer.STATUSES}
    for status, number in counted.items():
        if status != "fails there too":
            assert f"| {number} | {words.get(status, status)}" in page
    assert counted["failed"] == counted["fails there too"] == 0
    assert f"{len({row[0] for row in rows})} of its tests in {len(peer.FILES)} files" in " ".join(page.split())


def test_a_value_without_counterpart_is_never_a_number(peer: ModuleType) -> None:
    adapters = importlib.import_module("peer_adapters")
    nothing = adapters.Missing.because("none")
    assert torch.cat([torch.ones(1), (2 * nothing).exp().reshape(1)]).reason == "none"
    with pytest.raises(adapters.NoCounterpartError, match="none"):
        assert nothing > 0
