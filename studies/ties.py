"""Choices, values and gradients of random losses on batches full of exact ties: in blocks, and in several processes.

    .venv/bin/python studies/ties.py                     # 5,000 cases, several minutes
    .venv/bin/python studies/ties.py --cases 300 --output /tmp/ties.json

A case is a loss with random options and a batch of copies, of grid points, with rows of zeros, of unit rows, or plain.
It is computed whole, in blocks of 1, 3 and 7 anchors, and shared by two and by four processes (gloo), which stay the
same for all cases. Choices must be equal, values and gradients equal within rounding.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import multiprocessing
import platform
import random
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import torch
import torch.distributed as dist
from torch import Tensor

import trivet
from trivet.distances import Distance
from trivet.losses import LOSSES
from trivet.losses.engine import BlockView, EmbeddingLoss
from trivet.mining import NEGATIVES, POSITIVES
from trivet.mining.selected_set import SelectedItems

BLOCKS = (1, 3, 7)
PROCESSES = (2, 4)
KINDS = ("copies", "copies of unit rows", "grid", "with rows of zeros", "plain")
VALUE_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4  # of the larger of the two, and of the largest entry; float32

Outcome = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A loss and a batch, made from a seed."""

    kind: str
    name: str
    options: dict[str, Any]
    embeddings: Tensor
    labels: Tensor
    ids: Tensor | None
    references: tuple[Tensor, Tensor, Tensor | None] | None  # rows, labels, ids

    @classmethod
    def of(cls, seed: int) -> Case:
        draw = random.Random(seed)
        kind = draw.choice(KINDS)
        rows, classes = draw.randint(4, 28), draw.randint(2, 5)
        dimension = draw.choice((1, 2, 3, 5, 8, 16, 33, 128))
        dtype = draw.choice((torch.float32, torch.float32, torch.float64))
        past = draw.choice((0, 0, 0, 9, 40, 150))
        every = _rows(kind, rows + past, dimension, draw).to(dtype)
        labels = torch.tensor([draw.randrange(classes) for _ in range(rows + past)])
        named = draw.random() < 0.3
        ids = torch.tensor([draw.randrange(rows) for _ in range(rows + past)]) if named else None
        references = None
        if past:
            references = (every[rows:], labels[rows:], None if ids is None else ids[rows:])
        name = draw.choice(list(LOSSES))
        while True:
            options = _options(name, draw, classes, dimension)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    LOSSES[name](**options)
            except ValueError:
                continue
            break
        if "embedding_dim" in options:
            references, ids = None, None
        return cls(kind, name, options, every[:rows], labels[:rows], None if ids is None else ids[:rows], references)

    @property
    def shared(self) -> bool:
        """Whether processes share the batch: not where each item is compared with proxies alone."""
        return getattr(LOSSES[self.name], "gathers", True)

    def run(self, *, block_size: int | None = None, part: slice = slice(None), group: Any = None) -> Outcome:
        """Value, gradient of the own rows, and for each own anchor what was chosen."""
        loss: EmbeddingLoss = LOSSES[self.name](
            **self.options, block_size=block_size, generator=torch.Generator().manual_seed(3)
        )
        chosen: dict[int, list[Any]] = {}
        formula = loss.evaluate

        def watched(rows: BlockView) -> Any:
            for place, choice in zip(rows._block.anchor_index.tolist(), _choices(rows), strict=True):
                chosen[place] = choice
            return formula(rows)

        loss.evaluate = watched  # type: ignore[method-assign]  # sees what is chosen
        leaf = self.embeddings[part].clone().requires_grad_()
        more: dict[str, Any] = {} if group is None else {"gather": group}
        if self.ids is not None:
            more["ids"] = self.ids[part]
        if self.references is not None:
            rows, labels, ids = self.references
            more |= {"references": rows, "reference_labels": labels, "with_batch": True}
            if self.ids is not None:
                more["reference_ids"] = ids
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = loss(leaf, self.labels[part], **more)
        except ValueError as error:
            return {"error": str(error)}
        value.backward()
        gradients = [leaf.grad, *(parameter.grad for parameter in loss.parameters())]
        return {"value": value.item(), "gradients": gradients, "choices": chosen}


def _rows(kind: str, number: int, dimension: int, draw: random.Random) -> Tensor:
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    if kind == "grid":
        return torch.randint(-2, 3, (number, dimension), generator=generator).double()
    rows = torch.randn(number, dimension, generator=generator) + draw.choice((0.0, 0.0, 3.0))
    if kind in ("copies", "copies of unit rows"):
        rows = rows[torch.randint(max(2, number // 3), (number,), generator=generator)]
    if kind == "copies of unit rows":
        rows = torch.nn.functional.normalize(rows, dim=1)
    if kind == "with rows of zeros":
        rows[torch.rand(number, generator=generator) < 0.4] = 0
    return rows


def _options(name: str, draw: random.Random, classes: int, dimension: int) -> dict[str, Any]:
    known = inspect.signature(LOSSES[name]).parameters
    if "embedding_dim" in known:  # proxy-anchor averages over classes: its terms are not trimmed here
        trim = 0.0 if name == "proxy-anchor" else draw.choice((0.0, 0.3))
        return {"num_classes": classes, "embedding_dim": dimension, "trim": trim}
    negative = draw.choice(list(NEGATIVES))
    options: dict[str, Any] = {
        "positives": _selector(POSITIVES, draw.choice(list(POSITIVES)), draw),
        "negatives": _selector(NEGATIVES, negative, draw),
        "trim": draw.choice((0.0, 0.0, 0.0, 0.3)),
    }
    if name == "contrastive" or (name != "multi-similarity" and name != "n-pair" and draw.random() < 0.7):
        options["margin"] = draw.choice((0.0, 0.2, 1.0))
    if name in ("triplet", "contrastive", "margin"):
        options["distance"] = draw.choice(get_args(Distance))
        options["normalize"] = draw.random() < 0.5
        options["reduction"] = draw.choice(LOSSES[name].reductions)
    if name == "triplet":
        options["soft"] = draw.random() < 0.2
    if name != "n-pair" and draw.random() < 0.1:
        options["disjoint"] = draw.choice((True, "random"))
    if options["trim"]:
        options["trim_positives_only"] = draw.random() < 0.3
    return {option: value for option, value in options.items() if option in known}


def _selector(table: dict[str, Any], name: str, draw: random.Random) -> Any:
    if draw.random() < 0.25 and "k" in table[name].__dataclass_fields__:
        return table[name](k=draw.choice((2, 3)))
    return table[name]()


def _choices(rows: BlockView) -> list[Any]:
    """For each anchor of the block the chosen pairs, or the positives and the set of negatives."""
    selection = rows.selection
    positives, taken = selection.positives.index.tolist(), selection.positives.chosen.tolist()
    if isinstance(selection.negatives, SelectedItems):
        others = selection.negatives.index.tolist()
    else:
        others = [each.nonzero().flatten().tolist() for each in rows.negative_chosen]
        return [
            ([p for p, is_taken in zip(ps, ts, strict=True) if is_taken], other)
            for ps, ts, other in zip(positives, taken, others, strict=True)
        ]
    return [
        [(p, n) for p, n, is_taken in zip(ps, ns, ts, strict=True) if is_taken]
        for ps, ns, ts in zip(positives, others, taken, strict=True)
    ]


def joined(parts: list[Outcome]) -> Outcome:
    """The outcome of all processes: rows and choices one after the other, gradients of parameters added up."""
    failed = next((part for part in parts if "error" in part), None)
    if failed is not None:
        return failed
    first, *rest = (list(each) for each in zip(*(part["gradients"] for part in parts), strict=True))
    gradients = [torch.cat(first), *(None if each[0] is None else sum(each) for each in rest)]
    choices = {place: choice for part in parts for place, choice in part["choices"].items()}
    return {"value": parts[0]["value"], "gradients": gradients, "choices": choices}


def difference(outcome: Outcome, whole: Outcome) -> str | None:
    """In what an outcome differs from that of the whole batch, if it does."""
    if "error" in outcome or "error" in whole:
        return None if ("error" in outcome) == ("error" in whole) else "error"
    if outcome["choices"] != whole["choices"]:
        return "choices"
    if not math.isclose(outcome["value"], whole["value"], rel_tol=VALUE_TOLERANCE, abs_tol=VALUE_TOLERANCE):
        return "value"
    for one, other in zip(outcome["gradients"], whole["gradients"], strict=True):
        if one is None or other is None:
            if one is not other:
                return "gradient"
        elif one.numel() and (one - other).abs().max() > GRADIENT_TOLERANCE * max(other.abs().max().item(), 1e-3):
            return "gradient"
    return None


def work(rank: int, cases: range, minutes: float, store: str, results: Any) -> None:
    """One of four processes: all of a case in blocks on the first, and shares of it on the first two and on all."""
    torch.set_num_threads(1)
    size = max(PROCESSES)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    groups = {number: dist.new_group(list(range(number))) for number in PROCESSES}
    start = time.perf_counter()
    for seed in cases:
        late = torch.tensor(time.perf_counter() - start > 60 * minutes)
        dist.broadcast(late, 0)
        if late:
            break
        case = Case.of(seed)
        shares: dict[int, Outcome | None] = {}
        for number, group in groups.items():
            if rank < number and case.shared:
                cuts = [round(len(case.labels) * (place / number) ** 1.3) for place in range(number + 1)]  # uneven
                shares[number] = case.run(part=slice(cuts[rank], cuts[rank + 1]), group=group)
        gathered: list[Any] | None = [None] * size if rank == 0 else None
        dist.gather_object(shares, gathered)
        if rank:
            continue
        assert gathered is not None
        whole = case.run()
        found = {f"blocks of {block}": difference(case.run(block_size=block), whole) for block in BLOCKS}
        if case.shared:
            for number in PROCESSES:
                parts = [share[number] for share in gathered[:number]]
                found[f"{number} processes"] = difference(joined(parts), whole)
        negatives = type(case.options.get("negatives")).__name__
        results.put((seed, case.kind, case.name, negatives, "error" in whole, found))
        if seed % 250 == 249:
            print(f"{seed + 1} cases, {time.perf_counter() - start:.0f} s", flush=True)
    if rank == 0:
        results.put(None)
    dist.destroy_process_group()


def measured(cases: range, minutes: float) -> dict[str, Any]:
    """All cases, counted."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        crew = [
            context.Process(target=work, args=(rank, cases, minutes, f"{folder}/store", results))
            for rank in range(max(PROCESSES))
        ]
        for process in crew:
            process.start()
        rows = list(iter(results.get, None))
        for process in crew:
            process.join()
    compared: Counter[str] = Counter()
    differing: Counter[str] = Counter()
    examples = []
    for seed, kind, name, negatives, _, found in rows:
        for way, what in found.items():
            compared[way] += 1
            if what:
                differing[f"{way}: {what}"] += 1
                examples.append(
                    {"seed": seed, "kind": kind, "loss": name, "negatives": negatives, "in": way, "what": what}
                )
    return {
        "cases": len(rows),
        "refused": sum(row[4] for row in rows),
        "kinds": dict(Counter(row[1] for row in rows)),
        "losses": dict(Counter(row[2] for row in rows)),
        "compared": dict(compared),
        "differing": dict(differing),
        "examples": examples[:50],
        "seconds": round(time.perf_counter() - start),
    }


def table(found: dict[str, Any]) -> str:
    """The results in Markdown."""
    lines = [
        "# Exact ties",
        "",
        f"{found['cases']} cases ({found['refused']} refused alike everywhere), {found['date']}, torch "
        f"{found['torch']}, {found['processor']}. Made by `studies/ties.py --cases {found['cases']}`.",
        "",
        "| compared with the whole batch | cases | other choices | other value | other gradient | error in one |",
        "|---|---|---|---|---|---|",
    ]
    for way, number in found["compared"].items():
        counts = [found["differing"].get(f"{way}: {what}", 0) for what in ("choices", "value", "gradient", "error")]
        lines.append(f"| {way} | {number} | {' | '.join(str(count) for count in counts)} |")
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(found["kinds"].items()))
    losses = ", ".join(f"{name} {number}" for name, number in sorted(found["losses"].items()))
    return "\n".join([*lines, "", f"Rows: {kinds}. Losses: {losses}.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first case")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further case after so long")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "ties.json")
    options = parser.parse_args()
    found = measured(range(options.first, options.first + options.cases), options.minutes) | {
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "trivet": trivet.__version__,
        "processor": platform.machine(),
    }
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    options.output.with_suffix(".md").write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    main()
