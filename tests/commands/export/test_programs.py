"""Exported embeddings in the programs that read them, where these are installed: they find what a search here finds."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.commands.export.test_embeddings import HOSTILE, export
from tests.postgresql import PASSWORD, UnavailableError, postgresql

from trivet.commands.index.options import IndexOptions
from trivet.commands.index.run import make_index
from trivet.knn.index import Index

ITEMS, DIMENSION, NEAREST = 150, 9, 10
DISTANCES = ("cosine", "euclidean")
IDS = [*HOSTILE, *(f"item {row}" for row in range(len(HOSTILE), ITEMS))]
NEIGHBOURS = """SELECT json_agg(near) FROM (
    SELECT (
        SELECT json_agg(id) FROM (
            SELECT other.id FROM made AS other WHERE other.id <> item.id
            ORDER BY other.embedding {operator} item.embedding LIMIT 10
        ) AS nearest
    ) AS near FROM made AS item ORDER BY row
) AS rows"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("source") / "items.npz"
    vectors = np.random.default_rng(0).normal(size=(ITEMS, DIMENSION)).astype(np.float32)
    np.savez(file, embeddings=vectors, id=np.array(IDS), row=np.arange(ITEMS))
    return file


def searched(source: Path, folder: Path, distance: str) -> list[list[str]]:
    """The ids that `trivet search` finds for each item."""
    make_index(IndexOptions(source=source, output=folder, distance=distance))  # type: ignore[arg-type]
    nearest = Index.load(folder).search_rows(np.arange(ITEMS), NEAREST).indices
    return [[IDS[row] for row in rows] for rows in nearest.tolist()]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a PostgreSQL with pgvector."""
    try:
        with postgresql() as address:
            if psql(address, "CREATE EXTENSION vector; DROP EXTENSION vector").returncode:
                pytest.skip("pgvector is not installed")
            yield address
    except UnavailableError as error:
        pytest.skip(str(error))


def psql(address: str, sql: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    command = ["psql", address, "-v", "ON_ERROR_STOP=1", "-qAt", "-c", sql]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("distance", DISTANCES)
def test_postgresql_finds_the_same(source: Path, tmp_path: Path, server: str, distance: str) -> None:
    folder = export(source, "pgvector", tmp_path / "made", distance=distance)
    load = ["psql", server, "-q", "-f", "load.sql"]
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    assert psql(server, "DROP TABLE IF EXISTS made").returncode == 0
    done = subprocess.run(load, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read = json.loads(psql(server, "SELECT json_agg(id) FROM (SELECT id FROM made ORDER BY row) AS rows").stdout)
    assert read == IDS
    operator = {"cosine": "<=>", "euclidean": "<->"}[distance]
    near = json.loads(psql(server, NEIGHBOURS.format(operator=operator)).stdout)
    assert near == searched(source, tmp_path / "index", distance)
    again = subprocess.run(load, cwd=folder, env=environment, capture_output=True, text=True)
    assert (again.returncode != 0, "already exists" in again.stderr) == (True, True)
    assert psql(server, "SELECT count(*) FROM made").stdout.strip() == str(ITEMS)
    index = subprocess.run(["psql", server, "-q", "-f", "index.sql"], cwd=folder, env=environment, capture_output=True)
    assert index.returncode == 0
    plan = psql(
        server,
        f"SET enable_seqscan = off; EXPLAIN SELECT id FROM made ORDER BY embedding {operator} "
        "(SELECT embedding FROM made WHERE row = 0) LIMIT 10",
    ).stdout
    assert "Index Scan using made_embedding_idx" in plan  # the class of operators fits the operator


@pytest.mark.parametrize("distance", DISTANCES)
def test_lancedb_finds_the_same(source: Path, tmp_path: Path, distance: str) -> None:
    lancedb = pytest.importorskip("lancedb")
    folder = export(source, "parquet", tmp_path / "made", distance=distance)
    table = pq.read_table(folder / "items.parquet")
    items = lancedb.connect(tmp_path / "lance").create_table("made", table)
    metric = {"cosine": "cosine", "euclidean": "l2"}[distance]
    assert f"distance_type({metric!r})" in (folder / "README.md").read_text()
    for id, vector, near in zip(
        IDS, table.column("embedding").to_pylist(), searched(source, tmp_path / "index", distance), strict=True
    ):
        rows = items.search(vector).distance_type(metric).limit(NEAREST + 1).to_list()
        assert [row["id"] for row in rows if row["id"] != id] == near


@pytest.mark.parametrize("distance", DISTANCES)
def test_qdrant_finds_the_same(source: Path, tmp_path: Path, distance: str) -> None:
    qdrant = pytest.importorskip("qdrant_client")
    folder = export(source, "qdrant", tmp_path / "made", distance=distance)
    client = qdrant.QdrantClient(":memory:")
    vectors = json.loads((folder / "collection.json").read_text())["vectors"]
    client.create_collection("made", vectors_config=qdrant.models.VectorParams(**vectors))
    for file in sorted((folder / "points").iterdir()):
        points = json.loads(file.read_text(encoding="utf-8"))["points"]
        client.upsert("made", points=[qdrant.models.PointStruct(**point) for point in points])
    rows = np.load(source)["embeddings"].tolist()
    for id, row, near in zip(IDS, rows, searched(source, tmp_path / "index", distance), strict=True):
        points = client.query_points("made", query=row, limit=NEAREST + 1).points
        assert [point.payload["id"] for point in points if point.payload["id"] != id] == near


def test_tensorboard_serves_the_same(source: Path, tmp_path: Path) -> None:
    plugins = pytest.importorskip("tensorboard.plugins.projector.projector_plugin")
    from tensorboard.plugins.base_plugin import TBContext  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from werkzeug.test import Client  # type: ignore[import-not-found, unused-ignore]

    folder = export(source, "projector", tmp_path / "made")
    plugin = plugins.ProjectorPlugin(TBContext(logdir=str(folder)))

    def get(route: str) -> bytes:
        return bytes(Client(plugin.get_plugin_apps()[f"/{route}"]).get("/?run=.&name=embedding").data)

    assert json.loads(get("info"))["embeddings"][0]["tensorShape"] == [ITEMS, DIMENSION]
    tensor = np.frombuffer(get("tensor"), np.float32).reshape(ITEMS, DIMENSION)
    assert np.array_equal(tensor, np.load(source)["embeddings"])
    header, *rows = get("metadata").decode().removesuffix("\n").split("\n")
    assert header.split("\t")[:2] == ["id", "row"]
    assert [row.split("\t")[1] for row in rows] == [str(row) for row in range(ITEMS)]
