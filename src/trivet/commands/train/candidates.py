"""Candidates of a ladder: for each rung the settings of runs that are worth trying, by the data and what was best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from trivet.config.plugins import is_reference
from trivet.datasets import Dataset
from trivet.datasets.config import ImagesConfig, ItemKind
from trivet.datasets.pairs_config import PairsConfig
from trivet.models.backbones import num_features
from trivet.models.config import TIMM
from trivet.models.encoder_weights import EncoderAtHand, at_hand, from_folder, kind_of_folder, missing
from trivet.models.encoders import EncoderKind, kind_of
from trivet.runtime.text import distinct_names
from trivet.training.config import RunConfig
from trivet.training.ladder_config import RUNGS, LadderSettings, Rung

Values = dict[str, Any]
ENCODER: Rung = "encoder"
TRAINED: tuple[Rung, ...] = ("head", "fine-tuning", "scratch")
EASY = {"name": "triplet", "margin": 0.2, "positives": "easy", "negatives": "semihard"}
TRIPLET = {"name": "triplet", "margin": 0.4, "positives": "random", "negatives": "violating"}
SINGLES = {"name": "proxy-nca"}  # where a class has one item
PAIRS = {"name": "supcon", "temperature": 0.05}
FIXED = {"steps": 0}
TUNING = {"optimizer": "adamw", "weight_decay": 1e-4, "warmup_steps": 10}
RATES = {"images": 3e-5, "texts": 2e-5}  # of fine-tuning all of a network
LORA, LORA_RATE = 8, 5e-4
TUNING_STEPS = {"images": (80, 320, 1280), "texts": (50, 200, 800)}  # each is tried if the one before gains
HEAD_STEPS = {60: 3e-4, 200: 1e-3, 800: 1e-3}  # of a head, and the rates to which they rise
SCRATCH_STEPS, SCRATCH_WIDTH = (200, 1600), 128  # the fewest and the most
LEAST_SIDE = 96  # pixels of an image for a pretrained encoder, to which smaller ones are enlarged
DRAWN, SMALL = 28, 64  # pixels of a small network of drawings, and of photographs
PIXELS = 24  # a side of photographs whose pixels are the embedding
SAMPLE = 4000  # held-out items that a candidate is measured on, and as many others that these retrieve from
PASSES = 10  # of training from scratch over the items


@dataclass(frozen=True)
class Candidate:
    """A run that may be the result.

    Attributes:
        name: in words, of which no two are alike.
        values: sections of its settings.
        encoder: the name of the candidate of the first rung that it begins as; empty where it begins from nothing.
        longer_than: the name of the candidate that it trains longer than, and is tried if that one gains.
    """

    name: str
    rung: Rung
    values: Values
    encoder: str = ""
    longer_than: str = ""

    @property
    def pretrained(self) -> bool:
        """True if it is an encoder that was trained before, not the inputs themselves."""
        return self.rung == ENCODER and "freeze" in self.values["model"]

    @property
    def trained(self) -> bool:
        """False if it is an encoder as it is, or something fitted to its features."""
        return self.rung in TRAINED


@dataclass
class Proposer:
    """Proposer of the candidates of each rung.

    Args:
        settings: of the ladder.
        train: the training items; texts as the vectors of their n-grams.
        level: the label level that is trained on.
        classes: how many classes of it a batch may hold.

    Attributes:
        by_trained: whether encoders are ranked by what is trained on them, as they have no space in common.
        kind: of the items.
        ready: the pretrained encoders that can be compared.
        coarse: whether classes hold several modes, which easy positives leave apart.

    Raises:
        ValueError: if an encoder that the settings name cannot be had.
    """

    settings: LadderSettings
    train: Dataset
    level: str
    classes: int
    by_trained: ClassVar[bool] = False
    kind: ItemKind = field(init=False)
    ready: list[EncoderAtHand] = field(init=False)
    coarse: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        data, ladder = self.settings.data, self.settings.ladder
        self.kind = data.item_kind
        self.ready = []
        folders = [*dict.fromkeys(folder.resolve() for folder in ladder.start)]
        names = distinct_names(folders) if folders else []
        for kind in self.kinds:
            of_kind = [name for name in ladder.weights if len(self.kinds) == 1 or kind_of(name) == kind]
            wanted = None if ladder.encoders is None else [*ladder.encoders]
            if wanted is not None and len(self.kinds) > 1:
                wanted = [name for name in wanted if kind_of(name) == kind]
            self.ready += at_hand(kind, {name: ladder.weights[name] for name in of_kind}, wanted)
        taken = {entry.encoder.name for entry in self.ready}
        for folder, name in zip(folders, names, strict=True) if self.kinds else ():
            kind = self.kinds[0] if len(self.kinds) == 1 else kind_of_folder(folder)
            self.ready.append(from_folder(folder, kind, str(folder) if name in taken else name))

    @property
    def kinds(self) -> tuple[EncoderKind, ...]:
        """The kinds of the encoders that may be compared: those of the items, none for vectors."""
        of_items: dict[ItemKind, tuple[EncoderKind, ...]] = {
            "images": ("images",),
            "texts": ("texts",),
            "images and texts": ("images", "texts"),
            "vectors": (),
        }
        return of_items[self.kind]

    @property
    def missing(self) -> list[str]:
        """Names of the encoders of the catalogue whose weights are not on this machine."""
        names = {entry.encoder.name for entry in self.ready}
        return [encoder.name for kind in self.kinds for encoder in missing(kind) if encoder.name not in names]

    @property
    def rungs(self) -> list[Rung]:
        """The rungs in the order in which they are tried: of drawings, a network from scratch before costly ones."""
        if not self._drawn:
            return [*RUNGS]
        return sorted(RUNGS, key=lambda rung: (rung != ENCODER, rung != "scratch"))

    @property
    def _drawn(self) -> bool:
        return self._shape is not None and self._shape[0] == 1

    @property
    def _shape(self) -> tuple[int, ...] | None:
        """Shape (C, H, W) of the images of the settings; None without images."""
        data = self.settings.data
        if isinstance(data, PairsConfig):
            return None if data.images == "none" else data.image_shape
        return data.input_shape if isinstance(data, ImagesConfig) else None

    @property
    def _small(self) -> bool:
        """True if pixels, and a small network of them, may be better than pretrained encoders."""
        encoders = any(entry.encoder.kind == "images" for entry in self.ready)
        return self._shape is not None and (self._drawn or min(self._shape[1:]) <= SMALL or not encoders)

    def candidates(self, rung: Rung, ranked: Sequence[Candidate]) -> list[Candidate]:
        """The candidates of a rung.

        Args:
            ranked: the encoders as they are, the best first; empty for the rung of these, and where there is none.
        """
        if rung == ENCODER:
            return self._encoders()
        if rung == "scratch":
            return self._scratch()
        if not ranked:
            return []
        networks = [each for each in ranked if each.pretrained]
        if rung == "fine-tuning" and is_reference(ranked[0].values["model"]["name"]):
            return self._tuned(ranked[0])
        # Of a network outside Trivet nothing but its vectors is known, so that no last layer can be put on it.
        best = next((each for each in ranked if not is_reference(each.values["model"]["name"])), None)
        if best is None:
            return []
        if rung == "whitening":
            return [self._with_head(best, "whitening", f"{best.name}, whitened", {"training": FIXED})]
        if rung == "joined":
            return self._joined(networks)
        if rung == "head":
            return self._heads(best)
        return self._tuned(networks[0]) if networks else []

    def _encoders(self) -> list[Candidate]:
        candidates = []
        for entry in self.ready:
            model = (
                entry.model if is_reference(entry.model["name"]) else {**entry.model, "head": "none", "freeze": "all"}
            )
            values = {"data": self._data_for(entry), "model": model, "training": FIXED}
            candidates.append(Candidate(entry.encoder.name, ENCODER, self._values(values), entry.encoder.name))
        if (inputs := self._inputs()) is not None:
            candidates.append(inputs)
        return candidates

    def _inputs(self) -> Candidate | None:
        """The inputs themselves: vectors, those of character n-grams, or the pixels of small images."""
        values = dict[str, Any]()
        if self._shape is not None:
            if not self._small:
                return None
            side = min(*self._shape[1:], DRAWN if self._drawn else PIXELS)
            name, width, values = "the pixels", self._shape[0] * side**2, {"image_size": side, "augment": "none"}
        else:
            name = "character n-grams" if self.kind == "texts" else "the vectors"
            width = int(np.prod(self.train.inputs.shape))
        model = {"name": "residual", "embedding_dim": width}
        return Candidate(name, ENCODER, self._values({"data": values, "model": model, "training": FIXED}), name)

    def _with_head(self, encoder: Candidate, head: str, name: str, values: Values) -> Candidate:
        """A candidate with a last layer on the features of an encoder, or on vectors."""
        model = {**encoder.values["model"]}
        model |= {"name": head} if model["name"] == "residual" else {"head": head}
        if self.kind == "images" and model.get("head") == "residual":
            model["embedding_dim"] = num_features(model["name"])
        rung: Rung = "whitening" if head == "whitening" else "head"
        return Candidate(name, rung, merged(encoder.values, {**values, "model": model}), encoder.name)

    def _heads(self, encoder: Candidate) -> list[Candidate]:
        candidates = list[Candidate]()
        for steps, rate in HEAD_STEPS.items():
            training = {"steps": steps, "learning_rate": rate, "warmup_steps": "all"}
            name = f"{encoder.name}, head of {steps} steps"
            values = {"training": training, "batch": self._batch(32, 8)}
            shorter = candidates[-1].name if candidates else ""
            candidates.append(replace(self._with_head(encoder, "residual", name, values), longer_than=shorter))
        return candidates

    def _joined(self, networks: Sequence[Candidate]) -> list[Candidate]:
        two = [candidate for candidate in networks[:2] if self.kind == "images"]
        sizes = [candidate.values["data"].get("image_size") for candidate in two]
        if len(two) < 2 or sizes[0] != sizes[1]:
            return []
        members = [
            {key: value for key, value in each.values["model"].items() if key not in ("head", "freeze")} for each in two
        ]
        values = {**two[0].values, "model": {"name": "joined", "members": members}}
        return [Candidate(f"{two[0].name} and {two[1].name} joined", "joined", values, two[0].name)]

    def _tuned(self, encoder: Candidate) -> list[Candidate]:
        model = {key: value for key, value in encoder.values["model"].items() if key != "freeze"}
        assert self.kind in ("images", "texts")
        values: Values = {
            "batch": self._batch(16, 4),
            "loss": self._loss(EASY if self.kind == "images" or self.coarse else TRIPLET),
        }
        if self.kind == "images":
            values["data"] = self._augment
        ways = {"fine-tuning": (RATES[self.kind], model)}
        if self.kind == "texts" or (model["name"].startswith(TIMM) and "vit" in model["name"]):
            ways["LoRA"] = LORA_RATE, {**model, "lora": LORA}
        candidates = []
        for how, (rate, network) in ways.items():
            shorter = ""
            for steps in TUNING_STEPS[self.kind]:
                training = {**TUNING, "steps": steps, "learning_rate": rate}
                tuned = merged(encoder.values, {**values, "training": training}) | {"model": network}
                name = f"{encoder.name}, {how} of {steps} steps"
                candidates.append(Candidate(name, "fine-tuning", tuned, encoder.name, shorter))
                shorter = name
        return candidates

    def _scratch_steps(self, batch: int) -> int:
        """Steps of training from nothing, of so many items each."""
        return int(np.clip(round(PASSES * len(self.train) / batch, -2), *SCRATCH_STEPS))

    def _small_network(self, shape: Sequence[int]) -> tuple[str, int]:
        """The small network for images of a shape `(C, H, W)`, and the side that these are brought to."""
        size = min(*shape[1:], DRAWN if self._drawn else SMALL)
        return "mlp" if size < 8 else "conv2" if size < 16 else "conv4", size

    def _scratch(self) -> list[Candidate]:
        if self._shape is None or not self._small:
            return []
        name, size = self._small_network(self._shape)
        batch = self._batch(64, 4)
        steps = self._scratch_steps(math.prod(batch.values()))
        values: Values = {
            "data": {"image_size": size, **self._augment},
            "model": {"name": name, "embedding_dim": SCRATCH_WIDTH},
            "loss": self._loss({"name": "multi-similarity"}),
            "training": {"steps": steps, "learning_rate": 1e-3, "schedule": "cosine"},
            "batch": batch,
        }
        return [Candidate(f"{name} from scratch", "scratch", self._values(values))]

    @property
    def _augment(self) -> Values:
        """Changes of training images: as the settings say, else photographs are shifted and mirrored."""
        data = self.settings.data
        if "augment" in data.model_fields_set:
            return {"augment": data.augment}
        return {"augment": "crop-flip"} if data.mirrored and self._shape is not None and not self._drawn else {}

    def _data_for(self, entry: EncoderAtHand) -> Values:
        """The settings of images that an encoder takes: in colours, not too small, of sides that are whole squares."""
        if self._shape is None:
            return {}
        sides = self._shape[1:]
        height, width = (round(side * max(1.0, LEAST_SIDE / min(sides))) for side in sides)
        if entry.encoder.patch > 1:
            height, width = (entry.encoder.image_size(side) for side in (height, width))
        return {"image_size": height if height == width else [height, width], "channels": 3, "augment": "none"}

    def _values(self, values: Values) -> Values:
        """The sections of a candidate, with those that all of them have."""
        settings = self.settings
        shared: Values = {
            "seed": settings.seed,
            "data": settings.data.model_dump(mode="json", exclude_unset=True),
            "loss": self._loss(EASY if self.coarse else TRIPLET),
            "batch": self._batch(16, 4),
            "evaluation": {"sample": SAMPLE} | settings.evaluation.model_dump(mode="json", exclude_unset=True),
        }
        return merged(shared, values)

    def _batch(self, classes: int, samples: int) -> dict[str, int]:
        if self.level in self.train.numbers:
            return {"size": classes * samples}
        return {"num_classes": max(2, min(classes, self.classes)), "samples_per_class": samples}

    def _loss(self, loss: Values) -> Values:
        if self.train.has_tags(self.level):
            return loss
        if self.level in self.train.numbers:
            return dict(PAIRS)
        counts = np.bincount(self.train.labels[self.level])
        return dict(SINGLES) if (counts == 1).any() else loss


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> Values:
    """Sections with others in place of some of their keys; a loss, and a batch, as a whole."""
    result = {key: dict(section) if isinstance(section, Mapping) else section for key, section in values.items()}
    for key, section in changes.items():
        replaces = key in ("loss", "batch", "training") or not isinstance(section, Mapping)
        result[key] = section if replaces else {**result.get(key, {}), **section}
    return result


def settings_of(candidate: Candidate) -> RunConfig:
    """The settings of the run of a candidate."""
    return RunConfig.parse(candidate.values, source=candidate.name)
