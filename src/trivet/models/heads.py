"""Last layers on features: linear, residual, whitening, of two layers, or none."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from trivet.distances import unit_rows

HeadName = Literal["linear", "none", "residual", "mlp", "whitening"]
AS_WIDE = ("none", "whitening")  # heads that give embeddings as long as features where nothing else is set
RIDGE = 10.0  # times the mean variance of a direction within classes


def _identity(rows: int, columns: int) -> Tensor:
    """`(rows, columns)`, 1 on the diagonal; on the device "meta" `torch.eye` loads the compiler, for two seconds."""
    return torch.zeros(rows, columns).fill_diagonal_(1)


class Residual(nn.Module):
    """Features `(B, d_in)` and a learned linear change of them, which is 0 before the first step: `(B, d_out)`.

        base(x) + change(x)

    With d_out = d_in the base is x itself; with a larger d_out, x and zeros. With a smaller one it is the projection on
    the d_out directions that hold most of the features' second moment, which keeps their inner products as well as a
    linear map of that width can; `fit_base` finds these, and until then the first d_out features stand for them.

    So a network begins as good as its features, and what it loses by training is seen.

    Source:
        He et al., "Deep Residual Learning", CVPR 2016, for x + change(x); Eckart and Young, Psychometrika 1, 1936, for
        the projection.
    """

    base: Tensor | None

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.change = nn.Linear(d_in, d_out, bias=False)
        nn.init.zeros_(self.change.weight)
        self.register_buffer("base", None if d_in == d_out else _identity(d_out, d_in))

    def forward(self, features: Tensor) -> Tensor:
        base = features if self.base is None else features @ self.base.T
        changed: Tensor = base + self.change(features)
        return changed

    @property
    def fitted(self) -> bool:
        """True if the base follows from features, by `fit_base`."""
        return self.base is not None and len(self.base) < self.base.shape[1]

    def fit_base(self, features: Tensor, labels: Tensor) -> None:
        """Begin as the `principal_directions` of `features (N, d_in)`, whatever their labels."""
        assert self.base is not None
        self.base = principal_directions(features, len(self.base)).to(self.base).contiguous()


class Projection(nn.Linear):
    """A learned linear map of features `(B, d_in)` to `(B, d_out)` that begins as the base of `Residual` does.

    Unlike there, what it begins as can be unlearned by weight decay, and there is a bias, at first 0.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.weight.data = _identity(d_out, d_in)
        nn.init.zeros_(self.bias)

    @property
    def fitted(self) -> bool:
        """True if its first weights follow from features, by `fit_base`."""
        return self.out_features < self.in_features

    def fit_base(self, features: Tensor, labels: Tensor) -> None:
        """Begin as the `principal_directions` of `features (N, d_in)`, whatever their labels."""
        with torch.no_grad():
            self.weight.copy_(principal_directions(features, self.out_features))


class Whitening(nn.Module):
    """Features `(B, d_in)`, moved to mean 0 and scaled by their spread within classes: `(B, d_out)`.

        P (C + 10 mean(diag C) I)^(-1/2) (x - mean)

    C is the covariance within classes, P the projection on the `principal_directions` of what is scaled. So what varies
    among items of one class counts less; without labels, what tells classes apart would be shrunk first, as it varies
    most. No step changes it. The whole is scaled to a largest factor of 1.

    Args:
        unit: features are scaled to length 1 first.

    Raises:
        ValueError: if d_out is larger than d_in.

    Source:
        Hatch, Kajarekar, Stolcke, "Within-class covariance normalization for SVM-based speaker recognition",
        Interspeech 2006; without labels: Jegou, Chum, "Negative evidences and co-occurences in image retrieval: the
        benefit of PCA and whitening", ECCV 2012. The ridge did best of five on folds of training classes of
        CUB-200-2011, CIFAR-10, CLINC150 and BANKING77.
    """

    mean: Tensor
    weight: Tensor
    fitted = True  # from features and labels, by `fit_base`

    def __init__(self, d_in: int, d_out: int, *, unit: bool) -> None:
        if d_out > d_in:
            raise ValueError(
                f"embedding_dim must be at most the number of features, {d_in}, with whitening: got {d_out}; set "
                f"embedding_dim = {d_in}."
            )
        super().__init__()
        self.unit = unit
        self.register_buffer("mean", torch.zeros(d_in))
        self.register_buffer("weight", _identity(d_out, d_in))

    def forward(self, features: Tensor) -> Tensor:
        rows = unit_rows(features) if self.unit else features
        return (rows - self.mean) @ self.weight.T

    def fit_base(self, features: Tensor, labels: Tensor) -> None:
        """Take mean and covariances from `features (N, d_in)`, with a class `(N,)` for each."""
        rows = features.double()
        centred = rows - rows.mean(dim=0)
        counts = torch.bincount(labels)
        sums = torch.zeros(len(counts), rows.shape[1], dtype=rows.dtype).index_add_(0, labels, centred)
        within = centred - sums[labels] / counts[labels, None]
        variances, directions = torch.linalg.eigh(within.T @ within / len(rows))
        ridge = RIDGE * variances.mean()
        # Where classes have one item each nothing varies within them: the mean alone is taken off.
        scales = (variances.clamp(min=0) + ridge).rsqrt() if ridge > 0 else torch.ones_like(variances)
        whitening = (directions * (scales / scales.max())) @ directions.T
        chosen = principal_directions(centred @ whitening, len(self.weight))
        self.mean, self.weight = rows.mean(dim=0).to(self.mean), (chosen @ whitening).to(self.weight).contiguous()


def principal_directions(features: Tensor, count: int) -> Tensor:
    """The `count` directions `(count, d)` that hold most of the second moment of `features (N, d)`, in float64.

    They are orthonormal, the largest first; each points to where its largest number is positive. With fewer rows than
    directions, those that no row has are any that are left.
    """
    rows = features.double()
    _, directions = torch.linalg.eigh(rows.T @ rows)  # smallest first
    chosen = directions.flip(1)[:, :count].T
    largest = chosen.gather(1, chosen.abs().argmax(dim=1, keepdim=True))
    pointed: Tensor = chosen * largest.sign()
    return pointed


def make_head(kind: HeadName, features: int, embedding_dim: int, *, as_features: bool, unit: bool) -> nn.Module:
    """The last layer from features `(B, features)` to embeddings `(B, embedding_dim)`.

    Args:
        kind: "linear"; "none", the features themselves; "residual", see `Residual`; "mlp", two layers with a rectifier
            between, with as many hidden units as features; "whitening", see `Whitening`.
        as_features: a linear one begins as `Projection` does, not at random. For features worth keeping.
        unit: as of `Whitening`.

    Raises:
        ValueError: if there is no last layer, and embeddings are to be of another length than features, or longer than
            these with whitening.
    """
    if kind == "none":
        if embedding_dim != features:
            raise ValueError(
                f'embedding_dim must be the number of features, {features}, with head = "none": got {embedding_dim}; '
                f'set embedding_dim = {features}, or use head = "linear".'
            )
        return nn.Identity()
    if kind == "residual":
        return Residual(features, embedding_dim)
    if kind == "whitening":
        return Whitening(features, embedding_dim, unit=unit)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, embedding_dim))
    return Projection(features, embedding_dim) if as_features else nn.Linear(features, embedding_dim)
