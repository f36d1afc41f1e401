"""What the first steps of fine-tuning do to a pretrained network: recall@1 of classes not trained on, before and after.

    TRIVET_DATA=... OMP_NUM_THREADS=1 .venv/bin/python studies/pretrained.py FILE [KEY=VALUE ...] [--steps 20]

FILE holds timm's weights of tf_efficientnet_lite0 as safetensors. The other settings are those of
examples/cub_pretrained.toml, but for Adam at a constant rate of 1e-4, no weight decay, no augmentation and no folds;
KEY=VALUE changes one of the model, such as batch_norm=train. Three numbers are printed: recall@1 by cosine, in per
cent, of the features of the backbone (zero-shot), of the network before its first step, and after the last.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trivet.metrics import retrieve
from trivet.models import Embedder
from trivet.training import RunConfig
from trivet.training.components import first_task, load_splits
from trivet.training.embed_dataset import embed
from trivet.training.loop import fit

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "cub_pretrained.toml"
PLAIN = (
    *("training.schedule=constant", "training.optimizer=adam", "training.weight_decay=0", "data.augment=none"),
    *("training.learning_rate=1e-4", "choosing.keep=last"),
)


def measured(weights: Path, changes: list[str], steps: int) -> tuple[float, float, float]:
    """Recall@1, in per cent: zero-shot, before the first step, after the last."""
    model = [f"model.{change}" for change in (f"weights={weights}", *changes)]
    config = RunConfig.read(EXAMPLE, [*PLAIN, *model])
    config = config.model_copy(update={"data": config.data.model_copy(update={"folds": None})})
    splits = load_splits(config, None)
    (unseen,) = splits.evaluation.values()

    def recall(network: Embedder) -> float:
        embeddings = embed(network, unseen.inputs)
        found = retrieve(embeddings, unseen.labels[splits.level], measures=("recall@1",), distance="cosine")
        return 100 * float(found.values.mean())

    task, batches = first_task(config, splits.train, splits.level, steps=steps)
    assert task.model.backbone is not None
    zero_shot, before = recall(task.model.backbone), recall(task.model)
    fit(task, batches)
    return zero_shot, before, recall(task.model.cpu())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    values = measured(given.weights, given.changes, given.steps)
    print(" ".join(given.changes) or "default", *(f"{value:.1f}" for value in values), sep="\t")


if __name__ == "__main__":
    main()
