"""What a run says about wrong labels, in sentences and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trivet.reports.items import is_number
from trivet.reports.page import MISSING, number, percent

_MEASURES = (
    (
        "skew",
        "skew η",
        "how many times as often as uniformly the most picked tenth of the negatives is picked",
    ),
    ("easy_skew", "skew, easy side", "how many times as rarely the least picked tenth is"),
    ("wrong_skew", "skew of wrong labels", "how many times as often a picked negative truly has the anchor's class"),
    ("active_wrong_skew", "the same, active", "among the picks whose loss is not zero"),
    ("positive_skew", "η⁺", "largest relative share, by distance, of the positives that have a loss"),
    ("negative_skew", "η⁻", "smallest relative share, by distance, of the picked negatives that have a loss"),
    ("gamma", "γ = η⁻ / η⁺", "of the margin loss: 1 / γ takes the place of η"),
)


def noise_lines(record: Mapping[str, Any], *, run: str) -> list[str]:
    """How many wrong labels the strategy of a run stands and how many there may be, in a sentence or two.

    Args:
        run: the run as `trivet audit` is given it.

    Returns:
        Nothing for a record that does not say.
    """
    found = record.get("label_noise") or {}
    strategy, labels = found.get("strategy") or {}, found.get("labels") or {}
    stands = (strategy.get("tolerance") or {}).get("rate")
    if stands is not None:
        first = f"This strategy stands about p = {_with_ends(stands)} of wrong labels"
    elif strategy.get("reason"):
        first = f"How many wrong labels this strategy stands is not known: {strategy['reason']}"
    else:
        return []
    if labels.get("reason"):
        return [f"{first}; your labels were not judged: {labels['reason']}."]
    if labels.get("trained") is None:
        return [f"{first}."]
    trained, untrained, put_in = labels["trained"], labels.get("untrained"), _put_in(record)
    told = f"your labels have about p = {_rate(trained)} by this network, which hides mistakes it was trained on"
    lines = [f"{first}; {told}"]
    if untrained is not None:
        lines[0] += f", and p = {_rate(untrained)} by the untrained one, which takes classes that overlap for mistakes"
    lines[0] += "." if put_in is None else f"; {put_in:.2f} were made wrong on purpose."
    if stands is None:
        return lines
    if any(look["left_out"] or look["relabelled"] for look in record.get("cleaning") or []):
        return [*lines, "These are the labels as given; the strategy was seen on those that it was trained on."]
    rates = [one["rate"] for one in (trained, untrained) if one is not None] if put_in is None else [put_in]
    if min(rates) > stands["value"]:
        lines.append(f"That is more than the strategy stands: {_advice(record, run)}.")
    elif max(rates) > stands["value"]:
        lines.append(f"That may be more than the strategy stands: {_advice(record, run)}.")
    return lines


def noise_parts(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the section "Wrong labels" of the page of a run shows; None for a record that does not say."""
    lines = noise_lines(record, run=str(record.get("run", "RUN")))
    if not lines:
        return None
    strategy = record["label_noise"].get("strategy") or {}
    skew, tolerance = strategy.get("skew") or {}, strategy.get("tolerance") or {}
    rows = [(name, *_cells(skew[key]), meaning) for key, name, meaning in _MEASURES if skew.get(key)]
    if tolerance:
        rows.append(("p that it stands", *_cells(tolerance["rate"]), "by 1 − (2p − p²) η ≥ 0, at most that of uniform"))
        rows.append(("p by uniform picking", f"{tolerance['uniform']:.3g}", MISSING, "for comparison, exact weights"))
    return {
        "lines": lines,
        "rows": rows,
        "looks": number(strategy.get("looks")),
        "picks": number(skew.get("picks")),
        "active": number(skew.get("active")),
        "tenths": [f"{one:.2f}" if is_number(one) else MISSING for one in skew.get("relative") or []],
        "along": [
            [
                f"{number(part['from'])} to {number(part['to'])}",
                number(part["picks"]),
                *(_both(part.get(key)) for key in ("skew", "wrong_skew", "gamma")),
                _both((part.get("tolerance") or {}).get("rate")),
            ]
            for part in strategy.get("along") or []
        ],
    }


def cleaning_rows(record: Mapping[str, Any]) -> list[list[str]]:
    """A row for each look at the labels while training: step, suspects, rate, items left out, labels changed."""
    rows = []
    for look in record.get("cleaning") or []:
        rate = MISSING if look["noise_rate"] is None else f"{percent(look['noise_rate'])} %"
        counts = [number(look[name]) for name in ("step", "suspects", "left_out", "relabelled")]
        rows.append([*counts[:2], rate, *counts[2:]])
    return rows


def noise_curve(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The skew along training, as a plot; None where it is not known."""
    along = ((record.get("label_noise") or {}).get("strategy") or {}).get("along") or []
    if not along:
        return None
    names = {"skew": "skew η", "wrong_skew": "skew of wrong labels"}
    series = {said: [(part.get(key) or {}).get("value") for part in along] for key, said in names.items()}
    return {
        "title": "Skew of the picked negatives",
        "step": [part["to"] for part in along],
        "series": {said: values for said, values in series.items() if any(map(is_number, values))},
        "limits": None,
        "past": [],
        "marks": [],
    }


def _advice(record: Mapping[str, Any], run: str) -> str:
    loss = (record.get("settings") or {}).get("loss") or {}
    repaired = (record.get("guard") or {}).get("settings") or {}
    negatives = repaired.get("loss.negatives", loss.get("negatives"))
    name = negatives.get("name") if isinstance(negatives, Mapping) else negatives
    advice = f"see what trivet audit {run} says, which judges labels by networks that have not seen them"
    if name == "random" or record["label_noise"]["strategy"]["tolerance"].get("by") == "gamma":
        return advice
    return f'{advice}; or pick less unevenly: with loss.negatives = "random" the skew is 1'


def _put_in(record: Mapping[str, Any]) -> float | None:
    noise = (record.get("data") or {}).get("noise") or {}
    return None if noise.get("rate") is None or noise.get("topline") else float(noise["rate"])


def _rate(told: Mapping[str, Any]) -> str:
    return _with_ends({"value": told["rate"], "interval": told["interval"]})


def _with_ends(told: Mapping[str, Any]) -> str:
    ends: Sequence[float | None] = told["interval"]
    shown = [f"{end:.2f}" for end in ends if end is not None]
    return f"{told['value']:.2f}" + (f" [{', '.join(shown)}]" if len(shown) == 2 else "")


def _cells(told: Mapping[str, Any]) -> tuple[str, str]:
    value, *ends = (f"{one:.3g}" if is_number(one) else "∞" for one in (told["value"], *told["interval"]))
    return value, " to ".join(ends)


def _both(told: Mapping[str, Any] | None) -> str:
    if not told:
        return MISSING
    value, ends = _cells(told)
    return f"{value} ({ends})"
