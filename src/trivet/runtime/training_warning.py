"""A warning of something in a training, which names no line of code: the line is one of a trainer, or of Trivet."""

from __future__ import annotations

import warnings


def warn(sentence: str) -> None:
    """Warn each time, with no line of code: `trivet:0: UserWarning: ...`; filters know it by the module "trivet"."""
    warnings.warn_explicit(sentence, UserWarning, filename="trivet", lineno=0)
