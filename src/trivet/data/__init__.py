"""Labelled images, split into what is trained on and what is evaluated; embeddings made anywhere, with their labels."""

from trivet.data.augment import Augment, augmentation
from trivet.data.catalogue import Available, available, load
from trivet.data.config import DataConfig
from trivet.data.dataset import Dataset, Inputs, Skipped, Splits, TrainingNoise
from trivet.data.decisions import Decision, read_decisions, write_decisions
from trivet.data.download import download
from trivet.data.folder import load_images
from trivet.data.noise import NoiseConfig, noise_summary
from trivet.data.root import find_root
from trivet.data.texts import encoder_vectors, ngram_vectors, read_texts
from trivet.data.vectors import Vectors, class_numbers, read_vectors

__all__ = [
    "Augment",
    "Available",
    "DataConfig",
    "Dataset",
    "Decision",
    "Inputs",
    "NoiseConfig",
    "Skipped",
    "Splits",
    "TrainingNoise",
    "Vectors",
    "augmentation",
    "available",
    "class_numbers",
    "download",
    "encoder_vectors",
    "find_root",
    "load",
    "load_images",
    "ngram_vectors",
    "noise_summary",
    "read_decisions",
    "read_texts",
    "read_vectors",
    "write_decisions",
]
