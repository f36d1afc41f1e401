"""The network of a run that embeds given items: the only one, or that of a side of pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trivet.datasets.config import ItemKind
from trivet.models import Embedder, SideName, Tokenize
from trivet.models.towers import SIDES
from trivet.runtime.text import typed
from trivet.training.run_folder import RunFolder


class SideNetwork(NamedTuple):
    """A network, what makes tokens for it, the kind of the items that it takes, and its side where it is one of two."""

    network: Embedder
    tokenize: Tokenize | None
    kind: ItemKind
    side: SideName | None


def network_of_side(
    run: RunFolder, model: Embedder, side: SideName | None, kind_of_items: Callable[[], ItemKind]
) -> SideNetwork:
    """The network of a side of a run; of the only side that takes such items where none is named.

    Args:
        model: of the run.
        kind_of_items: gives the kind of what is to be embedded; called where sides differ in kind and none is named.

    Raises:
        ValueError: if a side is named and there are none, or both take such items, or neither.
    """
    networks, data = model.networks, run.config().data
    if len(networks) == 1:
        if side is not None:
            raise ValueError(
                f"--side is for a run with a network of each side: {run.path} has one network; leave it out."
            )
        return SideNetwork(model, _tokenize(model), data.item_kind, None)
    kinds = data.side_kinds
    assert kinds is not None, "the settings of a run are checked"
    if side is None and kinds[0] != kinds[1]:
        kind = kind_of_items()
        if kind not in kinds:
            raise ValueError(
                f"the run {run.path} takes {kinds[0]} on the left and {kinds[1]} on the right: got {kind}; give one of "
                "these."
            )
        side = SIDES[kinds.index(kind)]
    if side is None:
        raise ValueError(
            f"the run {typed(run.path)} has a network of each side, which both take {kinds[0]}: say whose items these "
            "are with --side left or --side right."
        )
    position = SIDES.index(side)
    return SideNetwork(networks[position], _tokenize(networks[position]), kinds[position], side)


def _tokenize(network: Embedder) -> Tokenize | None:
    tokenize = network.tokenize
    assert not isinstance(tokenize, tuple), "it is a single network"
    return tokenize


def network_of_query(run: RunFolder, model: Embedder, kind: ItemKind, *, searched: SideName | None) -> SideNetwork:
    """The network of a run that embeds a query: of the side whose items are not searched, if that takes such queries.

    Args:
        model: of the run.
        searched: the side of the items that are searched; None where they are of both, or there are none.

    Raises:
        ValueError: if no network takes such queries.
    """
    kinds = run.config().data.side_kinds
    if len(model.networks) == 1 or kinds is None:
        return network_of_side(run, model, None, lambda: kind)
    for side in SIDES if searched != "left" else SIDES[::-1]:
        if kinds[SIDES.index(side)] == kind:
            return network_of_side(run, model, side, lambda: kind)
    raise ValueError(f"a query must be of a side of the run {run.path}, {kinds[0]} or {kinds[1]}: got one of {kind}.")
