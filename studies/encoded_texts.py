"""Vectors of CLINC150 and BANKING77 by a sentence encoder, for the stand-ins of `trivet reproduce`.

    TRIVET_DATA=... python studies/encoded_texts.py FOLDER_OF_THE_ENCODER FOLDER_OF_WEIGHTS

Writes clinc150_minilm.npz and banking77_minilm.npz into the folder that `trivet reproduce --models` is given. The
encoder is all-MiniLM-L6-v2, a folder of sentence-transformers (extra `text`). Of every second class the training texts
are trained on; of the other classes the test texts are evaluated.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from readers import clinc_domains, texts

Rows = Sequence[tuple[str, ...]]  # a text, and its classes, the coarse one first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", help="folder of sentence-transformers")
    parser.add_argument("folder", type=Path, help="where the vectors are written")
    options = parser.parse_args()
    from sentence_transformers import SentenceTransformer

    encoder, folder, domain = SentenceTransformer(options.encoder), options.folder, clinc_domains()
    parts = ("train", "test")
    clinc = {part: [(text, domain[intent], intent) for text, intent in texts("clinc150", part)] for part in parts}
    write(folder / "clinc150_minilm.npz", encoder, clinc, ("domain", "intent"))
    write(folder / "banking77_minilm.npz", encoder, {part: texts("banking77", part) for part in parts}, ("intent",))


def write(path: Path, encoder: Any, parts: Mapping[str, Rows], levels: Sequence[str]) -> None:
    classes = sorted({row[-1] for row in parts["train"]})
    trained = set(classes[::2])
    rows = [(*row, "train") for row in parts["train"] if row[-1] in trained]
    rows += [(*row, "test") for row in parts["test"] if row[-1] not in trained]
    vectors = encoder.encode([row[0] for row in rows], batch_size=128, show_progress_bar=True)
    columns = {name: np.array([row[place] for row in rows]) for place, name in enumerate(("text", *levels, "split"))}
    np.savez(path, embeddings=vectors.astype(np.float32), **columns)
    print(f"{path}: {len(rows)} texts, {len(trained)} of {len(classes)} classes trained on")


if __name__ == "__main__":
    main()
