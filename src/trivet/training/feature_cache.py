"""Features of items on disk, in the folder of the user: computed once for each item of an encoder, in any data set.

A folder for each encoder holds shards, npy files of rows of a key and features. A shard is written whole, and is called
by its keys: what a killed process has finished stays, and several may work side by side.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trivet.io.atomic_files import atomic_file, claimed
from trivet.runtime.cache import cache_folder, limit_size
from trivet.runtime.fingerprint import fingerprint

SHARD = 1024  # items of one, which are lost where a process is killed
SHARDS = 64  # at most of the items of a call: larger ones, as a process may open so many files
KEY = 16  # bytes
WAIT = 0.2  # seconds between two looks at what another process computes
log = logging.getLogger("trivet")


class FeatureRows:
    """Features `(M, F)` float32 in shards, on disk or in memory, of which an index `(B,)` gives `(B, F)`."""

    def __init__(self) -> None:
        self._shards: list[npt.NDArray[np.float32]] = []
        self._ends = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._shards else 0

    def add(self, features: npt.NDArray[np.float32]) -> None:
        """Add rows `(n, F)` after the others."""
        self._ends = np.append(self._ends, len(self) + len(features))
        self._shards.append(features)

    def __getitem__(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        shards = np.searchsorted(self._ends, index, side="right")
        rows = np.empty((len(index), self._shards[0].shape[1]), np.float32)
        for number in np.unique(shards).tolist():
            here = shards == number
            features = self._shards[number]
            rows[here] = features[index[here] - self._ends[number] + len(features)]
        return rows


class FeatureCache:
    """The features of an encoder by the keys of items, read from the cache of the user and added to it.

    Where that cannot be written, what is computed stays in memory.

    Args:
        encoder: the fingerprint of the encoder, with all that is done to an input before it.

    Attributes:
        features: of all items.
    """

    def __init__(self, encoder: str) -> None:
        self.features = FeatureRows()
        self._rows: dict[bytes, int] = {}
        self._folder: Path | None = None
        with suppress(OSError, ValueError):  # no home folder, or one that cannot be listed
            self._folder = cache_folder("features") / encoder[: 2 * KEY]
            for file in sorted(self._folder.glob("*.npy")):
                self._read(file)

    def __contains__(self, key: bytes) -> bool:
        return key in self._rows

    def rows(
        self,
        keys: Sequence[bytes],
        compute: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]],
        progress: Callable[[int, int], None],
    ) -> npt.NDArray[np.int64]:
        """The rows `(N,)` of `features` that are those of N items.

        Args:
            keys: what an item is known by, 16 bytes each.
            compute: gives the features `(B, F)` of the items at positions `(B,)`.
            progress: called with how many of the missing ones are computed, and with how many are missing.
        """
        first = {key: position for position, key in reversed([*enumerate(keys)]) if key not in self._rows}
        missing = np.sort(np.fromiter(first.values(), np.int64, len(first)))
        size = max(SHARD, -(-len(missing) // SHARDS))
        shards = deque(np.split(missing, range(size, len(missing), size)) if len(missing) else [])
        done = waits = 0
        while shards:
            positions = shards.popleft()
            if self._add([keys[position] for position in positions.tolist()], partial(compute, positions)):
                done, waits = done + len(positions), 0
                progress(done, len(missing))
                continue
            shards.append(positions)  # another process is at it
            waits += 1
            if waits >= len(shards):
                time.sleep(WAIT)
        return np.array([self._rows[key] for key in keys], np.int64)

    def _add(self, keys: Sequence[bytes], compute: Callable[[], npt.NDArray[np.float32]]) -> bool:
        """Add a shard that is read or computed; False if another process is computing it."""
        if self._folder is None:
            self._extend(keys, compute())
            return True
        features: npt.NDArray[np.float32] | None = None
        file = self._folder / f"{fingerprint(keys)[: 2 * KEY]}.npy"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with claimed(file) as mine:
                if not mine or self._read(file, keys):
                    return mine
                features = compute()
                with atomic_file(file) as unfinished, unfinished.open("wb") as sink:
                    np.save(sink, _table(keys, features), allow_pickle=False)
                if not self._read(file, keys):
                    self._extend(keys, features)
            limit_size(self._folder.parent)
        except OSError as error:
            log.warning(
                f"features of items could not be kept in {self._folder} ({error.strerror or error}), and are computed "
                "again next time; set TRIVET_CACHE to a folder with room that can be written."
            )
            self._folder = None
            if keys[0] not in self._rows:
                self._extend(keys, compute() if features is None else features)
        return True

    def _read(self, file: Path, keys: Sequence[bytes] = ()) -> bool:
        """Read a shard; False if it is missing, damaged, or lacks one of the keys."""
        try:
            shard = np.load(file, mmap_mode="r", allow_pickle=False)
            stored, features = shard["key"].tolist(), shard["features"]
        except (OSError, ValueError, EOFError, IndexError):  # what a damaged file leads to
            return False
        if features.ndim != 2 or not set(keys) <= set(stored):
            return False
        with suppress(OSError):  # a folder that is only read
            os.utime(file)
        self._extend(stored, features)
        return True

    def _extend(self, keys: Sequence[bytes], features: npt.NDArray[np.float32]) -> None:
        first = len(self.features)
        self.features.add(features)
        for row, key in enumerate(keys, first):
            self._rows.setdefault(key, row)


def _table(keys: Sequence[bytes], features: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    table = np.empty(len(keys), [("key", f"V{KEY}"), ("features", "<f4", features.shape[1:])])
    table["key"] = np.array(keys, f"V{KEY}")
    table["features"] = features
    return table
