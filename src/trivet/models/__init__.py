"""Networks: images in, `(N, d)` embeddings out."""

from trivet.models.config import ModelConfig
from trivet.models.embedder import Embedder, build
from trivet.models.store import load_model, save

__all__ = ["Embedder", "ModelConfig", "build", "load_model", "save"]
