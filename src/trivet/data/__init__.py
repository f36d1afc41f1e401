"""Labelled images, split into what is trained on and what is evaluated; embeddings made anywhere, with their labels."""

from trivet.data.augment import Augment, augmentation
from trivet.data.catalogue import Available, available, load
from trivet.data.config import DataConfig
from trivet.data.dataset import Dataset, Inputs, Skipped, Splits
from trivet.data.download import download
from trivet.data.folder import load_images
from trivet.data.root import find_root
from trivet.data.vectors import Vectors, class_numbers, read_vectors

__all__ = [
    "Augment",
    "Available",
    "DataConfig",
    "Dataset",
    "Inputs",
    "Skipped",
    "Splits",
    "Vectors",
    "augmentation",
    "available",
    "class_numbers",
    "download",
    "find_root",
    "load",
    "load_images",
    "read_vectors",
]
