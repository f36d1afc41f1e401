"""Sums over a set of negatives that several losses share, without a term for each pair of positive and negative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from trivet.mining.columns import AT_ONCE, relative_powers

MOST_COUNTED = 64  # positives of an anchor for which passes over the negatives are faster than sorting them


def log_sum_exp(values: Tensor, scale: float = 1.0) -> Tensor:
    """log(sum_m exp(scale x_m)) of each row of `values (B, M)`, `(B,)`; exponents of -inf count as nothing.

    -inf with gradient 0 for a row without a finite exponent.
    """
    if values.shape[1] == 0:
        return values.sum(dim=1) - torch.inf
    sums: Tensor = _LogSumExp.apply(values, scale)
    return sums


class _LogSumExp(torch.autograd.Function):
    """As `torch.logsumexp`, whose gradient is NaN for a row without a finite entry."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, scale: float) -> Tensor:
        powers = values * scale
        largest = powers.amax(dim=1, keepdim=True).clamp_min(torch.finfo(powers.dtype).min)
        powers = relative_powers(powers, largest)
        total = powers.sum(dim=1)
        sums = total.log().add_(largest[:, 0])
        ctx.scale = scale
        ctx.save_for_backward(values, sums, powers, total)
        return sums

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        values, sums, powers, total = ctx.saved_tensors
        slope = ctx.scale * grad
        shares: Tensor
        if torch.is_grad_enabled():  # to be differentiated again
            finite = sums.clamp_min(torch.finfo(sums.dtype).min)[:, None]
            shares = (values * ctx.scale - finite).exp() * slope[:, None]
        else:
            shares = powers * (slope / total.clamp_min(torch.finfo(total.dtype).tiny))[:, None]
        return shares, None


def hinge_sum(thresholds: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over b, s and m of max(0, t_bs - x_bm), a scalar, and how many are not zero for each b and s, `(B, S)`.

    Args:
        thresholds: `(B, S)`; minus infinity for an empty slot.
        distances: `(B, M)`; infinite for what does not count.
    """
    if thresholds.shape[1] > MOST_COUNTED:
        return _sorted_hinge_sum(thresholds, distances)
    total, number = _HingeSum.apply(thresholds, distances)
    return total, number


class _HingeSum(torch.autograd.Function):
    """A pass for each threshold. The gradient is how often an entry lies below a threshold, counted on the way."""

    @staticmethod
    def forward(ctx: Any, thresholds: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)  # none of the number
        if thresholds.shape[1] * distances.numel() <= AT_ONCE:
            hinges = torch.sub(thresholds[:, :, None], distances[:, None]).relu_()  # (B, S, M)
            total = hinges.sum()
            hinges.sign_()
            number, below = hinges.sum(dim=2), hinges[:, 0] if thresholds.shape[1] == 1 else hinges.sum(dim=1)
            ctx.save_for_backward(number, below)
            ctx.mark_non_differentiable(number)
            return total, number
        total, numbers = thresholds.new_zeros(()), [torch.zeros_like(thresholds[:, :0])]
        below, hinge = torch.empty_like(distances), torch.empty_like(distances)  # (B, M)
        for slot in range(thresholds.shape[1]):
            target = hinge if slot else below
            torch.sub(thresholds[:, slot : slot + 1], distances, out=target).relu_()
            total += target.sum()
            numbers.append(target.sign_().sum(dim=1, keepdim=True))
            if slot:
                below += hinge
        if thresholds.shape[1] == 0:
            below.zero_()
        number = torch.cat(numbers, dim=1)  # (B, S)
        ctx.save_for_backward(number, below)
        ctx.mark_non_differentiable(number)
        return total, number

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        number, below = ctx.saved_tensors
        return number * grad, below * -grad


def softplus_sum(thresholds: Tensor, distances: Tensor) -> Tensor:
    """The sum over b, s and m of log(1 + exp(t_bs - x_bm)), a scalar; arguments as of `hinge_sum`."""
    total: Tensor = _SoftplusSum.apply(thresholds, distances)
    return total


class _SoftplusSum(torch.autograd.Function):
    """A pass for each threshold, with the slopes, which are sigmoids, added up on the way."""

    @staticmethod
    def forward(ctx: Any, thresholds: Tensor, distances: Tensor) -> Tensor:
        if thresholds.shape[1] * distances.numel() <= AT_ONCE:
            differences = thresholds[:, :, None] - distances[:, None]  # (B, S, M)
            total = softplus(differences, threshold=40).sum()  # torch's own threshold of 20 drops 2e-9
            differences.sigmoid_()
            ctx.save_for_backward(thresholds, distances, differences.sum(dim=2), differences.sum(dim=1))
            return total
        total, slopes = thresholds.new_zeros(()), torch.zeros_like(thresholds)
        difference, slope = torch.empty_like(distances), torch.zeros_like(distances)  # (B, M)
        for slot in range(thresholds.shape[1]):
            torch.sub(thresholds[:, slot : slot + 1], distances, out=difference)
            total += softplus(difference, threshold=40).sum()
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
        return slopes * grad, slope * -grad


def _sorted_hinge_sum(thresholds: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of a row are sorted; those below a threshold are the first ones, counted and summed at once."""
    ranked = distances.sort(dim=1).values  # (B, M)
    number = torch.searchsorted(ranked.detach(), thresholds.detach())  # (B, S): entries strictly below
    finite = ranked.where(ranked.isfinite(), 0).double()
    running = pad(finite.cumsum(dim=1), (1, 0))  # float64: a difference of large sums follows
    bounds = thresholds.where(number > 0, 0).double()
    return (number * bounds - running.gather(1, number)).sum().to(thresholds.dtype), number
