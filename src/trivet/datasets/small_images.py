"""Small images of one size: the digits of scikit-learn, MNIST, Fashion-MNIST and Omniglot."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from PIL import Image
from pydantic import model_validator

from trivet.datasets.archives import LARGEST, Tree
from trivet.datasets.config import Channels, DatasetEntry, ImagesConfig, Side
from trivet.datasets.dataset import Dataset, Splits, choose_level
from trivet.datasets.download import fetch_by_torchvision
from trivet.datasets.image_decoding import CHUNK, Progress
from trivet.datasets.image_files import path_levels
from trivet.datasets.inputs import in_memory
from trivet.datasets.published import find_published
from trivet.io.image_file import open_image

ALPHABETS = ("images_background", "images_evaluation")  # of Omniglot: trained on, unseen


class LabelLevels(NamedTuple):
    """Two label levels, the coarse class of each of ten fine ones, and the fine ones that are not trained on."""

    coarse: str
    fine: str
    coarse_names: tuple[str, ...]
    coarse_of: tuple[int, ...]
    fine_names: tuple[str, ...]
    unseen: tuple[int, ...]

    def dataset(self, config: SquareConfig, images: np.ndarray, white: float, fine: np.ndarray, id: str) -> Dataset:
        """All images `(N, H, H)` of bytes, whose ids are made from their number by `id`."""
        return Dataset(
            name=config.name,
            inputs=in_memory(average_pool(images, config.image_size), white=white, channels=config.channels),
            labels={self.coarse: np.array(self.coarse_of)[fine], self.fine: fine},
            names={self.coarse: self.coarse_names, self.fine: self.fine_names},
            ids=tuple(id.format(row) for row in range(len(images))),
        )


DIGIT_LEVELS = LabelLevels("parity", "digit", ("even", "odd"), (0, 1) * 5, tuple("0123456789"), (6, 7, 8, 9))
CLOTHING_LEVELS = LabelLevels(
    "group",
    "item",
    ("top", "trousers or dress", "shoe", "bag"),
    (0, 1, 0, 1, 0, 2, 0, 2, 3, 2),
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    (4, 6, 9),
)


class SquareConfig(ImagesConfig):
    """Settings of images of one size that are average-pooled to a smaller one."""

    channels: Channels = 1
    side: ClassVar[int]

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.side % self.image_size:
            sizes = ", ".join(str(size) for size in range(2, self.side + 1) if self.side % size == 0)
            raise ValueError(
                f"image_size must divide {self.side} for {self.name}: got {self.image_size}; use one of {sizes}."
            )
        return self


class DigitsConfig(SquareConfig):
    """The 8x8 digits; a size of 2 or 4 pixels is an average."""

    name: Literal["digits"] = "digits"
    image_size: Side = 8
    side = 8


def load_digits(config: DigitsConfig, data_root: Path, progress: Progress | None) -> Splits:
    """Digits with levels parity > digit.

    Of digits 0-5, shuffled by RandomState(0), the first 60 % are trained on (649) and the rest are "seen" (434);
    digits 6-9 are "unseen" (714).
    """
    from sklearn.datasets import load_digits as bundled_digits

    bundle = bundled_digits()
    images, digit = bundle.images.astype(np.uint8), bundle.target.astype(np.int64)
    items = DIGIT_LEVELS.dataset(config, images, 16, digit, "digits/{:04d}")
    trained = np.random.RandomState(0).permutation(np.flatnonzero(digit <= 5))
    count = int(0.6 * len(trained))
    return Splits(
        train=items.subset(trained[:count]),
        evaluation={"seen": items.subset(trained[count:]), "unseen": items.subset(np.flatnonzero(digit >= 6))},
        level=choose_level(config.level, items.labels),
    )


class IdxConfig(SquareConfig):
    """Settings of images of 28x28 pixels; a size of 2, 4, 7 or 14 is an average."""

    image_size: Side = 28
    side = 28
    kind: ClassVar[LabelLevels]


class MnistConfig(IdxConfig):
    """MNIST."""

    name: Literal["mnist"] = "mnist"
    kind = DIGIT_LEVELS


class FashionMnistConfig(IdxConfig):
    """Fashion-MNIST."""

    name: Literal["fashion-mnist"] = "fashion-mnist"
    kind = CLOTHING_LEVELS


IDX_FILES = tuple(f"{subset}-{kind}-ubyte" for subset in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


def load_mnist(config: IdxConfig, data_root: Path, progress: Progress | None) -> Splits:
    """MNIST with levels parity > digit, or Fashion-MNIST with levels group > item.

    The groups: tops (T-shirt/top, Pullover, Coat, Shirt), trousers or dress, shoes (Sandal, Sneaker, Ankle boot), bag.
    Trained on: training images of digits 0-5, or of all items but Coat, Shirt and Ankle boot; "seen": test images of
    these; "unseen": test images of the others, of items of trained groups.
    """
    tree = find_published(
        config,
        data_root,
        [f"{file}.gz" for file in IDX_FILES],
        lambda tree: all(tree.has(f"{file}.gz") or tree.has(file) for file in IDX_FILES),
    )
    kind, datasets = config.kind, []
    for prefix, subset in (("train", "train"), ("t10k", "test")):
        images, labels = read_idx(tree, f"{prefix}-images-idx3-ubyte"), read_idx(tree, f"{prefix}-labels-idx1-ubyte")
        if images.shape[1:] != (28, 28) or len(images) != len(labels) or labels.max(initial=0) > 9:
            raise ValueError(
                f"{prefix}-images and {prefix}-labels of {tree.root} must hold 28x28 images and as many labels 0 to 9: "
                f"got shapes {images.shape} and {labels.shape}, largest label {labels.max(initial=0)}; download both "
                "again."
            )
        datasets.append(kind.dataset(config, images, 255, labels.astype(np.int64), subset + "/{:05d}"))
    train, test = datasets
    tested = np.isin(test.labels[kind.fine], kind.unseen)
    return Splits(
        train=train.subset(np.flatnonzero(~np.isin(train.labels[kind.fine], kind.unseen))),
        evaluation={"seen": test.subset(np.flatnonzero(~tested)), "unseen": test.subset(np.flatnonzero(tested))},
        level=choose_level(config.level, train.labels),
    )


def read_idx(tree: Tree, name: str) -> np.ndarray:
    """An idx file of unsigned bytes of the dimensions that its name ends in (idx3), as it is or as `name`.gz.

    Raises:
        ValueError: if the file is not of this format, or is shorter or longer than its header says.

    Source:
        LeCun, Cortes, Burges, "The MNIST database": magic number 0, 0, 8 (unsigned byte), number of dimensions; then
        the sizes as big-endian 32-bit integers; then the values, last dimension fastest.
    """
    dimensions, packed = int(name.partition("-idx")[2][0]), tree.has(f"{name}.gz")
    file = f"{name}.gz" if packed else name
    data, start = tree.read(file), 4 + 4 * dimensions
    try:
        if packed:
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(LARGEST)
        if data[:4] != bytes((0, 0, 8, dimensions)):
            raise ValueError(f"it begins with {data[:4].hex(' ')}")
        shape = struct.unpack_from(f">{dimensions}I", data, 4)
        if math.prod(shape) != len(data) - start:
            raise ValueError(f"it holds {len(data) - start} bytes for an array of shape {shape}")
    except (EOFError, OSError, ValueError, struct.error, zlib.error) as error:
        raise ValueError(
            f"{tree.source(file)} must be a complete idx file of bytes with {dimensions} dimensions: {error}; download "
            "it again."
        ) from None
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def average_pool(images: np.ndarray, size: int) -> np.ndarray:
    """Means of equal square patches: `(N, 1, size, size)` from `(N, H, H)` uint8; the same values if H is `size`."""
    patch = images.shape[1] // size
    if patch == 1:
        return images[:, None]
    patches = images.reshape(len(images), size, patch, size, patch)
    return np.asarray(patches.mean(axis=(2, 4), dtype=np.float32))[:, None]


class OmniglotConfig(ImagesConfig):
    """Omniglot."""

    name: Literal["omniglot"] = "omniglot"
    image_size: Side = 28
    channels: Channels = 1


def load_omniglot(config: OmniglotConfig, data_root: Path, progress: Progress | None) -> Splits:
    """Omniglot with levels alphabet > character; a character is named "Latin/character03".

    Trained on: the 30 background alphabets; "unseen": the 20 evaluation alphabets. Images are resized by averaging
    (box filter) and inverted, so that ink is 1.
    """
    sources = []
    for subset in ALPHABETS:
        tree = find_published(config, data_root, (f"{subset}.zip",), partial(_drawings, subset))
        sources.append([(tree, subset, name) for name in _drawings(subset, tree)])
    names = [name for listed in sources for *_, name in listed]
    pixels = np.empty((len(names), 1, config.image_size, config.image_size), np.uint8)
    for i, (tree, subset, name) in enumerate([*sources[0], *sources[1]]):
        pixels[i, 0] = _decode(tree, f"{subset}/{name}", config.image_size)  # threads would wait for Python
        if progress is not None and ((i + 1) % CHUNK == 0 or i + 1 == len(names)):
            progress(i + 1, len(names))
    labels, classes = path_levels(names, ("alphabet", "character"))
    items = Dataset("omniglot", in_memory(pixels, white=255, channels=config.channels), labels, classes, tuple(names))
    training = np.arange(len(names)) < len(sources[0])
    return Splits(
        train=items.subset(np.flatnonzero(training)),
        evaluation={"unseen": items.subset(np.flatnonzero(~training))},
        level=choose_level(config.level, labels),
    )


def _drawings(subset: str, tree: Tree) -> list[str]:
    """The files ALPHABET/CHARACTER/NAME.png of a part."""
    return [name for name in tree.names(subset, (".png",), deep=True) if name.count("/") == 2]


def _decode(tree: Tree, name: str, size: int) -> np.ndarray:
    data = tree.read(name)
    try:
        with open_image(io.BytesIO(data), ("PNG",)) as image:
            if image.size != (105, 105):
                raise ValueError(f"it is {image.width} x {image.height} pixels, not 105 x 105")
            return ~np.asarray(image.convert("L").resize((size, size), Image.Resampling.BOX))
    except Exception as error:  # Pillow's readers raise many kinds on broken files
        raise ValueError(f"{tree.source(name)} must be an image of Omniglot: {error}; download it again.") from None


ENTRIES = {
    "digits": DatasetEntry(
        DigitsConfig,
        load_digits,
        description="1,797 digits of 8x8 pixels, part of scikit-learn",
        levels=("parity", "digit"),
        published="scikit-learn, from the UCI repository (CC BY 4.0)",
    ),
    "mnist": DatasetEntry(
        MnistConfig,
        load_mnist,
        description="70,000 digits of 28x28 pixels",
        levels=("parity", "digit"),
        published="LeCun, Cortes and Burges (CC BY-SA 3.0)",
        folders=("mnist", "MNIST/raw"),
        files=tuple(f"{file}.gz" for file in IDX_FILES),
        fetch=partial(fetch_by_torchvision, "MNIST", "MNIST/raw", [{}]),
    ),
    "fashion-mnist": DatasetEntry(
        FashionMnistConfig,
        load_mnist,
        description="70,000 pieces of clothing of 28x28 pixels",
        levels=("group", "item"),
        published="https://github.com/zalandoresearch/fashion-mnist (MIT)",
        folders=("fashion-mnist", "FashionMNIST/raw"),
        files=tuple(f"{file}.gz" for file in IDX_FILES),
        fetch=partial(fetch_by_torchvision, "FashionMNIST", "FashionMNIST/raw", [{}]),
    ),
    "omniglot": DatasetEntry(
        OmniglotConfig,
        load_omniglot,
        description="32,460 handwritten characters of 50 alphabets",
        levels=("alphabet", "character"),
        published="https://github.com/brendenlake/omniglot (MIT)",
        folders=("omniglot", "omniglot-py"),
        files=tuple(f"{subset}.zip" for subset in ALPHABETS),
        fetch=partial(fetch_by_torchvision, "Omniglot", "omniglot-py", ({"background": True}, {"background": False})),
    ),
}
