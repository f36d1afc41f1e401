"""Trainers of other libraries, on the CPU and silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import pytest
from torch import nn
from transformers import PrinterCallback, Trainer, TrainingArguments

LIGHTNING_WARNINGS = [
    # Lightning 2.6 uses a name that torch 2.15 has deprecated.
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Found 1 module"),
]


def lightning_trainer(**options: Any) -> lightning.Trainer:
    silent = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(accelerator="cpu", enable_checkpointing=False, **{**silent, **options})


def trainer_of(
    model: nn.Module, folder: Path, rows: Any, *, of: type[Trainer] = Trainer, batch: int, options: dict[str, Any]
) -> Trainer:
    """A Trainer of transformers, or of a class derived from it."""
    silent = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "log_level": "error", "save_strategy": "no"}
    given = {**silent, "per_device_train_batch_size": batch, "dataloader_pin_memory": False, **options}
    trainer = of(model=model, args=TrainingArguments(output_dir=str(folder), **given), train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    return trainer
