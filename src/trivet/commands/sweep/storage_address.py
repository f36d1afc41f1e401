"""Address of the storage of a sweep, read by SQLAlchemy, which connects by it, and written without what is secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trivet.runtime.extras import load

SQLITE = "sqlite:///"
# Parts of an address that are written; psycopg knows others, such as sslpassword, which PGOPTIONS and the like replace.
WRITTEN = ("host", "port", "user", "dbname", "sslmode", "sslrootcert", "connect_timeout", "target_session_attrs")
FORM = f'"postgresql://USER@HOST/DATABASE" or "{SQLITE}FILE"'


def sqlite_file(address: str) -> Path | None:
    """The file of a SQLite database; None for PostgreSQL."""
    return Path(address.removeprefix(SQLITE)) if address.startswith(SQLITE) else None


def database_url(address: str) -> Any:
    """The `sqlalchemy.URL` of an address of PostgreSQL.

    Raises:
        ValueError: if it has another form; the sentence holds nothing of the address, in which a password may stand.
    """
    scheme, _, tail = address.partition("://")
    signed = re.match("[^:/]*(:[^@]*)?@", tail)  # user and password, as SQLAlchemy takes them
    if scheme not in ("postgresql", "postgresql+psycopg"):
        raise ValueError(f"the storage of a sweep must be {FORM}: its address begins otherwise; write it so.")
    if "@" in tail[signed.end() if signed else 0 :]:
        raise ValueError("the storage of a sweep must have no @ in its password: write it as %40, or set PGPASSWORD.")
    try:
        return load("sqlalchemy").make_url(f"postgresql+psycopg://{tail}")
    except (ValueError, load("sqlalchemy.exc").ArgumentError):
        raise ValueError(
            f"the storage of a sweep must be {FORM}: its address cannot be read; give a port in digits, and a password "
            "by PGPASSWORD."
        ) from None


def storage_name(address: str) -> str:
    """The storage for messages and records: the path of a file, or "DATABASE on HOST"."""
    if (file := sqlite_file(address)) is not None:
        return str(file)
    url = database_url(address)
    host, port = url.host or url.query.get("host") or "this machine", url.port or url.query.get("port")
    return f"{url.database or url.query.get('dbname') or 'the database'} on {host}{f':{port}' if port else ''}"


def written_address(address: str) -> str:
    """The address for settings, from which workers join: with the whole path of a file, or user, host and database."""
    if (file := sqlite_file(address)) is not None:
        return f"{SQLITE}{file.resolve()}"
    url = database_url(address)
    query = {key: value for key, value in url.query.items() if key in WRITTEN}
    made = type(url).create("postgresql", url.username, None, url.host, url.port, url.database, query)
    return str(made.render_as_string(hide_password=False))
