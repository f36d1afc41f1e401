"""A loss and a rule in a file of the user's own: in a loop, in settings, in a run that is resumed and evaluated."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from tests import reference
from tests.training.runs import record_of
from torch.nn.functional import softplus

from trivet.commands.evaluate.trained_model import evaluate_run
from trivet.commands.train.run import resume, train
from trivet.config.plugins import python_object
from trivet.training import RunConfig

pytestmark = pytest.mark.usefixtures("few_digits", "undiagnosed")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "strategies.md").read_text()
SECTION = PAGE[PAGE.index("## Your own") :]
(CODE,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
SETTINGS, PACKAGE = map(tomllib.loads, re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL))
RUN = {
    "data": {"name": "digits"},
    "batch": {"num_classes": 2, "samples_per_class": 8},
    "model": {"name": "linear", "embedding_dim": 4},
    "training": {"steps": 4, "log_every": 2, "checkpoint_every": 2, "accelerator": "cpu"},
    "evaluation": {"every": 4, "map_points": 20, "sample": 100, "nmi_plus": 2},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with the example of the page in it."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "my_losses.py").write_text(CODE)
    monkeypatch.chdir(tmp_path / "code")
    path = list(sys.path)
    yield tmp_path / "code"
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path[:] = path


def parsed(loss: dict[str, Any]) -> RunConfig:
    return RunConfig.parse(RUN | {"loss": loss}, source="x")


def test_the_example_is_its_formula() -> None:
    loss, rule = (python_object(f"python:my_losses:{n}", kind="losses") for n in ("DevianceLoss", "RankedNegative"))
    plain = reference.batch(reference.V8, reference.V8_LABELS, "euclidean")
    rows, labels = torch.tensor(reference.V8, dtype=torch.float64), torch.tensor(reference.V8_LABELS)

    def deviance(a: int, j: int, sign: float) -> float:
        return softplus(torch.tensor(2.0 * sign * (0.5 - plain.s(a, j)), dtype=torch.float64)).item()

    pairs = [(a, p, 1.0) for a in range(8) for p in plain.positives(a)]
    pairs += [(a, n, -1.0) for a in range(8) for n in plain.negatives(a)]
    assert loss(reduction="sum")(rows, labels).item() == pytest.approx(sum(deviance(*pair) for pair in pairs))
    third = loss(negatives=rule(rank=3), positives="all")
    terms = []
    for a, p in product(range(8), range(8)):
        nearest = sorted(plain.negatives(a), key=lambda n: (plain.d(a, n), n))
        if p in plain.positives(a) and len(nearest) >= 3:
            terms += [deviance(a, p, 1.0), deviance(a, nearest[2], -1.0)]
    assert third(rows, labels).item() == pytest.approx(fmean(terms))
    assert loss(negatives=rule(rank=9))(rows, labels).item() == 0


def test_settings_are_the_arguments_of_the_constructor() -> None:
    built = parsed(SETTINGS["loss"]).loss.build(num_classes=3, embedding_dim=4, generator=torch.Generator())
    assert type(built).__name__ == "DevianceLoss"
    assert (built.scale, built.threshold, built.strategy.negatives.rank) == (4.0, 0.5, 5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scal": 4.0}, "unknown setting 'loss.scal'; did you mean 'scale'?"),
        ({"scale": "much"}, "loss.scale must be a number: got 'much'"),
        ({"reduction": "means"}, "loss.reduction = 'means' is not known; did you mean 'mean'? Allowed: mean, sum."),
        ({"num_classes": 4}, "unknown setting 'loss.num_classes'"),
        ({"negatives": {"name": "python:my_losses.py:RankedNegative", "rnk": 5}}, "has no option 'rnk'; did you mean"),
        (
            {"negatives": {"name": "python:my_losses.py:RankedNegative", "rank": "x"}},
            "rank must be a whole number",
        ),
        ({"negatives": "python:my_losses.py:Nobody"}, "my_losses.py has no 'Nobody'"),
        ({"negatives": "python:my_losses.py:DevianceLoss"}, "must be a class derived from trivet.NegativeSelector"),
        ({"positives": "python:my_losses.py:RankedNegative"}, "must be a class derived from trivet.PositiveSelector"),
        ({"name": "python:my_losses.py:Nobody"}, "my_losses.py has no 'Nobody'"),
        ({"name": "python:my_losses.py:RankedNegative"}, "must be a class derived from trivet.EmbeddingLoss"),
        ({"name": "python:other.py:Untyped"}, "x: loss: the arguments of Untyped must be of types that settings can"),
        (
            {"name": "python:other.py:Failing"},
            "python:other.py:Failing cannot be created: KeyError: 'no'; fix its code",
        ),
        (
            {"name": "python:other.py:Shadowing"},
            "an argument of Shadowing must not be named 'build', as another setting",
        ),
        ({"name": "plugin:deviance"}, "'plugin:deviance' is no entry point of an installed package"),
    ],
)
def test_a_wrong_setting_is_one_sentence(changes: dict[str, Any], said: str, folder: Path) -> None:
    (folder / "other.py").write_text(
        "import torch\nfrom my_losses import DevianceLoss\n"
        "class Untyped(DevianceLoss):\n    def __init__(self, *, weights: torch.nn.Module): ...\n"
        "class Shadowing(DevianceLoss):\n    def __init__(self, *, build: int = 1): ...\n"
        "class Failing(DevianceLoss):\n    def __init__(self): {}['no']\n"
    )
    with pytest.raises(ValueError, match=r"^x: ") as error:
        parsed(({} if "name" in changes else SETTINGS["loss"]) | changes)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_loss_without_rules_takes_no_others(folder: Path) -> None:
    (folder / "other.py").write_text(
        "from my_losses import DevianceLoss\n"
        "class Fixed(DevianceLoss):\n    def __init__(self, positives='all'): super().__init__(positives=positives)\n"
    )
    loss = {"name": "python:other.py:Fixed", "positives": "easy"}
    built = parsed(loss).loss.build(num_classes=3, embedding_dim=4, generator=torch.Generator())
    assert type(built.strategy.positives).__name__ == "EasyPositive"
    with pytest.raises(ValueError, match=r"loss\.negatives = 'hard' is not known; Allowed: all\."):
        parsed(loss | {"negatives": "hard"})


def test_a_run_is_resumed_and_evaluated_from_another_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    train(parsed(SETTINGS["loss"]), tmp_path / "run")
    kept = tomllib.loads((tmp_path / "run" / "config.toml").read_text())["loss"]
    assert kept["name"] == f"python:{folder}/my_losses.py:DevianceLoss"
    assert kept["negatives"] == {"name": f"python:{folder}/my_losses.py:RankedNegative", "rank": 5}
    before = record_of(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert evaluate_run(tmp_path / "run").as_json()["evaluation"] == before["evaluation"]
    (tmp_path / "run" / "checkpoints" / "step-00000004.safetensors").unlink()
    (tmp_path / "run" / "record.json").unlink()
    request.getfixturevalue("unevaluated")
    resume(tmp_path / "run")
    assert record_of(tmp_path / "run")["curves"] == before["curves"]


def test_entry_points_of_the_page_are_those_that_are_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "my_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    groups = PACKAGE["project"]["entry-points"]
    (info / "entry_points.txt").write_text(
        "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in groups.items())
    )
    (tmp_path / "site" / "my_package").mkdir()
    (tmp_path / "site" / "my_package" / "losses.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    config = parsed({"name": "plugin:deviance", "threshold": 0.25, "negatives": "plugin:ranked"})
    built = config.loss.build(num_classes=3, embedding_dim=4, generator=torch.Generator())
    assert (built.threshold, built.strategy.negatives.rank) == (0.25, 10)
    assert RunConfig.parse(tomllib.loads(config.to_toml()), source="x") == config
