"""The gradients of a batch: what its blocks add up, and what is added once they have."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trivet.distances import ProductGradients


@dataclass
class Gradients:
    """Sums over the blocks of a batch.

    Attributes:
        anchors: `(N, d)`.
        references: `(L, d)` of those that need a gradient, the first ones; the tensor of the anchors where they are
            these.
        parameters: one for each parameter of the formula.
        products, precise: what comes by matrix products, and in float64; made when they are needed.
        squares: of the squared norms of the references `(L,)`; likewise.
    """

    anchors: Tensor
    references: Tensor
    parameters: list[Tensor]
    products: ProductGradients | None = None
    precise: ProductGradients | None = None
    squares: Tensor | None = None

    @property
    def learned(self) -> int:
        """Return how many references need a gradient, the first ones."""
        return self.references.shape[0]

    def finish(self, references: Tensor) -> None:
        """Add the rest to the sums of anchors and references."""
        if self.squares is not None:
            self.references.addcmul_(references[: self.learned], self.squares[:, None], value=2)
        for product in (self.products, self.precise):
            if product is not None:
                product.add_to(self.anchors, self.references)
