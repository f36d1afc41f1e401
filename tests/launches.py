"""How many kernels a computation launches, and what they are: what a small batch costs on any device."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

MEMORY_ONLY = {"empty", "empty_like", "new_empty", "empty_strided", "detach", "alias", "lift_fresh"}
QUESTIONS = {"device"}  # of a tensor without numbers, which a real one answers by itself


class Launches(TorchDispatchMode):
    """Counts operations that compute or copy: no views, no reshapes, nothing that only asks for memory.

    Attributes:
        counts: by name of the operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not func.is_view and func.overloadpacket.__name__ not in MEMORY_ONLY | QUESTIONS:
            self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **kwargs or {})

    @property
    def total(self) -> int:
        """All of them."""
        return self.counts.total()
