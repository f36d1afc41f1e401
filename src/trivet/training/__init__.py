"""Training: settings, the loop, the run folder. `trivet.tasks.train` trains; it and `callbacks` load Lightning."""

from trivet.training.config import EvaluationConfig, RunConfig, TrainingConfig
from trivet.training.embedding import embed

__all__ = ["EvaluationConfig", "RunConfig", "TrainingConfig", "embed"]
