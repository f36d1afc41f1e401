"""Data sets: items with labels at one or more levels, split into what is trained on and what is evaluated."""

from trivet.datasets.augment import Augment, augmentation
from trivet.datasets.catalogue import load, load_file, settings_for
from trivet.datasets.config import DATA_SETS, DataConfig
from trivet.datasets.dataset import Dataset, Inputs, Skipped, Splits, TrainingNoise
from trivet.datasets.download import download, find_root
from trivet.datasets.folder import FolderConfig, load_images
from trivet.datasets.inputs import FileInputs, in_memory
from trivet.datasets.label_noise import NoiseConfig, noise_summary
from trivet.datasets.small_images import DigitsConfig
from trivet.datasets.texts import TextInputs

__all__ = [
    "DATA_SETS",
    "Augment",
    "DataConfig",
    "Dataset",
    "DigitsConfig",
    "FileInputs",
    "FolderConfig",
    "Inputs",
    "NoiseConfig",
    "Skipped",
    "Splits",
    "TextInputs",
    "TrainingNoise",
    "augmentation",
    "download",
    "find_root",
    "in_memory",
    "load",
    "load_file",
    "load_images",
    "noise_summary",
    "settings_for",
]
