"""A PostgreSQL server of one's own, as Debian's package installs it, on 127.0.0.1 and in a folder that is removed."""

from __future__ import annotations

import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "quokka:okapi@numbat/dugong 'tapir\"kakapo%20"  # with all that an address must quote, or may
QUOTED = urllib.parse.quote(PASSWORD, safe="")
PIECES = tuple(re.findall("[a-z]{5,}", PASSWORD))


class UnavailableError(RuntimeError):
    """No server can be started here."""


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`; None where there is none."""
    found = shutil.which("pg_ctl")
    known = [Path(found).parent] if found else []
    known += [Path(path).parent for path in sorted(glob.glob("/usr/lib/postgresql/*/bin/pg_ctl"), reverse=True)]
    return next((path for path in known if (path / "initdb").exists()), None)


@contextmanager
def postgresql() -> Iterator[str]:
    """The address of a server that runs inside the block, without a password: that is `PASSWORD`, of the user trivet.

    Raises:
        UnavailableError: if it cannot be started.
    """
    place = programs()
    if place is None:
        raise UnavailableError("PostgreSQL is not installed")
    if shutil.which("setpriv") is None:
        raise UnavailableError("a server that ends with its tests needs setpriv")
    folder = Path(tempfile.mkdtemp(prefix="trivet-postgresql-"))
    secret = folder / "password"
    secret.write_text(PASSWORD)
    before = ["setpriv", "--pdeathsig", "QUIT"]  # however this process ends, the server does
    if os.geteuid() == 0:  # the server refuses to run as root
        before += ["--reuid=postgres", "--regid=postgres", "--clear-groups"]
        for path in (folder, secret):
            shutil.chown(path, "postgres", "postgres")
    data, port = folder / "data", _free_port()
    options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    try:
        make = [str(place / "initdb"), "-D", str(data), "-U", "trivet", "-A", "scram-sha-256", "-N", "-E", "UTF8"]
        _run([*before, *make, f"--pwfile={secret}", "--locale=C"], folder)
        with (folder / "log").open("wb") as log:
            start = [*before, str(place / "postgres"), "-D", str(data), "-p", str(port), *options]
            server = subprocess.Popen(start, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _await(server, folder)
            yield f"postgresql://trivet@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGQUIT)  # at once
            server.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await(server: subprocess.Popen[bytes], folder: Path) -> None:
    """Return when the server takes connections, as the last line of its file of state says."""
    state = folder / "data" / "postmaster.pid"
    for _ in range(600):
        if state.exists() and state.read_text().rstrip().endswith("ready"):
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)  # the server says in its file alone that it is ready
    raise UnavailableError((folder / "log").read_text(errors="replace"))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(str(error)) from None
    if done.returncode:
        raise UnavailableError(done.stdout.decode(errors="replace"))
