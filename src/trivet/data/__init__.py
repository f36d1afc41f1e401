"""Data sets: items with labels at one or more levels, split into what is trained on and what is evaluated."""

from trivet.data.augment import Augment, augmentation
from trivet.data.catalogue import Available, available, load
from trivet.data.config import DataConfig
from trivet.data.dataset import Dataset, Inputs, Skipped, Splits, TrainingNoise
from trivet.data.download import download
from trivet.data.folder import load_images
from trivet.data.noise import NoiseConfig, noise_summary
from trivet.data.root import find_root

__all__ = [
    "Augment",
    "Available",
    "DataConfig",
    "Dataset",
    "Inputs",
    "NoiseConfig",
    "Skipped",
    "Splits",
    "TrainingNoise",
    "augmentation",
    "available",
    "download",
    "find_root",
    "load",
    "load_images",
    "noise_summary",
]
