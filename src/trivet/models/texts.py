"""Vectors of texts: by character n-grams, or by a sentence-transformers model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.models.text_folder import quiet
from trivet.runtime.extras import load
from trivet.runtime.safe_read import read_json
from trivet.runtime.text import abbreviated

DIMENSIONS = 256
AT_ONCE = 256  # texts that are given to an encoder


def ngram_vectors(texts: Sequence[str], *, seed: int = 0) -> npt.NDArray[np.float32]:
    """Vectors `(N, d)` of N texts, by the n-grams of these very texts; see `fit_ngrams`."""
    return fit_ngrams(texts, seed=seed)(texts)


def fit_ngrams(texts: Sequence[str], *, seed: int = 0) -> Callable[[Sequence[str]], npt.NDArray[np.float32]]:
    """Fit character n-grams: the result gives M texts vectors `(M, d)` of length 1; d is 256, or less for few texts.

    The counts n of each run of 2 to 5 characters within words, as 1 + log n, are weighted by how rare the run is
    (tf-idf), and projected on the d directions of largest singular value; weights and directions are those of the N
    texts given here. Texts are near that have parts of words in common, in any language, whatever they mean. A text
    without any run of the N texts has the vector 0.

    Args:
        texts: at least two, none of them blank.
        seed: of the projection.

    Raises:
        ValueError: if there are fewer, or one is blank.

    Source:
        Cavnar, Trenkle, "N-Gram-Based Text Categorization", SDAIR 1994; Deerwester et al., "Indexing by Latent
        Semantic Analysis", Journal of the American Society for Information Science 41, 1990.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.utils.extmath import randomized_svd

    blank = [i for i, text in enumerate(texts) if not text.strip()]
    if blank or len(texts) < 2:
        got = f"text {blank[0]} (from 0) is; leave it out" if blank else f"got {len(texts)}; add some"
        raise ValueError(f"at least two texts are needed, none of them blank: {got}.")
    ngrams = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    fitted = ngrams.fit_transform(texts)
    _, _, directions = randomized_svd(fitted, min(DIMENSIONS, *fitted.shape), random_state=seed)

    def vectors(texts: Sequence[str]) -> npt.NDArray[np.float32]:
        projected = ngrams.transform(texts) @ directions.T
        norms = np.linalg.norm(projected, axis=1, keepdims=True)
        return np.asarray(projected / np.maximum(norms, np.finfo(np.float32).tiny), np.float32)

    return vectors


def encoder_vectors(
    texts: Sequence[str], encoder: str, progress: Callable[[int, int], None] | None = None
) -> npt.NDArray[np.float32]:
    """Vectors `(N, d)` of N texts from a sentence-transformers model, by name or folder.

    Args:
        progress: called with the number of texts that are embedded, and of all, from time to time.

    Raises:
        ValueError: if the library is not installed, or the model cannot be loaded.
    """
    model = load_encoder(encoder)
    # The longest first, so that texts of a like length share a batch, and what is left to do is overrated.
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    chunks = []
    for start in range(0, len(texts), AT_ONCE):
        chunk = [texts[i] for i in order[start : start + AT_ONCE]]
        chunks.append(np.asarray(model.encode(chunk, show_progress_bar=False), np.float32))
        if progress is not None:
            progress(start + len(chunk), len(texts))
    vectors = np.concatenate(chunks)
    return vectors[np.argsort(order)]


def load_encoder(name: str) -> Any:
    """The sentence-transformers model; weights are taken from safetensors only, and no code of its own is run."""
    library = load("sentence_transformers")
    _check_modules(Path(name).expanduser())
    try:
        with quiet(load("transformers")):
            return library.SentenceTransformer(name, model_kwargs={"use_safetensors": True})
    except Exception as error:  # hub, files and transformers raise many kinds; all are raised again, in one sentence
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"the text model {name} could not be loaded ({type(error).__name__}: {reason}); check the name or folder, "
            "or download it."
        ) from None


def _check_modules(folder: Path) -> None:
    """Raise ValueError if a folder names modules of its own: the library ran their code until version 6."""
    file = folder / "modules.json"
    modules = read_json(file, "the modules of a text model") if file.is_file() else []
    try:
        kinds = [str(module["type"]) for module in modules]
        for module in modules:
            for inner in ("config.json", "router_config.json"):  # of several networks, each with modules
                config = folder / module["path"] / inner
                values = read_json(config, "a module of a text model") if config.is_file() else {}
                types = values.get("types") if isinstance(values, Mapping) else None
                kinds += map(str, types.values()) if isinstance(types, Mapping) else []
    except (KeyError, TypeError):
        raise ValueError(f"{file} must list the modules of a network; save it again.") from None
    foreign = [kind for kind in kinds if not kind.startswith("sentence_transformers.")]
    if foreign:
        raise ValueError(
            f"a text model must consist of modules of sentence-transformers, as the code of others would run: {file} "
            f"leads to {abbreviated(foreign, 3)}; use another model, or embed with it yourself and give the vectors."
        )
