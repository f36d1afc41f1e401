"""Settings of a pretrained network of texts."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trivet.models.config import TEXT, ModelConfig
from trivet.models.heads import HeadName

Pooling = Literal["mean", "cls", "max"]


class TextNetworkConfig(ModelConfig):
    """A pretrained transformer that is trained on texts: "text:" and a sentence-transformers or transformers model."""

    embedding_dim: int = Field(
        0,
        ge=0,
        le=65536,
        description='Length of an embedding; 0: that of the network, the only one with head = "none".',
    )
    pooling: Pooling | None = Field(
        None,
        description="How the vectors of the tokens become that of the text: their mean, that of the first token (cls), "
        "or the largest of each number. Default: as the sentence-transformers folder says, else mean.",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="Texts are cut after so many tokens. Default: as the sentence-transformers folder says, else what "
        "the tokenizer takes, but at most 512.",
    )
    prefix: str | None = Field(
        None,
        max_length=1000,
        description='Stands before each text, such as "query: ". Default: the default prompt of the '
        "sentence-transformers folder, else nothing.",
    )
    head: HeadName = Field(
        "none",
        description="The last layer. none: the pooled vector itself. linear and residual begin as that vector, or as "
        "its projection on the directions that keep most of it; mlp has two layers that begin at random.",
    )
    freeze: Literal["none", "embeddings", "all"] | Annotated[int, Field(ge=1, le=1000)] = Field(
        "none",
        description="What is not trained, and without dropout: embeddings, those of the tokens; a number, also so many "
        "of the first layers; all, everything but the head.",
    )
    lora: int = Field(
        0,
        ge=0,
        le=1024,
        description="Rank of low-rank changes of the attention's projections, which are trained in place of the "
        "network (extra lora); 0: none. The saved model holds them merged.",
    )
    dropout: bool = Field(True, description="false: without the dropout that the network has.")

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
        if self.freeze == "all" and self.head == "none":
            raise ValueError('freeze = "all" with head = "none" leaves nothing to train: use another head.')
        return self
