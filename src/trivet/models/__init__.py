"""Networks: images or texts in, `(N, d)` embeddings out."""

from trivet.models.config import BackboneConfig, ModelConfig
from trivet.models.embedder import Embedder, build
from trivet.models.store import load_model, save
from trivet.models.texts import encoder_vectors, fit_ngrams, ngram_vectors

__all__ = [
    "BackboneConfig",
    "Embedder",
    "ModelConfig",
    "build",
    "encoder_vectors",
    "fit_ngrams",
    "load_model",
    "ngram_vectors",
    "save",
]
