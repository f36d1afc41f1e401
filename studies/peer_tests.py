"""The own tests of pytorch-metric-learning, run with Trivet in place of what has a counterpart.

    git clone https://github.com/KevinMusgrave/pytorch-metric-learning /tmp/pml
    .venv/bin/python studies/peer_tests.py --tests /tmp/pml

Its tests stay where they are; its installed package gives all that is not replaced. `peer_adapters.py` has what stands
in for its classes: each takes the arguments of theirs and calls what docs/coming_from.md names beside it.

Every test is run twice, with theirs and with ours, in each precision that it asks for. A check that fails does not end
a test, so that each is judged by itself:

- passed: it holds;
- differs: it does not hold, as DIFFERENCES says, with the reason;
- no counterpart: it is about an option or a value that Trivet does not have;
- fails there too: it does not hold with theirs either, in these versions or on a CPU;
- failed: none of these. Then, and if a difference is not met as it is described, the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import logging
import os
import platform
import random
import subprocess
import sys
import time
import traceback
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

from peer_adapters import CALLS, REPLACED, NoCounterpartError, missing_in

RESULTS = Path(__file__).parent / "results"
FILES = (
    "losses/test_triplet_margin_loss.py",
    "losses/test_contrastive_loss.py",
    "losses/test_margin_loss.py",
    "losses/test_multi_similarity_loss.py",
    "losses/test_ntxent_loss.py",
    "losses/test_circle_loss.py",
    "losses/test_npairs_loss.py",
    "losses/test_proxy_anchor_loss.py",
    "losses/test_proxy_nca_loss.py",
    "losses/test_normalized_softmax_loss.py",
    "losses/test_cosface_loss.py",
    "losses/test_arcface_loss.py",
    "losses/test_subcenter_arcface_loss.py",
    "losses/test_cross_batch_memory.py",
    "losses/test_self_supervised_loss.py",
    "losses/test_multiple_losses.py",
    "losses/test_losses_without_labels.py",
    "miners/test_batch_hard_miner.py",
    "miners/test_batch_easy_hard_miner.py",
    "miners/test_batch_easy_hard_miner_labels.py",
    "miners/test_triplet_margin_miner.py",
    "miners/test_distance_weighted_miner.py",
    "miners/test_multi_similarity_miner.py",
    "samplers/test_m_per_class_sampler.py",
    "utils/test_calculate_accuracies.py",
    "utils/test_calculate_accuracies_large_k.py",
)
DTYPES = (torch.float32, torch.float64, torch.float16)
STATUSES = ("passed", "passed in part", "differs", "no counterpart", "fails there too", "failed")


class Difference(NamedTuple):
    """Checks that do not hold with Trivet: of a test, in a line of its file, so many in each precision."""

    test: str
    line: int
    checks: int
    reason: str
    precision: str = ""  # that one alone


IN_FLOAT32 = "half precision is computed in float32 here and rounded once, each step in half there"
PENALTY = "the penalty counts the beta of each class of the batch once here, that of the anchor of each triplet there"
LONE = "an anchor without a positive gives no negative pair here unless its negatives are a set"
DIFFERENCES = (
    Difference("losses/test_margin_loss.py: TestMarginLoss.test_margin_loss", 67, 1, PENALTY),
    Difference("losses/test_margin_loss.py: TestMarginLoss.test_margin_loss_with_ref", 67, 1, PENALTY),
    Difference(
        "losses/test_multi_similarity_loss.py: TestMultiSimilarityLoss.test_multi_similarity_loss",
        104,
        1,
        "an anchor without a positive in the batch counts 0 here, and is pushed there",
    ),
    Difference(
        "losses/test_ntxent_loss.py: TestNTXentLoss.test_with_no_valid_pairs",
        185,
        1,
        "SupConLoss of a batch of one class is log k for k equal positives here, 0 there",
    ),
    Difference("losses/test_circle_loss.py: TestCircleLoss.test_circle_loss", 96, 1, IN_FLOAT32, "float16"),
    Difference("losses/test_npairs_loss.py: TestNPairsLoss.test_npairs_loss", 52, 1, IN_FLOAT32, "float16"),
    Difference(
        "miners/test_triplet_margin_miner.py: TestTripletMarginMiner.test_triplet_margin_miner",
        87,
        44,
        IN_FLOAT32,
        "float16",
    ),
    Difference("miners/test_batch_easy_hard_miner.py: TestBatchEasyHardMiner.test_dist_mining", 331, 1, LONE),
    Difference("miners/test_batch_easy_hard_miner.py: TestBatchEasyHardMiner.test_dist_mining", 333, 1, LONE),
    Difference(
        "miners/test_batch_easy_hard_miner.py: TestBatchEasyHardMiner.test_strategy_assertion",
        314,
        1,
        "all positives with the hardest semi-hard negative of each are allowed here, an error there",
    ),
    Difference(
        "samplers/test_m_per_class_sampler.py: TestMPerClassSampler.test_mperclass_sampler_with_batch_size",
        45,
        45,
        "too few classes for a batch are a ValueError here, an AssertionError there",
    ),
    Difference(
        "utils/test_calculate_accuracies.py: TestEmbeddingsComeFromSameSource.test_query_within_reference",
        938,
        1,
        "self_rows= names the row of each query here, and it may hold other numbers; it must be the first rows there",
    ),
)


@dataclass
class Outcome:
    """What became of one test in one precision."""

    passed: Counter[int] = field(default_factory=Counter)  # checks by line
    failed: Counter[int] = field(default_factory=Counter)
    missing: int = 0  # checks without a counterpart
    lacking: list[str] = field(default_factory=list)  # what the tests ask for and Trivet does not have
    said: dict[int, str] = field(default_factory=dict)  # of failed lines
    answered: int = 0  # calls of adapters
    seconds: float = 0.0
    precise: bool = False  # whether the test asks for a precision


class Precisions(list[torch.dtype]):
    """The list of precisions that the tests go through, which notes whether one did."""

    asked = False

    def __iter__(self) -> Iterator[torch.dtype]:
        self.asked = True
        return super().__iter__()


class Run:
    """The tests of one folder as one package of modules.

    Args:
        ours: whether Trivet stands in for their classes.
    """

    def __init__(self, folder: Path, *, ours: bool) -> None:
        self.folder, self.ours = folder, ours
        self.package = "their_tests_with_ours" if ours else "their_tests"
        self.precisions = Precisions()
        self.outcome = Outcome()

    def outcomes(self, files: tuple[str, ...], only: str) -> dict[str, dict[str, Outcome]]:
        """Test -> precision, or an empty name where it asks for none -> outcome."""
        found: dict[str, dict[str, Outcome]] = {}
        asked = {"TEST_DEVICE": "cpu", "TEST_DTYPES": "float32", "WITH_COLLECT_STATS": "false"}
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, asked))
            if self.ours:
                for module, classes in REPLACED.items():
                    named = {each.__name__: each for each in classes}
                    stack.enter_context(mock.patch.multiple(importlib.import_module(module), **named))
            for name in ("assertTrue", "assertEqual", "assertAlmostEqual", "assertRaises"):
                original = getattr(unittest.TestCase, name)
                stack.enter_context(mock.patch.object(unittest.TestCase, name, self._judged(original)))
            if self.ours:
                stack.enter_context(mock.patch.object(unittest.TestCase, "assertLogs", _no_logs))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            self._load()
            for file in files:
                module = self._module(file)
                for test in _tests(unittest.defaultTestLoader.loadTestsFromModule(module)):
                    name = f"{file}: {type(test).__name__}.{test._testMethodName}"
                    if only in name:
                        found[name] = self._of_each_precision(test)
                        print(f"{'ours' if self.ours else 'theirs'}  {name}", file=sys.stderr)
        return found

    def _load(self) -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == self.package]:
            del sys.modules[name]  # of another folder
        package = self._module("__init__.py", self.package)
        package.TEST_DTYPES = self.precisions  # type: ignore[attr-defined]  # theirs
        testing = importlib.import_module(f"{self.package}.zzz_testing_utils.testing_utils")
        if self.ours:
            testing.is_not_none_if_condition = lambda *_: self._lacks("statistics of a call")  # type: ignore[attr-defined]  # theirs

    def _module(self, file: str, name: str | None = None) -> ModuleType:
        if name is None:
            return importlib.import_module(".".join([self.package, *Path(file).with_suffix("").parts]))
        folder = self.folder / "tests"
        spec = importlib.util.spec_from_file_location(name, folder / file, submodule_search_locations=[str(folder)])
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        with contextlib.redirect_stdout(io.StringIO()):
            spec.loader.exec_module(module)
        return module

    def _of_each_precision(self, test: unittest.TestCase) -> dict[str, Outcome]:
        found = {}
        for dtype in DTYPES:
            outcome = self._one(test, dtype)
            found[str(dtype).removeprefix("torch.") if outcome.precise else ""] = outcome
            if not outcome.precise:
                break
        return found

    def _one(self, test: unittest.TestCase, dtype: torch.dtype) -> Outcome:
        self.outcome = Outcome()
        self.precisions[:] = [dtype]
        self.precisions.asked = False
        CALLS.start()
        torch.manual_seed(0)
        np.random.seed(0)  # theirs draw from it
        random.seed(0)
        result = Caught(self)
        started = time.perf_counter()
        unittest.TestSuite([type(test)(test._testMethodName)]).run(result)
        outcome = self.outcome
        outcome.seconds = time.perf_counter() - started
        outcome.precise = self.precisions.asked
        outcome.answered = CALLS.answered
        outcome.lacking += CALLS.missing
        return outcome

    def stopped(self, error: BaseException) -> None:
        """Note what ended a test."""
        if isinstance(error, unittest.SkipTest):
            self.outcome.lacking.append(str(error))
            return
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if self._is_theirs(frame.filename)]
        line = frames[-1].lineno or 0 if frames else 0
        self.outcome.failed[line] += 1
        self.outcome.said[line] = f"{type(error).__name__}: {error}".splitlines()[0]

    def _is_theirs(self, file: str) -> bool:
        return file.startswith(str(self.folder / "tests"))

    def _lacks(self, reason: str) -> None:
        self.outcome.missing += 1
        self.outcome.lacking.append(reason)

    def _judged(self, check: Callable[..., Any]) -> Callable[..., Any]:
        """A check that is counted, and does not end its test."""

        def judged(test: unittest.TestCase, *arguments: Any, **options: Any) -> Any:
            if check.__name__ == "assertRaises" and len(arguments) == 1:  # a block
                return check(test, *arguments, **options)
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and not self._is_theirs(frame.f_code.co_filename):
                frame = frame.f_back
            line = frame.f_lineno if frame else 0
            lacking = missing_in(arguments)
            reason = lacking.reason if lacking is not None else CALLS.pending
            made: list[Any] = []
            if check.__name__ == "assertRaises":
                kind, function, *rest = arguments
                arguments = (kind, lambda: made.append(function(*rest)))
            elif reason is not None:
                self._lacks(reason)
                return None
            try:
                check(test, *arguments, **options)
                self.outcome.passed[line] += 1
            except NoCounterpartError as error:
                self._lacks(str(error))
            except Exception as error:  # whatever a test of theirs raises is its result
                if made and (why := getattr(made[0], "why_not", None) or CALLS.pending):
                    self._lacks(why)
                    return None
                if check.__name__ != "assertRaises" and not isinstance(error, AssertionError):
                    raise
                self.outcome.failed[line] += 1
                self.outcome.said[line] = f"{type(error).__name__}: {error}".splitlines()[0]
            return None

        return judged


class Caught(unittest.TestResult):
    """Hands what ends a test to its run."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802  # unittest names it
        self.run.stopped(err[1])

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802  # unittest names it
        self.run.stopped(err[1])

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802  # unittest names it
        self.run.stopped(unittest.SkipTest(reason))


def _no_logs(test: unittest.TestCase, *arguments: Any, **options: Any) -> Any:
    raise NoCounterpartError("log messages")


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from _tests(each)
        else:
            yield each


@dataclass
class Verdict:
    """A test in one precision, judged."""

    test: str
    precision: str
    status: str
    passed: int
    differs: int
    missing: int
    why: list[str]


def judged(test: str, precision: str, ours: Outcome, theirs: Outcome) -> Verdict:
    """What a test says of Trivet."""
    expected = {each.line: each for each in DIFFERENCES if each.test == test and each.precision in ("", precision)}
    differing = {line: number for line, number in ours.failed.items() if line not in theirs.failed}
    wrong = [
        f"line {line}, {number} times: {ours.said[line]}"
        for line, number in differing.items()
        if line not in expected or expected[line].checks != number
    ]
    wrong += [
        f"line {line} holds, and was to differ: {each.reason}"
        for line, each in expected.items()
        if line not in differing
    ]
    passed = sum(ours.passed.values())
    if wrong:
        status, why = "failed", wrong
    elif differing:
        status, why = "differs", [expected[line].reason for line in differing]
    elif len(differing) < len(ours.failed):
        status, why = "fails there too", [ours.said[line] for line in ours.failed]
    elif ours.answered == 0:
        status, why = "no counterpart", ours.lacking or ["it asks for nothing that is replaced"]
    elif ours.lacking:
        status = "passed in part" if passed or not theirs.passed else "no counterpart"
        why = ours.lacking
    else:
        status, why = "passed", []
    return Verdict(test, precision, status, passed, sum(differing.values()), ours.missing, list(dict.fromkeys(why)))


def table(verdicts: list[Verdict], theirs: dict[str, dict[str, Outcome]], folder: Path, seconds: float) -> str:
    """The page of results."""
    counts = Counter(each.status for each in verdicts)
    tests = len({each.test for each in verdicts})
    lines = [
        "# The own tests of pytorch-metric-learning",
        "",
        f"{tests} of its tests in {len(FILES)} files, {len(verdicts)} runs with each precision that they ask for: "
        + ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
        + f". With theirs {sum(bool(each.failed) for runs in theirs.values() for each in runs.values())} runs fail.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, pytorch-metric-learning {version('pytorch-metric-learning')}, tests of "
        f"{_state(folder)}, torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, CPU, "
        f"{seconds:.0f} s. Made by `studies/peer_tests.py --tests FOLDER`, which says what the words mean.",
        "",
        "| test | precision | result | checks: hold, differ, without counterpart | why |",
        "|---|---|---|---|---|",
    ]
    rows: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for each in verdicts:
        numbers = f"{each.passed}, {each.differs}, {each.missing}"
        rows[each.test, each.status, numbers, "; ".join(each.why)].append(each.precision)
    for (test, status, numbers, why), precisions in rows.items():
        file, name = test.split(": ")
        lines.append(f"| `{Path(file).stem}`: `{name}` | {', '.join(precisions)} | {status} | {numbers} | {why} |")
    return "\n".join(line.replace("  |", " |") for line in lines) + "\n"


def _state(folder: Path) -> str:
    """The version that the checkout says it has, and its commit."""
    found = folder / "src" / "pytorch_metric_learning" / "__init__.py"
    named = found.read_text().split('"')[1] if found.exists() else "an unknown version"
    command = ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return f"{named} (commit {commit})" if commit else named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=Path, required=True, help="a checkout of pytorch-metric-learning")
    parser.add_argument("--only", default="", help="tests whose name holds this; nothing is written")
    parser.add_argument("--output", type=Path, default=RESULTS / "peer_tests.md")
    options = parser.parse_args()
    folder = options.tests.resolve()
    logging.disable(logging.CRITICAL)
    started = time.perf_counter()
    theirs = Run(folder, ours=False).outcomes(FILES, options.only)
    ours = Run(folder, ours=True).outcomes(FILES, options.only)
    verdicts = [
        judged(test, precision, outcome, theirs[test].get(precision, Outcome()))
        for test, each in ours.items()
        for precision, outcome in each.items()
    ]
    text = table(verdicts, theirs, folder, time.perf_counter() - started)
    if options.only:
        print(text)
    else:
        options.output.write_text(text)
    counts = Counter(each.status for each in verdicts)
    print(", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status]))
    for each in verdicts:
        if each.status == "failed":
            print(f"{each.test} ({each.precision}): {'; '.join(each.why)}")
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
