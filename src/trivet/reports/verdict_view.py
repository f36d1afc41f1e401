"""A verdict or an event in the words, the tone and the order of evidence of a page."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from trivet.reports.diagnosis_record import VerdictRecord
from trivet.reports.measures import DIAGNOSIS, Measure

_KINDS = {
    "healthy": "Healthy",
    "spread-out": "Spread out",
    "no-better-than-chance": "No better than chance",
    "worse-than-reference": "Worse than reference",
    "network-collapse": "Network collapse",
    "class-collapse": "Class collapse",
    "displaced-items": "Displaced items",
    "dead-sampler": "Dead sampler",
    "exploding-norm": "Exploding norm",
    "noisy-labels": "Noisy labels",
}
RESULTS = ("no-better-than-chance", "worse-than-reference")
_SIGNS = {"good": "✓", "calm": "○", "warn": "!", "bad": "✕"}
TONES = ("bad", "warn", "calm", "good")
_SAME = {"recall@1": "recall"}  # a verdict's evidence names it so
FINE = {
    "recall@1": Measure("recall@1 by {}", "at a finer level that training did not see", better="more"),
    "fine_coarse_index": Measure("fine–coarse index of {}", "0: the finer classes have merged", "number", "more"),
}
OF = "recall@1 of "  # a reference
_AT_STEP = re.compile(r"(.+)_at_step_(\d+)")  # of an earlier call of a probe
FINE_ENDS = tuple(f"_{end}" for end in FINE)


@dataclass
class VerdictView:
    """A verdict as the templates show it; `evidence` is name, value and meaning."""

    tone: str
    words: str
    rule: str
    evidence: list[tuple[str, str, str]]
    cause: str
    changes: list[str]

    @property
    def sign(self) -> str:
        return _SIGNS[self.tone]


def verdict(finding: VerdictRecord) -> VerdictView:
    """A verdict in the words, the tone and the order of evidence of a page."""
    kind, severity = finding.kind, finding.severity
    tone = {"healthy": "good", "spread-out": "calm"}.get(kind, "warn")
    if severity == "full" or kind in (*RESULTS, "exploding-norm"):
        tone = "bad"
    words = _KINDS.get(kind, kind.replace("-", " ").capitalize())
    return VerdictView(
        tone=tone,
        words=f"{words}, {severity}" if severity else words,
        rule=_sentence(finding.rule.replace(" x ", " × ")),
        evidence=[
            (measure.name, measure.show(value), measure.meaning)
            for measure, value in ((measure_of(name), value) for name, value in finding.evidence.items())
        ],
        cause=finding.cause,
        changes=finding.changes,
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""


def measure_of(name: str) -> Measure:
    """Name, format and meaning of a number; LEVEL_recall@1 is of a finer level, recall_at_step_5 of an earlier call."""
    if earlier := _AT_STEP.fullmatch(name):
        measure = measure_of(earlier[1])
        return replace(measure, name=f"{measure.name} at step {earlier[2]}", meaning="")
    known = DIAGNOSIS.get(_SAME.get(name, name))
    if known is not None:
        return known
    if OF in name:
        level, _, reference = name.rpartition(OF)
        by = f" by {level.removesuffix('_')}" if level else ""
        return Measure(f"recall@1{by}: {reference}")
    for end, measure in FINE.items():
        if name.endswith(f"_{end}"):
            return replace(measure, name=measure.name.format(name.removesuffix(f"_{end}")))
    return Measure(name.replace("_", " "), unit="number")
