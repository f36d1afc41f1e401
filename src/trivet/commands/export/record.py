"""The records of an export: what `--json` prints, and how inputs of a model are prepared, `preprocessing.json`."""

from __future__ import annotations

from typing import Literal

from trivet.commands.export.options import ModelForm, TableForm
from trivet.metrics.points import Metric
from trivet.runtime.record import Number, Record


class ExportedModel(Record):
    """Files that were written, with their bytes, and how their embeddings differ from those of the run.

    `note` says why random inputs stood for items of the data; `largest_difference` is None where nothing was checked.
    """

    run: str
    to: ModelForm
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
    form: ModelForm
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


class ExportedEmbeddings(Record):
    """Embeddings that were written, and what is known of them; beside them as `export.json`.

    `recall` is the share of the 10 nearest that a search in float32 finds. `map` says how items were laid out, and
    `verdicts` judge the embedding and the labels at `level`: of forms that show these, else None and none.
    """

    source: str
    to: TableForm
    output: str
    files: dict[str, int]
    items: int
    dimension: int
    distance: Metric
    columns: list[str]
    recall: Number
    checked: str
    map: str | None
    level: str | None
    verdicts: list[str]
    notes: list[str]
