"""Embeddings of texts or images by encoders on disk, such as those before and after a fine-tuning elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.commands.shared_options import ItemOptions
from trivet.config.base import nearest
from trivet.datasets import Dataset, load_images
from trivet.datasets.judged_pairs import sides_of_cells
from trivet.datasets.pair_contents import pair_items
from trivet.datasets.pair_vectors import paired_vectors
from trivet.datasets.pairs_config import LEVEL, PairsConfig
from trivet.datasets.preview import Preview
from trivet.datasets.texts import vectors_of
from trivet.datasets.vectors import VectorInputs
from trivet.io.beir import is_beir
from trivet.io.embedding_table import Vectors
from trivet.io.image_file import Frame
from trivet.io.overwrite_guard import is_run_folder, sharded
from trivet.io.read_embeddings import read_texts, read_vectors
from trivet.models import Embedder, TextEmbedder, encoder_vectors, load_model
from trivet.models.backbones import read_backbone
from trivet.runtime.progress import reporter
from trivet.runtime.text import typed
from trivet.training.embed_dataset import check_embedded, embed, label_names
from trivet.training.run_folder import RunFolder

WEIGHTS = (".safetensors", ".pt", ".pth", ".bin")  # suffixes of files of a backbone
TEXT_FOLDER = ("modules.json", "config.json")  # one of them is in the folder of a text network


class EmbeddingReader:
    """Reads embeddings, and makes those of the items of a request by encoders, each once.

    A path is an encoder where there are items: a folder, unless of shards, or a file of weights.

    Args:
        request: which items.
        table: of the pairs whose vectors are given.

    Attributes:
        show: position of an image -> what a page shows of it; None for other items.
    """

    def __init__(self, request: ItemOptions, table: Path | None = None) -> None:
        self._request = request
        self._table = request.texts if request.left_vectors is None else table
        self._pairs = dict[str | None, Vectors]()
        self._sides = dict[Path, tuple[Path, Path]]()
        self._made: dict[tuple[Path, str | None], npt.NDArray[Any]] = {}
        self._images: dict[Path, tuple[Embedder, Dataset]] = {}
        self.show: Callable[[int], Preview | None] | None = None

    def encodes(self, path: Path) -> bool:
        """Return whether a path is an encoder."""
        if path in self._sides:
            return True
        if self._request.texts is None and self._request.images is None:
            return False
        return path.suffix.lower() in WEIGHTS if path.is_file() else not sharded(path)

    def __call__(
        self, path: Path, *, levels: Sequence[str] | None = None, split: str | None = None, others: bool = False
    ) -> Vectors:
        """The rows of a path, as `read_vectors`; of an encoder those of the items.

        Raises:
            ValueError: if an encoder cannot be read or does not take such items, or as `read_vectors`.
        """
        return self.embedded(path, self.items(path, levels=levels, split=split, others=others), split)

    def items(
        self, path: Path, *, levels: Sequence[str] | None = None, split: str | None = None, others: bool = False
    ) -> Vectors:
        """Read what is known of the rows of a path; of an encoder the embeddings are `(N, 0)`, as none is made yet."""
        request = self._request
        if self._of_pairs and self.encodes(path):
            if named := [level for level in levels or () if level != LEVEL]:
                raise ValueError(f"pairs have no labels: got --labels {named[0]}; leave it out, or --pairs.")
            if split not in self._pairs:
                self._pairs[split] = pair_items(self._config(), split)
            return replace(self._pairs[split], name=self.name(path))
        if not self.encodes(path):
            names = (*TEXT_FOLDER, "model.json")
            if is_run_folder(path) and not (path / "config.toml").exists() and any((path / n).is_file() for n in names):
                raise ValueError(f"{path} is an encoder: give what it embeds with --texts FILE or --images FOLDER.")
            choice, skip = request.choice, request.skip_empty
            return read_vectors(path, levels=levels, tags=request.tags, choice=choice, split=split, skip_empty=skip)
        if request.texts is not None:
            return read_texts(
                request.texts,
                text=request.text or "text",
                levels=levels,
                tags=request.tags,
                split=split,
                others=others,
                skip_empty=request.skip_empty,
            )
        if split is not None:
            raise ValueError("--split is for items of a file: a folder of images has none; leave it out.")
        return self._of_images(path, levels or ())

    def embedded(self, path: Path, items: Vectors, split: str | None) -> Vectors:
        """The items of a path with their embeddings, of an encoder those that it makes."""
        if not self.encodes(path):
            return items
        if (path, split) not in self._made:
            if path in self._sides:
                rows = paired_vectors(self._config(path), items).embeddings
            elif path in self._images:
                model, dataset = self._images[path]
                rows = embed(model, dataset.inputs, reporter(f"embedding by {path.name}"))
                check_embedded(rows, dataset.ids)
            else:
                cells = items.labels.get(LEVEL)
                rows = embedded_texts(path, list(items.texts or ()), None if cells is None else sides_of_cells(cells))
            self._made[path, split] = rows
        return replace(items, name=self.name(path), embeddings=self._made[path, split])

    def of_sides(self, left: Sequence[Path], right: Sequence[Path]) -> list[Path]:
        """The paths by which embeddings of pairs are read whose vectors are in a file of each side."""
        both = {Path(f"{files[0]}, {files[1]}"): files for files in zip(left, right, strict=True)}
        self._sides |= both
        return [*both]

    def name(self, path: Path) -> str:
        """The name of a path on a page; that of both files of vectors of pairs."""
        return ", ".join(file.name for file in self._sides.get(path, (path,)))

    @property
    def _of_pairs(self) -> bool:
        request = self._request
        named = request.pairs or any(value is not None for value in (request.left, request.right, request.relevant))
        return self._table is not None and (named or bool(self._sides) or is_beir(self._table))

    def _config(self, path: Path | None = None) -> PairsConfig:
        """The settings of the pairs, with the vectors of both sides where a path stands for these."""
        request, table = self._request, self._table
        assert table is not None
        return PairsConfig(
            path=table,
            left=request.left,
            right=request.right,
            relevant=request.relevant,
            left_vectors=None if path is None else self._sides[path][0],
            right_vectors=None if path is None else self._sides[path][1],
            skip_empty=request.skip_empty,
        )

    def _of_images(self, path: Path, levels: Sequence[str]) -> Vectors:
        assert self._request.images is not None
        if path not in self._images:
            model = image_encoder(path, self._request.network)
            frame = Frame.of(model.input_shape, model.resize)
            self._images[path] = model, load_images(self._request.images, frame, reporter("reading images"))
        dataset = self._images[path][1]
        self.show = dataset.show
        labels = {level: np.array(names) for level, names in label_names(dataset).items()}
        lacking = [level for level in levels if level not in labels]
        if lacking:
            raise ValueError(
                f"each label level must be one of the folders of images: there is no {lacking[0]!r}; "
                f"{nearest(lacking[0], labels)}"
            )
        unread = len(dataset.skipped)
        return Vectors(
            name=path.name,
            embeddings=np.empty((len(dataset), 0), np.float32),
            labels=labels,
            ids=np.array(dataset.ids),
            rows=np.arange(len(dataset)),
            columns=tuple(labels),
            notes=(f"{unread} images could not be read and were left out.",) if unread else (),
        )


def embedded_texts(
    path: Path, texts: list[str], sides: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.floating]:
    """Embeddings `(N, d)` of texts by a model of Trivet, sentence-transformers or transformers.

    Args:
        sides: of pairs, `(N,)` 0 for a text of the left side and 1 for one of the right side.
    """
    progress = reporter(f"embedding by {path.name}")
    rows: npt.NDArray[np.floating]
    if _of_trivet(path):
        model = load_model(path)
        config = RunFolder.open(path).config() if is_run_folder(path) and (path / "config.toml").exists() else None
        kinds = ("texts",) if config is None else config.data.side_kinds or (config.data.item_kind,)
        if len(model.networks) > 1 and (sides is None or {*kinds} != {"texts"}):
            raise ValueError(
                f"the networks of {path} take {' and '.join(kinds)} of pairs: embed each side with trivet embed "
                f"{typed(path)} FILE --side left and --side right, and give both with --left-vectors and "
                "--right-vectors."
            )
        numbers = np.zeros(len(texts), np.int64) if len(model.networks) == 1 or sides is None else sides
        rows = np.empty((len(texts), 0))
        for side, network in enumerate(model.networks):
            of_side = np.flatnonzero(numbers == side)
            some = [texts[row] for row in of_side.tolist()]
            if isinstance(network, TextEmbedder):
                made = network.embed(some)
            elif config is not None and {*kinds} == {"texts"}:  # a network on their n-grams
                inputs = VectorInputs(vectors_of(config.data, some), some, np.arange(len(some)), path)
                made = embed(network, inputs, progress)
            else:
                raise ValueError(
                    f"--texts needs a model of texts: that of {path} takes others; give --images, or a file."
                )
            rows = rows if rows.size else np.empty((len(texts), made.shape[1]), made.dtype)
            rows[of_side] = made
    elif path.is_dir() and any((path / name).is_file() for name in TEXT_FOLDER):
        rows = encoder_vectors(texts, str(path), progress)
    else:
        raise ValueError(
            "--texts needs the folder of a model of sentence-transformers, transformers or Trivet: "
            f"{path} has no {', '.join(TEXT_FOLDER)} or model.json; check the path."
        )
    check_embedded(rows, [f"text {row}" for row in range(len(rows))])
    return rows


def image_encoder(path: Path, network: str | None) -> Embedder:
    """The model of Trivet, or the backbone of timm or torchvision, of a path."""
    if not _of_trivet(path):
        return read_backbone(path, network)
    model = load_model(path)
    if len(model.input_shape) != 3:
        raise ValueError(f"--images needs a model of images: that of {path} takes others; give --texts, or a file.")
    return model


def _of_trivet(path: Path) -> bool:
    return any((path / name).is_file() for name in ("model.json", "model/model.json"))
