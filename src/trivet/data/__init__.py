"""Data sets: items with labels at one or more levels, split into what is trained on and what is evaluated."""

from trivet.data.augment import Augment, augmentation
from trivet.data.catalogue import DATA_SETS, load, load_file, settings_for
from trivet.data.config import DataConfig
from trivet.data.dataset import Dataset, Inputs, Skipped, Splits, TrainingNoise
from trivet.data.digits import DigitsConfig
from trivet.data.download import download
from trivet.data.folder import FolderConfig, labelled_images, list_images, load_images
from trivet.data.inputs import FileInputs, in_memory
from trivet.data.noise import NoiseConfig, noise_summary
from trivet.data.root import find_root
from trivet.data.text_inputs import TextInputs

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
    "labelled_images",
    "list_images",
    "load",
    "load_file",
    "load_images",
    "noise_summary",
    "settings_for",
]
