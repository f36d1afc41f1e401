"""Heads begin as what they stand on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trivet.models import ModelConfig, build
from trivet.models.heads import HeadName, Projection, Residual, make_head


@pytest.mark.parametrize(("d_in", "d_out"), [(5, 5), (5, 8)])
def test_it_begins_as_its_features(d_in: int, d_out: int) -> None:
    features = torch.randn(7, d_in, generator=torch.Generator().manual_seed(0))
    head = Residual(d_in, d_out)
    assert torch.equal(head(features), torch.nn.functional.pad(features, (0, d_out - d_in)))
    head(features).square().sum().backward()
    assert head.change.weight.grad is not None
    assert head.change.weight.grad.abs().sum() > 0


def test_a_narrower_one_begins_as_the_best_linear_map_of_its_width() -> None:
    """By the definition: no other projection on two directions keeps more of the squares of the features."""
    features = torch.randn(200, 6, generator=torch.Generator().manual_seed(1)) @ torch.diag(torch.arange(6.0))
    head = Residual(6, 2)
    assert head.fitted
    head.fit_base(features)
    _, sizes, _ = np.linalg.svd(features.double().numpy(), full_matrices=False)
    kept = head(features).square().sum().item()
    assert kept == pytest.approx((sizes[:2] ** 2).sum(), rel=1e-5)
    assert head.base is not None
    torch.testing.assert_close(head.base @ head.base.T, torch.eye(2), atol=1e-6, rtol=0)


def test_it_is_a_model_by_name_and_its_projection_is_saved() -> None:
    config = ModelConfig.parse({"name": "residual", "embedding_dim": 3, "normalize": False}, source="test")
    model = build(config, (4,), seed=0)
    assert model.unfitted is not None
    model.unfitted.fit_base(torch.randn(20, 4, generator=torch.Generator().manual_seed(2)))
    again = build(config, (4,), seed=0)
    again.load_state_dict(model.state_dict())
    features = torch.randn(5, 4, generator=torch.Generator().manual_seed(3))
    assert torch.equal(model(features), again(features))
    assert build(config.model_copy(update={"embedding_dim": 4}), (4,), seed=0).unfitted is None


@pytest.mark.parametrize("d_out", [2, 6, 8])
def test_a_linear_head_on_pretrained_features_begins_as_a_residual_one(d_out: int) -> None:
    features = torch.randn(50, 6, generator=torch.Generator().manual_seed(4)) @ torch.diag(torch.arange(6.0))
    kinds: tuple[HeadName, ...] = ("linear", "residual")
    heads = [make_head(kind, 6, d_out, as_features=True) for kind in kinds]
    for head in heads:
        assert isinstance(head, Projection | Residual)
        assert head.fitted == (d_out < 6)
        if head.fitted:
            head.fit_base(features)
    torch.testing.assert_close(heads[0](features), heads[1](features))
    assert all(values.requires_grad for values in heads[0].parameters())


def test_each_head_has_the_width_that_is_asked_for() -> None:
    features = torch.randn(3, 6)
    kinds: tuple[HeadName, ...] = ("linear", "residual", "mlp")
    for kind in kinds:
        assert make_head(kind, 6, 4, as_features=False)(features).shape == (3, 4)
    assert type(make_head("linear", 6, 4, as_features=False)) is torch.nn.Linear
    assert make_head("none", 6, 6, as_features=True)(features) is features
    with pytest.raises(ValueError, match=r"number of features, 6, with head = .none.: got 4; leave it out"):
        make_head("none", 6, 4, as_features=True)
