from __future__ import annotations

from typing import Any

import pytest

from trivet.models import ModelConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"name": "conv5"},
            "did you mean 'conv4'. Allowed: conv2, .*, mlp, python:FILE.py:NAME, residual, text:NAME, timm:NAME",
        ),
        ({"name": "timm:resnte50"}, "did you mean resnet50.*timm.list_models"),
        ({"name": "mlp", "pretrained": True}, "mlp has none; set pretrained = false"),
        ({"name": "linear", "width": 8}, "remove it for linear"),
        ({"name": "conv2", "embedding_dim": 1}, "leaves two points"),
        ({"name": "conv2", "embedding_dim": 0}, "embedding_dim must be at least 1: got 0"),
        ({"name": "conv2", "embedding_dim": 10**12}, "embedding_dim must be at most 65536: got 1000000000000"),
        ({"name": "conv2", "width": 4097}, "width must be at most 4096: got 4097"),
    ],
)
def test_settings_that_cannot_work_or_do_nothing_are_errors(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig.parse(values, source="model")
