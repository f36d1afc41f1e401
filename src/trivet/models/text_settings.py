"""Settings of a pretrained network of texts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trivet.models.config import TEXT, ModelConfig
from trivet.models.heads import HeadName

Pooling = Literal["mean", "cls", "max"]


class TextNetworkConfig(ModelConfig):
    """A pretrained transformer that is trained on texts: "text:" and a sentence-transformers or transformers model.

    Args:
        embedding_dim: length of an embedding, shorter to save room; 0 is that of the network, the only one with head =
            "none".
        pooling: how vectors of tokens become one, where neither the folder's choice nor the mean suits the network.
        max_tokens: tokens after which texts are cut: fewer to save time; by default as the folder says, at most 512.
        prefix: text before each, such as "query: ", where the network was trained with one that its folder does not
            name.
        head: last layer: linear or residual start from the pooled vector, to shorten or adapt it; whitening is fitted
            to the labels and stays; mlp starts at random.
        freeze: layers that stay as they are, to save time and memory or where items are few.
        lora: rank of low-rank changes of the linear layers, trained in place of the network; 0 for none.
        dropout: whether the network keeps its dropout in training; false where batches are few.
    """

    embedding_dim: int = Field(0, ge=0, le=65536)
    pooling: Pooling | None = None
    max_tokens: int | None = Field(None, ge=1, le=65536)
    prefix: str | None = Field(None, max_length=1000)
    head: HeadName = "none"
    freeze: Literal["none", "embeddings", "all"] | Annotated[int, Field(ge=1, le=1000)] = "none"
    lora: int = Field(0, ge=0, le=1024)
    dropout: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.name.removeprefix(TEXT).strip():
            raise ValueError('name = "text:" needs a model, by name or folder: add it, as in "text:FOLDER".')
        if self.pretrained:
            raise ValueError("pretrained is for timm models: a text network always begins pretrained; remove it.")
        if self.width is not None:
            raise ValueError(f"width is for networks from scratch: remove it for {self.name}.")
        if self.lora and self.freeze != "none":
            raise ValueError("lora trains nothing else of the network: remove freeze, or set lora = 0.")
        return self
