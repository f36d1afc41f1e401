"""Index tuples, losses and whole strategies beside pytorch-metric-learning 2.9: where both are equal, and where not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.distances import CosineSimilarity, DotProductSimilarity, LpDistance
from pytorch_metric_learning.reducers import MeanReducer, SumReducer
from torch import Tensor

import trivet

Tuples = tuple[Tensor, ...]
# Its distance beside the options that mean the same here; it normalises rows unless told not to.
DISTANCES: dict[str, tuple[Callable[[], torch.nn.Module], dict[str, object]]] = {
    "euclidean": (LpDistance, {"distance": "euclidean", "normalize": True}),
    "squared": (lambda: LpDistance(power=2), {"distance": "squared_euclidean", "normalize": True}),
    "as given": (lambda: LpDistance(normalize_embeddings=False), {"distance": "euclidean"}),
    "squared, as given": (lambda: LpDistance(power=2, normalize_embeddings=False), {"distance": "squared_euclidean"}),
    "cosine": (CosineSimilarity, {"distance": "cosine"}),
}
EVERYONE = {"positives": "all", "negatives": "all"}


def rows(size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of norms about 1 to 2 around the centre of their class, four classes of different sizes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(size).square() % 7 % 4
    centres = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = centres[labels] + 0.8 * torch.randn(size, 5, generator=generator, dtype=torch.float64)
    return found / 2, labels


class Case:
    """A batch, alone or against references, for both libraries."""

    def __init__(self, against_references: bool) -> None:
        embeddings, self.labels = rows(21, 1)
        self.embeddings = embeddings.requires_grad_()
        self.references, self.reference_labels = None, None
        if against_references:
            references, self.reference_labels = rows(28, 2)
            self.references = references.requires_grad_()

    def mine(self, miner: torch.nn.Module) -> Tuples:
        """Index tuples of one of its miners."""
        torch.manual_seed(0)
        return miner(self.embeddings, self.labels, ref_emb=self.references, ref_labels=self.reference_labels)

    def theirs(self, loss: torch.nn.Module, tuples: Tuples | None = None) -> Tensor:
        """The value of one of its losses."""
        others = {"ref_emb": self.references, "ref_labels": self.reference_labels}
        return loss(self.embeddings, self.labels, indices_tuple=tuples, **others)

    def ours(self, loss: trivet.EmbeddingLoss, tuples: Tuples | None = None) -> Tensor:
        """The value of one of Trivet's losses."""
        others = {"references": self.references, "reference_labels": self.reference_labels}
        return loss.double()(self.embeddings, self.labels, indices=tuples, **others)

    def mined(self, **options: object) -> trivet.MinedTriplets:
        """Triplets of `trivet.mine`."""
        others = {"references": self.references, "reference_labels": self.reference_labels}
        return trivet.mine(self.embeddings, self.labels, **others, **options)

    def assert_equal(self, theirs: Tensor, ours: Tensor) -> None:
        """Values and gradients; a loss that is 0 would say nothing."""
        assert theirs.item() > 1e-3
        leaves = [self.embeddings] if self.references is None else [self.embeddings, self.references]
        torch.testing.assert_close(ours, theirs.reshape(()), rtol=1e-7, atol=0)
        for mine, other in zip(torch.autograd.grad(ours, leaves), torch.autograd.grad(theirs, leaves), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-9)


@pytest.fixture(params=[False, True], ids=["batch", "references"])
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def once(tuples: Tuples) -> Tuples:
    """Pairs without repetition: a miner that draws with replacement gives some of them twice."""
    pairs = [torch.stack(tuples[i : i + 2]).unique(dim=1).unbind() for i in (0, 2)]
    return tuple(column for pair in pairs for column in pair)


TRIPLET_MINERS: dict[str, Callable[[], torch.nn.Module]] = {
    "all": lambda: miners.TripletMarginMiner(margin=0.3, type_of_triplets="all"),
    "hard": lambda: miners.TripletMarginMiner(margin=0.3, type_of_triplets="hard"),
    "semihard": lambda: miners.TripletMarginMiner(margin=0.3, type_of_triplets="semihard"),
    "easy": lambda: miners.TripletMarginMiner(margin=0.01, type_of_triplets="easy"),
    "angular": lambda: miners.AngularMiner(angle=40),
    "batch hard": miners.BatchHardMiner,
    "distance weighted": lambda: miners.DistanceWeightedMiner(nonzero_loss_cutoff=1.9),
}
PAIR_MINERS: dict[str, Callable[[], torch.nn.Module]] = {
    "easy, hard": lambda: miners.BatchEasyHardMiner(pos_strategy="easy", neg_strategy="hard"),
    "easy, semihard": lambda: miners.BatchEasyHardMiner(pos_strategy="easy", neg_strategy="semihard"),
    "all, hard": lambda: miners.BatchEasyHardMiner(pos_strategy="all", neg_strategy="hard"),
    "hard, all": lambda: miners.BatchEasyHardMiner(pos_strategy="hard", neg_strategy="all"),
    "multi-similarity": miners.MultiSimilarityMiner,
    "pair margin": lambda: miners.PairMarginMiner(pos_margin=0.3, neg_margin=1.1),
    "histogram": lambda: miners.UniformHistogramMiner(num_bins=8, pos_per_bin=4, neg_per_bin=4),
    "hard-aware": lambda: miners.HDCMiner(filter_percentage=0.4),
}


MINERS = TRIPLET_MINERS | PAIR_MINERS
# Every miner with one distance, and every distance with two of them.
MINED = [(name, "euclidean") for name in MINERS]
MINED += [(name, distance) for name in ("all", "all, hard") for distance in DISTANCES if distance != "euclidean"]


@pytest.mark.parametrize(("name", "distance"), MINED)
def test_its_tuples_in_the_triplet_loss(name: str, distance: str, case: Case) -> None:
    """MeanReducer is "mean", AvgNonZeroReducer (its default) "mean-active", SumReducer "sum"."""
    tuples = case.mine(MINERS[name]())
    tuples = once(tuples) if len(tuples) == 4 else tuples
    metric, options = DISTANCES[distance]
    for reducer, reduction in ((MeanReducer(), "mean"), (None, "mean-active"), (SumReducer(), "sum")):
        theirs = losses.TripletMarginLoss(margin=0.9, distance=metric(), reducer=reducer)
        ours = trivet.TripletLoss(margin=0.9, reduction=reduction, **options)
        case.assert_equal(case.theirs(theirs, tuples), case.ours(ours, tuples))
    smooth = losses.TripletMarginLoss(margin=0, smooth_loss=True, distance=metric(), reducer=MeanReducer())
    case.assert_equal(case.theirs(smooth, tuples), case.ours(trivet.TripletLoss(soft=True, **options), tuples))
    if distance == "cosine":
        case.assert_equal(case.theirs(smooth, tuples), case.ours(trivet.NCATripletLoss(), tuples))


@pytest.mark.parametrize(("name", "distance"), [pair for pair in MINED if pair[1] != "cosine"])
def test_its_tuples_in_the_contrastive_loss(name: str, distance: str, case: Case) -> None:
    """Its mean of the positive pairs and its mean of the negative pairs are those of two calls here."""
    tuples = case.mine(MINERS[name]())
    tuples = once(tuples) if len(tuples) == 4 else tuples
    metric, options = DISTANCES[distance]
    summed = losses.ContrastiveLoss(neg_margin=1.8, distance=metric(), reducer=SumReducer())
    ours = trivet.ContrastiveLoss(margin=1.8, reduction="sum", **options)
    case.assert_equal(case.theirs(summed, tuples), case.ours(ours, tuples))
    pairs = once(tuples if len(tuples) == 4 else (*tuples[:2], tuples[0], tuples[2]))
    nobody = torch.zeros(0, dtype=torch.int64)
    for reducer, reduction in ((MeanReducer(), "mean"), (None, "mean-active")):
        theirs = losses.ContrastiveLoss(neg_margin=1.8, distance=metric(), reducer=reducer)
        ours = trivet.ContrastiveLoss(margin=1.8, reduction=reduction, **options)
        parts = case.ours(ours, (*pairs[:2], nobody, nobody)) + case.ours(ours, (nobody, nobody, *pairs[2:]))
        case.assert_equal(case.theirs(theirs, pairs), parts)


def test_margins_of_similarities_in_the_contrastive_loss(case: Case) -> None:
    """A similarity has its margins from the other end: 1 for positives, 1 - margin for negatives."""
    theirs = losses.ContrastiveLoss(pos_margin=1, neg_margin=0.3, distance=CosineSimilarity(), reducer=SumReducer())
    ours = trivet.ContrastiveLoss(margin=0.7, distance="cosine", reduction="sum")
    case.assert_equal(case.theirs(theirs), case.ours(ours))


@pytest.mark.parametrize("beta_per_class", [False, True])
@pytest.mark.parametrize(
    ("name", "distance"), [pair for pair in MINED if pair[0] in TRIPLET_MINERS and pair[1] != "cosine"]
)
def test_its_triplets_in_the_margin_loss(name: str, distance: str, beta_per_class: bool, case: Case) -> None:
    tuples = case.mine(TRIPLET_MINERS[name]())
    metric, options = DISTANCES[distance]
    number = 4 if beta_per_class else None
    theirs = losses.MarginLoss(margin=0.25, beta=1.0, num_classes=number, distance=metric())
    ours = trivet.MarginLoss(margin=0.25, beta=1.0, num_classes=number, **({"normalize": False} | options))
    case.assert_equal(case.theirs(theirs, tuples), case.ours(ours, tuples))


def test_the_penalty_on_a_global_beta(case: Case) -> None:
    tuples = case.mine(TRIPLET_MINERS["all"]())
    theirs = losses.MarginLoss(beta=1.0, nu=0.5, learn_beta=True)
    ours = trivet.MarginLoss(beta=1.0, beta_penalty=0.5)
    case.assert_equal(case.theirs(theirs, tuples), case.ours(ours, tuples))


@pytest.mark.parametrize("name", PAIR_MINERS)
def test_its_pairs_in_the_losses_on_sets(name: str, case: Case) -> None:
    """alpha, beta and base are positive_scale, negative_scale and threshold; NTXentLoss is n-pair of unit rows."""
    tuples = once(case.mine(PAIR_MINERS[name]()))
    theirs = losses.MultiSimilarityLoss(alpha=1.5, beta=30, base=0.4)
    ours = trivet.MultiSimilarityLoss(positive_scale=1.5, negative_scale=30, threshold=0.4)
    case.assert_equal(case.theirs(theirs, tuples), case.ours(ours, tuples))
    cross_entropy = losses.NTXentLoss(temperature=0.2, reducer=SumReducer())
    n_pair = trivet.NPairLoss(temperature=0.2, normalize=True, reduction="sum")
    case.assert_equal(case.theirs(cross_entropy, tuples), case.ours(n_pair, tuples))


OF_SETS: list[tuple[torch.nn.Module, Callable[..., trivet.EmbeddingLoss], dict[str, float]]] = [
    (
        losses.MultiSimilarityLoss(alpha=1.5, beta=30, base=0.4, reducer=SumReducer()),
        trivet.MultiSimilarityLoss,
        {"positive_scale": 1.5, "negative_scale": 30.0, "threshold": 0.4},
    ),
    (losses.SupConLoss(temperature=0.3, reducer=SumReducer()), trivet.SupConLoss, {"temperature": 0.3}),
    (losses.CircleLoss(m=0.3, gamma=8, reducer=SumReducer()), trivet.CircleLoss, {"margin": 0.3, "scale": 8.0}),
]


@pytest.mark.parametrize("name", TRIPLET_MINERS)
def test_its_triplets_in_the_losses_on_sets(name: str, case: Case) -> None:
    """An item counts once for an anchor, in however many triplets it is."""
    tuples = case.mine(TRIPLET_MINERS[name]())
    for theirs, make, options in OF_SETS:
        case.assert_equal(case.theirs(theirs, tuples), case.ours(make(**options, reduction="sum"), tuples))


@pytest.mark.parametrize("negatives", ["hard", "random", trivet.mining.HardNegative(k=3)], ids=str)
@pytest.mark.parametrize("positives", ["easy", "all"])
def test_our_pairs_in_its_losses_on_sets(positives: str, negatives: object, case: Case) -> None:
    strategy = {"positives": positives, "negatives": negatives}
    for theirs, make, options in OF_SETS:
        ours = case.ours(make(**options, **strategy, reduction="sum", generator=torch.Generator().manual_seed(5)))
        tuples = case.mined(**strategy, distance="cosine", generator=torch.Generator().manual_seed(5))
        case.assert_equal(case.theirs(theirs, tuples), ours)


@pytest.mark.parametrize("negatives", [*trivet.mining.NEGATIVES])
@pytest.mark.parametrize("positives", ["easy", "random", "all"])
def test_our_triplets_in_its_losses(positives: str, negatives: str, case: Case) -> None:
    """The loss and the miner draw the same triplets from generators of the same seed."""
    strategy = {"positives": positives, "negatives": negatives, "margin": 0.6, "distance": "euclidean"}
    tuples = case.mined(**strategy, normalize=True, generator=torch.Generator().manual_seed(5))
    strategy["generator"] = torch.Generator().manual_seed(5)
    ours = trivet.TripletLoss(**strategy, normalize=True)
    assert len(tuples.anchor) > 5
    case.assert_equal(case.theirs(losses.TripletMarginLoss(margin=0.6, reducer=MeanReducer()), tuples), case.ours(ours))
    if not trivet.mining.NEGATIVES[negatives].selects_set:  # of which each pair counts once
        strategy["generator"] = torch.Generator().manual_seed(5)
        case.assert_equal(case.theirs(losses.MarginLoss(margin=0.6), tuples), case.ours(trivet.MarginLoss(**strategy)))
        strategy["generator"] = torch.Generator().manual_seed(5)
        ours = trivet.ContrastiveLoss(**strategy, normalize=True, reduction="sum")
        theirs = losses.ContrastiveLoss(neg_margin=0.6, reducer=SumReducer())
        case.assert_equal(case.theirs(theirs, tuples), case.ours(ours))


STRATEGIES = [  # its positives and negatives, and ours
    ("hard", "hard", "hard", "hard"),
    ("easy", "hard", "easy", "hard"),
    ("easy", "semihard", "easy", "semihard-hardest"),
    ("hard", "semihard", "hard", "semihard-hardest"),
    ("easy", "easy", "easy", "easy"),
    ("hard", "easy", "hard", "easy"),
    ("semihard", "hard", "semihard", "hard"),
    ("semihard", "easy", "semihard", "easy"),
    ("all", "hard", "all", "hard"),
    ("all", "easy", "all", "easy"),
    ("easy", "all", "easy", "all"),
    ("all", "all", "all", "all"),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: f"{s[0]}, {s[1]}")
def test_strategies_of_one_positive_and_one_negative(strategy: tuple[str, str, str, str], case: Case) -> None:
    """Batch-hard, EPHN, EPSHN, EPEN and the others of its miner; its hard positives are our hard ones and so on."""
    tuples = case.mine(miners.BatchEasyHardMiner(pos_strategy=strategy[0], neg_strategy=strategy[1]))
    theirs = losses.TripletMarginLoss(margin=0.7, reducer=MeanReducer())
    options = {"positives": strategy[2], "negatives": strategy[3], "distance": "euclidean", "normalize": True}
    case.assert_equal(case.theirs(theirs, tuples), case.ours(trivet.TripletLoss(margin=0.7, **options)))


def test_all_triplets(case: Case) -> None:
    """Without a miner, and with the miner of all triplets that violate the margin, which adds no term above zero."""
    theirs = losses.TripletMarginLoss(margin=0.4)
    options = {**EVERYONE, "distance": "euclidean", "normalize": True, "margin": 0.4}
    ours = case.ours(trivet.TripletLoss(reduction="mean-active", **options))
    case.assert_equal(case.theirs(theirs), ours)
    violating = case.mine(miners.TripletMarginMiner(margin=0.4, type_of_triplets="all"))
    case.assert_equal(case.theirs(theirs, violating), case.ours(trivet.TripletLoss(reduction="mean-active", **options)))
    smooth = losses.TripletMarginLoss(margin=0.4, smooth_loss=True, reducer=MeanReducer())
    soft = trivet.TripletLoss(soft=True, soft_margin=0.4, **{**options, "margin": 0.2})
    case.assert_equal(case.theirs(smooth), case.ours(soft))
    everyone = losses.TripletMarginLoss(margin=0.4, reducer=MeanReducer())
    case.assert_equal(case.theirs(everyone), case.ours(trivet.TripletLoss(**options)))


def test_multi_similarity(case: Case) -> None:
    tuples = case.mine(miners.MultiSimilarityMiner(epsilon=0.2))
    ours = trivet.MultiSimilarityLoss(
        positives=trivet.MultiSimilarityPositives(epsilon=0.2),
        negatives=trivet.MultiSimilarityNegatives(epsilon=0.2),
        threshold=0.5,
    )
    case.assert_equal(case.theirs(losses.MultiSimilarityLoss(), tuples), case.ours(ours))
    whole = trivet.MultiSimilarityLoss(threshold=0.5, **EVERYONE)
    case.assert_equal(case.theirs(losses.MultiSimilarityLoss()), case.ours(whole))


def test_all_pairs(case: Case) -> None:
    theirs = losses.ContrastiveLoss(neg_margin=1.5, reducer=SumReducer())
    ours = trivet.ContrastiveLoss(margin=1.5, distance="euclidean", normalize=True, reduction="sum")
    case.assert_equal(case.theirs(theirs), case.ours(ours))
    theirs = losses.ContrastiveLoss(pos_margin=0.4, neg_margin=1.5, reducer=SumReducer())
    ours = trivet.ContrastiveLoss(
        margin=1.5, positive_margin=0.4, distance="euclidean", normalize=True, reduction="sum"
    )
    case.assert_equal(case.theirs(theirs), case.ours(ours))
    cross_entropy = losses.NTXentLoss(temperature=0.1)
    n_pair = trivet.NPairLoss(temperature=0.1, normalize=True, positives="all")
    case.assert_equal(case.theirs(cross_entropy), case.ours(n_pair))
    case.assert_equal(case.theirs(losses.SupConLoss(temperature=0.2)), case.ours(trivet.SupConLoss(temperature=0.2)))
    case.assert_equal(
        case.theirs(losses.CircleLoss(m=0.3, gamma=20)), case.ours(trivet.CircleLoss(margin=0.3, scale=20.0))
    )


@pytest.mark.parametrize("negatives", ["all", "multi-similarity", "hard"])
def test_our_pairs_in_its_losses(negatives: str, case: Case) -> None:
    """Also the negatives of anchors without a positive, which no triplet has."""
    case.labels[0] = 9
    strategy = {"positives": "easy", "negatives": negatives, "distance": "euclidean", "normalize": True}
    others = {"references": case.references, "reference_labels": case.reference_labels}
    tuples = trivet.mine_pairs(case.embeddings, case.labels, **others, **strategy)
    assert (0 in tuples.negative_anchor) == (negatives == "all")
    theirs = losses.ContrastiveLoss(neg_margin=1.5, reducer=SumReducer())
    ours = trivet.ContrastiveLoss(margin=1.5, reduction="sum", **strategy)
    case.assert_equal(case.theirs(theirs, tuples), case.ours(ours))
    case.assert_equal(case.theirs(theirs, tuples), case.ours(ours, tuples))


@pytest.mark.parametrize("normalize", [False, True])
def test_one_pair_of_each_class(normalize: bool) -> None:
    """Its n-pair loss takes the first two of each class; here the anchors have the positives as references."""
    embeddings = rows(8, 3)[0].requires_grad_()
    labels = torch.arange(4).repeat(2)
    theirs = losses.NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=normalize))(embeddings, labels)
    ours = trivet.NPairLoss(normalize=normalize)
    options = {"references": embeddings[4:], "reference_labels": labels[4:]}
    torch.testing.assert_close(ours(embeddings[:4], labels[:4], **options), theirs, rtol=1e-9, atol=0)


def assert_same_with_proxies(
    theirs: torch.nn.Module, weights: Tensor, ours: trivet.EmbeddingLoss, proxies: Tensor
) -> None:
    """Value and gradients; the proxies as parameters, of theirs `weights`, and the rows of ours."""
    points, labels = rows(21, 1)
    found = []
    for loss, parameter in ((theirs, weights), (ours, proxies)):
        leaf = points.clone().requires_grad_()
        value = loss(leaf, labels)
        found.append([value.detach(), *torch.autograd.grad(value, [leaf, parameter])])
    found[0][2] = found[0][2] if weights.shape == proxies.shape else found[0][2].T
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_proxy_anchor() -> None:
    """Its default divides the two sums as the paper does."""
    theirs, ours = losses.ProxyAnchorLoss(6, 5).double(), trivet.ProxyAnchorLoss(6, 5).double()
    theirs.proxies.data = ours.proxies.detach().clone()
    assert_same_with_proxies(theirs, theirs.proxies, ours, ours.proxies)


@pytest.mark.parametrize("sub_centers", [1, 3])
@pytest.mark.parametrize("name", ["ArcFaceLoss", "CosFaceLoss"])
def test_arcface_and_cosface(name: str, sub_centers: int) -> None:
    """Its margin of ArcFace is in degrees; its weights stand in columns, and CosFace has no sub-centres."""
    if name == "CosFaceLoss":
        theirs = losses.CosFaceLoss(6, 5, margin=0.3, scale=8)
    elif sub_centers == 1:
        theirs = losses.ArcFaceLoss(6, 5, margin=math.degrees(0.6), scale=8)
    else:
        theirs = losses.SubCenterArcFaceLoss(
            num_classes=6, embedding_size=5, margin=math.degrees(0.6), scale=8, sub_centers=3
        )
    ours = getattr(trivet, name)(
        6, 5, margin=0.3 if name == "CosFaceLoss" else 0.6, scale=8.0,
        sub_centers=1 if name == "CosFaceLoss" else sub_centers,
    ).double()  # fmt: skip
    theirs = theirs.double()
    theirs.W.data = ours.proxies.detach().T.clone()
    assert_same_with_proxies(theirs, theirs.W, ours, ours.proxies)


def test_softmax_over_all_proxies() -> None:
    """Its proxy-NCA has the own class in the sum, so it is a softmax: of unit rows, squared distances are 2 - 2 S."""
    ours = trivet.CosFaceLoss(6, 5, margin=0, scale=6.0).double()
    nca = losses.ProxyNCALoss(6, 5, softmax_scale=3).double()
    nca.proxies.data = ours.proxies.detach().clone()
    assert_same_with_proxies(nca, nca.proxies, ours, ours.proxies)
    softmax = losses.NormalizedSoftmaxLoss(6, 5, temperature=1 / 6).double()
    softmax.W.data = ours.proxies.detach().T.clone()
    assert_same_with_proxies(softmax, softmax.W, ours, ours.proxies)


# Where both differ on purpose.


def test_its_semihard_triplets_are_the_whole_band_and_ours_one_for_each_positive() -> None:
    case = Case(False)
    band = set(zip(*(c.tolist() for c in case.mine(TRIPLET_MINERS["semihard"]())), strict=True))
    options = {"positives": "all", "distance": "euclidean", "margin": 0.3, "normalize": True}
    drop = case.mined(negatives=trivet.SemihardNegative(otherwise="drop"), **options)
    ours = set(zip(*(c.tolist() for c in drop), strict=True))
    assert ours < band
    assert {(a, p) for a, p, _ in ours} == {(a, p) for a, p, _ in band}
    assert len(ours) == len({(a, p) for a, p, _ in ours})
    everyone = case.mined(negatives="semihard", **options)  # an empty band draws from all negatives
    assert len(everyone.anchor) > len(ours)


def test_its_band_holds_its_upper_end_and_ours_does_not() -> None:
    points, labels = torch.tensor([[0.0], [1.0], [1.5]]), torch.tensor([0, 0, 1])
    miner = miners.TripletMarginMiner(0.5, "semihard", distance=LpDistance(normalize_embeddings=False))
    assert [c.tolist() for c in miner(points, labels)] == [[0], [1], [2]]
    strategy = trivet.SemihardNegative(otherwise="drop")
    ours = trivet.mine(points, labels, positives="all", negatives=strategy, margin=0.5, distance="euclidean")
    assert len(ours.anchor) == 0


def test_its_default_mean_is_over_the_triplets_above_zero_and_rises_when_one_gets_solved() -> None:
    points, labels = torch.tensor([[0.0], [1.0], [1.5], [1.75]]), torch.tensor([0, 0, 1, 1])
    tuples = (torch.tensor([0, 0]), torch.tensor([1, 1]), torch.tensor([2, 3]))
    theirs = losses.TripletMarginLoss(margin=1.0, distance=LpDistance(normalize_embeddings=False))
    ours = trivet.TripletLoss(margin=1.0, distance="euclidean")
    assert theirs(points, labels, tuples).item() == ours(points, labels, indices=tuples).item() == (0.5 + 0.25) / 2
    points[3] = 9.0
    assert theirs(points, labels, tuples).item() == 0.5
    assert ours(points, labels, indices=tuples).item() == 0.5 / 2


def test_its_mean_of_terms_above_zero_leaves_out_a_row_that_is_not_a_number() -> None:
    points, labels = rows(8, 1)[0], torch.arange(8) % 2
    points[3, 0] = math.nan
    assert math.isfinite(losses.TripletMarginLoss(margin=1.0)(points, labels))
    with pytest.raises(ValueError, match="row 3 holds NaN"):
        trivet.TripletLoss(margin=1.0, normalize=True, **EVERYONE)(points, labels)


def test_its_pair_losses_give_zero_for_one_positive_and_one_negative_pair() -> None:
    points, labels = torch.tensor([[0.0], [2.0], [3.0]]), torch.tensor([0, 0, 1])
    one = torch.tensor([0])
    tuples = (one, torch.tensor([1]), one, torch.tensor([2]))
    theirs = losses.ContrastiveLoss(neg_margin=4, distance=LpDistance(normalize_embeddings=False))
    assert theirs(points, labels, tuples).item() == 0
    ours = trivet.ContrastiveLoss(margin=4.0, distance="euclidean", reduction="sum")
    assert ours(points, labels, indices=tuples).item() == 2 + 1


def test_its_margin_loss_counts_a_pair_in_each_of_its_triplets_and_ours_once() -> None:
    points, labels = torch.tensor([[0.0], [2.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 2])
    options = {"margin": 1.0, "beta": 2.0}
    theirs = losses.MarginLoss(**options, distance=LpDistance(normalize_embeddings=False))
    ours = trivet.MarginLoss(**options, normalize=False, **EVERYONE)
    # Two positive pairs of 1, each in two triplets; from 0 the negatives are at 3 and 4, from 2 at 1 and 2.
    assert theirs(points, labels).item() == pytest.approx((4 * 1 + 0 + 0 + 2 + 1) / 6)
    # Items 3 and 4 have negatives too, at 3, 1, 1 and at 4, 2, 1.
    assert ours(points, labels).item() == pytest.approx((2 * 1 + (2 + 1) + (2 + 2) + (1 + 2)) / 8)


def test_its_multi_similarity_loss_pushes_items_without_a_positive_and_ours_leaves_them_out() -> None:
    points, labels = rows(9, 4)[0], torch.tensor([0, 0, 0, 1, 1, 1, 2, 3, 4])
    theirs = losses.MultiSimilarityLoss()(points, labels)
    ours = trivet.MultiSimilarityLoss(threshold=0.5, **EVERYONE)
    assert ours(points, labels) < theirs
    single = [torch.tensor([a for a in (6, 7, 8) for n in range(9) if n != a]), torch.tensor([])]
    single[1] = torch.tensor([n for a in (6, 7, 8) for n in range(9) if n != a])
    nobody = torch.zeros(0, dtype=torch.int64)
    missing = losses.MultiSimilarityLoss()(points, labels, (nobody, nobody, *single))
    torch.testing.assert_close(ours(points, labels) + missing, theirs)


def test_its_swap_takes_the_nearer_of_two_distances_and_our_variant_always_the_other() -> None:
    points, labels = torch.tensor([[0.0], [1.0], [-1.5], [3.0]]), torch.tensor([0, 0, 1, 1])
    tuples = (torch.tensor([0, 0]), torch.tensor([1, 1]), torch.tensor([2, 3]))
    theirs = losses.TripletMarginLoss(
        margin=3.0, swap=True, distance=LpDistance(normalize_embeddings=False), reducer=SumReducer()
    )
    ours = trivet.TripletLoss(margin=3.0, variant="pn", distance="euclidean", reduction="sum")
    assert theirs(points, labels, tuples).item() == (1 - min(1.5, 2.5) + 3) + (1 - min(3, 2) + 3)
    assert ours(points, labels, indices=tuples).item() == (1 - 2.5 + 3) + (1 - 2 + 3)


def test_its_proxy_loss_has_the_own_class_in_the_sum() -> None:
    points, labels = rows(9, 5)
    theirs, ours = losses.ProxyNCALoss(4, 5, softmax_scale=3), trivet.ProxyNCALoss(4, 5, scale=3.0, reduction="sum")
    theirs.proxies.data = ours.double().proxies.detach().clone()
    terms = torch.stack([ours(points[i : i + 1], labels[i : i + 1]) for i in range(9)])
    torch.testing.assert_close(theirs(points, labels), torch.log1p(terms.exp()).mean(), rtol=1e-9, atol=0)
    assert (terms < 0).any()


def test_its_distances_lose_their_digits_near_collapse_and_ours_do_not() -> None:
    generator = torch.Generator().manual_seed(0)
    points = 10 + 1e-3 * torch.randn(64, 32, generator=generator)
    labels = torch.zeros(64, dtype=torch.int64)  # all pairs are positive ones
    theirs = losses.ContrastiveLoss(distance=LpDistance(normalize_embeddings=False), reducer=SumReducer())
    ours = trivet.ContrastiveLoss(margin=1.0, distance="euclidean", reduction="sum")
    exact = sum(math.dist(x, y) for x in points.tolist() for y in points.tolist())
    assert ours(points, labels).item() == pytest.approx(exact, rel=1e-5)
    assert abs(theirs(points, labels).item() / exact - 1) > 0.01
