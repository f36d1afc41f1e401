"""Files of weights: their tensors, matched by name with those of a network. Nothing is left random silently."""

from __future__ import annotations

import contextlib
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from trivet.runtime.safe_read import check_expanded
from trivet.runtime.text import abbreviated

WRAPPED = ("state_dict", "model_state_dict", "model")  # entries of a torch file that hold the weights
LISTED = 4  # names in a sentence


def load_weights(network: nn.Module, path: Path) -> str | None:
    """Give a network the weights of a file; returns what of the file was left out, in a sentence, or None.

    Every tensor of the network must be there, with its shape, under its name and anything that stands before the names
    of all, such as "module." or "model.backbone.". The first layer of a network for grey images takes that of one for
    colours, summed over these. The classifier of a timm network is left out without a word.

    Raises:
        ValueError: if the file cannot be read, or does not fit.
    """
    return fill(network, read_tensors(path), source=str(path))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of one of torch that holds nothing but tensors, numbers and texts.

    Raises:
        ValueError: if it is not there, is none, holds no tensors, or expands to far more than it holds.
    """
    if not path.is_file():
        what = "is none" if path.exists() else "does not exist"
        raise ValueError(f"model.weights must be a file of weights: got {path}, which {what}; check the path.")
    sizes: list[int] = []
    with contextlib.suppress(Exception), zipfile.ZipFile(path) as archive:  # it may be none, or broken: see below
        sizes = [member.file_size for member in archive.infolist()]
    check_expanded(path, sum(sizes))
    try:
        safe = path.suffix == ".safetensors"
        content: Any = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # safetensors, torch and its unpickler raise many kinds
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ValueError(
            f"weights must be a safetensors file, or a torch file that holds tensors only: {path} cannot be read "
            f"({type(error).__name__}: {reason}); save a state_dict again."
        ) from None
    for _ in WRAPPED:  # one in the other; a file may hold one that holds itself
        inner = [key for key in WRAPPED if isinstance(content, Mapping) and isinstance(content.get(key), Mapping)]
        content = content[inner[0]] if inner else content
    named = content.items() if isinstance(content, Mapping) else ()
    tensors = {key: value for key, value in named if isinstance(key, str) and isinstance(value, Tensor)}
    if not tensors:
        raise ValueError(f"a file of weights must hold tensors by name: {path} holds none; save a state_dict.")
    special = [key for key, value in tensors.items() if value.layout != torch.strided or value.is_meta]
    special += [key for key, value in tensors.items() if value.is_quantized]
    if special:
        raise ValueError(
            f"a file of weights must hold plain tensors: {abbreviated(special, LISTED)} of {path} are sparse, "
            "quantized or without values; save a state_dict of plain ones."
        )
    check_expanded(path, sum(value.numel() * value.element_size() for value in tensors.values()))
    return tensors


def fill(network: nn.Module, tensors: Mapping[str, Tensor], *, source: str) -> str | None:
    """As `load_weights`, from tensors that were read from `source`."""
    state = network.state_dict()
    prefix = _prefix(list(state), list(tensors), source)
    matched = {name: tensors[prefix + name] for name in state if prefix + name in tensors}
    for name, value in matched.items():
        wanted = state[name].shape
        if value.ndim == len(wanted) == 4 and (*value.shape[:1], 1, *value.shape[2:]) == tuple(wanted):
            matched[name] = value.sum(dim=1, keepdim=True)
    missing = [name for name in state if name not in matched and not name.endswith(".num_batches_tracked")]
    misfits = [
        f"{name} is {list(value.shape)} where {list(state[name].shape)} belongs"
        for name, value in matched.items()
        if value.shape != state[name].shape
    ]
    others = [
        f"{name} is {value.dtype} where {state[name].dtype} belongs"
        for name, value in matched.items()
        if value.is_floating_point() != state[name].is_floating_point()
    ]
    fitting = {} if misfits else matched  # shapes before values
    broken = [name for name, value in fitting.items() if value.is_floating_point() and not bool(value.isfinite().all())]
    problems = (
        (missing, f"{len(missing)} of its {len(state)} tensors are missing"),
        (misfits, f"{len(misfits)} are of another shape"),
        (others, f"{len(others)} are of another type"),
        (broken, f"{len(broken)} hold NaN or infinity"),
    )
    texts = [f"{what} ({abbreviated(names, LISTED)})" for names, what in problems if names]
    if texts:
        raise ValueError(
            f"the weights of {source} must fit the backbone: {', '.join(texts)}; give the weights of this very "
            "network, or another model.name."
        )
    network.load_state_dict(matched, strict=False)
    classifier = getattr(network, "pretrained_cfg", {}).get("classifier") or ()  # timm's: names of layers, or one
    layers = tuple(f"{prefix}{layer}." for layer in ([classifier] if isinstance(classifier, str) else classifier))
    rest = [
        name
        for name in tensors
        if not (name.startswith(prefix) and name.removeprefix(prefix) in matched) and not name.startswith(layers)
    ]
    if not rest:
        return None
    return f"Tensors of {source} that the backbone does not have were left out: {abbreviated(rest, LISTED)}."


def _prefix(names: list[str], stored: list[str], source: str) -> str:
    """The prefix of the names of the network in a file: that with which most are there."""
    known = set(stored)
    tried = {name.removesuffix(name_of) for name_of in names[:2] for name in stored if name.endswith(name_of)}
    counts = Counter({prefix: sum(prefix + name_of in known for name_of in names) for prefix in tried})
    (best, most), *others = counts.most_common(2) or [("", 0)]
    if most and any(count == most for _, count in others):
        first, second = sorted([best, others[0][0]])
        raise ValueError(
            f"{source} must hold one such network: it has one under {first!r} and another under {second!r}; save the "
            "one you want alone."
        )
    return best


def reach_hub(repository: str) -> None:
    """Send the Hugging Face hub one request, because its downloads repeat a failed connection for a minute."""
    import huggingface_hub as hub
    from huggingface_hub.errors import HfHubHTTPError

    with contextlib.suppress(HfHubHTTPError):  # an answer; whether the file is there is for the download to say
        hub.get_hf_file_metadata(hub.hf_hub_url(repository, "config.json"))
