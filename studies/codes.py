"""Recall of embeddings in fewer bits, alone and rescored, on the four sets of docs/results.md.

    TRIVET_DATA=... python studies/codes.py --texts CLINC BANKING --birds VECTORS

CLINC and BANKING are files of embeddings, label and text: all-MiniLM-L6-v2 of 9,000 training texts of CLINC150 and
those of BANKING77. VECTORS are those of 50 classes of CUB by EfficientNet-Lite0. Omniglot: the pixels of its 13,180
test images, by character. Each item is searched for among the others, by cosine; codes are learned from the same items.
Measured as by `trivet evaluate --quantize float16,int8,binary,pq --rescore`, once; nothing was chosen on these numbers
but the quantiles of int8, of which five were compared on CLINC, BANKING and birds (0 to 2 %: all within 0.6 points).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pages import environment, gain, table, write
from trivet.commands.evaluate.embedding_sizes import stored_sizes
from trivet.commands.evaluate.options import EvaluateOptions
from trivet.commands.evaluate.run import compare, evaluate_files
from trivet.datasets import load
from trivet.datasets.small_images import OmniglotConfig
from trivet.knn.codes import LEAST_ROWS
from trivet.reports.run_record import as_good
from trivet.training.embed_dataset import raw_inputs

RESULTS = Path(__file__).parent / "results" / "codes.json"


def omniglot(folder: Path) -> Path:
    """A file of the pixels of the test images and their characters."""
    test = next(iter(load(OmniglotConfig(), None).evaluation.values()))
    np.savez(folder / "omniglot.npz", embeddings=raw_inputs(test.inputs), label=np.asarray(test.labels["character"]))
    return folder / "omniglot.npz"


def measured(path: Path) -> list[dict[str, Any]]:
    """The forms of the embeddings of a file, the most bytes first."""
    with np.load(path) as arrays:
        enough = len(arrays["label"]) >= LEAST_ROWS
    request = EvaluateOptions(
        [path],
        labels=["label"],
        measures=["recall@1,map@r"],
        distance="cosine",
        quantize=f"float16,int8,binary{',pq' if enough else ''}",
        rescore=True,
    )
    results = evaluate_files(request)
    differences = compare(results)["label"]
    sizes = stored_sizes([result.record for result in results], differences, "label")
    assert sizes is not None
    return [{**size.as_json(), "good": as_good(size)} for size in sizes.sizes]


def main() -> None:
    """Measure all sets and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, nargs=2, required=True)
    parser.add_argument("--birds", type=Path, required=True)
    arguments = parser.parse_args()
    measured_with = environment("trivet", "torch", "numpy", "faiss-cpu")
    record: dict[str, Any] = {"environment": measured_with, "sets": {}}
    with tempfile.TemporaryDirectory() as folder:
        names = ["CLINC150, MiniLM", "BANKING77, MiniLM", "CUB-50, EfficientNet-Lite0", "Omniglot, pixels"]
        for name, path in zip(names, [*arguments.texts, arguments.birds, omniglot(Path(folder))], strict=True):
            record["sets"][name] = measured(path)
            print(name, flush=True)
    rows = [
        [
            name if number == 0 else "",
            size["kind"],
            f"{size['bytes']:,}",
            f"{100 * size['recall@1']:.1f}",
            "" if number == 0 else gain(size["difference"], size["low"], size["high"]),
            f"{100 * size['map@r']:.1f}",
            "yes" if size["good"] and number else "",
        ]
        for name, sizes in record["sets"].items()
        for number, size in enumerate(sizes)
    ]
    head = [
        "set",
        "form",
        "bytes",
        "recall@1, %",
        "less float32, points (95 %)",
        "MAP@R, %",
        "loses less than half a point",
    ]
    page = [
        "# Embeddings in fewer bits",
        "",
        "`TRIVET_DATA=... .venv/bin/python studies/codes.py --texts ... --birds ...`",
        "",
        f"{measured_with}.",
        "",
        *table(head, rows),
        "Bytes are those of an item in memory; where it is rescored, the float32 embedding lies on disk. pq needs "
        "10,000 items. Intervals: other items of these classes.",
    ]
    write(RESULTS, record, "\n".join(page) + "\n")


if __name__ == "__main__":
    main()
