"""No part of a password is written, in whatever form the address of a storage has it, and wherever it is given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomli_w

pytest.importorskip("optuna")
pytest.importorskip("psycopg")

from tests.commands.conftest import Call
from tests.nightly import sampled
from tests.postgresql import PASSWORD, PIECES, QUOTED, UnavailableError, postgresql
from tests.small_sweep import settings

from trivet.commands.sweep.storage_address import storage_name, written_address

pytestmark = pytest.mark.usefixtures("rough_evaluation")

BARE = PASSWORD.replace("@", "%40").replace("%20", "%2520")  # with what need not be quoted as it is
FORMS = [  # user, password, what stands behind the database
    ("trivet:{BARE}@", ""),
    ("", "?user=trivet&password={QUOTED}&sslpassword=quokka&application_name=okapi"),
]
UNREADABLE = [
    "postgresql://me:quokka@okapi@host/db",
    "postgresql://me:quokka@okapi/numbat@host/db",
    "postgresql://me:quokka@okapi?numbat@host/db",
    "postgresql://host:quokka",
    "postgres://me:quokka@host/db",
    "mysql://me:quokka@host/db",
    "me:quokka@host/db",
]


def pieces(text: str) -> list[str]:
    return [piece for piece in PIECES if piece in text]


@pytest.mark.parametrize(
    ("address", "name", "written"),
    [
        ("postgresql://me:aq/ua@host:5/db", "db on host:5", "postgresql://me@host:5/db"),
        ("postgresql://name@server:quokka 'x@host/db", "db on host", "postgresql://name%40server@host/db"),
        ("postgresql://name@server@host/db", "db on host", "postgresql://name%40server@host/db"),
        ("postgresql+psycopg://me:a%40b@[::1]/db", "db on ::1", "postgresql://me@[::1]/db"),
        ("postgresql:///db?host=/tmp&password=quokka", "db on /tmp", "postgresql:///db?host=%2Ftmp"),
        (
            "postgresql://h/db?user=me&sslpassword=quokka&sslmode=require&options=-cquokka",
            "db on h",
            "postgresql://h/db?sslmode=require&user=me",
        ),
        ("sqlite:////tmp/a b.db", "/tmp/a b.db", "sqlite:////tmp/a b.db"),
    ],
)
def test_host_and_database_are_written_and_read_again(address: str, name: str, written: str) -> None:
    assert (storage_name(address), written_address(address)) == (name, written)
    assert (storage_name(written), written_address(written)) == (name, written)


@pytest.mark.parametrize("address", UNREADABLE)
def test_an_address_that_cannot_be_read_is_not_repeated(address: str, tmp_path: Path, run_command: Call) -> None:
    values = settings(tmp_path)
    (file := tmp_path / "sweep.toml").write_text(tomli_w.dumps(values))
    (wrong := tmp_path / "wrong.toml").write_text(tomli_w.dumps(settings(tmp_path, storage=address)))
    for command in (
        ("sweep", wrong, "-o", tmp_path / "made"),
        ("sweep", file, "--set", f"sweep.storage={address}", "-o", tmp_path / "made"),
        *([("sweep", "--join", address)] if "://" in address else []),
    ):
        code, out, err = run_command(*command)
        assert (code, pieces(out + err)) == (2, []), err
        assert "the storage of a sweep must" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("sweep", "FILE", "--set", "sweep.storage=['ADDRESS']"),
        ("sweep", "FILE", "--set", "sweep.storage={url = 'ADDRESS'}"),
        ("sweep", "FILE", "--set", "sweep.heartbeat='ADDRESS'"),
        ("sweep", "FILE", "--set", "sweep='ADDRESS'"),
        ("sweep", "FILE", "--set", "sweep.vary='ADDRESS'"),
        ("sweep", "FILE", "--set", "seed.x='ADDRESS'"),
        ("sweep", "FILE", "--set", "ADDRESS"),
        ("sweep", "FILE", "--set", "ADDRESS=1"),
        ("sweep", "FILE", "--set", "training.mlflow_uri=http://me:quokka@host", "--set", "training.loggers=['mlflow']"),
        ("sweep", "FILE", "--storage", "ADDRESS"),
        ("sweep", "FILE", "ADDRESS"),
        ("sweep", "FILE", "--join", "ADDRESS"),
        ("sweep", "ADDRESS"),
        ("train", "ADDRESS"),
        ("train", "FILE", "--set", "sweep.storage='ADDRESS'"),
        ("train", "FILE", "--set", "training.mlflow_uri='ADDRESS'", "--set", "training.loggers=['mlflow']"),
        ("forecast", "FILE", "--set", "sweep.storage=['ADDRESS']"),
        ("compare", "ADDRESS", "ADDRESS"),
        ("ADDRESS",),
    ],
    ids=" ".join,
)
def test_a_misplaced_address_is_not_repeated(arguments: tuple[str, ...], tmp_path: Path, run_command: Call) -> None:
    values = settings(tmp_path)
    (file := tmp_path / "sweep.toml").write_text(tomli_w.dumps(values))
    address = "postgresql://me:quokka/okapi numbat@host/dugong?sslpassword=tapir"
    code, out, err = run_command(*(text.replace("FILE", str(file)).replace("ADDRESS", address) for text in arguments))
    assert (code, pieces(out + err)) == (2, []), err
    assert err.startswith("trivet: ")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    try:
        with postgresql() as url:
            yield url
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("user", "further"), sampled([pytest.param(*form) for form in FORMS], 2))
def test_nothing_that_a_sweep_writes_holds_it(
    user: str, further: str, server: str, tmp_path: Path, run_command: Call
) -> None:
    values = settings(tmp_path, sampler="grid", vary={"loss.margin": [0.1, 0.2]})
    values["training"] |= {"steps": 2, "checkpoint_every": 2}
    user, further = (text.format(QUOTED=QUOTED, BARE=BARE) for text in (user, further))
    address = f"{server.replace('trivet@', user)}{further}"
    name = f"study-{tmp_path.name}"
    (tmp_path / "x.toml").write_text(tomli_w.dumps(values))
    begun = ("sweep", tmp_path / "x.toml", "-o", tmp_path / "made", "--set", f"sweep.name={name}")
    printed = [
        run_command(*begun, "--set", f"sweep.storage={address}"),
        run_command("sweep", "--join", address, "--study", name),
        run_command("sweep", "--join", address, "--study", "another"),
        run_command("sweep", "--join", f"{address}{'&' if further else '?'}quokka=okapi", "--study", name),
    ]
    assert [code for code, _, _ in printed] == [0, 0, 2, 2], printed
    assert not pieces("".join(out + err for _, out, err in printed))
    (tmp_path / "x.toml").unlink()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"sweep.toml", "sweep.json", "sweep.html", "best.toml", "report.html"}
    written = {str(path): pieces(path.read_bytes().decode("latin-1")) for path in files}
    assert not {path: found for path, found in written.items() if found}
    import psycopg

    with psycopg.connect(server, password=PASSWORD) as connection:
        tables = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        rows = [connection.execute(f'SELECT t::text FROM "{table}" t').fetchall() for (table,) in tables.fetchall()]
    assert name in str(rows)
    assert not pieces(str(rows))
    os.environ["PGPASSWORD"] = PASSWORD  # as the guide says of workers that join by the folder
    try:
        assert run_command("sweep", "--join", tmp_path / "made")[0] == 0
    finally:
        del os.environ["PGPASSWORD"]
