"""The training loop itself: optimiser steps, until the last one, an event or a signal, which it handles.

It is a loop of its own, as that of a framework takes a tenth of the time of a small network's step.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from trivet.collapse.monitor import CollapseMonitor, Event
from trivet.collapse.probe import Probe
from trivet.datasets import Augment, Dataset, Inputs
from trivet.datasets.features import FeatureInputs
from trivet.datasets.image_decoding import Decoders
from trivet.datasets.inputs import ArrayInputs, FileInputs
from trivet.datasets.sides import SidedInputs, sides_of
from trivet.losses import MatryoshkaLoss
from trivet.losses.engine import EmbeddingLoss
from trivet.mining import Relation
from trivet.mining.batch import Labels
from trivet.models import Embedder, SidedBatch, Towers
from trivet.runtime.arrays import Integers
from trivet.runtime.signals import handled_signals
from trivet.samplers import BatchPlan, embed_in_pieces
from trivet.training.config import TrainingConfig
from trivet.training.distributed.batch_norm import SharedBatchNorm, normalises_batches
from trivet.training.distributed.process_group import ProcessGroup, lost_peers, process_slices
from trivet.training.optimizer import make_optimizer, move_optimizer
from trivet.training.precision import Precision, device_of
from trivet.training.schedule import rate_factor
from trivet.training.weight_average import decay_at, update_average

AGAIN = 2.0  # seconds within which a second signal is the first one once more: from a terminal, and from a launcher
RANK_STREAM = 4  # of the random numbers of a step, from which on each process but the main one has a stream


class Batches(IterableDataset[tuple[Tensor, ...]]):
    """Images and labels of step after step, from `start` on; a batch is a pure function of the seed and the step.

    Images are decoded one batch ahead, by threads of the process that iterates, which end with the iteration.

    Args:
        fine: a level inside the classes of `level`; its labels then follow as a third tensor. The second is that of the
            numbers by which the relation of `level` knows the items, which are labels but for pairs.
        world: the processes that share each batch: this one makes its part of the images, the same ones as one process
            would make, and the labels of all.
    """

    def __init__(
        self,
        dataset: Dataset,
        level: str,
        batches: BatchPlan,
        augment: Augment | None,
        *,
        seed: int,
        start: int,
        steps: int,
        fine: str | None = None,
        world: ProcessGroup | None = None,
    ) -> None:
        self.dataset, self.batches, self.augment = dataset, batches, augment
        self.rank, self.size = (0, 1) if world is None else (world.rank, world.size)
        fine_labels = () if fine is None else (dataset.labels[fine],)
        self.labels = (dataset.items_of(level), *fine_labels)
        self.seed, self.start, self.steps = seed, start, steps

    @property
    def from_memory(self) -> bool:
        """True if a batch is cut from what is in memory, in less time than another process takes to send it."""
        changed = self.augment is not None and (self.augment.jitter > 0 or self.augment.erase > 0)
        in_memory = [isinstance(side, ArrayInputs | FeatureInputs) for side in sides_of(self.dataset.inputs)]
        return all(in_memory) and not changed

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        with Decoders() as decoders:
            begun: deque[Callable[[], tuple[Tensor, ...]]] = deque()
            for step in range(self.start + first, self.steps, stride):
                # Before the last one is waited for: threads that find nothing left of it go on with this one.
                begun.append(self._begin(step, decoders))
                if len(begun) == 2:
                    yield begun.popleft()()
            if begun:
                yield begun.popleft()()

    def _begin(self, step: int, decoders: Decoders) -> Callable[[], tuple[Tensor, ...]]:
        """Begin to decode the images of a step, if they come from files; what comes back gives the batch."""
        index = self.batches.batch(*divmod(step, self.batches.steps_per_epoch))
        rows = process_slices(len(index), self.size)[self.rank]
        begun = self._begin_inputs(self.dataset.inputs, step, index, rows, decoders)
        return lambda: (begun(), *(torch.from_numpy(labels[index]) for labels in self.labels))

    def _begin_inputs(
        self, inputs: Inputs, step: int, index: Integers, rows: slice, decoders: Decoders
    ) -> Callable[[], Any]:
        """Begin to read inputs of a step: of the batch `index (B,)`, the consecutive `rows` of this process."""
        if isinstance(inputs, SidedInputs):
            begun = [
                self._begin_inputs(side, step, of_side, span, decoders)
                for side, (of_side, span) in zip(inputs.sides, inputs.divided(index, rows), strict=True)
            ]
            right = torch.from_numpy(inputs.right[index[rows]])
            return lambda: SidedBatch(right, (begun[0](), begun[1]()))
        if not len(index[rows]):
            return lambda: torch.empty(0)
        if self.augment is not None and len(inputs.shape) == 3:
            generator = torch.Generator().manual_seed(step_seed(self.seed, step, 1))
            return self.augment.begin(inputs, index, generator, decoders, rows)
        if isinstance(inputs, FileInputs):
            return inputs.begin_batch(index[rows], decoders)
        return partial(inputs.batch, index[rows])


class NotFiniteError(ValueError):
    """Embeddings that are not finite, which no loss takes."""


def step_seed(seed: int, step: int, stream: int) -> int:
    """A number for the random choices of one step, different for each seed, step and stream."""
    return int(np.random.SeedSequence((seed, step, stream)).generate_state(1, np.uint64)[0]) >> 1


class Learner:
    """A model, a loss and an optimiser, at a step of a run.

    Attributes:
        device: where it is trained; between two calls of `fit` all is on the CPU.
        step: optimiser steps done, those before a resume included.
        value: the loss of the last step.
        after_step: called between two steps.
        monitor: sees each batch; None for none.
        probe: what the monitor may ask, see `CollapseMonitor.update`; the first time before the first step.
        events: what the monitor said of the last batch.
        should_stop: set it, and `fit` ends after the step in progress.

    Args:
        config: with `ema`, a moving average of the weights is kept as well.
        micro: the most items that are embedded at once, see `embed_in_pieces`; None for the whole batch.
        world: the processes that train together; None for this one alone.
        relation: of all items by their numbers, which batches hold in place of labels; None for classes.
    """

    def __init__(
        self,
        model: Embedder,
        loss: EmbeddingLoss | MatryoshkaLoss,
        config: TrainingConfig,
        *,
        seed: int,
        micro: int | None = None,
        world: ProcessGroup | None = None,
        relation: Relation | None = None,
    ) -> None:
        self.model, self.loss, self.config, self.seed, self.micro, self.world = model, loss, config, seed, micro, world
        self.relation = relation
        self.average = None if config.ema is None else copy.deepcopy(model)
        self.after_step: Callable[[], None] = lambda: None
        self.monitor: CollapseMonitor | None = None
        self.probe: Probe | None = None
        self.step = 0
        self.events: list[Event] = []
        self.should_stop = False
        self.device = device_of(config.accelerator)
        self.precision = Precision(config.precision, self.device)
        self.optimizer = make_optimizer(model, loss, config)
        self._spread: nn.Module | None = None

    @property
    def value(self) -> float:
        return float(self._value)

    @property
    def measured(self) -> Embedder:
        """The network that is the result: the average of the weights, where there is one."""
        return self.model if self.average is None else self.average

    def train_on(self, batch: Sequence[Tensor]) -> None:
        """Make one optimiser step with a batch on the device of the model.

        Raises:
            NotFiniteError: if the loss refuses embeddings that are not finite.
        """
        inputs, labels, *fine = batch
        if self.monitor is not None and self.probe is not None:
            self.monitor.begin(self.probe, step=self.step)  # here: a forward pass changes the statistics of batch norm
        self.begin_step()
        value, embeddings = (self.evaluate if self._spread is None else self._spread)(inputs, labels)
        self._value = value.detach()
        if self.monitor is not None:
            self.events = self.monitor.update(
                embeddings,
                self._related(labels),
                self._value,
                fine=fine[0] if fine else None,
                active=self._active,
                step=self.step,
                probe=self.probe,
            )
        self.precision.step(value, self.optimizer, clip_norm=self.config.clip_norm)
        if self.average is not None:
            assert self.config.ema is not None
            update_average(self.average, self.model, decay_at(self.step, self.config.ema))
        self.step += 1
        self.after_step()

    def evaluate(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and its embeddings `(N, d)` without a graph.

        Args:
            inputs: `(N, ...)`, or of several processes the part of this one.
            labels: `(N,)`, or the numbers of the items in the relation.

        Raises:
            NotFiniteError: if the loss refuses embeddings that are not finite.
        """
        with self.precision.autocast(), self._shared_batch_norm(len(labels)):
            embeddings = self._embedded(inputs)
        if self.world is not None:
            embeddings = self.world.full_batch(embeddings, len(labels))
        try:
            value: Tensor = self.loss(embeddings, self._related(labels))
        except ValueError as error:
            if torch.isfinite(embeddings).all():
                raise
            raise NotFiniteError(*error.args) from None
        return value, embeddings.detach()

    def _embedded(self, inputs: Tensor | SidedBatch) -> Tensor:
        if isinstance(inputs, SidedBatch):
            assert isinstance(self.model, Towers)
            return self.model.embed_sides(inputs, lambda network, items: embed_in_pieces(network, items, self.micro))
        return embed_in_pieces(self.model, inputs, self.micro)

    def _related(self, labels: Tensor) -> Labels:
        return labels if self.relation is None else self.relation.with_items(labels)

    def _shared_batch_norm(self, count: int) -> AbstractContextManager[object]:
        """The context in which batch norm is over the batch of all processes; pieces of it are normalised alone."""
        in_pieces = self.micro is not None and count > self.micro
        together = self.world is not None and not in_pieces and normalises_batches(self.model)
        return SharedBatchNorm() if together else nullcontext()

    def begin_step(self) -> None:
        """Seed the step, set its learning rates, and forget the last gradient."""
        # Dropout and the like draw from the global generator: seeded by the step, they are the same after a resume.
        stream = 2 if self.world is None or self.world.main else RANK_STREAM + self.world.rank
        seed = step_seed(self.seed, self.step, stream)
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # seeding all devices takes a tenth of a small network's step
        else:
            torch.manual_seed(seed)
        factor = rate_factor(self.step, self.config)
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        self.optimizer.zero_grad()

    def move(self, device: torch.device) -> None:
        """Bring all that is trained to a device; gradients are not added up there yet."""
        self._spread = None
        for module in (self.model, self.loss, self.average):
            if module is not None:
                module.to(device)
        move_optimizer(self.optimizer)

    def spread(self) -> None:
        """Let the gradients of all processes be added up from now on, and begin with the weights of the main one."""
        if self.world is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # of a new name for what is not to be done
                self._spread = DistributedDataParallel(_Evaluation(self), broadcast_buffers=False)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that steps change, by name, on the CPU."""
        named = named_tensors("model", self.model.state_dict()) | named_tensors("loss", self.loss.state_dict())
        if self.average is not None:
            named |= named_tensors("average", self.average.state_dict())
        for slot, values in self.optimizer.state_dict()["state"].items():
            named |= named_tensors(f"optimizer/{slot}", values)
        return named

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        self.model.load_state_dict(tensors_of("model", tensors))
        self.loss.load_state_dict(tensors_of("loss", tensors))
        if self.average is not None:
            self.average.load_state_dict(tensors_of("average", tensors))
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors_of("optimizer", tensors).items():
            slot, key = name.split("/")
            slots.setdefault(int(slot), {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})

    def _active(self) -> float:
        assert self.loss.last is not None
        return self.loss.last.active_fraction


def named_tensors(section: str, values: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Copies on the CPU of the tensors of a section of the state, as "section/name"."""
    return {
        f"{section}/{name}": value.detach().cpu().clone().contiguous()
        for name, value in values.items()
        if value is not None
    }


def tensors_of(section: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a section of the state, by the names they have there."""
    start = f"{section}/"
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def fit(learner: Learner, batches: Batches, *, workers: int = 0) -> bool:
    """Train to the last step of `batches`, or until `after_step` sets `learner.should_stop`.

    Returns False if Ctrl-C, a termination or a hang-up came. The step in progress is then finished, so the model is
    left between two steps. A second one ends at once.

    Raises:
        NotFiniteError: if the loss refused embeddings that are not finite.
        KeyboardInterrupt: at a second signal.
    """
    on_gpu = learner.device.type == "cuda"
    workers = 0 if batches.from_memory else workers
    loader = DataLoader(batches, batch_size=None, num_workers=workers, pin_memory=on_gpu)
    learner.should_stop = False
    signals = _Signals(learner)
    with handled_signals(signals.receive), lost_peers() if learner.world is not None else nullcontext():
        learner.move(learner.device)
        learner.spread()
        try:
            stop = signals.stop()
            for batch in loader:
                if learner.world is None:
                    stop = signals.stop()  # one may have come while the batch was made
                if not stop:
                    learner.train_on([tensor.to(learner.device, non_blocking=on_gpu) for tensor in batch])
                    stop = signals.stop()
                if stop:
                    break
        finally:
            learner.move(torch.device("cpu"))
    return not signals.came


class _Evaluation(nn.Module):
    """`Learner.evaluate` as a module with all that learns.

    DistributedDataParallel waits for the gradient of every parameter, and looks for those without one, on request, in
    every step. They are looked for in the first one here, and get one that the optimiser does not see.
    """

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.model, self.loss = learner.model, learner.loss
        self._evaluate, self._optimizer = learner.evaluate, learner.optimizer
        self._unused: list[nn.Parameter] | None = None

    def forward(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        value, embeddings = self._evaluate(inputs, labels)
        if self._unused is None:
            used = _reached(value)
            self._unused = [weight for weight in self.parameters() if weight.requires_grad and id(weight) not in used]
            if self._unused:
                self._optimizer.register_step_pre_hook(self._forget)
        for parameter in self._unused:
            value = value + 0 * parameter.sum()
        return value, embeddings

    def _forget(self, *_: object) -> None:
        for parameter in self._unused or ():
            parameter.grad = None


def _reached(value: Tensor) -> set[int]:
    """The ids of the parameters that a value depends on."""
    reached, visited, left = set(), set(), [value.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in visited:
            visited.add(node)
            reached.add(id(getattr(node, "variable", None)))
            left += [after for after, _ in node.next_functions]
    return reached


class _Signals:
    """Lets Ctrl-C, a termination and a hang-up end the training after the step in progress."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._received: float | None = None  # when one came to this process
        self._others_received = False

    @property
    def came(self) -> bool:
        """True if one has come, to this process or, as far as is known, to another."""
        return self._others_received or self._received is not None

    def stop(self) -> bool:
        """True if to end here; every process must ask, and all get the same answer."""
        learner = self._learner
        if learner.world is None:
            return self.came or learner.should_stop
        stop, self._others_received = learner.world.agree(self.came or learner.should_stop, self.came)
        return stop

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; a second one ends the training at once."""
        if self._received is None:
            self._received = time.monotonic()
        elif self._learner.world is None or time.monotonic() - self._received > AGAIN:
            raise KeyboardInterrupt
