"""Losses, mining, memory and monitor on a device without float64, for `test_mps.py`: what differs from the CPU.

Prints `{what: the error, or what is not as on the CPU}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tests import pretended_mps, test_launches
from tests.every_loss import EVERY_LOSS
from torch import Tensor, nn

import trivet
from trivet.commands.main import main as command

Made = dict[str, Any]  # values, and gradients, by name
N, D = 32, 3
LABELS = torch.arange(N) % 4
REFERENCES = torch.randn(8, D, generator=torch.Generator().manual_seed(1))


def rows(width: int, device: str) -> Tensor:
    """The embeddings."""
    return torch.randn(N, width, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()


def step(make: Callable[[], nn.Module], device: str, width: int = D, **compared: Any) -> Made:
    """Value and gradients of a loss that was moved there."""
    torch.manual_seed(0)
    loss, embeddings = make().to(device), rows(width, device)
    there = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in compared.items()}
    value = loss(embeddings, LABELS.to(device), **there)
    assert value.device.type == device
    value.backward()
    assert embeddings.grad is not None
    assert embeddings.grad.device.type == device
    return {"value": value, "gradient": embeddings.grad} | {
        name: parameter.grad for name, parameter in loss.named_parameters()
    }


def remembered(device: str) -> Made:
    """Two batches of a loss with a memory."""
    torch.manual_seed(0)
    memory, loss = trivet.CrossBatchMemory(size=64, embedding_dim=D).to(device), trivet.TripletLoss()
    embeddings = rows(D, device)
    ids = torch.arange(N, device=device)
    memory(loss, embeddings.detach(), LABELS.to(device), ids)
    value = memory(loss, embeddings, LABELS.to(device), ids + N)
    value.backward()
    return {"value": value, "gradient": embeddings.grad}


def distilled(device: str) -> Made:
    embeddings = rows(D, device)
    value = trivet.DistillationLoss()(embeddings, rows(5, device))
    value.backward()
    return {"value": value, "gradient": embeddings.grad}


def mined(device: str) -> Made:
    embeddings, labels = rows(D, device).detach(), LABELS.to(device)
    generator = torch.Generator().manual_seed(0)
    found = trivet.mine(embeddings, labels, positives="random", negatives="semihard", generator=generator)
    assert found.anchor.device.type == device
    return {**found._asdict(), **trivet.mine_pairs(embeddings, labels)._asdict()}


def watched(device: str, related: bool) -> Made:
    monitor = trivet.CollapseMonitor(every=5)
    tags = trivet.Tags([[f"{label}"] for label in LABELS.tolist()]) if related else None
    for number in range(12):
        labels = LABELS.to(device) if tags is None else tags[torch.arange(N)].to(device)
        monitor.update(rows(D, device).detach() + number, labels, rows(D, device).sum())
    assert not monitor.state_dict()["warned"], monitor.state_dict()["warned"]
    return {name: torch.tensor(values) for name, values in monitor.series.items()}


def cases() -> Iterator[tuple[str, Callable[[str], Made]]]:
    for name, make in EVERY_LOSS.items():
        yield name, lambda device, make=make: step(make, device)
    for name, make in test_launches.LOSSES.items():
        yield f"{name}, wide", lambda device, make=make: step(make, device, 128)
    triplet: Callable[[], nn.Module] = trivet.TripletLoss
    against = {"references": REFERENCES, "reference_labels": torch.arange(8) % 4}
    ids = {"ids": torch.arange(N), "reference_ids": torch.arange(8)}
    yield "references", lambda device: step(triplet, device, **against, **ids)
    yield "with the batch", lambda device: step(triplet, device, **against, with_batch=True)
    yield "prefixes", lambda device: step(lambda: trivet.MatryoshkaLoss(triplet(), prefixes=[2, 3]), device)
    yield "both directions", lambda device: step(lambda: trivet.SymmetricLoss(trivet.SupConLoss()), device, **against)
    yield "memory", remembered
    yield "distillation", distilled
    yield "mine", mined
    yield "monitor", lambda device: watched(device, related=False)
    yield "monitor of tags", lambda device: watched(device, related=True)


def difference(here: Made, there: Made) -> str | None:
    for name, value in here.items():
        other = there[name]
        if value is other is None:
            continue
        first, last = value.detach().cpu().nan_to_num(), other.detach().cpu().nan_to_num()
        if not torch.allclose(first, last, rtol=1e-5, atol=1e-7):
            return f"{name} differs by {(first - last).abs().max()}"
    return None


def main(*lines: str) -> None:
    pretended_mps.begin()
    if lines:
        for line in lines:
            sys.argv = ["trivet", *line.split()]
            try:
                command()
            except SystemExit as end:
                if end.code:
                    raise
        return
    report = {}
    for name, case in cases():
        try:
            wrong = difference(case("cpu"), case("pretended"))
        except Exception as error:  # of any kind
            wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            report[name] = wrong
    print(json.dumps(report))
