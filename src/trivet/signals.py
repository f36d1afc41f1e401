"""The signals by which a terminal, a user or a cluster asks a command to end, and whether it is one process alone."""

from __future__ import annotations

import signal
from collections.abc import Mapping

# How launchers tell each process how many there are, and which of them it is. SLURM_NTASKS is no such number: it is
# set for a script that starts one process as well.
COUNTS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


def ending_signals() -> list[signal.Signals]:
    """Ctrl-C, a termination, a terminal that closes; without those that are ignored, as by `nohup`."""
    known = (getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
    return [number for number in known if signal.getsignal(number) != signal.SIG_IGN]


def check_alone(environment: Mapping[str, str]) -> None:
    """Check that a launcher such as torchrun has not started this program several times.

    Raises:
        ValueError: if it has.
    """
    for names, least in ((COUNTS, 2), (RANKS, 1)):
        for name in names:
            value = environment.get(name, "")
            if value.isdecimal() and int(value) >= least:
                raise ValueError(
                    f"trivet train is one process on one device: {name}={value} says that several were started; start "
                    f"it once, without torchrun, mpirun or srun, or unset {name}."
                )
