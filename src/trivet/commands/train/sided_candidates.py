"""Candidates for pairs of images and texts: encoders of both, which have no space in common without trained heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from trivet.commands.train.candidates import (
    DRAWN,
    ENCODER,
    FIXED,
    HEAD_STEPS,
    PIXELS,
    RATES,
    SCRATCH_WIDTH,
    TUNING,
    TUNING_STEPS,
    Candidate,
    Proposer,
    Values,
    merged,
)
from trivet.datasets import Dataset
from trivet.datasets.pairs_config import PairsConfig
from trivet.models.encoders import EncoderKind
from trivet.models.towers import SIDES, TOWERS
from trivet.training.ladder_config import LadderSettings, Rung

WIDTH = 512  # of the space of both sides
HEAD_RATE = 1e-3  # of new heads, where encoders are fine-tuned at a lower one
BATCH, TUNED_BATCH = 256, 128  # items of both sides


class SideEncoder(NamedTuple):
    """Encoder of a side: its name, the settings of its network without a head, and those of the data for it."""

    name: str
    model: Values
    data: Values

    @property
    def pretrained(self) -> bool:
        """False for pixels and n-grams, on which a network of their own is put in place of a head."""
        return "name" in self.model

    def with_head(self, *, frozen: bool) -> Values:
        """The settings of its network with a linear last layer."""
        if not self.pretrained:
            return {"name": "linear"}
        return {**self.model, "head": "linear", **({"freeze": "all"} if frozen else {})}


class SidedProposer(Proposer):
    """Proposer of candidates for images and texts: each encoder of images beside each of texts.

    As they are, two encoders have no space in common, and retrieve by chance: that is what all else is compared with.
    """

    by_trained: ClassVar[bool] = True

    def candidates(self, rung: Rung, ranked: Sequence[Candidate]) -> list[Candidate]:
        if rung == ENCODER:
            return [self._untrained(*pair) for pair in self._pairs()]
        if rung == "head":
            return [each for pair in self._pairs() for each in self._with_heads(*pair)]
        if rung == "fine-tuning":
            names = [each.name for each in ranked[:1]]
            pairs = [pair for pair in self._pairs() if _name(*pair) in names]
            return [each for pair in pairs if any(of.pretrained for of in pair) for each in self._both_tuned(*pair)]
        return self._scratch() if rung == "scratch" else []

    def _pairs(self) -> list[tuple[SideEncoder, SideEncoder]]:
        """An encoder of images beside one of texts, each way; the inputs themselves come last."""
        of_kind: dict[EncoderKind, list[SideEncoder]] = {"images": [], "texts": []}
        for entry in self.ready:
            data = self._data_for(entry) if entry.encoder.kind == "images" else {}
            of_kind[entry.encoder.kind].append(SideEncoder(entry.encoder.name, entry.model, data))
        if self._small:
            assert self._shape is not None
            side = min(*self._shape[1:], DRAWN if self._drawn else PIXELS)
            of_kind["images"].append(SideEncoder("pixels", {}, {"image_size": side, "augment": "none"}))
        of_kind["texts"].append(SideEncoder("n-grams", {}, {}))
        return [(images, texts) for texts in of_kind["texts"] for images in of_kind["images"]]

    def _values_of(self, images: SideEncoder, left_and_right: Sequence[Values], values: Values) -> Values:
        model: Values = {"name": TOWERS, "embedding_dim": WIDTH, **dict(zip(SIDES, left_and_right, strict=True))}
        return self._values(merged({"data": images.data, "model": model}, values))

    def _sides(self, images: Values, texts: Values) -> tuple[Values, Values]:
        """Settings for images and for texts, as those of the left and the right side."""
        data = self.settings.data
        assert isinstance(data, PairsConfig)
        return (images, texts) if data.images == "left" else (texts, images)

    def _untrained(self, images: SideEncoder, texts: SideEncoder) -> Candidate:
        sides = self._sides(images.with_head(frozen=True), texts.with_head(frozen=True))
        name = _name(images, texts)
        return Candidate(name, ENCODER, self._values_of(images, sides, {"training": FIXED}), name)

    def _with_heads(self, images: SideEncoder, texts: SideEncoder) -> list[Candidate]:
        sides = self._sides(images.with_head(frozen=True), texts.with_head(frozen=True))
        candidates = []
        for steps, rate in HEAD_STEPS.items():  # all of them, as a short training says little beside chance
            training = {"steps": steps, "learning_rate": rate, "warmup_steps": "all"}
            values = self._values_of(images, sides, {"training": training, "batch": {"size": BATCH}})
            name = f"{_name(images, texts)}, heads of {steps} steps"
            candidates.append(Candidate(name, "head", values, _name(images, texts)))
        return candidates

    def _both_tuned(self, images: SideEncoder, texts: SideEncoder) -> list[Candidate]:
        candidates, shorter = list[Candidate](), ""
        sides = self._sides(images.with_head(frozen=False), texts.with_head(frozen=False))
        for steps in TUNING_STEPS["images"]:
            training = {
                **TUNING,
                "steps": steps,
                "learning_rate": HEAD_RATE,
                "backbone_learning_rate": RATES["images"],
            }
            values = self._values_of(
                images, sides, {"training": training, "batch": {"size": TUNED_BATCH}, "data": self._augment}
            )
            name = f"{_name(images, texts)}, fine-tuning of {steps} steps"
            candidates.append(Candidate(name, "fine-tuning", values, _name(images, texts), shorter))
            shorter = name
        return candidates

    def _scratch(self) -> list[Candidate]:
        if self._shape is None or not self._small:
            return []
        name, size = self._small_network(self._shape)
        steps = self._scratch_steps(BATCH)
        values: Values = {
            "data": {"image_size": size, **self._augment},
            "model": {
                "name": TOWERS,
                "embedding_dim": SCRATCH_WIDTH,
                **dict(zip(SIDES, self._sides({"name": name}, {"name": "linear"}), strict=True)),
            },
            "training": {"steps": steps, "learning_rate": 1e-3, "schedule": "cosine"},
            "batch": {"size": BATCH},
        }
        return [Candidate(f"{name} from scratch beside n-grams", "scratch", self._values(values))]


def _name(images: SideEncoder, texts: SideEncoder) -> str:
    return f"{images.name} beside {texts.name}"


def make_proposer(settings: LadderSettings, train: Dataset, level: str, classes: int) -> Proposer:
    """The proposer for the items of the settings; see `Proposer`."""
    kind: type[Any] = SidedProposer if settings.data.item_kind == "images and texts" else Proposer
    made: Proposer = kind(settings, train, level, classes)
    return made
