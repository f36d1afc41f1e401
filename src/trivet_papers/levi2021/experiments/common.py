"""Shared by the experiments of Levi et al.: the seven losses that are compared, and the gain by easy positives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trivet_papers.experiment import (
    Arm,
    Claim,
    ResultColumn,
    SeedValue,
    Settings,
    Size,
    arms,
    merged,
    where_training_gains,
)

LOSSES = ("triplet", "margin", "MS")
PROXIES = "proxy-NCA"
USUAL, EASY, SEMIHARD = "usual", "easy", "semi-hard"
BEFORE, INPUTS = "none", "none, inputs"  # in the place of a loss
LAMBDA: dict[Size, float] = {"here": 0.5, "paper": 1.0}  # of the MS loss: of its authors' code, and as printed

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
PAPER_EPOCHS = (5, 10, 20, 40, 80, 150)
PAPER_SEEDS = 8
AT_THE_END: Settings = {"every": 10_000_000, "sample": 100, "k": [1, 2, 4, 8], "distance": "cosine"}

BASELINES = (
    "Baselines draw their positives at random, as the framework does that the paper names, in its semi-hard sampling "
    "too. Section 5.2.3 says that the sampling of the baselines chooses the positives as well, and gives no rule."
)
HERE_CHOSEN = f"Boundaries of the margin loss are one per class and learn with 0.0005. {BASELINES}"
FRAMEWORK = (
    "Batch norm is frozen, as in the framework, whose new layer begins at random; here it begins as the projection "
    "that keeps most of the pretrained features. The framework stores the epoch that is best on the test set, of which "
    "the printed numbers may be; claims are judged after the last, and the best of six stands beside it. Boundaries of "
    f"the margin loss, one per class, and proxies learn with 0.0005. {BASELINES}"
)
SEMIHARD_RULE = (
    "Of semi-hard positives each draws a semi-hard negative, and the farthest is taken that is nearer than its own."
)


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


def semihard(base: Settings, **options: Any) -> tuple[Arm, ...]:
    """The triplet loss with semi-hard positives and negatives."""
    joint = merged(base, {"loss": {**TRIPLET, "positives": "semihard"}})
    return arms(joint, loss={"triplet": {}}, positives={SEMIHARD: {}}, **options)


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
SEMIHARD_ROW = ("triplet, positives semi-hard too", {"loss": "triplet", "positives": SEMIHARD})


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


def gained(recall: str, *losses: str, **more: str) -> Callable[[SeedValue], dict[str, float]]:
    """The gain of each loss by training, with the better of its positives, of a seed."""

    def value(of: SeedValue) -> dict[str, float]:
        before = of(recall, loss=BEFORE, positives=USUAL, **more)
        kinds = (USUAL, EASY)
        return {loss: max(of(recall, loss=loss, positives=kind, **more) for kind in kinds) - before for loss in losses}

    return value


def gains(size: Size, recall: str, what: str, *, ours: bool = False, **more: str) -> tuple[Claim, ...]:
    """A claim for each loss: it gains by easy positives.

    Args:
        what: is retrieved better, with what goes before the loss; "{}" is the loss.
    """
    return tuple(
        where_training_gains(
            Claim(
                what.format(named(loss, size)),
                gain(recall, loss, **more),
                "easy less usual positives, recall@1",
                ours=ours,
            ),
            gained(recall, loss, **more),
        )
        for loss in LOSSES
    )


def named(loss: str, size: Size) -> str:
    """A loss in a sentence."""
    return f"MS loss (lambda = {LAMBDA[size]:g})" if loss == "MS" else f"{loss} loss"


def with_lambda(losses: str, size: Size) -> str:
    """Words for several losses in a sentence, the MS loss among them."""
    return f"{losses} (MS: lambda = {LAMBDA[size]:g})"


def each_loss(size: Size) -> str:
    """Words for all three in a sentence."""
    return with_lambda("each of the three losses", size)


def all_gain(sentence: str, measure: str, says: str, *, recall: str, **more: str) -> Claim:
    """A claim that each of the three losses gains.

    Args:
        recall: by which training has to help.
    """
    claim = Claim(sentence, lambda of: {loss: gain(measure, loss, **more)(of) for loss in LOSSES}, says)
    return where_training_gains(claim, gained(recall, *LOSSES, **more))


def best_with_easy(sentence: str, recall: str, **more: str) -> Claim:
    """A claim that the best of the seven is one with easy positives."""

    def best(of: SeedValue, positives: str, *losses: str) -> float:
        return max(of(recall, loss=loss, positives=positives, **more) for loss in losses)

    def ahead(of: SeedValue) -> float:
        return best(of, EASY, *LOSSES) - best(of, USUAL, *LOSSES, PROXIES)

    claim = Claim(sentence, ahead, "best with easy positives less best without, recall@1")
    return where_training_gains(claim, gained(recall, *LOSSES, **more))


def recalls(split: str, level: str, ks: Sequence[int], head: str = "R@{}") -> tuple[ResultColumn, ...]:
    """Columns of recall at each K."""
    return tuple(ResultColumn(head.format(k), f"{split}/{level}/recall@{k}") for k in ks)
