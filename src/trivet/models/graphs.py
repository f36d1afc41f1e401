"""Networks as graphs without Python code, for onnxruntime and `torch.export.load`; the batch is of any size."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trivet.distances import unit_rows
from trivet.models.embedder import Embedder
from trivet.models.pixels import in_unit_range
from trivet.models.text_network import TextEmbedder, pooled
from trivet.runtime.extras import load

OUTPUT = "embeddings"
IDS, MASK = "input_ids", "attention_mask"
EMBEDDED_WEIGHTS = 2**30  # bytes of weights up to which an ONNX graph holds them itself; two of these are its limit
LONGEST = 300  # characters of what a library says of an error

Feed = tuple[npt.NDArray[Any], ...]
Runner = Callable[[Feed], npt.NDArray[np.float32]]


class Graph(NamedTuple):
    """A network to export, with its inputs.

    Attributes:
        network: maps what `inputs` names to embeddings `(B, d)`.
        inputs: their names.
        example: of each of them a batch of two.
        dynamic: of each of them the dimensions that may be of any size.
    """

    network: nn.Module
    inputs: tuple[str, ...]
    example: tuple[Tensor, ...]
    dynamic: tuple[dict[int, Any], ...]


class TextGraph(nn.Module):
    """As a `TextEmbedder`, of token ids and of the mask that is 1 where there is a token, both `(B, L)` int64."""

    def __init__(self, model: TextEmbedder) -> None:
        super().__init__()
        self.encoder, self.head = model.encoder, model.body[1]  # type: ignore[index]  # a sequence
        self.normalize = model.normalize

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        tokens = self.encoder.network(input_ids=ids, attention_mask=mask).last_hidden_state
        embeddings: Tensor = self.head(pooled(tokens, mask > 0, self.encoder.pooling))
        return unit_rows(embeddings) if self.normalize else embeddings


def make_graph(model: Embedder) -> Graph:
    """The graph of a model; images are numbers from 0 to 1, as `Embedder` takes them."""
    model, any_size = copy.deepcopy(model).eval().requires_grad_(False), torch.export.Dim.DYNAMIC
    if isinstance(model, TextEmbedder):
        ids = torch.ones(2, min(5, model.input_shape[0]), dtype=torch.int64)
        mask = ids.clone()  # one tensor given twice would be one input
        mask[1, 1:] = 0
        return Graph(TextGraph(model), (IDS, MASK), (ids, mask), ({0: any_size, 1: any_size},) * 2)
    model.channels_last = False
    name = "images" if len(model.input_shape) == 3 else "vectors" if len(model.input_shape) == 1 else "inputs"
    plain = model.to(memory_format=torch.contiguous_format)
    return Graph(plain, (name,), (torch.rand(2, *model.input_shape),), ({0: any_size},))


def make_feed(inputs: Tensor) -> Feed:
    """Inputs of a graph from those of a model: token ids with their mask, or numbers from 0 to 1."""
    if inputs.dtype == torch.int64:
        there = inputs >= 0
        length = int(there.sum(dim=1).max())
        ids, there = inputs[:, :length], there[:, :length]
        return torch.where(there, ids, 0).numpy(), there.long().numpy()
    return (in_unit_range(inputs).float().numpy(),)


def write_onnx(graph: Graph, file: Path) -> None:
    """Write a graph for onnxruntime; weights beyond 1 GiB lie beside it, in `NAME.data`.

    Raises:
        ModuleNotFoundError: if onnx or onnxscript is not installed.
        ValueError: if the network cannot be written so; the sentence names an operator that ONNX lacks.
    """
    for library in ("onnx", "onnxscript"):
        load(library)
    size = sum(value.numel() * value.element_size() for value in graph.network.state_dict().values())
    try:
        with _quiet(), torch.no_grad():
            program: Any = torch.onnx.export(
                graph.network,
                graph.example,
                input_names=list(graph.inputs),
                output_names=[OUTPUT],
                dynamic_shapes=graph.dynamic,
                dynamo=True,
                verbose=False,
            )
            program.save(file, external_data=size > EMBEDDED_WEIGHTS)
    except OSError:
        raise
    except Exception as error:  # what a network can do wrong here, torch and onnxscript raise in many kinds
        if missing := re.search(
            r"No (?:ONNX function|decompositions?).*?OpOverload\(op='([^']+)'", _chained_text(error), re.S
        ):
            raise ValueError(
                f"ONNX must have every operator of the network: it has none for {missing[1]}; use another network, or "
                "--to torch-export."
            ) from None
        raise _untraced(error, "ONNX") from None


def write_torch(graph: Graph, file: Path) -> None:
    """Write a graph for `torch.export.load`.

    Raises:
        ValueError: if the network cannot be written so.
    """
    sink = io.BytesIO()  # onto a full disk torch's own writer ends the process
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(graph.network, graph.example, dynamic_shapes=graph.dynamic)
            torch.export.save(program, sink)
    except Exception as error:  # what a network can do wrong here, torch raises in many kinds
        raise _untraced(error, "torch.export") from None
    file.write_bytes(sink.getbuffer())


def onnx_runner(file: Path, inputs: Sequence[str]) -> Runner:
    """Runs a graph with onnxruntime on the CPU.

    Raises:
        ModuleNotFoundError: if onnxruntime is not installed.
        ValueError: if it cannot run the graph.
    """
    runtime = load("onnxruntime")
    try:
        session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises kinds of its own
        raise ValueError(
            f"onnxruntime must know every operator of the graph: {_first_cause(error)}; install a newer onnxruntime."
        ) from None

    def run(feed: Feed) -> npt.NDArray[np.float32]:
        (embeddings,) = session.run([OUTPUT], dict(zip(inputs, feed, strict=True)))
        return np.asarray(embeddings, np.float32)

    return run


def torch_runner(file: Path) -> Runner:
    """Runs a graph that `write_torch` wrote."""
    with _quiet():
        network = torch.export.load(file).module()

    def run(feed: Feed) -> npt.NDArray[np.float32]:
        with torch.no_grad():
            embeddings: Tensor = network(*map(torch.from_numpy, feed))
        return embeddings.numpy()

    return run


def _untraced(error: Exception, what: str) -> ValueError:
    return ValueError(
        f"the network must be one that {what} can write for batches of any size: {_first_cause(error)}; use another "
        "network, or --to safetensors."
    )


def _first_cause(error: Exception) -> str:
    """The kind of an error, and the beginning of what it says, of the first that led to it."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {(lines or ['no reason given'])[0][:LONGEST].rstrip('.')}"


def _chained_text(error: BaseException | None) -> str:
    """The messages of an error and of all its causes."""
    return "" if error is None else f"{error}\n{_chained_text(error.__cause__)}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of exporters about themselves."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [log.level for log in logs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for log in logs:
                log.setLevel(logging.CRITICAL)
            yield
        finally:
            for log, level in zip(logs, levels, strict=True):
                log.setLevel(level)
