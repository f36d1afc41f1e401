"""A text network of two tiny layers with random weights, in a folder as from elsewhere, and texts for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "card", "lost", "top", "up", "failed", "where", "is", "my", "the"]
WORDS += ["pay", "limit", "rent", "due", "again"]
WIDTH, POSITIONS = 8, 16


def text_network(folder: Path, **modules: Any) -> Path:
    """A BERT whose words are `WORDS`.

    Args:
        modules: of a sentence-transformers folder: "pooling", the values of its config.json, "normalize", "lower",
            "length", "prompt". None of them: a folder of transformers.
    """
    rules = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    rules.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    rules.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=rules, model_max_length=POSITIONS, **special).save_pretrained(
        folder
    )
    shape = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=POSITIONS,
        initializer_range=0.5,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        transformers.BertModel(shape).save_pretrained(folder)
    if modules:
        names = ["Transformer", "Pooling", *(["Normalize"] if modules.get("normalize") else [])]
        listed = [
            {"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{name}", "type": f"sentence_transformers.{name}"}
            for i, name in enumerate(names)
        ]
        own = {"max_seq_length": modules.get("length", 7), "do_lower_case": modules.get("lower", False)}
        prompts = {"prompts": {"own": modules.get("prompt", "")}, "default_prompt_name": "own"}
        for name, content in (
            ("modules.json", listed),
            ("sentence_bert_config.json", own),
            ("config_sentence_transformers.json", prompts),
            ("1_Pooling/config.json", modules.get("pooling", {"pooling_mode": "mean"})),
        ):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(json.dumps(content))
    return folder


def texts_file(file: Path, classes: int = 6, each: int = 6) -> Path:
    """Texts with a column `intent`, whose words follow from the class and a little from the number of the text."""
    known = WORDS[4:]
    lines = ["text,intent"]
    for one in range(classes):
        for number in range(each):
            words = [
                known[(2 * one) % len(known)],
                known[(2 * one + 1) % len(known)],
                known[(one + number) % len(known)],
            ]
            lines.append(f"{' '.join(words[: 1 + number % 3] + ['unheard'] * (number // 3))},{chr(97 + one)}")
    file.write_text("\n".join(lines) + "\n")
    return file
