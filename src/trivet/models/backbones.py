"""Backbones of timm and torchvision: made, given weights, without their classifier, frozen in part."""

from __future__ import annotations

import difflib
import logging
import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from trivet.models.config import TIMM, TORCHVISION, ModelConfig
from trivet.models.embedder import Embedder, image_shape
from trivet.models.heads import AS_WIDE, HeadName, make_head
from trivet.models.lora import add_lora
from trivet.models.stages import stages
from trivet.models.weights import fill, load_weights, reach_hub
from trivet.runtime.safe_read import read_json

HALVES = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
TRAINED_ON_HALVES = ("googlenet", "inception_v3")  # in torchvision these convert colours normalised otherwise
SAVED = ("model.safetensors", "pytorch_model.bin")  # files of weights in a folder of timm
GEM_POWER, GEM_FLOOR = 3.0, 1e-6
PoolingName = Literal["avg", "max", "gem"]


class BackboneConfig(ModelConfig):
    """A network of timm or torchvision without its classifier, and a last layer on its features.

    Without a learned last layer, `embedding_dim` may be left out: it is the number of features.

    Raises:
        ValueError: if there is no such network, or there are two kinds of weights.

    Source:
        Radenović, Tolias, Chum, "Fine-tuning CNN image retrieval with no human annotation", TPAMI 2019, for "gem".

    Args:
        weights: file of weights of yours to start from, safetensors or torch, matched by name, or a folder that timm
            saved.
        head: last layer: linear, mlp, residual (a projection that stays and a learned change), whitening or none.
        pooling: how a feature map becomes a vector, avg, max or gem, where a search needs small details.
        freeze: layers that stay as they are, stem, all or so many stages, to save time or where items are few.
        lora: rank of low-rank changes of the linear layers, trained in place of a vision transformer; 0 for none.
        batch_norm: "frozen" keeps its first statistics, by default those of pretrained weights; it suits small batches.
    """

    is_backbone = True

    weights: Path | None = None
    head: HeadName = "linear"
    pooling: PoolingName | None = None
    freeze: Literal["none", "stem", "all"] | Annotated[int, Field(ge=1, le=1000)] = "none"
    lora: int = Field(0, ge=0, le=1024)
    batch_norm: Literal["train", "frozen"] | None = None

    @property
    def begins_trained(self) -> bool:
        """True if the backbone has weights that were trained elsewhere."""
        return self.pretrained or self.weights is not None

    @property
    def freezes_batch_norm(self) -> bool:
        """True if batch norm keeps its statistics in training."""
        return self.batch_norm == "frozen" if self.batch_norm is not None else self.begins_trained

    def stored(self) -> ModelConfig:
        """Settings of a network that continues this one, whose weights are at hand."""
        norm = "frozen" if self.freezes_batch_norm else "train"
        return self.model_copy(update={"pretrained": False, "weights": None, "batch_norm": norm, "lora": 0})

    @field_validator("freeze", mode="before")
    @classmethod
    def _stages(cls, value: Any) -> Any:
        if value in ("none", "stem", "all") or (type(value) is int and value >= 1):
            return value
        raise ValueError(f'it must be "none", "stem", "all" or a number of stages from 1 on: got {value!r}.')

    @model_validator(mode="before")
    @classmethod
    def _width(cls, values: Any) -> Any:
        """Without a learned last layer, an embedding is as long as the features."""
        if not isinstance(values, Mapping) or values.get("head") not in AS_WIDE or "embedding_dim" in values:
            return values
        check_backbone_name(values.get("name", ""))
        return {**values, "embedding_dim": num_features(values["name"])}

    @model_validator(mode="after")
    def _check_start(self) -> Self:
        if not self.name.startswith((TIMM, TORCHVISION)):
            raise ValueError(f"name must be timm:NAME or torchvision:NAME for a backbone: got {self.name!r}.")
        check_backbone_name(self.name)
        if self.pretrained and self.weights is not None:
            raise ValueError("a backbone has one start: set pretrained = true or weights = FILE, not both.")
        if self.lora and self.freeze != "none":
            raise ValueError("lora trains nothing else of the network: remove freeze, or set lora = 0.")
        return self


def check_backbone_name(name: str) -> None:
    """Raises ValueError, with the nearest names, if the library has no such network."""
    library, _, network_name = name.partition(":")
    if f"{library}:" == TIMM:
        import timm  # here: it takes seconds to load, and most models need none of it

        if timm.is_model(network_name):
            return
        known, listed = timm.list_models(), "import timm; print(timm.list_models('*net*'))"
    else:
        from torchvision import models

        known = models.list_models(module=models)
        if network_name in known:
            return
        listed = "from torchvision import models as m; print(m.list_models(module=m))"
    close = difflib.get_close_matches(network_name, known, n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(close)}? " if close else ""
    raise ValueError(f'{library} has no model {network_name!r}; {guess}List them with: python -c "{listed}".')


class GeneralizedMean(nn.Module):
    """Feature maps `(B, C, H, W)`, taken as at least 1e-6, to `(B, C, 1, 1)`: the root of the mean of a power, learned.

        ((1 / HW) sum_hw x^p)^(1/p)

    p = 1 is the mean; the larger p, the nearer the maximum. It begins at 3.

    Source:
        Radenović, Tolias, Chum, "Fine-tuning CNN image retrieval with no human annotation", TPAMI 2019, equation 3.
    """

    def __init__(self) -> None:
        super().__init__()
        self.power = nn.Parameter(torch.tensor([GEM_POWER]))

    def forward(self, maps: Tensor) -> Tensor:
        return maps.clamp(min=GEM_FLOOR).pow(self.power).mean((2, 3), keepdim=True).pow(1 / self.power)


class Maximum(nn.Module):
    """The maximum of each feature map `(B, C, H, W)`: `(B, C, 1, 1)`; its gradient is the same in each run."""

    def forward(self, maps: Tensor) -> Tensor:
        return maps.amax((2, 3), keepdim=True)


POOLING: dict[str, Callable[[], nn.Module]] = {
    "avg": partial(nn.AdaptiveAvgPool2d, 1),
    "max": Maximum,
    "gem": GeneralizedMean,
}


def build_backbone(config: BackboneConfig, input_shape: tuple[int, ...]) -> Embedder:
    """The network of the settings with its last layer, for images `(C, H, W)`, on the CPU.

    Raises:
        ValueError: if it does not take such images, its weights cannot be had or do not fit, or it has fewer stages
            than are to be frozen.
    """
    make = _timm_network if config.name.startswith(TIMM) else _torchvision_network
    shape = image_shape(config.name, input_shape)
    network, (mean, std), size, note = make(config, shape[0])
    try:
        _fit_positions(network, shape[1:])
        frozen = _frozen(network, config)
        network = _pooled(network, config)
        if config.freeze == "all":
            frozen = [network]
        with torch.no_grad():
            features = network.eval()(torch.zeros(1, *shape))
    except ValueError:
        raise
    except Exception as error:  # each network has its own way to say that a size does not fit
        raise ValueError(
            f"{config.name} cannot take images of shape {shape} ({' '.join(str(error).split())}); set "
            f"data.image_size = {size}."
        ) from None
    if features.ndim != 2:
        raise ValueError(
            f"{config.name} must give one vector for an image: it gives {tuple(features.shape[1:])}; remove "
            "model.pooling, or use another network."
        )
    for module in frozen:
        module.requires_grad_(False)
    if config.lora:
        add_lora(network, config.lora)
    still = [module for module in frozen if isinstance(module, nn.Module)]
    if config.freezes_batch_norm:
        still += [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    colours = _colours(mean, std, channels=shape[0], trained=config.begins_trained)
    # A copy in another order of memory: the same numbers, up to 1.5 times as fast, most with depthwise layers.
    network = network.to(memory_format=torch.channels_last).train()
    head = make_head(
        config.head, features.shape[1], config.embedding_dim, as_features=config.begins_trained, unit=config.normalize
    )
    return Embedder(
        nn.Sequential(network, head),
        input_shape=shape,
        normalize=config.normalize,
        mean=colours[0],
        std=colours[1],
        on_backbone=True,
        channels_last=True,
        still=tuple(still),
        notes=() if note is None else (note,),
    )


def read_backbone(path: Path, name: str | None = None) -> Embedder:
    """The features of a backbone of timm or torchvision with weights on disk, for images of the size it was made for.

    Args:
        path: the folder that timm saves for the Hugging Face hub, with a `config.json`, or a file of weights.
        name: "timm:NAME" or "torchvision:NAME", for a file; by default its own name without the ending, of timm.

    Raises:
        ValueError: if there is no such network, or the weights do not fit.
    """
    preparation: Mapping[str, Any] = {}
    if path.is_dir():
        name, _, preparation = read_timm_folder(path)
    elif name is None:
        import timm  # here: it takes seconds to load

        if not timm.is_model(path.stem):
            raise ValueError(
                f"the network of a file of weights must be known: {path.name} is called like none of timm; name it "
                "with --network timm:NAME or torchvision:NAME."
            )
        name = TIMM + path.stem
    settings = {"name": name, "weights": path, "head": "none", "normalize": False}
    config = ModelConfig.parse(settings, source=str(path))
    assert isinstance(config, BackboneConfig)
    make = _timm_network if config.name.startswith(TIMM) else _torchvision_network
    size = make(config.model_copy(update={"weights": None}), 3).size
    height, width = (preparation.get("input_size") or (3, size, size))[-2:]
    return build_backbone(config, (3, int(height), int(width))).eval()


def read_timm_folder(folder: Path) -> tuple[str, Path, Mapping[str, Any]]:
    """The network of a folder that timm saved for the Hugging Face hub, its file of weights, and how images are made.

    Returns:
        "timm:NAME"; the file; `input_size`, `mean`, `std` and more, where the folder has them.

    Raises:
        ValueError: if the folder has no such description.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise ValueError(f"a folder of a backbone must be one that timm saved: {folder} has no config.json.")
    values = read_json(file, "the description of a backbone")
    if not isinstance(values, Mapping) or not isinstance(values.get("architecture"), str):
        raise ValueError(f"{file} must name the architecture of a timm model; save it with timm again.")
    weights = next((folder / name for name in SAVED if (folder / name).is_file()), folder / SAVED[0])
    return TIMM + values["architecture"], weights, values.get("pretrained_cfg") or {}


def _fit_positions(network: nn.Module, size: tuple[int, ...]) -> None:
    """Let a vision transformer take images of another size: the vectors of its positions are interpolated."""
    cfg: Any = getattr(network, "pretrained_cfg", {})
    if cfg.get("fixed_input_size") and hasattr(network, "set_input_size") and tuple(cfg["input_size"][1:]) != size:
        change: Any = network.set_input_size
        with warnings.catch_warnings(action="ignore"):  # of torch, over how timm interpolates
            change(img_size=size)


def _colours(
    mean: tuple[float, ...] | None, std: tuple[float, ...] | None, *, channels: int, trained: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Mean and deviation of colours as they are; of grey images their average, if the network is pretrained."""
    if mean is None or std is None or (channels != 3 and not (channels == 1 and trained)):
        return None, None
    known = torch.tensor(mean), torch.tensor(std)
    return known if channels == 3 else (known[0].mean()[None], known[1].mean()[None])


class _Network(NamedTuple):
    network: nn.Module
    colours: tuple[tuple[float, ...] | None, tuple[float, ...] | None]
    size: int  # of the images it was made for
    note: str | None


def _timm_network(config: BackboneConfig, channels: int) -> _Network:
    import timm  # here: it takes seconds to load

    name = config.name.removeprefix(TIMM)
    pooling: Any = {} if config.pooling is None else {"global_pool": ""}
    if config.pretrained:
        try:
            network = _with_published_weights(name, channels, pooling)
        except Exception as error:  # the network, the hub's client and timm raise many kinds
            raise _not_loaded(config, error, "~/.cache/huggingface") from None
    else:
        try:
            network = timm.create_model(name, num_classes=0, in_chans=channels, **pooling)
        except (TypeError, AssertionError) as error:  # what a network says that has no choice of pooling
            if not pooling:
                raise
            raise _pooling_error(config, str(error)) from None
    cfg: Any = network.pretrained_cfg
    note = None
    if config.weights is not None and config.weights.is_dir():
        saved, file, preparation = read_timm_folder(config.weights)
        if saved.partition(".")[0] != config.name.partition(".")[0]:
            raise ValueError(f"model.weights must be of {config.name}: {config.weights} holds {saved}; name that.")
        note, cfg = load_weights(network, file), {**cfg, **preparation}
    elif config.weights is not None:
        note = load_weights(network, config.weights)
    return _Network(network, (cfg.get("mean"), cfg.get("std")), cfg.get("input_size", (3, 224, 224))[-1], note)


def _torchvision_network(config: BackboneConfig, channels: int) -> _Network:
    from torchvision import models

    name = config.name.removeprefix(TORCHVISION)
    published = models.get_model_weights(name)["DEFAULT"]
    halves = name in TRAINED_ON_HALVES
    options = {"aux_logits": False, "transform_input": False, "init_weights": True} if halves else {}
    network = models.get_model(name, weights=None, **options)
    _remove_classifier(network)
    if channels != 3:
        _replace_first_layer(network, channels)
    note = None
    if config.pretrained:
        try:
            tensors = published.get_state_dict(progress=False, check_hash=True, weights_only=True)
        except Exception as error:  # the network and torch raise many kinds
            raise _not_loaded(config, error, "~/.cache/torch/hub") from None
        fill(network, tensors, source=config.name)  # what it leaves out is the classifier
    elif config.weights is not None:
        note = load_weights(network, config.weights)
    preset = published.transforms()
    mean, std = HALVES if halves else (tuple(preset.mean), tuple(preset.std))
    return _Network(network, (mean, std), preset.crop_size[0], note)


def _not_loaded(config: BackboneConfig, error: Exception, cache_folder: str) -> ValueError:
    reason = str(error).strip().partition("\n")[0]
    return ValueError(
        f"the pretrained weights of {config.name} could not be loaded ({type(error).__name__}: {reason}); set "
        f"model.pretrained = false, set model.weights to a file, or copy {cache_folder} from a machine that has them."
    )


def _remove_classifier(network: nn.Module) -> int:
    """Take the last classifier, and dropout beside it, out of a network of torchvision; returns its inputs."""
    path, last = next(
        (path, module)
        for path, module in reversed(list(network.named_modules()))
        if (isinstance(module, nn.Linear) and module.out_features == 1000)
        or (isinstance(module, nn.Conv2d) and module.out_channels == 1000)
    )
    holder, _, name = path.rpartition(".")
    parent = network.get_submodule(holder)
    setattr(parent, name, nn.Identity())
    for key, module in parent.named_children():
        if isinstance(module, nn.Dropout):
            setattr(parent, key, nn.Identity())
    return last.in_features if isinstance(last, nn.Linear) else last.in_channels


def _replace_first_layer(network: nn.Module, channels: int) -> None:
    """Let the first layer of a network take images of so many channels."""
    path, first = next((path, module) for path, module in network.named_modules() if isinstance(module, nn.Conv2d))
    holder, _, name = path.rpartition(".")
    kernel, stride, padding = cast("list[tuple[int, int]]", [first.kernel_size, first.stride, first.padding])
    made = nn.Conv2d(channels, first.out_channels, kernel, stride, padding, bias=first.bias is not None)
    setattr(network.get_submodule(holder), name, made)


@cache
def num_features(name: str) -> int:
    """The number of features of a backbone, by its name; its weights are not made where that can be done without.

    Raises:
        ValueError: if it gives more than one vector for an image.
    """
    try:
        with torch.device("meta"):
            return _num_features(name)
    except (NotImplementedError, RuntimeError):  # a network that reads its own numbers while it is made
        with torch.random.fork_rng(devices=[]):
            return _num_features(name)


def _num_features(name: str) -> int:
    if name.startswith(TORCHVISION):
        from torchvision import models

        library_name = name.removeprefix(TORCHVISION)
        options = {"aux_logits": False, "init_weights": False} if library_name in TRAINED_ON_HALVES else {}
        return _remove_classifier(models.get_model(library_name, weights=None, **options))
    import timm

    network = timm.create_model(name.removeprefix(TIMM), num_classes=0).eval()
    cfg: Any = network.pretrained_cfg
    with torch.no_grad():
        features = network(torch.zeros(1, *cfg.get("input_size", (3, 224, 224))))
    if features.ndim != 2:
        raise ValueError(f"{name} must give one vector for an image: it gives {tuple(features.shape[1:])}.")
    return int(features.shape[1])


def _pooled(network: nn.Module, config: BackboneConfig) -> nn.Module:
    """The network with the pooling of the settings."""
    if config.pooling is None:
        return network
    pool = POOLING[config.pooling]()
    if config.name.startswith(TIMM):
        if getattr(network, "output_fmt", "NCHW") != "NCHW":
            raise _pooling_error(config, "its maps have their channels last")
        return nn.Sequential(network, pool, nn.Flatten())
    pool_layer = getattr(network, "avgpool", None)
    if not isinstance(pool_layer, nn.AdaptiveAvgPool2d) or pool_layer.output_size not in (1, (1, 1)):
        raise _pooling_error(config, "it has no layer avgpool of one output")
    network.avgpool = pool
    return network


def _pooling_error(config: BackboneConfig, why: str) -> ValueError:
    return ValueError(f"{config.name} pools its features itself ({why.rstrip('.')}): remove model.pooling.")


def _frozen(network: nn.Module, config: BackboneConfig) -> list[nn.Module | nn.Parameter]:
    """The modules that are not trained, and parameters that belong to none, such as positions of patches."""
    if config.freeze in ("none", "all"):  # all: what pools it, too
        return []
    known = stages(network)
    count = config.freeze if isinstance(config.freeze, int) else 0
    if count >= len(known):
        raise ValueError(
            f"model.freeze must be at most the number of stages: {config.name} has {len(known) - 1} after its first "
            f'layer, got {count}; use "all" for the whole of it.'
        )
    inside = {id(values) for stage in known for module in stage for values in module.parameters()}
    alone = [values for values in network.parameters() if id(values) not in inside]
    return [*(module for stage in known[: count + 1] for module in stage), *alone]


def _with_published_weights(name: str, channels: int, pooling: Any) -> nn.Module:
    """The backbone with its weights; unlike the hub's client alone, a missing network is met once, without warnings."""
    import huggingface_hub as hub
    import timm
    from huggingface_hub.utils import logging as hub_logging

    verbosity = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)
    try:
        cfg = timm.get_pretrained_cfg(name)
        repository = cfg.hf_hub_id if cfg is not None else None
        if repository is not None:
            cached = Path(hub.constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}" / "snapshots"
            if not cached.exists():
                reach_hub(repository)
        return timm.create_model(name, pretrained=True, num_classes=0, in_chans=channels, **pooling)
    finally:
        hub_logging.set_verbosity(verbosity)
