"""Sums over a set of negatives that several losses share, without a term for each pair of positive and negative."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from trivet.distances import device
from trivet.distances.exact_order import AT_ONCE, relative_powers
from trivet.distances.threads import single_thread
from trivet.mining.selected_set import Bands

VECTORS = 64  # numbers, a multiple of what a CPU takes at once
MOST_COUNTED = 64  # positives of an anchor for which passes over the negatives are faster than sorting them


def stable_softplus(exponents: Tensor) -> Tensor:
    """log(1 + exp(x)) to the last digit, without overflow; of equal numbers the same, wherever they stand."""
    # A CPU takes what is left over after whole vectors by another exp and log, which round otherwise.
    size, missing = exponents.numel(), -exponents.numel() % VECTORS
    flat = pad(exponents.flatten(), (0, missing)) if missing else exponents.contiguous()
    values: Tensor = softplus(flat, threshold=40)  # torch's own threshold of 20 drops 2e-9
    return values[:size].view(exponents.shape) if missing else values


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
        slots, size = thresholds.shape[1], distances.shape[1]
        number, below = torch.empty_like(thresholds), torch.empty_like(distances)  # (B, S) and (B, M)
        rows, sums = max(1, AT_ONCE // size), [thresholds.new_zeros(())]
        is_below = torch.empty_like(distances[:rows])
        with single_thread(AT_ONCE):
            for first in range(0, len(distances) if slots else 0, rows):
                block, near, count = (each[first : first + rows] for each in (distances, below, number))
                limits = thresholds[first : first + rows]
                largest = limits.amax(dim=1, keepdim=True)
                hinge = torch.sub(largest, block).relu_()
                if slots == 1:
                    sums.append(hinge.sum())
                    torch.sum(torch.sign(hinge, out=near), dim=1, keepdim=True, out=count)
                    continue
                # Of m entries below t the sum of t - x is that of T - x less m (T - t), T the largest t of the row.
                for slot in range(slots):
                    each = is_below[: len(block)] if slot else near
                    torch.lt(block, limits[:, slot : slot + 1], out=each)
                    torch.sum(each, dim=1, out=count[:, slot])
                    if slot:
                        near += each
                sums += [hinge.mul_(near).sum(), ((limits - largest) * count).where(count > 0, 0).sum()]
        if slots == 0:
            below.zero_()
        total = torch.stack(sums).sum()
        ctx.save_for_backward(number, below)
        ctx.mark_non_differentiable(number)
        return total, number

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        number, below = ctx.saved_tensors
        return number * grad, below * -grad


def band_sum(thresholds: Tensor, distances: Tensor, bands: Bands) -> Tensor:
    """The sum of t_bs - x_bm over all slots b, s and the m in the band of each, a scalar.

    Args:
        thresholds: `(B, S)`, none of them below a distance in its band; minus infinity for an empty slot.
        distances: `(B, M)`; infinite for what is in no band.
    """
    total: Tensor = _BandSum.apply(thresholds, distances, bands.counts, bands.holders)
    return total


class _BandSum(torch.autograd.Function):
    """From the largest threshold of a row, which costs fewer digits than the sums of all distances."""

    @staticmethod
    def forward(ctx: Any, thresholds: Tensor, distances: Tensor, counts: Tensor, holders: Tensor) -> Tensor:
        ctx.save_for_backward(counts, holders)
        if counts.shape[1] == 0:
            return thresholds.sum()
        largest = thresholds.amax(dim=1, keepdim=True)
        hinges = torch.sub(largest, distances).relu_().mul_(holders)
        return hinges.sum() + ((thresholds - largest) * counts).where(counts > 0, 0).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        counts, holders = ctx.saved_tensors
        return counts * grad, holders * -grad, None, None


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
        slopes, slope = torch.zeros_like(thresholds), torch.zeros_like(distances)  # (B, S) and (B, M)
        if slots := _factors_at_once(thresholds, distances):
            total = _softplus_product(thresholds, distances, slots, slopes, slope)
            ctx.save_for_backward(thresholds, distances, slopes, slope)
            return total
        total, difference = thresholds.new_zeros(()), torch.empty_like(distances)
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


def _factors_at_once(thresholds: Tensor, distances: Tensor) -> int:
    """The number of factors 1 + exp(t - x) whose product is finite; 0 if not even one, or if none can be looked at."""
    if not device.read_freely(distances) or thresholds.numel() == 0 or distances.numel() == 0:
        return 0
    reached = (thresholds.amax(dim=1) - distances.amin(dim=1)).amax().item()
    return int((math.log(torch.finfo(distances.dtype).max) - 2) / (max(0.0, reached) + 1))


def _softplus_product(thresholds: Tensor, distances: Tensor, slots: int, slopes: Tensor, slope: Tensor) -> Tensor:
    """`softplus_sum` with one logarithm for a product of `slots` factors; the slopes are written, that of x added."""
    # log prod (1 + v) = log(1 + q) with q <- v + q (1 + v) keeps the digits of small v.
    kind = torch.finfo(distances.dtype)
    least = math.log(kind.tiny) + 1
    rows, sums = max(1, AT_ONCE // max(1, distances.shape[1])), []
    for first in range(0, len(distances), rows):
        some = slice(first, first + rows)
        centre = thresholds[some].amax(dim=1, keepdim=True).clamp_min(kind.min)
        powers = torch.sub(centre, distances[some]).clamp_min_(least).exp_()
        powers = torch.threshold_(powers, 4 * kind.tiny, 0)
        scales = (thresholds[some] - centre).exp_()
        power, factor, product = torch.empty_like(powers), torch.empty_like(powers), torch.zeros_like(powers)
        for slot in range(thresholds.shape[1]):
            if slot and slot % slots == 0:
                sums.append(product.log1p_().sum())
                product.zero_()
            torch.mul(powers, scales[:, slot : slot + 1], out=power)
            torch.add(power, 1, out=factor)
            torch.addcmul(power, product, factor, out=product)
            slopes[some, slot] = power.div_(factor).sum(dim=1)
            slope[some] += power
        sums.append(product.log1p_().sum())
    return torch.stack(sums).sum()


def _sorted_hinge_sum(thresholds: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of a row are sorted; those below a threshold are the first ones, counted and summed at once."""
    ranked = distances.sort(dim=1).values  # (B, M)
    number = torch.searchsorted(ranked.detach(), thresholds.detach())  # (B, S): entries strictly below
    finite = ranked.where(ranked.isfinite(), 0).double()
    running = pad(finite.cumsum(dim=1), (1, 0))  # float64: a difference of large sums follows
    bounds = thresholds.where(number > 0, 0).double()
    return (number * bounds - running.gather(1, number)).sum().to(thresholds.dtype), number
