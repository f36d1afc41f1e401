"""Networks: images or texts in, `(N, d)` embeddings out."""

from trivet.models.backbones import BackboneConfig
from trivet.models.config import ModelConfig
from trivet.models.embedder import Embedder
from trivet.models.joined import JoinedConfig
from trivet.models.networks import build
from trivet.models.pixels import in_unit_range
from trivet.models.store import load_model, save
from trivet.models.text_folder import resolved_text
from trivet.models.text_network import TextEmbedder, tokenize_of
from trivet.models.text_settings import TextNetworkConfig
from trivet.models.texts import encoder_vectors, fit_ngrams, ngram_vectors
from trivet.models.tokens import Tokenize, Tokens
from trivet.models.towers import SidedBatch, SideName, Towers, TowersConfig

__all__ = [
    "BackboneConfig",
    "Embedder",
    "JoinedConfig",
    "ModelConfig",
    "SideName",
    "SidedBatch",
    "TextEmbedder",
    "TextNetworkConfig",
    "Tokenize",
    "Tokens",
    "Towers",
    "TowersConfig",
    "build",
    "encoder_vectors",
    "fit_ngrams",
    "in_unit_range",
    "load_model",
    "ngram_vectors",
    "resolved_text",
    "save",
    "tokenize_of",
]
