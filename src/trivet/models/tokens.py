"""Texts as the token ids of a network: packed for a whole data set, padded for a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trivet.runtime.extras import load
from trivet.runtime.safe_read import panics, read_json

VOCABULARY = 2**24  # most tokens of a network; the library makes lists up to the largest id
ENDED = -1  # in place of a token, where a text of the batch has ended


class Tokens(NamedTuple):
    """The tokens of N texts.

    Attributes:
        ids: `(T,)` int32, of all texts, one after the other.
        starts: `(N + 1,)` int64: text i is `ids[starts[i] : starts[i + 1]]`.
        longest: the most tokens that a text may have.
        cut: how many texts had more.
    """

    ids: np.ndarray
    starts: np.ndarray
    longest: int
    cut: int = 0

    def padded(self, rows: np.ndarray) -> Tensor:
        """The texts at `rows (B,)`: `(B, L)` int64, L that of the longest of them, and -1 where a text has ended."""
        lengths = self.starts[rows + 1] - self.starts[rows]
        columns = np.arange(lengths.max(initial=0))
        there = columns < lengths[:, None]
        batch = np.full(there.shape, ENDED, np.int64)
        batch[there] = self.ids[(self.starts[rows][:, None] + columns)[there]]
        return torch.from_numpy(batch)


Tokenize = Callable[[Sequence[str]], Tokens]


class Tokenizer:
    """Texts to `Tokens`, cut after `max_tokens`.

    Args:
        rules: a `tokenizers.Tokenizer`; it is changed.
        vocabulary: how many tokens the network knows.
    """

    def __init__(self, rules: Any, *, max_tokens: int, prefix: str = "", vocabulary: int = VOCABULARY) -> None:
        rules.no_padding()
        rules.no_truncation()
        self.rules, self.max_tokens, self.prefix, self.vocabulary = rules, max_tokens, prefix, vocabulary
        around = len(self._encoded("").ids)
        if max_tokens <= around:
            raise ValueError(
                f"model.max_tokens must leave room for a token beside the {around} that begin and end each text: got "
                f"{max_tokens}; raise it."
            )
        rules.enable_truncation(max_tokens)

    def __call__(self, texts: Sequence[str]) -> Tokens:
        """The tokens of the texts.

        Raises:
            ValueError: if the tokenizer knows nothing of a text, fails over it, or gives a token that the network does
                not have.
        """
        # One by one: the library's own batches start threads, and workers that are forked afterwards would say so.
        encoded = [self._encoded(self.prefix + text) for text in texts]
        ids = [np.array(encoding.ids, np.int32) for encoding in encoded]
        cut = sum(bool(encoding.overflowing) for encoding in encoded)
        nothing = [i for i, encoding in enumerate(ids) if len(encoding) == 0]
        if nothing:
            raise ValueError(
                f"every text must have a token: text {nothing[0]} (from 0), {texts[nothing[0]][:40]!r}, has none that "
                "this network knows; leave it out."
            )
        starts = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        return Tokens(np.concatenate(ids) if ids else np.empty(0, np.int32), starts, self.max_tokens, cut)

    def _encoded(self, text: str) -> Any:
        try:
            with panics():
                encoding = self.rules.encode(text)
        except Exception as error:  # the library raises no kind of its own
            raise ValueError(
                f"the tokenizer must take every text: it cannot take {text[:40]!r} ({' '.join(str(error).split())}); "
                f"{'leave it out, or ' if text else ''}use another network."
            ) from None
        if max(encoding.ids, default=0) >= self.vocabulary:
            raise ValueError(
                f"the tokenizer must give ids below {self.vocabulary}, the vocabulary of the network: {text[:40]!r} "
                f"has {max(encoding.ids)}; save both from one model again."
            )
        return encoding

    def to_json(self) -> str:
        """The whole tokenizer, as `tokenizer.json` holds it."""
        text: str = self.rules.to_str()
        return text


def check_ids(file: Path) -> None:
    """Check the ids of a `tokenizer.json`, or a `vocab.json`, before the library makes lists up to the largest.

    Raises:
        ValueError: if it is no JSON, or one is beyond those of any network.
    """
    values = read_json(file, "a tokenizer")
    model, added = (values.get("model"), values.get("added_tokens")) if isinstance(values, dict) else (None, None)
    vocabularies = [values, model.get("vocab") if isinstance(model, dict) else None]
    vocabularies += added if isinstance(added, list) else []
    numbers = [number for each in vocabularies if isinstance(each, dict) for number in each.values()]
    largest = max((number for number in numbers if isinstance(number, int)), default=0)
    if largest >= VOCABULARY:
        raise ValueError(f"it has the id {largest}, and a network has at most {VOCABULARY} tokens")


def read_tokenizer(file: Path, *, max_tokens: int, prefix: str, vocabulary: int = VOCABULARY) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`.

    Raises:
        ValueError: if the file is no tokenizer.
    """
    try:
        check_ids(file)
        with panics():
            rules = load("tokenizers").Tokenizer.from_file(str(file))
    except ModuleNotFoundError:
        raise
    except Exception as error:  # the library raises no kind of its own
        raise ValueError(f"{file} must be a tokenizer: {' '.join(str(error).split())}; save the model again.") from None
    return Tokenizer(rules, max_tokens=max_tokens, prefix=prefix, vocabulary=vocabulary)
