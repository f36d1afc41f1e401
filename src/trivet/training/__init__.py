"""Training: settings, the loop, the run folder."""

from trivet.training.config import EvaluationConfig, RunConfig, TrainingConfig
from trivet.training.embedding import embed
from trivet.training.fit import Batches, Task, fit
from trivet.training.run import evaluate_run, resume, train

__all__ = [
    "Batches",
    "EvaluationConfig",
    "RunConfig",
    "Task",
    "TrainingConfig",
    "embed",
    "evaluate_run",
    "fit",
    "resume",
    "train",
]
