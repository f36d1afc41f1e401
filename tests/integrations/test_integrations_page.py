"""The code of docs/integrations.md runs as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

PAGE = Path(__file__).resolve().parents[2] / "docs" / "integrations.md"
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:.*pin_memory"),
    pytest.mark.filterwarnings("ignore:.*tensorboardX"),
]


def blocks(section: str) -> list[str]:
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(section: str, block: int = 0, **names: Any) -> dict[str, Any]:
    names = {"__name__": "__main__", **names}
    exec(blocks(section)[block], names)
    return names


def asked(callbacks: list[Any]) -> list[int]:
    """How many items each monitor asked."""
    return [callback.monitor.probing.items for callback in callbacks if hasattr(callback, "monitor")]


class Points(nn.Linear):
    def forward(self, points: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(points)


def test_a_loop() -> None:
    network = Points(4, 3)
    loader = DataLoader(TensorDataset(torch.randn(48, 4), torch.arange(48) % 3), batch_size=16)
    made = run(
        "Watch any training",
        network=network,
        loader=loader,
        criterion=nn.CrossEntropyLoss(),
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        held_out=torch.randn(12, 4),
        held_out_labels=torch.arange(12) % 3,
    )
    assert made["watch"].monitor.probing.series["step"] == [0, 3]


def test_a_loader() -> None:
    made = run("A DataLoader")
    assert made["saved"] == {"seed": 0, "epoch": 2, "step": 0}


def test_transformers(tmp_path: Path) -> None:
    items = [{"points": torch.randn(4), "labels": torch.tensor(i % 3)} for i in range(24)]
    held_out = {"points": torch.randn(12, 4), "labels": torch.arange(12) % 3}
    made = run("transformers", folder=str(tmp_path), network=Points(4, 3), items=items, held_out=held_out)
    assert asked(made["trainer"].callback_handler.callbacks) == [12]
    assert made["loss"].beta.item() != type(made["loss"])().beta.item()


def test_pytorch_metric_learning() -> None:
    pytest.importorskip("pytorch_metric_learning")
    made = run("pytorch-metric-learning")
    assert made["ours"] > 0
    assert made["theirs"] > 0


def test_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    loader = DataLoader(TensorDataset(torch.randn(48, 4), torch.arange(48) % 3), batch_size=16)
    network = nn.Linear(4, 3)
    held_out = {"held_out": torch.randn(12, 4), "held_out_labels": torch.arange(12) % 3}
    made = run("Lightning", folder=str(tmp_path), network=network, loader=loader, **held_out)
    assert asked([made["watch"]]) == [12]
    measured = made["trainer"].callback_metrics
    assert measured["train/loss"].isfinite()
    assert 0 <= measured["val/recall_at_1"] <= 1
    groups = made["trainer"].optimizers[0].param_groups
    assert [group["params"] for group in groups] == [[network.weight], [network.bias], [made["module"].loss.beta]]
    assert made["module"].loss.beta.item() != type(made["module"].loss)().beta.item()


def test_sentence_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = pytest.importorskip("sentence_transformers")
    pytest.importorskip("datasets")
    tokenizers = pytest.importorskip("tokenizers")
    words = sorted(set(re.findall(r"\w+", blocks("sentence-transformers")[0])))
    vocabulary = {"[UNK]": 0, **{word: i + 1 for i, word in enumerate(words)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    static = parts.sentence_transformer.modules.StaticEmbedding(tokenizer, embedding_dim=8)
    model = parts.SentenceTransformer(modules=[static], device="cpu")
    before = static.embedding.weight.detach().clone()
    monkeypatch.setattr(parts, "SentenceTransformer", lambda name: model)  # instead of the one that is downloaded
    monkeypatch.chdir(tmp_path)
    made = run("sentence-transformers")
    assert asked(made["trainer"].callback_handler.callbacks) == [32]
    assert made["trainer"].state.global_step == 40
    calls = made["watch"].monitor.probing.series
    last = made["trainer"].state.log_history[-1]
    assert (last["collapse/events"], last["collapse/probe_calls"]) == (0, len(calls["step"]))
    told = capsys.readouterr().out
    assert f"{last['collapse/closing']} The monitor found no event in " in told
    assert made["watch"].monitor.series["step"]  # batches are used
    assert not static.embedding.weight.equal(before)


def test_pairs_of_texts() -> None:
    class Encoder(nn.EmbeddingBag):
        def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"sentence_embedding": super().forward(features["input_ids"])}

    columns = [{"input_ids": torch.randint(9, (5, 3))} for _ in range(2)]
    made = run("sentence-transformers", 1, model=Encoder(9, 4))
    assert made["loss"](columns) > 0
