"""The folder of the user for what can be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

VARIABLE = "TRIVET_CACHE"


def cache_folder(subject: Literal["data", "baselines", "encoded"]) -> Path:
    """The folder of a subject: published data sets, measures of references, or vectors of encoded texts.

    It lies in the folder that the environment variable TRIVET_CACHE names; else in `trivet` of XDG_CACHE_HOME, if that
    is an absolute path, or of the platform: `~/Library/Caches` of macOS, elsewhere `~/.cache`.

    Raises:
        ValueError: if no variable names one and the user has no home folder.
    """
    if variable := os.environ.get(VARIABLE):
        return Path(variable).expanduser() / subject
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not shared.is_absolute():
        try:
            shared = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
        except RuntimeError:
            raise ValueError(
                f"a folder must be known for what can be made again: this user has no home folder; set {VARIABLE}."
            ) from None
    return shared / "trivet" / subject
