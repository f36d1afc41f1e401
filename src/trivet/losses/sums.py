"""Sums over a set of negatives that several losses share, without a term for each pair of positive and negative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

MOST_COUNTED = 64  # positives of an anchor for which passes over the negatives are faster than sorting them


def log_sum_exp(exponents: Tensor) -> Tensor:
    """log(sum_m exp(x_m)) of each row of `exponents (B, M)`, `(B,)`; -inf entries count as nothing.

    -inf with gradient 0 for a row without a finite entry.
    """
    if exponents.shape[1] == 0:
        return exponents.sum(dim=1) - torch.inf
    found: Tensor = _LogSumExp.apply(exponents)
    return found


class _LogSumExp(torch.autograd.Function):
    """As `torch.logsumexp`, whose gradient is NaN for a row without a finite entry."""

    @staticmethod
    def forward(ctx: Any, exponents: Tensor) -> Tensor:
        largest = exponents.amax(dim=1, keepdim=True).clamp_min(torch.finfo(exponents.dtype).min)
        powers = (exponents - largest).exp_()  # at most 1
        total = powers.sum(dim=1)
        found = total.log().add_(largest[:, 0])
        ctx.save_for_backward(exponents, found, powers, total)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        exponents, found, powers, total = ctx.saved_tensors
        shares: Tensor
        if torch.is_grad_enabled():  # to be differentiated again
            shares = (exponents - found.clamp_min(torch.finfo(found.dtype).min)[:, None]).exp() * grad[:, None]
        else:
            shares = powers * (grad / total.clamp_min(torch.finfo(total.dtype).tiny))[:, None]
        return shares


def hinge_sums(thresholds: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over s and m of max(0, t_s - x_m) for each row, `(B,)`, and how many of these are not zero, `(B,)`.

    Args:
        thresholds: `(B, S)`; minus infinity for an empty slot.
        distances: `(B, M)`; infinite for what does not count.
    """
    if thresholds.shape[1] > MOST_COUNTED:
        return _sorted_hinge_sums(thresholds, distances)
    sums, numbers = _HingeSums.apply(thresholds, distances)
    return sums, numbers.sum(dim=1)


class _HingeSums(torch.autograd.Function):
    """A pass for each threshold. The gradient is how often an entry lies below a threshold, counted on the way."""

    @staticmethod
    def forward(ctx: Any, thresholds: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
        total, number = thresholds.new_zeros(len(thresholds)), torch.zeros_like(thresholds)
        hinge, below = torch.empty_like(distances), torch.zeros_like(distances)  # (B, M)
        for slot in range(thresholds.shape[1]):
            torch.sub(thresholds[:, slot : slot + 1], distances, out=hinge).relu_()
            total += hinge.sum(dim=1)
            number[:, slot] = hinge.sign_().sum(dim=1)
            below += hinge
        ctx.save_for_backward(number, below)
        ctx.mark_non_differentiable(number)
        return total, number

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        number, below = ctx.saved_tensors
        return number * grad[:, None], below * -grad[:, None]


def softplus_sums(thresholds: Tensor, distances: Tensor) -> Tensor:
    """Sums over s and m of log(1 + exp(t_s - x_m)) for each row, `(B,)`; arguments as of `hinge_sums`."""
    found: Tensor = _SoftplusSums.apply(thresholds, distances)
    return found


class _SoftplusSums(torch.autograd.Function):
    """A pass for each threshold, with the slopes, which are sigmoids, added up on the way."""

    @staticmethod
    def forward(ctx: Any, thresholds: Tensor, distances: Tensor) -> Tensor:
        total, slopes = thresholds.new_zeros(len(thresholds)), torch.zeros_like(thresholds)
        difference, slope = torch.empty_like(distances), torch.zeros_like(distances)  # (B, M)
        for slot in range(thresholds.shape[1]):
            torch.sub(thresholds[:, slot : slot + 1], distances, out=difference)
            total += softplus(difference, threshold=40).sum(dim=1)  # torch's own threshold of 20 drops 2e-9
            slopes[:, slot] = difference.sigmoid_().sum(dim=1)
            slope += difference
        ctx.save_for_backward(thresholds, distances, slopes, slope)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        thresholds, distances, slopes, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again
            each = torch.sigmoid(thresholds[:, :, None] - distances[:, None])  # (B, S, M)
            slopes, slope = each.sum(dim=2), each.sum(dim=1)
        return slopes * grad[:, None], slope * -grad[:, None]


def _sorted_hinge_sums(thresholds: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of a row are sorted; those below a threshold are the first ones, counted and summed at once."""
    ranked = distances.sort(dim=1).values  # (B, M)
    number = torch.searchsorted(ranked.detach(), thresholds.detach())  # (B, S): entries strictly below
    finite = ranked.where(ranked.isfinite(), 0).double()
    running = pad(finite.cumsum(dim=1), (1, 0))  # float64: a difference of large sums follows
    bounds = thresholds.where(number > 0, 0).double()
    return (number * bounds - running.gather(1, number)).sum(dim=1).to(thresholds.dtype), number.sum(dim=1)
