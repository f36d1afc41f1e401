"""The whole way from a text to its embedding: the one that the texts of an index went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from trivet.commands.index.record import IndexAbout, TextExample
from trivet.commands.network_of_side import SideNetwork, network_of_query, network_of_side
from trivet.datasets import DataConfig
from trivet.datasets.texts import vectors_of
from trivet.io.embedding_table import Vectors
from trivet.knn.index import Index
from trivet.models.texts import encoder_vectors
from trivet.models.towers import SIDES
from trivet.training.run_folder import RunFolder, trained_model

Embed = Callable[[Sequence[str]], npt.NDArray[np.floating]]

EXAMPLES = 8  # indexed texts that must lead to their own embeddings
TOLERANCE = 0.1  # of the length of an embedding: the most by which their median may miss; float16 and int8 miss less
LONGEST = 10_000  # characters of an example


def text_examples(sets: Sequence[Vectors]) -> list[TextExample]:
    """Some of the texts of the indexed rows, spread evenly; none where they have none."""
    texts = [text for vectors in sets for text in vectors.texts or [""] * len(vectors)]
    rows = [row for row, text in enumerate(texts) if text.strip() and len(text) <= LONGEST]
    spread = np.unique(np.linspace(0, len(rows) - 1, EXAMPLES).astype(int)).tolist() if rows else []
    return [TextExample(row=rows[i], text=texts[rows[i]]) for i in spread]


def text_embeddings(
    texts: Sequence[str], index: Index, about: IndexAbout, run: RunFolder | None
) -> npt.NDArray[np.floating]:
    """Embeddings `(N, d)` of N texts, made as those of an index: by its encoder, with its prefix, and its run's model.

    Args:
        run: the run whose model made the indexed embeddings, if one did.

    Raises:
        ValueError: if no way from texts is known, or it does not lead from indexed texts to their embeddings.
    """
    embedders = _embedders(about, run)
    vectors = embedders[0](texts)
    encoder = f"the text model {about.text_model}" if about.text_model else "its model"
    todo = "index with the --text-model, and --text-prefix, that made the embeddings"
    if about.text_model is None:
        todo = "embed the items again with trivet evaluate or trivet embed, and index them"
    if vectors.shape[1] != index.info.dimension:
        raise ValueError(
            f"a text query must have the {index.info.dimension} dimensions of the index: {encoder} gives "
            f"{vectors.shape[1]}; {todo}."
        )
    if about.texts:
        missed = np.min([_missed(embed, index, about) for embed in embedders[1:] or embedders], axis=0)
        if not (median := float(np.median(missed))) <= TOLERANCE:
            raise ValueError(
                f"a text query must be embedded as the indexed texts were: {encoder} takes these, such as "
                f"{about.texts[0].text[:40]!r}, {median:.2f} of their length away from their embeddings; {todo}."
            )
    return vectors


def _missed(embed: Embed, index: Index, about: IndexAbout) -> npt.NDArray[np.floating]:
    """Distances `(N,)` of the examples to their embeddings in an index, in parts of their length."""
    again, rows = embed([example.text for example in about.texts]), np.array([[each.row] for each in about.texts])
    distances = index.distances(again, rows)[:, 0]
    return np.sqrt(2 * distances) if index.info.distance == "cosine" else distances / np.linalg.norm(again, axis=1)


def _embedders(about: IndexAbout, run: RunFolder | None) -> list[Embed]:
    """Ways from texts to embeddings: that of a query, and, with a network of each side, those of indexed texts."""
    data = None if run is None else run.config().data
    kinds = () if data is None else data.side_kinds or (data.item_kind,)
    if run is not None and data is not None and "texts" in kinds:
        model = trained_model(run)
        networks = [network_of_query(run, model, "texts", searched=about.side)]
        if networks[0].side is not None:
            sides = SIDES if about.side is None else (about.side,)
            networks += [network_of_side(run, model, side, lambda: "texts") for side in sides]
        return [partial(_embedded, network, data) for network in networks if network.kind == "texts"]
    if about.text_model is None:
        raise ValueError(
            f"a text query needs an index that knows how texts are embedded: that of {about.source} does not; index it "
            "again with --text-model, the encoder that made the vectors, or with --run if a run embedded them."
        )
    encoder = about.text_model

    def encoded(texts: Sequence[str]) -> npt.NDArray[np.floating]:
        vectors = encoder_vectors([about.text_prefix + text for text in texts], encoder)
        return vectors if run is None else trained_model(run).embed(vectors)

    return [encoded]


def _embedded(of: SideNetwork, data: DataConfig, texts: Sequence[str]) -> npt.NDArray[np.floating]:
    return of.network.embed(vectors_of(data, texts) if of.tokenize is None else texts)
