"""Settings: errors that help, a whole file that reads back, overrides."""

from __future__ import annotations

import inspect
import re
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic_core import PydanticUndefined
from tests.every_loss import needed

from trivet.config.base import read_settings
from trivet.losses import LOSSES
from trivet.losses.engine import EmbeddingLoss
from trivet.mining import NEGATIVES, POSITIVES
from trivet.training import RunConfig
from trivet.training.ladder_config import LadderSettings
from trivet.training.loop import step_seed
from trivet.training.loss_config import loss_settings
from trivet.training.optimizer import make_optimizer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LEAST = {"data": {"name": "digits"}, "loss": {"name": "triplet"}}
SHARED = ("positives", "negatives", "prefixes")  # of all losses, whatever their constructors take


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trainng": {}}, "unknown setting 'trainng'; did you mean 'training'?"),
        ({"lrr": 0.1}, "unknown setting 'lrr'; did you mean 'training.learning_rate'?"),
        ({"rate": 0.1}, "unknown setting 'rate'; did you mean 'data.noise.rate'?"),
        ({"step": 3}, "unknown setting 'step'; did you mean 'training.steps'?"),
        ({"training": {"margn": 1}}, "unknown setting 'training.margn'; did you mean 'loss.margin'?"),
        ({"loss": {"name": "margin", "betta": 1}}, "unknown setting 'loss.betta'; did you mean 'beta'?"),
        ({"betta": 1, "loss": {"name": "margin"}}, "unknown setting 'betta'; did you mean 'loss.beta'?"),
        ({"loss": {"name": "triplet", "margn": 1}}, "unknown setting 'loss.margn'; did you mean 'margin'?"),
        ({"loss": {"name": "triplt"}}, "loss.name = 'triplt' is not known; did you mean 'triplet'?"),
        ({"loss": {"name": "triplet", "negatives": "seminard"}}, "did you mean 'semihard'?"),
        ({"loss": {"name": "triplet", "positives": "eazy"}}, "did you mean 'easy'?"),
        (
            {"loss": {"name": "triplet", "negatives": {"name": "semihard", "otherwise": "drp"}}},
            "otherwise must be 'random', 'farthest' or 'drop': got 'drp'",
        ),
        ({"loss": {"name": "triplet", "negatives": {"name": "hard", "margin": 1}}}, "'hard' has no option 'margin'"),
        ({"loss": {"name": "triplet", "distance": "euclid"}}, "did you mean 'euclidean'?"),
        ({"loss": {"name": "triplet", "negatives": {"otherwise": "drop"}}}, "negatives as a table needs a name"),
        ({"loss": {"name": "triplet", "positives": {"name": "random", "epsilon": 3}}}, "Allowed: k, max_positive_sim"),
        ({"loss": {"name": "triplet", "negatives": {"name": "all", "k": 3}}}, "'all' has no option 'k'; it has none"),
        ({"loss": {"name": "triplet", "negatives": {"name": "easy", "k": 0}}}, "k must be a whole number of at least"),
        (
            {"loss": {"name": "triplet", "positives": {"name": "easy", "max_positive_similarity": 1.5}}},
            "max_positive_similarity must lie in [-1, 1)",
        ),
        (
            {"loss": {"name": "triplet", "positives": "semihard", "negatives": "all"}},
            "loss: SemihardPositive needs one negative: got AllNegatives; use a rule that gives one",
        ),
        (
            {"loss": {"name": "triplet", "disjoint": "randm"}},
            "loss.disjoint = 'randm' is not known; did you mean 'rand",
        ),
        ({"loss": {"name": "contrastive", "margin": 1, "disjoint": True}}, "disjoint needs a strategy with one"),
        ({"loss": {"name": "n-pair", "disjoint": True}}, "unknown setting 'loss.disjoint'"),
        ({"loss": {"name": "proxy-nca", "embedding_dim": 3}}, "unknown setting 'loss.embedding_dim'"),
        ({"loss": {"name": "proxy-nca", "positives": "easy"}}, "loss.positives = 'easy' is not known; Allowed: all."),
        ({"loss": {"name": "triplet", "normalize": True}}, "unknown setting 'loss.normalize'"),
        ({"training": {"learning_rate": float("inf")}}, "training.learning_rate must be a finite number: got inf"),
        ({"training": {"momentum": 0.9}}, "momentum is for sgd and rmsprop only"),
        ({"seed": 2**70}, "seed must be at most 9223372036854775807: got "),
        ({"data": 3}, "data must be a section, [data] in a file: got 3"),
        ({"evaluation": {"k": 4}}, "evaluation.k must be a list, such as [4]: got 4; write it so."),
        (
            {"data": {"name": "table", "path": "a.csv", "levels": "kind"}},
            "data.levels must be a list, such as [\"kind\"]: got 'kind'; write it so.",
        ),
        ({"loss": {}}, "the setting 'loss.name' is missing; add it, one of triplet, contrastive,"),
        ({"data": {"name": "folder"}}, "the setting 'data.root' is missing; add it."),
        ({"loss": {"name": "contrastive"}}, "the setting 'loss.margin' is missing"),
        ({"batch": {"samples_per_class": 1}}, "batch.samples_per_class must be at least 2 for the loss triplet"),
        ({"model": {"name": "conv22"}}, "did you mean 'conv2'?"),
        ({"evaluation": {"k": [0]}}, "evaluation.k.0 must be at least 1: got 0"),
        ({"evaluation": {"nmi_plus": 0}}, "evaluation.nmi_plus"),
        ({"training": {"workers": 1000}}, "training.workers must be at most "),
        ({"data": {"name": "cifar"}}, "did you mean 'cifar10'? Allowed: cars196, cifar10, "),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=r"^x\.toml: ") as error:
        RunConfig.parse({**LEAST, **changes}, source="x.toml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["not toml =", "[data]\nname = 'digits'\n[data]"])
def test_a_file_that_is_not_toml(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(ValueError, match="must be a TOML file"):
        RunConfig.read(tmp_path / "x.toml")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must exist: got .*nothing\.toml"):
        RunConfig.read(tmp_path / "nothing.toml")


@pytest.mark.parametrize(
    "example", sorted({*EXAMPLES.glob("*.toml")} - {EXAMPLES / "sweep.toml"}), ids=lambda path: path.stem
)
def test_examples_read_and_read_back(example: Path, tmp_path: Path) -> None:
    kind: type[LadderSettings | RunConfig] = LadderSettings if "ladder" in read_settings(example) else RunConfig
    config = kind.read(example)
    (tmp_path / "again.toml").write_text(config.to_toml())
    assert kind.read(tmp_path / "again.toml") == config


def build(loss: dict[str, object]) -> EmbeddingLoss:
    config = RunConfig.parse({**LEAST, "loss": loss}, source="x").loss
    return config.build(num_classes=3, embedding_dim=5, generator=torch.Generator().manual_seed(0))


def test_overrides(tmp_path: Path) -> None:
    path = EXAMPLES / "omniglot.toml"
    config = RunConfig.read(path, ["loss.positives=random", "training.steps=7", 'loss.negatives={name="hard"}'])
    assert (config.loss.positives, config.training.steps) == ("random", 7)
    assert config.loss.negatives == {"name": "hard"}
    with pytest.raises(ValueError, match=r"--set needs section\.key=value: got 'steps'"):
        RunConfig.read(path, ["steps"])
    with pytest.raises(ValueError, match="'steps' is a value, not a section"):
        RunConfig.read(path, ["training.steps.x=1"])


@pytest.mark.parametrize("name", ["triplet", "margin", "contrastive", "multi-similarity"])
def test_every_strategy_can_be_named_in_settings(name: str) -> None:
    for positives, negatives in product(POSITIVES, NEGATIVES):
        loss = {"name": name, "positives": positives, "negatives": negatives}
        loss |= {"margin": 0.3} if name == "contrastive" else {}
        if positives == "semihard" and NEGATIVES[negatives].selects_set:
            with pytest.raises(ValueError, match=r"^x: loss: .* needs one negative"):
                build(loss)
            continue
        built = build(loss)
        assert isinstance(built.strategy.positives, POSITIVES[positives])
        assert isinstance(built.strategy.negatives, NEGATIVES[negatives])


CHANGED: dict[str, Any] = {
    "margin": 0.3, "positive_margin": 0.1, "soft_margin": 0.5, "soft": True, "variant": "pn", "distance": "cosine",
    "reduction": "sum", "trim": 0.25, "trim_positives_only": True, "disjoint": "random",
    "beta": 1.1, "beta_per": "set", "learn_beta": False, "beta_learning_rate": 0.5, "beta_penalty": 0.1,
    "temperature": 0.5, "hard_weight": 0.5, "l2_weight": 0.1, "threshold": 0.25, "skip_if_any_empty": True,
    "scale": 2.0, "positive_scale": 3.0, "negative_scale": 30.0, "sub_centers": 3, "proxy_learning_rate": 0.5,
}  # fmt: skip
OTHERWISE = {
    "contrastive": {"reduction": "mean"},
    "margin": {"reduction": "anchors", "normalize": False},
    "n-pair": {"normalize": True},
}


@pytest.mark.parametrize("name", LOSSES)
def test_every_setting_reaches_the_loss(name: str) -> None:
    fields = loss_settings(name).model_fields
    changed = CHANGED | OTHERWISE.get(name, {})
    loss = {"name": name} | {key: value for key, value in changed.items() if key in fields}
    if "disjoint" in fields:  # it can choose one positive and one negative per anchor
        loss |= {"positives": "easy", "negatives": "hard"}
    left_out = {key for key in fields if key not in loss and key not in SHARED}
    assert left_out == set()
    built = build(loss)
    for key, value in loss.items():
        if key in ("name", "positives", "negatives"):
            continue
        assert value != fields[key].default, f"{key} is not changed"
        if key == "beta_per":
            assert built.beta.shape == ()
        elif key == "learn_beta":
            assert not isinstance(built.beta, torch.nn.Parameter)
        elif key == "beta":
            assert float(built.beta) == pytest.approx(value)
        elif key not in ("distance", "normalize"):
            found = getattr(built, key)
            assert found == (pytest.approx(value) if isinstance(value, float) else value), key
    if "distance" in loss:
        assert built.strategy.distance == loss["distance"]
    elif "normalize" in loss:
        assert built.normalize == loss["normalize"]


@pytest.mark.parametrize("name", LOSSES)
def test_settings_of_a_loss_are_its_constructor(name: str) -> None:
    fields = loss_settings(name).model_fields
    arguments = dict(inspect.signature(LOSSES[name]).parameters)
    of_the_run = {"num_classes", "embedding_dim", "num_samples", "block_size", "generator"}
    of_the_run |= {"normalize"} if name in ("triplet", "contrastive") else set()  # of the model
    of_the_run |= {"relevance_margin"} if name in ("contrastive", "multi-similarity") else set()  # classes have none
    assert fields.keys() - {"name", *SHARED} == arguments.keys() - of_the_run - {"positives", "negatives"}
    docs = " ".join(" ".join(base.__doc__ or "" for base in LOSSES[name].__mro__).split())
    for key in fields.keys() & arguments.keys():
        default = arguments[key].default
        assert (PydanticUndefined if default is inspect.Parameter.empty else default) == fields[key].default
        assert fields[key].description[1:] in docs
        assert re.search(rf"\b{key}(, \w+)*: .?{re.escape(fields[key].description[1:])}", docs), key


def test_proxies_are_as_long_as_embeddings() -> None:
    assert build({"name": "proxy-nca"}).proxies.shape == (3, 5)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_of_the_settings_takes_a_step(name: str) -> None:
    loss = {"name": name} | {key: 0.3 for key in needed(name) if key == "margin"}
    run = RunConfig.parse({**LEAST, "loss": loss}, source="x")
    built = build(loss)
    assert type(built) is LOSSES[name]
    model, labels = torch.nn.Linear(8, 5), torch.arange(12) % 3
    inputs = torch.randn(12, 8, generator=torch.Generator().manual_seed(1))
    optimizer = make_optimizer(model, built, run.training)
    before = [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]
    built(model(inputs), labels).backward()
    optimizer.step()
    after = [p.detach() for group in optimizer.param_groups for p in group["params"]]
    assert len(after) == 2 + len(list(built.parameters()))
    assert not torch.equal(before[0], after[0])
    assert built.last.terms > 0


def test_a_selector_table_reaches_the_selector() -> None:
    table = {"name": "distance-weighted", "cutoff": 0.7, "upper_cutoff": float("inf"), "otherwise": "drop"}
    loss = {"name": "margin", "negatives": table}
    config = RunConfig.parse({**LEAST, "loss": loss}, source="x")
    built = build(loss).strategy.negatives
    assert (built.cutoff, built.upper_cutoff, built.otherwise) == (0.7, float("inf"), "drop")
    again = RunConfig.parse(tomllib.loads(config.to_toml()), source="x")
    assert again == config


@pytest.mark.parametrize(
    ("positives", "negatives", "normalize"),
    [
        ({"name": "easy", "k": 2}, {"name": "easy", "k": 3}, False),
        ({"name": "semihard", "max_positive_similarity": 0.75}, "hard", True),
        ({"name": "random", "k": 2, "max_positive_similarity": 0.75}, {"name": "semihard", "k": 2}, True),
        ("hard", "distance-weighted", True),
    ],
)
@pytest.mark.parametrize("name", ["triplet", "contrastive"])
def test_options_of_selectors_and_unit_rows(name: str, positives: object, negatives: object, normalize: bool) -> None:
    loss = {"name": name, "positives": positives, "negatives": negatives, "margin": 0.3}
    built = build(loss)
    assert built.normalize == normalize
    for table, selector in ((positives, built.strategy.positives), (negatives, built.strategy.negatives)):
        options = dict(table) if isinstance(table, dict) else {}
        options.pop("name", None)
        assert {key: getattr(selector, key) for key in options} == options
    rows = 3 * torch.randn(12, 4, generator=torch.Generator().manual_seed(1))
    built(rows, torch.arange(12) % 3)  # rows of any length
    assert built.last.terms > 0


def test_a_run_can_measure_and_choose_by_further_measures() -> None:
    evaluation = {"k": [1, 5], "further": ["ndcg@10", "found@5", "map"]}
    config = RunConfig.parse({**LEAST, "evaluation": evaluation, "choosing": {"measure": "ndcg@10"}}, source="x")
    assert config.evaluation.measures == (
        "recall@1", "recall@5", "r-precision", "map@r", "map", "mrr", "nmi", "ami", "nmi+", "ndcg@10", "found@5",
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"choosing\.measure = 'ndcg@10' is not known"):
        RunConfig.parse({**LEAST, "choosing": {"measure": "ndcg@10"}}, source="x")
    with pytest.raises(ValueError, match="measures must be among recall@K, precision@K, found@K, map@K, ndcg@K"):
        RunConfig.parse({**LEAST, "evaluation": {"further": ["ndgc@10"]}}, source="x")


def test_step_seeds_differ() -> None:
    seeds = {step_seed(seed, step, stream) for seed in range(3) for step in range(50) for stream in (1, 2)}
    assert len(seeds) == 300


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ({"name": "triplet", "margin": 100}, "loss.margin must not exceed 4, the diameter of the unit sphere"),
        ({"name": "triplet", "margin": 2.1, "distance": "euclidean"}, "loss.margin must not exceed 2"),
        ({"name": "contrastive", "margin": 5}, "loss.margin must not exceed 4"),
    ],
)
def test_a_margin_that_no_unit_row_can_keep_is_refused(loss: dict[str, Any], said: str) -> None:
    settings = {"data": {"name": "digits"}, "loss": loss}
    with pytest.raises(ValueError, match=said):
        RunConfig.model_validate(settings)
    RunConfig.model_validate(settings | {"model": {"normalize": False}})
    RunConfig.model_validate(settings | {"loss": loss | {"margin": 2.0}})  # the largest distance can be kept
