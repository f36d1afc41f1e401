"""Micro-batches beside the plain gradient of the whole batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.every_loss import EVERY_LOSS
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import trivet
from trivet.distances import unit_rows
from trivet.samplers import embed_in_pieces, micro_batches

N, SIZE = 26, 4  # pieces of 4 and of 3 items
LABELS = torch.arange(N) % 4


class Unit(nn.Module):
    def forward(self, rows: Tensor) -> Tensor:
        return unit_rows(rows)


def network(*between: nn.Module, d: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 3, 3), *between, nn.ReLU(), nn.Flatten(), nn.Linear(48, d), Unit())
    return nn.Sequential(*layers)


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(N, 1, 6, 6, dtype=dtype, generator=torch.Generator().manual_seed(1))


def gradient(*modules: nn.Module) -> Tensor:
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return torch.cat([torch.zeros(p.numel()) if p.grad is None else p.grad.flatten().float() for p in parameters])


def error(found: Tensor, expected: Tensor) -> float:
    assert expected.norm() > 0
    return float((found - expected).norm() / expected.norm())


def plain(model: nn.Module, inputs: Tensor) -> Tensor:
    """Embeddings of the same pieces, all with their activations."""
    number = -(-N // SIZE)
    order = torch.cat([torch.arange(start, N, number) for start in range(number)])
    return torch.cat([model(inputs[start::number]) for start in range(number)])[order.argsort()]


@pytest.mark.parametrize("name", EVERY_LOSS)
def test_the_gradient_is_that_of_the_whole_batch(name: str) -> None:
    """Of the parameters of the loss, too; random choices are drawn once, as for the whole batch."""
    model, loss = network(), EVERY_LOSS[name](generator=torch.Generator().manual_seed(2))
    its, own = copy.deepcopy(model), copy.deepcopy(loss)
    value = loss(model(images()), LABELS)
    value.backward()
    in_pieces = micro_batches(its, own, images(), LABELS, size=SIZE)
    in_pieces.backward()
    assert in_pieces.item() == pytest.approx(value.item(), rel=1e-6)
    assert error(gradient(its, own), gradient(model, loss)) < 1e-5
    assert torch.equal(own.key, loss.key)


@pytest.mark.parametrize(("half", "limit"), [(torch.bfloat16, 2e-2), (torch.float16, 5e-3)])
def test_a_piece_is_embedded_again_under_the_same_autocast(half: torch.dtype, limit: float) -> None:
    model, loss = network(), trivet.TripletLoss(positives="all", negatives="all", reduction="mean")
    its = copy.deepcopy(model)
    seen: list[torch.dtype] = []
    its[0].register_forward_hook(lambda _, __, out: seen.append(out.dtype))
    for one, embed in ((model, lambda: model(images())), (its, lambda: embed_in_pieces(its, images(), SIZE))):
        with torch.autocast("cpu", half):
            value = loss(embed(), LABELS)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        scaler.scale(value).backward()
        scaler.unscale_(torch.optim.SGD(one.parameters()))
    assert error(gradient(its), gradient(model)) < limit
    assert seen == [half] * (7 + 6)  # the last piece is not thrown away


def test_dropout_leaves_out_the_same_both_times() -> None:
    model = network(nn.Dropout(0.5))
    its, loss = copy.deepcopy(model), trivet.TripletLoss(positives="hard", negatives="hard")
    torch.manual_seed(5)
    loss(plain(model, images()), LABELS).backward()
    after = torch.rand(1)
    torch.manual_seed(5)
    value = micro_batches(its, loss, images(), LABELS, size=SIZE)
    drawn = torch.rand(1)
    value.backward()
    assert torch.equal(gradient(its), gradient(model))
    assert torch.equal(drawn, after)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_in_training_is_over_a_piece_and_counts_it_once(momentum: float | None) -> None:
    model = network(nn.BatchNorm2d(3, momentum=momentum))
    its, loss = copy.deepcopy(model), trivet.TripletLoss(positives="hard", negatives="hard")
    loss(plain(model, images()), LABELS).backward()
    micro_batches(its, loss, images(), LABELS, size=SIZE).backward()
    assert torch.equal(gradient(its), gradient(model))
    for name, buffer in model.named_buffers():
        assert torch.equal(its.get_buffer(name), buffer), name
    assert its[1].num_batches_tracked == 7


class Reader(nn.Module):
    """Takes what a tokenizer gives."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(9, 3)
        self.seen: list[int] = []

    def forward(self, batch: Any) -> Tensor:
        words, mask = (batch["words"], batch["mask"]) if isinstance(batch, dict) else batch[0]
        if isinstance(batch, dict):
            assert (batch["task"], batch["scale"]) == ("search", 2)
        self.seen.append(len(words))
        return self.embed(words, mask)

    def embed(self, words: Tensor, mask: Tensor) -> Tensor:
        return (self.words(words) * mask[:, :, None]).sum(1)

    def alone(self, words: Tensor) -> Tensor:
        return self.embed(words, torch.ones_like(words))


WORDS = torch.randint(0, 9, (N, 5), generator=torch.Generator().manual_seed(3))
MASK = (WORDS > 2).long()


@pytest.mark.parametrize(
    "inputs",
    [
        {"words": WORDS, "mask": MASK, "task": "search", "scale": torch.tensor(2)},
        [(WORDS, MASK)],
    ],
    ids=["dict", "list of a tuple"],
)
def test_inputs_of_several_tensors_are_cut_alike(inputs: Any) -> None:
    model, loss = Reader(), trivet.TripletLoss(positives="all", negatives="all")
    loss(model(inputs), LABELS).backward()
    expected = gradient(model)
    model.zero_grad()
    model.seen.clear()
    micro_batches(model, loss, inputs, LABELS, size=SIZE).backward()
    assert error(gradient(model), expected) < 1e-5
    assert model.seen == [4, 4, 4, 4, 4, 3, 3, 3, 4, 4, 4, 4, 4]  # the last one is not thrown away


def test_embeddings_come_in_the_order_of_the_items() -> None:
    model, points = nn.Identity(), torch.arange(N, dtype=torch.float32)[:, None].requires_grad_()
    for size in range(1, N + 1):
        assert torch.equal(embed_in_pieces(model, points, size), points), size


def test_a_batch_that_comes_class_by_class_gives_pieces_of_all_classes() -> None:
    seen: list[list[float]] = []

    class Noting(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            seen.append(sorted(points[:, 0].tolist()))
            return points

    embed_in_pieces(Noting(), torch.arange(4.0).repeat_interleave(6)[:, None], 8)
    assert seen == [[0, 0, 1, 1, 2, 2, 3, 3]] * 3


@pytest.mark.parametrize("size", [None, N, 1000])
def test_what_fits_is_embedded_once(size: int | None) -> None:
    model = Reader()
    embed_in_pieces(model, [(WORDS, MASK)], size).sum().backward()
    assert model.seen == [N]


def test_a_method_of_a_module_will_do_and_without_gradients_nothing_is_kept() -> None:
    model = Reader()
    expected = model.alone(WORDS)
    torch.testing.assert_close(embed_in_pieces(model.alone, WORDS, SIZE), expected)
    with torch.no_grad():
        found = embed_in_pieces(model.alone, WORDS, SIZE)
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad


def in_processes() -> DistributedDataParallel:
    return DistributedDataParallel.__new__(DistributedDataParallel)  # one that works needs other processes


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: embed_in_pieces(Reader().alone, WORDS, 0), "size must be a whole number of at least 1: got 0"),
        (lambda: embed_in_pieces(Reader(), [(WORDS, MASK[1:])], 4), "with one N: got tensors of 25 and 26 items"),
        (lambda: embed_in_pieces(Reader(), ["a", "b"], 4), "with one N: got list; stack them"),
        (lambda: embed_in_pieces(lambda x: x, WORDS, 4), "model must be a module or a method of one, .*: got function"),
        (lambda: embed_in_pieces(in_processes(), WORDS, 4), "model must not be DistributedDataParallel"),
        (lambda: embed_in_pieces(nn.Flatten(0), WORDS, 4), r"embeddings \(B, d\) of B items: got \(20,\) of 4 items"),
        (lambda: embed_in_pieces(nn.LSTM(5, 2), WORDS.float(), 4), r"of B items: got tuple of 4 items; wrap it"),
        (lambda: micro_batches(Reader(), trivet.TripletLoss(), WORDS, LABELS[1:]), "got 25 labels for 26 items"),
    ],
)
def test_what_cannot_be_cut_is_said_in_a_sentence(call: Callable[[], Tensor], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
