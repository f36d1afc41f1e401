"""Wrong labels that a run tolerates, and those that were put in, in sentences and a curve."""

from __future__ import annotations

from collections.abc import Mapping

from trivet.reports.items import Curve, curve, is_number
from trivet.reports.run_record import RunRecord
from trivet.reports.shared_records import EstimateRecord
from trivet.runtime.text import typed

SKEWS = {
    "skew": ("skew η", "how much more often than by uniform sampling the most picked tenth of the negatives is picked"),
    "easy_skew": ("skew, easy side", "how much less often the least picked tenth is picked"),
    "wrong_skew": ("skew of wrong labels", "how much more often a picked negative truly has the anchor's class"),
    "active_wrong_skew": ("the same, active", "among the picks whose loss is not zero"),
    "positive_skew": ("η⁺", "largest relative share, by distance, of the positives that have a loss"),
    "negative_skew": ("η⁻", "smallest relative share, by distance, of the picked negatives that have a loss"),
    "gamma": ("γ = η⁻ / η⁺", "of the margin loss: 1 / γ takes the place of η"),
}


def noise_lines(record: RunRecord, *, run: str) -> list[str]:
    """A sentence or two on how many wrong labels the strategy of a run tolerates, and whether more were put in.

    How many there are without that is not said: the network of the run was trained on the labels.

    Args:
        run: the run as `trivet audit` is given it.

    Returns:
        Nothing for a record that does not say.
    """
    strategy, noise = record.label_noise.strategy, record.data.noise
    if not strategy.tolerance:
        reason = strategy.reason
        return [f"How many wrong labels this strategy tolerates is unknown: {reason}."] if reason else []
    tolerated = strategy.tolerance.rate
    cleaned = any(check.left_out or check.relabelled for check in record.cleaning)
    text = f"This strategy tolerates about p = {_with_ends(tolerated)} of wrong labels"
    text += ", measured on the cleaned labels" if cleaned else ""
    if noise is None:
        return [f"{text}; trivet audit {typed(run)} estimates how many there are, by networks that have not seen them."]
    if noise.topline or not noise.rate:
        return [f"{text}."]
    how = "are wrong by the published labels" if noise.kind == "human" else "were made wrong on purpose"
    lines = [f"{text}; {noise.rate:.2f} {'of those given ' if cleaned else ''}{how}."]
    if not cleaned and (more := _more(noise.rate, tolerated)):
        lines.append(f"That {more} more than the strategy tolerates: {_advice(record, run)}.")
    return lines


def noise_curve(record: RunRecord) -> Curve | None:
    """The skew along training, as a plot; None where it is not known."""
    along = record.label_noise.strategy.along
    series = {
        "skew η": [phase.skew.value if phase.skew else None for phase in along],
        "skew of wrong labels": [phase.wrong_skew.value if phase.wrong_skew else None for phase in along],
    }
    return curve("Skew of the picked negatives", [phase.end for phase in along], series, None)


def _advice(record: RunRecord, run: str) -> str:
    loss, tolerance = record.settings.get("loss", {}), record.label_noise.strategy.tolerance
    negatives = loss.get("negatives")
    name = negatives.get("name") if isinstance(negatives, Mapping) else negatives
    advice = f"run trivet audit {typed(run)}, which judges labels by networks that have not seen them"
    if name == "random" or (tolerance and tolerance.by == "gamma"):
        return advice
    return f'{advice}; or sample more evenly: with loss.negatives = "random" the skew is 1'


def _more(rate: float, tolerated: EstimateRecord) -> str:
    """ "is" above the interval, "may be" in it, and nothing below it."""
    low, high = (tolerated.value if end is None else end for end in tolerated.interval)
    if low is None or high is None or rate < low:
        return ""
    return "is" if rate > high else "may be"


def _with_ends(estimate: EstimateRecord) -> str:
    ends = [f"{end:.2f}" for end in estimate.interval if end is not None]
    return f"{estimate.value or 0:.2f}" + (f" [{', '.join(ends)}]" if len(ends) == 2 else "")


def cells(estimate: EstimateRecord) -> tuple[str, str]:
    """A number and the ends of its interval as text; what is not finite is infinite."""
    value, *ends = (f"{bound:.3g}" if is_number(bound) else "∞" for bound in (estimate.value, *estimate.interval))
    return value, " to ".join(ends)
