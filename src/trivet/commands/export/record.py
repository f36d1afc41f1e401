"""The records of an exported model: what `--json` prints, and how inputs are prepared, `preprocessing.json`."""

from __future__ import annotations

from typing import Literal

from trivet.runtime.record import Number, Record

Form = Literal["onnx", "torch-export", "sentence-transformers", "safetensors"]


class ExportedModel(Record):
    """Files that were written, with their bytes, and how their embeddings differ from those of the run.

    `note` says why random inputs stood for items of the data; `largest_difference` is None where nothing was checked.
    """

    run: str
    to: Form
    output: str
    files: dict[str, int]
    checked: str
    items: int
    largest_difference: Number | None
    tolerance: Number
    note: str | None


class Preparation(Record):
    """Inputs and outputs of an exported model, by name; what is of texts or of images alone is not set for others."""

    trivet: str
    form: Form
    kind: Literal["images", "texts", "vectors", "inputs"]
    inputs: dict[str, str]
    prefix: str = ""
    tokenizer: str = ""
    max_tokens: int = 0
    padding_id: int = 0
    colours: Literal["RGB", "L"] = "RGB"
    resize_to_cover: list[int] = []
    centre_crop: list[int] = []
    interpolation: str = ""
    steps: list[str] = []
    normalisation: str = ""
    outputs: dict[str, str] = {}
    unit_length: bool = False
