"""The first record of a run: what is known before the first step."""

from __future__ import annotations

import datetime
import os
import platform
from importlib import metadata
from typing import Any

import numpy as np
import torch

import trivet
from trivet.datasets import Dataset, Splits, noise_summary
from trivet.datasets.dataset import trained_classes
from trivet.training.config import RunConfig, easy_positive_warnings
from trivet.training.run_folder import (
    RunFolder,
)


def first_record(run: RunFolder, config: RunConfig, splits: Splits, command: str) -> dict[str, Any]:
    settings = config.model_dump(mode="json", exclude_none=True)
    seed = settings.pop("seed")
    return {
        "trivet": trivet.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "status": "running",
        "run": run.name,
        "command": command,
        "level": splits.level,
        "settings": {"run": {"seed": seed}, **settings},
        "environment": environment(),
        "data": {
            "train": _counts(splits.train),
            "evaluation": {
                name: _counts(dataset) | {"trained_classes": trained_classes(splits, name)}
                for name, dataset in splits.evaluation.items()
            },
            "skipped": [{"id": skip.id, "reason": skip.reason} for skip in splits.train.skipped],
            "noise": noise_summary(splits),
            "decisions": splits.decisions,
        },
        "warnings": [*splits.warnings, *easy_positive_warnings(config)],
        "seconds": {},
    }


def environment() -> dict[str, Any]:
    """The versions and the hardware, in general words, that a result depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": metadata.version("lightning"),
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _counts(dataset: Dataset) -> dict[str, Any]:
    return {
        "items": len(dataset),
        "classes": {level: len(np.unique(labels)) for level, labels in dataset.labels.items()},
        "protocol": None if dataset.protocol is None else dataset.protocol.counts(),
    }
