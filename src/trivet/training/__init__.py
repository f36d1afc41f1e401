"""The machinery of a run: settings, the loop, checkpoints, guard, cleaning, the run folder. Commands are in `tasks`."""

from trivet.training.config import EvaluationConfig, RunConfig, TrainingConfig
from trivet.training.embed_dataset import embed

__all__ = ["EvaluationConfig", "RunConfig", "TrainingConfig", "embed"]
