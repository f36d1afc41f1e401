"""Data sets below TRIVET_DATA as the studies read them, features of pretrained networks, and a plain training."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from trivet.datasets.download import find_root
from trivet.samplers import PKBatches

Array = np.ndarray[Any, np.dtype[Any]]
Pictures = Sequence[Callable[[], Image.Image]]


def idx(name: str, part: str = "t10k") -> tuple[Array, Array]:
    """Images `(N, 28, 28)` in bytes and labels `(N,)` of MNIST or Fashion-MNIST; "train" or "t10k"."""
    root = find_root(None) / name
    with gzip.open(root / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(root / f"{part}-labels-idx1-ubyte.gz") as file:
        return images, np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)


def cub_archive() -> tuple[zipfile.ZipFile, list[str]]:
    """Images of the first fifty classes of CUB-200-2011, 128 pixels, and their sorted names; folders are classes."""
    archive = zipfile.ZipFile(find_root(None) / "cub" / "CUB_200_2011_first50_128px.zip")
    return archive, sorted(name for name in archive.namelist() if name.endswith(".jpg"))


def cifar_archive() -> zipfile.ZipFile:
    """20,000 training and 10,000 test images of CIFAR-10."""
    return zipfile.ZipFile(find_root(None) / "cifar-n" / "cifar10_jpg_train20k_test10k.zip")


def cifar_rows(archive: zipfile.ZipFile) -> tuple[str, list[dict[str, str]]]:
    """The folder of the training images, and what is known of each, in the order of the published set."""
    table = next(name for name in archive.namelist() if name.endswith("train_index.csv"))
    rows = csv.DictReader(io.TextIOWrapper(archive.open(table)))
    return table.removesuffix("train_index.csv"), sorted(rows, key=lambda row: int(row["original_index"]))


def picture(archive: zipfile.ZipFile, name: str) -> Callable[[], Image.Image]:
    """The middle square of an image in an archive, when called."""

    def read() -> Image.Image:
        image = Image.open(io.BytesIO(archive.read(name))).convert("RGB")
        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        return image.crop((left, top, left + side, top + side))

    return read


def texts(data: str, part: str = "train") -> list[tuple[str, str]]:
    """The texts of CLINC150 or BANKING77 with their intents; "train" or "test"."""
    root = find_root(None) / data
    if data == "clinc150":
        return [(text, intent) for text, intent in json.loads((root / "data_full.json").read_text("utf-8"))[part]]
    with (root / f"{part}.csv").open(newline="", encoding="utf-8") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def clinc_domains() -> dict[str, str]:
    """Intent -> domain."""
    domains = json.loads((find_root(None) / "clinc150" / "domains.json").read_text())
    return {intent: name for name, intents in domains.items() for intent in intents}


def docstrings(packages: Sequence[str]) -> Iterator[tuple[str, type[ast.AST], str]]:
    """Docstrings of functions and classes of installed packages: subpackage, kind of node and text, tests left out."""
    root = Path(np.__file__).parents[1]
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            section = "/".join(path.relative_to(root).parts[:2])
            if "test" in str(path.relative_to(root)) or section.endswith(".py"):
                continue
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (SyntaxError, UnicodeDecodeError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and (text := ast.get_docstring(node)):
                    yield section, type(node), text


def encoded(encoder: Path, sentences: list[str]) -> Array:
    """Vectors by a folder of sentence-transformers, such as all-MiniLM-L6-v2."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(encoder), device="cpu").encode(sentences, batch_size=128, convert_to_numpy=True)


def pooled(weights: Path, images: Pictures, side: int) -> Array:
    """The mean of the last features `(N, 1280)` of EfficientNet-Lite0 of images scaled to `side`."""
    import timm
    from safetensors.torch import load_file

    network: nn.Module = timm.create_model("tf_efficientnet_lite0")
    network.load_state_dict(load_file(weights))
    network, rows = network.eval().to(memory_format=torch.channels_last), []
    for start in range(0, len(images), 64):
        scaled = [image().resize((side, side), Image.Resampling.BICUBIC) for image in images[start : start + 64]]
        pixels = torch.from_numpy(np.stack([np.asarray(one) for one in scaled])).permute(0, 3, 1, 2)
        batch = ((pixels.float() / 255) - 0.5) / 0.5
        with torch.inference_mode():
            found = network.forward_features(batch.contiguous(memory_format=torch.channels_last))
        rows.append(found.mean((2, 3)).numpy())
    return np.concatenate(rows)


def descend(
    model: nn.Module | Callable[[torch.Tensor], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    loss: nn.Module,
    batches: PKBatches,
    inputs: Array,
    labels: Array,
    steps: int,
) -> None:
    """So many steps of training on batches of items."""
    for step in range(steps):
        rows = batches.batch(*divmod(step, batches.steps_per_epoch))
        value = loss(model(torch.from_numpy(inputs[rows])), torch.from_numpy(labels[rows]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def write_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
