"""Files of weights are matched by name, and what does not fit is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from trivet.models.weights import load_weights


def network(channels: int = 3) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4))


def held() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        key: torch.rand(value.shape, generator=generator) if value.is_floating_point() else value
        for key, value in network().state_dict().items()
    }


@pytest.mark.parametrize("prefix", ["", "module.", "model.backbone.", "body.0."])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_names_may_stand_behind_a_prefix(prefix: str, suffix: str, tmp_path: Path) -> None:
    path, state = tmp_path / f"w{suffix}", held()
    named = {prefix + key: value for key, value in state.items()}
    if suffix == ".pth":
        torch.save({"epoch": 3, "state_dict": {**named, "fc.weight": torch.zeros(2)}}, path)
    else:
        save_file({**named, "fc.weight": torch.zeros(2)}, path)
    filled = network()
    said = load_weights(filled, path)
    assert said == f"Tensors of {path} that the backbone does not have were left out: fc.weight."
    assert all(torch.equal(value, state[key]) for key, value in filled.state_dict().items())


def test_a_network_for_grey_images_sums_over_the_colours(tmp_path: Path) -> None:
    path, state = tmp_path / "w.safetensors", held()
    save_file(state, path)
    grey = network(1)
    assert load_weights(grey, path) is None
    torch.testing.assert_close(grey.state_dict()["0.weight"], state["0.weight"].sum(1, keepdim=True))


def without(*keys: str) -> dict[str, Tensor]:
    return {key: value for key, value in held().items() if key not in keys}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: without("1.running_mean", "0.bias"), r"2 of its 7 tensors are missing \(0.bias, 1.running_mean\)"),
        (
            lambda: {**held(), "0.bias": torch.zeros(5)},
            r"1 are of another shape \(0.bias is \[5\] where \[4\] belongs\)",
        ),
        (lambda: {**held(), "1.weight": torch.full((4,), torch.nan)}, r"1 hold NaN or infinity \(1.weight\)"),
        (lambda: {"other": torch.zeros(3)}, "7 of its 7|6 of its 7"),
        (
            lambda: {f"{one}.{key}": value for one in "ab" for key, value in held().items()},
            "one under 'a.' and another",
        ),
        (dict, "holds none; save a state_dict"),
        (lambda: network(), "cannot be read .*UnpicklingError"),
    ],
)
def test_what_does_not_fit_is_listed_and_nothing_is_filled(
    content: Callable[[], Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "w.pt"
    torch.save(content(), path)
    filled = network()
    before = {key: value.clone() for key, value in filled.state_dict().items()}
    with pytest.raises(ValueError, match=message) as error:
        load_weights(filled, path)
    assert "\n" not in str(error.value)
    assert all(torch.equal(value, before[key]) for key, value in filled.state_dict().items())


def test_older_files_without_counts_of_batches_fit(tmp_path: Path) -> None:
    torch.save(without("1.num_batches_tracked"), tmp_path / "w.pth")
    assert load_weights(network(), tmp_path / "w.pth") is None
