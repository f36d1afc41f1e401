"""How far it goes: one part of the measurements behind docs/scale.md and docs/sweeps.md.

    python benchmarks/scale.py step         # what a step costs as N, d, P x K, network and processes grow
    python benchmarks/scale.py micro        # memory and time of micro-batches
    python benchmarks/scale.py processes    # 1, 2 and 4 processes: the same network; waits; kills
    python benchmarks/scale.py vectors      # embedding, evaluating and searching up to 1,000,000 vectors
    python benchmarks/scale.py sweeps       # workers of a sweep that are killed

Further arguments go to the part: `python benchmarks/scale.py step --help`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    parts = {file.stem.removeprefix("scale_"): file for file in sorted(HERE.glob("scale_*.py"))}
    if len(sys.argv) < 2 or sys.argv[1] not in parts:
        sys.exit(f"{__doc__}\nThe first argument must be a part: {', '.join(parts)}.")
    part, *more = sys.argv[1:]
    os.execv(sys.executable, [sys.executable, str(parts[part]), *more])


if __name__ == "__main__":
    main()
