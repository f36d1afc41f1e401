"""Experiments in their published size, on miniatures in the published layouts: a run of each kind.

Nightly there is a run of all, and one of each published network.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.miniatures import cars196, cifar10, cub, flowers102, in_shop, market1501, mnist, omniglot, sop

from trivet_papers.catalogue import PAPERS, experiments
from trivet_papers.experiment import Arm, Experiment, ResultTable
from trivet_papers.measures import MEASURES
from trivet_papers.runs import Runner, planned, results
from trivet_papers.xuan2020 import measures

pytestmark = pytest.mark.usefixtures("rough_evaluation")

TINY = ("training.accelerator=cpu", "model.embedding_dim=4", "model.pretrained=false")
BATCH = ("batch.num_classes=2", "batch.samples_per_class=3")
SMALL = ("model.name=conv2", "data.image_size=12")
FALLING = ("training.steps=2", "training.milestones=[1]")
CHANGES = {  # of a paper, or of an experiment where it needs others
    "levi2021": (*TINY, *BATCH, *SMALL, "training.epochs=1"),
    "levi2021-table1": ("training.accelerator=cpu", "batch.samples_per_class=3", "training.steps=2"),
    "xuan2020": (*TINY, *BATCH, *FALLING, "model.name=timm:resnet10t", "data.image_size=32"),
    "xuan2020-fig6": (
        *(*TINY, *BATCH, *FALLING, "training.schedule=multi-step"),
        *("model.name=timm:resnet10t", "data.image_size=32"),
    ),
    "le2018": (*TINY, *BATCH, *SMALL, *FALLING, "data.resize=12", "data.augment=none"),
    "xu2024": (*TINY, "model.name=timm:resnet10t", "training.steps=2", "data.image_size=[32, 16]"),
    "xu2024-E": (*TINY, "model.name=timm:resnet10t", "training.steps=2", "data.image_size=[48, 32]"),
    "xu2024-D": (TINY[0], *SMALL, "training.steps=2", "data.resize=12", "batch.size=6"),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("published")
    cub(root / "cub", each=12)
    cars196(root / "cars196", each=4)
    omniglot(root / "omniglot")
    sop(root / "sop", photos=12)
    in_shop(root / "in-shop")
    market1501(root / "market1501", people=18)
    flowers102(root / "flowers102", each=13)
    mnist(root / "mnist", "train", [0, 1, 2, 3, 4, 5] * 2)
    mnist(root / "mnist", "t10k", [*range(10)] * 2)
    clean = cifar10(root / "cifar10", counts=(30, 20))
    levels = ("clean_label", "aggre_label", "random_label1", "worse_label")
    people = {f"c10_{level}": np.roll(clean, place) for place, level in enumerate(levels)}
    np.savez(root / "cifar10" / "cifar_n_labels.npz", **people)
    return root


def changes(one: Experiment) -> tuple[str, ...]:
    return CHANGES.get(one.key, CHANGES[one.key.partition("-")[0]])


def run_all(one: Experiment, published: Path, folder: Path, few: tuple[str, ...]) -> None:
    told: list[str] = []
    Runner(folder, data_root=published, models=None, report=told.append).run_all([one], "paper", 1, few)
    found, lines = results(one, "paper", folder, 1, few)
    assert len(told) == len({run.key for run in planned(one, "paper", 1, few)})
    assert len(lines) == len(one.paper.arms)
    assert [line.failed for line in lines if line.failed] == []
    arms = {frozenset(arm.factors.items()) for arm in one.paper.arms}
    for part in one.paper.shows:
        for _, factors in part.rows if isinstance(part, ResultTable) else ():
            if frozenset(factors.items()) in arms:
                assert any(found.numbers(column.measure, column.at, **factors) for column in part.columns)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEASURES, "movement-published", partial(measures.step_movement, steps=2))


def networks() -> dict[str, tuple[Experiment, Arm]]:
    """The first arm that trains each published network, and its experiment."""
    first: dict[str, tuple[Experiment, Arm]] = {}
    for one in experiments("all"):
        for arm in one.paper.arms:
            name = str(arm.settings["model"]["name"]).partition(".")[0]  # without the weights
            if name.startswith(("timm:", "torchvision:")) and arm.steps[-1] > 0:
                first.setdefault(name, (one, arm))
    return first


@pytest.mark.nightly
@pytest.mark.parametrize("name", networks())
def test_each_published_network_is_trained(name: str, published: Path, tmp_path: Path) -> None:
    one, arm = networks()[name]
    arm = replace(arm, measures=("recall",), at=(), last=())
    one = replace(one, paper=replace(one.paper, arms=(arm,), shows=()))
    smaller = [
        change for change in changes(one) if not change.startswith(("data.", "model.name", "model.embedding_dim"))
    ]
    run_all(one, published, tmp_path, (*smaller, "data.image_size=32"))


@pytest.mark.nightly
@pytest.mark.parametrize("key", [one.key for one in experiments("all")])
def test_it_runs_to_its_end(key: str, published: Path, tmp_path: Path, few_steps: None) -> None:
    (one,) = experiments(key)
    run_all(one, published, tmp_path, changes(one))


@pytest.mark.parametrize("paper", PAPERS)
def test_a_run_of_each_kind_runs_to_its_end(paper: str, published: Path, tmp_path: Path, few_steps: None) -> None:
    kinds: set[object] = set()
    for one in experiments(paper):
        few = []
        for arm in one.paper.arms:
            kind = (arm.measures, arm.last, arm.steps[-1] == 0, *arm.settings["data"].get("noise", ()))
            if kind not in kinds:
                kinds.add(kind)
                few.append(arm)
        if few:
            run_all(
                replace(one, paper=replace(one.paper, arms=tuple(few))), published, tmp_path / one.key, changes(one)
            )
