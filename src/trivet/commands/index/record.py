"""Contents of `index.json` beside the vectors."""

from __future__ import annotations

from pydantic import Field

from trivet.knn.index import IndexInfo
from trivet.knn.kinds import Postprocessing
from trivet.models import SideName
from trivet.runtime.record import Record


class TextExample(Record):
    """An indexed text and its row."""

    row: int = Field(ge=0)
    text: str


class IndexAbout(Record):
    """Metadata of an index.

    Attributes:
        source: the file or run that was indexed.
        run, model: the run whose model made the embeddings, and the hash of its weights; of a file what it says itself.
        side: of the items, where they are of pairs, or were made by the network of a side.
        text_model, text_prefix: what embeds texts, of a file or of the vectors that the run takes; and what it was
            given before each.
        texts: some of the indexed texts; a text query is answered only if these lead to their own embeddings.
        postprocess: what every search does; a whitening is in a file beside the index.
        data, splits, level: of a run, its data set, the splits that were indexed, and the level that it is measured at.
    """

    trivet: str = ""
    created: str = ""
    source: str
    run: str | None = None
    model: str | None = None
    side: SideName | None = None
    text_model: str | None = None
    text_prefix: str = ""
    texts: list[TextExample] = []
    postprocess: Postprocessing | None = None
    data: str | None = None
    splits: list[str] | None = None
    level: str | None = None
    levels: list[str]


class IndexResult(IndexInfo):
    """Content of `index.json`, less its format, centre, scale and removed rows; the bytes of an item; odd labels.

    Of an index that was changed, the items that were `added` and `removed`; `present` are those that searches find.
    """

    bytes_per_item: int
    notes: list[str]
    about: IndexAbout
    present: int
    added: int = 0
    removed: int = 0
