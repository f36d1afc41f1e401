"""Heads begin as what they stand on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trivet.models import ModelConfig, build
from trivet.models.heads import HeadName, Projection, Residual, Whitening, make_head

NO_LABELS = torch.zeros(0, dtype=torch.int64)


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
    head.fit_base(features, NO_LABELS)
    _, sizes, _ = np.linalg.svd(features.double().numpy(), full_matrices=False)
    kept = head(features).square().sum().item()
    assert kept == pytest.approx((sizes[:2] ** 2).sum(), rel=1e-5)
    assert head.base is not None
    torch.testing.assert_close(head.base @ head.base.T, torch.eye(2), atol=1e-6, rtol=0)


def test_it_is_a_model_by_name_and_its_projection_is_saved() -> None:
    config = ModelConfig.parse({"name": "residual", "embedding_dim": 3, "normalize": False}, source="test")
    model = build(config, (4,), seed=0)
    assert model.unfitted is not None
    model.unfitted.fit_base(torch.randn(20, 4, generator=torch.Generator().manual_seed(2)), NO_LABELS)
    again = build(config, (4,), seed=0)
    again.load_state_dict(model.state_dict())
    features = torch.randn(5, 4, generator=torch.Generator().manual_seed(3))
    assert torch.equal(model(features), again(features))
    assert build(config.model_copy(update={"embedding_dim": 4}), (4,), seed=0).unfitted is None


@pytest.mark.parametrize("d_out", [3, 2])
def test_whitening_equals_the_definition(d_out: int) -> None:
    """Cosines of the embeddings are those of features times the inverse root of their covariance within classes."""
    generator = np.random.default_rng(0)
    labels = np.array([5, 5, 5, 5, 0, 0, 0, 2, 2, 9] * 4)
    features = generator.normal(size=(40, 3)) * [1, 4, 0.3] + 3.0 * labels[:, None] * [0.1, 0.0, 0.2] + 7.0
    rows = features / np.linalg.norm(features, axis=1, keepdims=True)
    mean = np.array([sum(column) / 40 for column in rows.T])
    covariance = np.zeros((3, 3))
    for label in set(labels):
        members = [row for row, other in zip(rows, labels, strict=True) if other == label]
        center = sum(members) / len(members)
        covariance += sum(np.outer(row - center, row - center) for row in members) / 40
    values, directions = np.linalg.eigh(covariance + 10 * np.trace(covariance) / 3 * np.eye(3))
    expected = (rows - mean) @ directions @ np.diag(values**-0.5) @ directions.T
    expected = expected @ np.linalg.svd(expected)[2][:d_out].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    model = build(ModelConfig(name="whitening", embedding_dim=d_out), (3,), seed=0)
    assert isinstance(model.unfitted, Whitening)
    model.unfitted.fit_base(torch.from_numpy(rows), torch.from_numpy(labels))
    got = model.double()(torch.from_numpy(features)).numpy()
    np.testing.assert_allclose(got @ got.T, expected @ expected.T, atol=1e-5)
    assert model.num_parameters == 0
    assert model.embed(features.astype(np.float32)).shape == (40, d_out)


def test_whitening_of_classes_of_one_item_takes_off_the_mean_alone() -> None:
    features = torch.randn(6, 4, generator=torch.Generator().manual_seed(5))
    head = Whitening(4, 4, unit=False)
    head.fit_base(features, torch.arange(6))
    got, centred = head(features), features - features.mean(dim=0)
    torch.testing.assert_close(got @ got.T, centred @ centred.T)
    with pytest.raises(ValueError, match=r"at most the number of features, 4, with whitening: got 5; set embedding_di"):
        Whitening(4, 5, unit=False)


@pytest.mark.parametrize("d_out", [2, 6, 8])
def test_a_linear_head_on_pretrained_features_begins_as_a_residual_one(d_out: int) -> None:
    features = torch.randn(50, 6, generator=torch.Generator().manual_seed(4)) @ torch.diag(torch.arange(6.0))
    kinds: tuple[HeadName, ...] = ("linear", "residual")
    heads = [make_head(kind, 6, d_out, as_features=True, unit=True) for kind in kinds]
    for head in heads:
        assert isinstance(head, Projection | Residual)
        assert head.fitted == (d_out < 6)
        if head.fitted:
            head.fit_base(features, NO_LABELS)
    torch.testing.assert_close(heads[0](features), heads[1](features))
    assert all(values.requires_grad for values in heads[0].parameters())


def test_each_head_has_the_width_that_is_asked_for() -> None:
    features = torch.randn(3, 6)
    kinds: tuple[HeadName, ...] = ("linear", "residual", "mlp")
    for kind in kinds:
        assert make_head(kind, 6, 4, as_features=False, unit=True)(features).shape == (3, 4)
    assert type(make_head("linear", 6, 4, as_features=False, unit=True)) is torch.nn.Linear
    assert make_head("none", 6, 6, as_features=True, unit=True)(features) is features
    with pytest.raises(ValueError, match=r"number of features, 6, with head = .none.: got 4; set embedding_dim = 6"):
        make_head("none", 6, 4, as_features=True, unit=True)
