"""Shared by the experiments of Levi et al.: the seven losses that are compared, and the gain by easy positives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trivet_papers.experiment import Arm, Claim, ResultColumn, SeedValue, Settings, arms, merged

LOSSES = ("triplet", "margin", "MS")
PROXIES = "proxy-NCA"
USUAL, EASY = "usual", "easy"
BEFORE, INPUTS = "none", "none, inputs"  # in the place of a loss

# The rules of each loss; the usual positives are those that its authors choose.
TRIPLET: Settings = {"name": "triplet", "margin": 0.2, "positives": "random", "negatives": "semihard"}
MARGIN: Settings = {
    "name": "margin",
    "margin": 0.2,
    "beta": 1.2,
    "beta_learning_rate": 5e-4,
    "positives": "random",
    "negatives": "distance-weighted",
}
MULTI: Settings = {
    "name": "multi-similarity",
    "positive_scale": 2.0,
    "negative_scale": 50.0,
    "threshold": 1.0,
    "positives": "multi-similarity",
    "negatives": "multi-similarity",
}
PROXY: Settings = {"name": "proxy-nca", "scale": 9.0}
EASY_POSITIVES: Settings = {"loss": {"positives": "easy"}}

# The published runs share a framework: Roth et al., "Revisiting training strategies and generalization performance in
# deep metric learning", ICML 2020, whose defaults these are.
RESNET50: Settings = {"name": "timm:resnet50.tv_in1k", "pretrained": True, "embedding_dim": 128}
ADAM: Settings = {"epochs": 150, "learning_rate": 1e-5, "weight_decay": 4e-4}
PAPER_SEEDS = 8
AT_THE_END: Settings = {"every": 10_000_000, "sample": 100, "k": [1, 2, 4, 8], "distance": "cosine"}


def both(base: Settings, loss: Settings, name: str, **options: Any) -> tuple[Arm, ...]:
    """A loss with its usual and with easy positives."""
    return arms(merged(base, {"loss": loss}), loss={name: {}}, positives={USUAL: {}, EASY: EASY_POSITIVES}, **options)


def seven(base: Settings, *, threshold: float, proxy_learning_rate: float = 1e-2, **options: Any) -> tuple[Arm, ...]:
    """Three losses with usual and with easy positives, and proxy-NCA, which has none.

    Args:
        threshold: of the multi-similarity loss.
        proxy_learning_rate: of proxy-NCA.
        options: of `arms`.
    """
    known = {"triplet": TRIPLET, "margin": MARGIN, "MS": {**MULTI, "threshold": threshold}}
    seven_arms = [arm for name, loss in known.items() for arm in both(base, loss, name, **options)]
    proxies = merged(base, {"loss": {**PROXY, "proxy_learning_rate": proxy_learning_rate}})
    return (*seven_arms, *arms(proxies, loss={PROXIES: {}}, positives={USUAL: {}}, **options))


def untrained(base: Settings, *measures: str) -> tuple[Arm, ...]:
    """The network before its first step, and the inputs as they are, which `measures` are measured of."""
    settings = merged(base, {"loss": TRIPLET})
    return (
        *arms(settings, measures=measures, at=(0,), loss={BEFORE: {}}, positives={USUAL: {}}),
        *arms(settings, measures=("inputs",), at=(0,), loss={INPUTS: {}}, positives={USUAL: {}}),
    )


ROWS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("triplet, semi-hard", {"loss": "triplet", "positives": USUAL}),
    ("proxy-NCA", {"loss": PROXIES, "positives": USUAL}),
    ("margin, distance-weighted", {"loss": "margin", "positives": USUAL}),
    ("MS", {"loss": "MS", "positives": USUAL}),
    ("EPS + triplet, semi-hard", {"loss": "triplet", "positives": EASY}),
    ("EPS + margin, distance-weighted", {"loss": "margin", "positives": EASY}),
    ("EPS + MS", {"loss": "MS", "positives": EASY}),
)


def printed(heads: Sequence[str], rows: Sequence[str]) -> dict[str, dict[str, str]]:
    """The printed numbers of `ROWS`, one text of numbers for each; "-" stands for none."""
    cells = (dict(zip(heads, row.split(), strict=True)) for row in rows)
    return {
        head: {key: value for key, value in row.items() if value != "-"}
        for (head, _), row in zip(ROWS, cells, strict=True)
    }


def gain(measure: str, loss: str, **more: str) -> Callable[[SeedValue], float]:
    """The gain by easy positives, of a seed."""
    return lambda of: of(measure, loss=loss, positives=EASY, **more) - of(measure, loss=loss, positives=USUAL, **more)


def gains(measure: str, of_what: str, where: str, *losses: str) -> tuple[Claim, ...]:
    """A claim for each loss: it gains by easy positives."""
    return tuple(
        Claim(
            f"With easy positives the {loss} loss retrieves {of_what} better{where}.",
            gain(measure, loss),
            "easy less usual positives, recall@1",
        )
        for loss in losses
    )


def all_gain(sentence: str, measure: str, says: str, **more: str) -> Claim:
    """A claim that each of the three losses gains."""
    return Claim(sentence, lambda of: {loss: gain(measure, loss, **more)(of) for loss in LOSSES}, says)


def recalls(split: str, level: str, ks: Sequence[int], head: str = "R@{}") -> tuple[ResultColumn, ...]:
    """Columns of recall at each K."""
    return tuple(ResultColumn(head.format(k), f"{split}/{level}/recall@{k}") for k in ks)
