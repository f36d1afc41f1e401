"""`trivet export`: a trained network in a form that needs no Trivet, checked against the run's own embeddings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trivet.commands.export.card import model_card
from trivet.commands.export.options import ModelForm
from trivet.commands.export.record import ExportedModel, Preparation
from trivet.commands.export.snippets import snippet
from trivet.commands.network_of_side import network_of_side
from trivet.datasets.sides import positions_of_sides, sides_of
from trivet.io.atomic_files import atomic_folder
from trivet.io.image_file import Frame
from trivet.io.read_embeddings import read_vectors
from trivet.models import Embedder, ModelConfig, SideName, TextEmbedder, load_model, save
from trivet.models.graphs import (
    OUTPUT,
    Feed,
    Runner,
    make_feed,
    make_graph,
    onnx_runner,
    torch_runner,
    write_onnx,
    write_torch,
)
from trivet.models.sentence_folder import write_sentence_folder
from trivet.models.store import DESCRIPTION, WEIGHTS
from trivet.models.text_folder import quiet
from trivet.models.text_network import ARCHITECTURE, TOKENIZER
from trivet.models.towers import SIDES
from trivet.runtime.extras import installed, load
from trivet.runtime.progress import announce, reporter
from trivet.runtime.version import __version__
from trivet.training.components import load_splits
from trivet.training.embed_dataset import embed
from trivet.training.run_folder import RunFolder, trained_model

ONNX, TORCH, CARD, PREPROCESSING = "model.onnx", "model.pt2", "README.md", "preprocessing.json"
NAMES = frozenset(
    (
        *(CARD, PREPROCESSING, ONNX, f"{ONNX}.data", TORCH, TOKENIZER, DESCRIPTION, WEIGHTS, ARCHITECTURE),
        *("config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
        *("tokenizer_config.json", "special_tokens_map.json", "1_Pooling", "2_Dense", "3_Dense"),
        *("2_Normalize", "3_Normalize", "4_Normalize"),
    )
)
INSIDE = ("1_Pooling/config.json", *(f"{n}_Dense/{file}" for n in (2, 3) for file in ("config.json", WEIGHTS)))
TOLERANCE = 1e-4
SAMPLE = 64  # items that are compared


class DiffersError(Exception):
    """The exported model gives other embeddings than the run."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Items that the run and what is exported must embed alike.

    Attributes:
        inputs: what the network takes, `(N, ...)`.
        expected: their embeddings `(N, d)`.
        texts: of a network of texts.
        of: what they are, such as "64 items of unseen".
        note: why they are no items of the data; None where they are.
    """

    inputs: Tensor
    expected: npt.NDArray[np.float32]
    texts: Sequence[str]
    of: str
    note: str | None = None


def export_run(
    path: Path,
    to: ModelForm,
    output: Path,
    *,
    side: SideName | None = None,
    force: bool = False,
    data_root: Path | None = None,
) -> ExportedModel:
    """Write the model of a run as a folder of another form, with a card; returns what was written and how it differs.

    Up to 64 items of the main evaluation split are embedded by what was written, in batches of 1, of 2 and of the rest,
    and compared with the embeddings that the run kept. Where the data cannot be read, random inputs stand for them.

    Args:
        side: of a run with a network of each side, the one that is written.
        to: "onnx", "torch-export", "sentence-transformers" (of texts only) or "safetensors", a folder for `load_model`.

    Raises:
        ValueError, OSError: if the run or the output cannot be used, or the model has no such form.
        ModuleNotFoundError: if a library that the form needs is not installed.
        DiffersError: if an embedding differs by more than 1e-4 of the longest; nothing is left behind.
    """
    run = RunFolder.open(path)
    config, record, towers = run.config(), run.record(), trained_model(run)
    if side is None and len(towers.networks) > 1:
        raise ValueError(
            f"the run {path} has a network of each side: say which is to be written with --side left or --side right."
        )
    model = network_of_side(run, towers, side, lambda: config.data.item_kind).network
    number = 0 if side is None else SIDES.index(side)
    settings = config.model.networks[number]
    if len(model.input_shape) == 3:
        model.resize = getattr(config.data, "resize", None)
    _check_form(to, model, run)
    sample = _sample(run, towers, number, data_root)
    with atomic_folder(output, NAMES, mark=PREPROCESSING, what="an exported model", force=force) as folder:
        checked, worst = _written(to, model, settings, sample, folder)
        if worst is not None and not worst <= TOLERANCE:
            raise DiffersError(
                f"what is exported must embed as the run does: the largest difference is {worst:.2g}, above "
                f"{TOLERANCE:g}, on {sample.of}; nothing was written. Try another --to, or evaluate the run again."
            )
        preparation = preprocessing(to, model)
        described = json.dumps(preparation.as_json(unset=False), indent=2)
        (folder / PREPROCESSING).write_text(described + "\n", encoding="utf-8")
        use = snippet(preparation, settings.name)
        card = model_card(record, title=run.name, use=use, checked=checked)
        (folder / CARD).write_text(card, encoding="utf-8")
        files = {
            file.relative_to(folder).as_posix(): file.stat().st_size
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }
    return ExportedModel(
        run=str(path),
        to=to,
        output=str(output),
        files=files,
        checked=checked,
        items=len(sample.expected),
        largest_difference=worst,
        tolerance=TOLERANCE,
        note=sample.note,
    )


def _check_form(to: ModelForm, model: Embedder, run: RunFolder) -> None:
    """Before any work: whether the model has the form, and what writes it is installed."""
    if to == "sentence-transformers" and not isinstance(model, TextEmbedder):
        raise ValueError(
            f'sentence-transformers takes networks of texts (model.name = "text:..."): {run.path} has none; use --to '
            "onnx or safetensors."
        )
    needed = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "sentence-transformers": ("transformers", "tokenizers")}
    for library in needed.get(to, ()):
        load(library)


def _written(
    to: ModelForm, model: Embedder, config: ModelConfig, sample: Sample, folder: Path
) -> tuple[str, float | None]:
    """Write the files of the form; how that was checked, and the largest difference."""
    announce(f"writing {to}")
    if to in ("onnx", "torch-export"):
        graph = make_graph(model)
        if to == "onnx":
            write_onnx(graph, folder / ONNX)
            runner, by = onnx_runner(folder / ONNX, graph.inputs), "onnxruntime"
        else:
            write_torch(graph, folder / TORCH)
            runner, by = torch_runner(folder / TORCH), "torch.export.load"
        if isinstance(model, TextEmbedder):
            (folder / TOKENIZER).write_text(model.tokenizer.to_json(), encoding="utf-8")
        worst = _difference([_run(runner, make_feed(sample.inputs[rows])) for rows in _batches(sample)], sample)
    elif to == "safetensors":
        save(model, config, model.input_shape, folder)
        again, by = load_model(folder), "trivet.models.load_model"
        with torch.no_grad():
            worst = _difference([again(sample.inputs[rows]).numpy() for rows in _batches(sample)], sample)
    else:
        assert isinstance(model, TextEmbedder)
        write_sentence_folder(model, folder)
        if not installed("sentence_transformers"):
            return "Not checked, because sentence-transformers is not installed: pip install 'trivet[text]'.", None
        with quiet(load("transformers")):
            reader = load("sentence_transformers").SentenceTransformer(str(folder), device="cpu")
        texts = [[sample.texts[row] for row in rows.tolist()] for rows in _batches(sample)]
        worst = _difference([reader.encode(some, show_progress_bar=False) for some in texts], sample)
        by = "sentence-transformers"
    checked = (
        f"Checked by {by}, in batches of several sizes, on {sample.of}: the largest difference to the "
        f"embeddings of the run is {worst:.1e}."
    )
    return checked, worst


def _sample(run: RunFolder, towers: Embedder, number: int, data_root: Path | None) -> Sample:
    """Items of the main evaluation split with their embeddings, or random ones where the data cannot be read.

    Args:
        number: of the network among those of the model of the run; items are of its side.
    """
    model = towers.networks[number]
    try:
        splits = load_splits(run.config(), data_root, reporter("reading images"), tokenize=towers.tokenize)
        split = next(iter(splits.evaluation), "train")
        dataset = splits.evaluation.get(split, splits.train)
        if dataset.inputs.shape != towers.input_shape:
            raise ValueError(f"its inputs have the shape {dataset.inputs.shape} now")
    except (ValueError, OSError) as error:
        return _random(model, f"the data of the run cannot be read ({' '.join(str(error).split())})")
    of_side = positions_of_sides(dataset.inputs)[number]
    rows = of_side[np.unique(np.linspace(0, len(of_side) - 1, min(SAMPLE, len(of_side))).astype(np.int64))]
    inputs = sides_of(dataset.subset(rows).inputs)[number]
    stored = _stored_embeddings(run, split, [dataset.ids[row] for row in rows.tolist()])
    return Sample(
        inputs.batch(np.arange(len(rows))),
        embed(model, inputs) if stored is None else stored,
        [str(inputs.show(i)) for i in range(len(rows))] if model.tokenize else (),
        f"{len(rows)} items of {split}" + ("" if stored is not None else ", embedded anew"),
    )


def _stored_embeddings(run: RunFolder, split: str, ids: Sequence[str]) -> npt.NDArray[np.float32] | None:
    """The embeddings of these items that the run kept; None if it has not those of all."""
    if not (run.path / "embeddings" / f"{split}.parquet").is_file():
        return None
    vectors = read_vectors(run.path, split=split)
    positions = {} if vectors.ids is None else {str(id): position for position, id in enumerate(vectors.ids)}
    if not all(id in positions for id in ids):
        return None
    return np.asarray(vectors.embeddings[[positions[id] for id in ids]], np.float32)


def _random(model: Embedder, why: str) -> Sample:
    draws, texts = torch.Generator().manual_seed(0), []
    if isinstance(model, TextEmbedder):
        rules = model.tokenizer.rules
        for length in torch.randint(1, 1 + min(32, model.input_shape[0]), (SAMPLE,), generator=draws).tolist():
            ids = torch.randint(rules.get_vocab_size(), (length,), generator=draws).tolist()
            texts.append(rules.decode(ids) or "a")
        inputs = model.tokens(texts)
    elif len(model.input_shape) == 3:
        inputs = torch.rand(SAMPLE, *model.input_shape, generator=draws)
    else:
        inputs = torch.randn(SAMPLE, *model.input_shape, generator=draws)
    with torch.no_grad():
        expected = model(inputs).numpy()
    return Sample(inputs, expected, texts, f"{SAMPLE} random inputs", why)


def _batches(sample: Sample) -> list[npt.NDArray[np.int64]]:
    """Rows in batches of 1, of 2 and of the rest."""
    return [rows for rows in np.split(np.arange(len(sample.expected)), (1, 3)) if len(rows)]


def _difference(batches: Sequence[npt.NDArray[Any]], sample: Sample) -> float:
    """The largest difference of a number of an embedding, as a share of the longest embedding; NaN where one is NaN."""
    longest = float(np.linalg.norm(sample.expected, axis=1).max())
    embeddings = np.concatenate([np.asarray(batch, np.float32) for batch in batches])
    if embeddings.shape != sample.expected.shape:
        return float("inf")
    return float(np.abs(embeddings - sample.expected).max() / (longest or 1.0))


def _run(runner: Runner, feed: Feed) -> npt.NDArray[np.float32]:
    try:
        return runner(feed)
    except Exception as error:  # whatever runs the graph raises kinds of its own
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise ValueError(
            "what is exported must run for batches of any size: it fails for "
            f"{len(feed[0])} ({type(error).__name__}: {reason}); use another --to."
        ) from None


def preprocessing(to: ModelForm, model: Embedder) -> Preparation:
    """Description of the inputs and outputs of an exported model, and of how inputs are prepared."""
    inputs = torch.zeros(1, *model.input_shape)
    prepare = partial(Preparation, trivet=__version__, form=to)
    if isinstance(model, TextEmbedder):
        about = prepare(
            kind="texts",
            inputs={"input_ids": "int64 (batch, length)", "attention_mask": "int64 (batch, length), 1 for a token"},
            prefix=model.tokenizer.prefix,
            tokenizer=TOKENIZER,
            max_tokens=model.tokenizer.max_tokens,
            padding_id=model.encoder.pad_token_id,
        )
        inputs = torch.zeros(1, 1, dtype=torch.int64)
    elif len(model.input_shape) == 3:
        frame = Frame.of(model.input_shape, model.resize)
        about = prepare(
            kind="images",
            inputs={"images": f"float32 (batch, {', '.join(map(str, frame.shape))}) from 0 to 1"},
            colours="RGB" if frame.channels == 3 else "L",
            resize_to_cover=list(frame.cover),
            centre_crop=list(frame.size),
            interpolation="bicubic",
            steps=[
                "turn upright as EXIF says; put what is transparent on white",
                f"convert to {'RGB' if frame.channels == 3 else 'grey'}",
                f"resize to cover height and width {list(frame.cover)} and cut the centre of that size",
                f"cut the centre of height and width {list(frame.size)}",
                "divide by 255",
            ],
            normalisation="in the network",
        )
    else:
        kind: Literal["vectors", "inputs"] = "vectors" if len(model.input_shape) == 1 else "inputs"
        shape = ", ".join(map(str, model.input_shape))
        about = prepare(kind=kind, inputs={kind: f"float32 (batch, {shape}), as in training"})
    with torch.no_grad():
        about.outputs = {OUTPUT: f"float32 (batch, {model(inputs).shape[1]})"}
    about.unit_length = model.normalize
    return about
