"""Exported embeddings in the programs that read them: which share of the neighbours of `trivet search` they find.

    TRIVET_DATA=... python studies/hand_over.py --encoder FOLDER   # writes studies/results/hand_over.md, .json

Whatever is installed is tried: PostgreSQL with pgvector and psycopg, lancedb, qdrant-client (its local mode),
qdrant-edge-py (the engine), fiftyone with a MongoDB, tensorboard, embedding-atlas. A program loads what `trivet export`
wrote, by the lines of the card where these are code, and finds the 10 nearest of 300 items. A neighbour counts if it
lies no farther than the 10th that `trivet search` finds, so that ties do not matter.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.postgresql import PASSWORD, UnavailableError, postgresql

from readers import idx, texts
from trivet.commands.export import item_table
from trivet.commands.export.embeddings import export_embeddings
from trivet.commands.export.options import ExportOptions
from trivet.commands.index.options import IndexOptions
from trivet.commands.index.run import make_index
from trivet.knn.index import Index
from trivet.models import encoder_vectors

RESULTS = Path(__file__).parent / "results"
QUERIES, NEAREST, SEED, TEXTS, GARMENTS = 300, 10, 5, 5000, 2000
FORMS = ("parquet", "projector", "pgvector", "qdrant")
Found = list[list[str]]


class MissingError(RuntimeError):
    """A program is not installed here."""


@dataclass(frozen=True, eq=False)
class Task:
    """Exported embeddings with the queries, by row and by id."""

    folder: Path
    name: str
    distance: str
    ids: list[str]
    vectors: np.ndarray
    queries: np.ndarray

    def others(self, found: list[str], query: int) -> list[str]:
        return [id for id in found if id != self.ids[query]][:NEAREST]


def installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        raise MissingError(package) from None


def code(card: Path, title: str, language: str) -> str:
    """The block of a card below a title."""
    section = card.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    block = re.search(rf"```{language}\n(.*?)\n```", section, re.DOTALL)
    assert block is not None, title
    return block.group(1)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def postgres(task: Task) -> dict[str, tuple[str, Found, float]]:
    """By comparing with every row, and by an index that is made by `index.sql`, with two efforts."""
    installed("psycopg")
    import psycopg  # type: ignore[import-not-found, unused-ignore]

    folder = task.folder / "pgvector" / task.name
    query = code(folder / "README.md", "PostgreSQL", "sql").replace("'ID'", "%s").rstrip(";")
    results = {}
    try:
        with postgresql() as address:
            run = ["psql", address, "-q", "-f"]
            environment = {**os.environ, "PGPASSWORD": PASSWORD}
            done = subprocess.run([*run, "load.sql"], cwd=folder, env=environment, capture_output=True, text=True)
            if "is not available" in done.stderr:
                raise MissingError("pgvector")
            assert done.returncode == 0, done.stderr
            with psycopg.connect(address, password=PASSWORD, autocommit=True) as server:
                versions = (
                    server.execute("SHOW server_version").fetchone(),
                    server.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone(),
                )
                program = f"PostgreSQL {versions[0][0].split()[0]}, pgvector {versions[1][0]}"

                def search(label: str, sql: str, vector: bool) -> None:
                    start = time.perf_counter()
                    found = []
                    for row in task.queries.tolist():
                        if vector:
                            given = "[" + ",".join(map(repr, task.vectors[row].tolist())) + "]"
                            known = server.execute(sql, (given,)).fetchall()
                            found.append(task.others([id for (id,) in known], row))
                        else:
                            found.append([id for id, _ in server.execute(sql, (task.ids[row],)).fetchall()])
                    results[label] = (program, found, 1000 * (time.perf_counter() - start) / len(task.queries))

                search("PostgreSQL, every row", query, False)
                subprocess.run([*run, "index.sql"], cwd=folder, env=environment, check=True)
                operator = "<=>" if task.distance == "cosine" else "<->"
                indexed = f'SELECT id FROM "{task.name}" ORDER BY embedding {operator} %s::vector LIMIT {NEAREST + 1}'
                server.execute("SET enable_seqscan = off")  # so few rows may be compared one by one all the same
                for effort in (40, 128):
                    server.execute(f"SET hnsw.ef_search = {effort}")
                    search(f"PostgreSQL, index.sql, ef_search {effort}", indexed, True)
    except UnavailableError as error:
        raise MissingError(str(error)) from None
    return results


def lance(task: Task) -> dict[str, tuple[str, Found, float]]:
    program = installed("lancedb")
    folder = task.folder / "parquet" / task.name
    with inside(folder):
        names: dict[str, Any] = {}
        exec(code(folder / "README.md", "LanceDB", "python"), names)
        metric = {"cosine": "cosine", "euclidean": "l2"}[task.distance]
        start = time.perf_counter()
        found = []
        for row in task.queries.tolist():
            search = names["items"].search(task.vectors[row]).distance_type(metric).limit(NEAREST + 1)
            rows = search.select(["id", "_distance"]).to_list()
            found.append(task.others([each["id"] for each in rows], row))
    return {"LanceDB, every row": (program, found, 1000 * (time.perf_counter() - start) / len(task.queries))}


def points_of(folder: Path) -> Iterator[list[dict[str, Any]]]:
    for file in sorted((folder / "points").iterdir()):
        yield json.loads(file.read_text(encoding="utf-8"))["points"]


def qdrant_local(task: Task) -> dict[str, tuple[str, Found, float]]:
    program = installed("qdrant-client")
    from qdrant_client import QdrantClient, models  # type: ignore[import-not-found, unused-ignore]

    folder = task.folder / "qdrant" / task.name
    client = QdrantClient(":memory:")
    described = json.loads((folder / "collection.json").read_text())
    client.create_collection("items", vectors_config=models.VectorParams(**described["vectors"]))
    for points in points_of(folder):
        client.upsert("items", points=[models.PointStruct(**point) for point in points])
    start = time.perf_counter()
    found = []
    for row in task.queries.tolist():
        points = client.query_points("items", query=task.vectors[row].tolist(), limit=NEAREST + 1).points
        found.append(task.others([point.payload["id"] for point in points], row))
    return {"Qdrant, local mode": (program, found, 1000 * (time.perf_counter() - start) / len(task.queries))}


def qdrant_edge(task: Task) -> dict[str, tuple[str, Found, float]]:
    program = installed("qdrant-edge-py")
    import qdrant_edge as edge  # type: ignore[import-not-found, unused-ignore]

    folder = task.folder / "qdrant" / task.name
    described = json.loads((folder / "collection.json").read_text())["vectors"]
    distance = getattr(edge.Distance, described["distance"])
    found = []
    with tempfile.TemporaryDirectory() as path:
        config = edge.EdgeConfig(vectors=edge.EdgeVectorParams(size=described["size"], distance=distance))
        shard = edge.EdgeShard.create(path, config)
        for points in points_of(folder):
            made = [edge.Point(point["id"], point["vector"], point["payload"]) for point in points]
            shard.update(edge.UpdateOperation.upsert_points(made))
        start = time.perf_counter()
        for row in task.queries.tolist():
            query = edge.Query.Nearest(task.vectors[row].tolist())
            request = edge.QueryRequest(limit=NEAREST + 1, query=query, with_payload=True)
            found.append(task.others([point.payload["id"] for point in shard.query(request)], row))
        seconds = time.perf_counter() - start
        shard.close()
    return {"Qdrant, engine": (program, found, 1000 * seconds / len(task.queries))}


def fiftyone(task: Task) -> dict[str, tuple[str, Found, float]]:
    program = installed("fiftyone")
    try:
        import fiftyone as fo  # type: ignore[import-not-found, unused-ignore]

        fo.list_datasets()
    except Exception as error:
        raise MissingError(f"MongoDB ({error})") from None
    folder = task.folder / "parquet" / task.name
    if task.name in fo.list_datasets():
        fo.delete_dataset(task.name)
    with inside(folder):
        names: dict[str, Any] = {}
        exec(code(folder / "README.md", "FiftyOne", "python"), names)
    dataset = names["dataset"]
    of_id = dict(zip(dataset.values("id_"), dataset.values("id"), strict=True))
    start = time.perf_counter()
    found = []
    for row in task.queries.tolist():
        view = dataset.sort_by_similarity(of_id[task.ids[row]], k=NEAREST + 1, brain_key="similarity")
        found.append(task.others(view.values("id_"), row))
    seconds = time.perf_counter() - start
    points = dataset.load_brain_results("map").points
    table = pq.read_table(folder / "items.parquet")
    assert np.allclose(points[:, 0], table.column("map_x").to_numpy())
    fo.delete_dataset(task.name)
    return {"FiftyOne": (program, found, 1000 * seconds / len(task.queries))}


def tensorboard(task: Task) -> dict[str, tuple[str, Found, float]]:
    """The plugin of the projector reads the files; the neighbours are those of what it serves, as its page computes."""
    program = installed("tensorboard")
    from tensorboard.plugins import base_plugin  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from tensorboard.plugins.projector import projector_plugin  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from werkzeug.test import Client  # type: ignore[import-not-found, unused-ignore]

    folder = task.folder / "projector" / task.name
    plugin = projector_plugin.ProjectorPlugin(base_plugin.TBContext(logdir=str(folder)))

    def get(route: str) -> bytes:
        return bytes(Client(plugin.get_plugin_apps()[f"/{route}"]).get("/?run=.&name=embedding").data)

    shape = json.loads(get("info"))["embeddings"][0]["tensorShape"]
    tensor = np.frombuffer(get("tensor"), np.float32).reshape(shape)
    header, *rows = get("metadata").decode().rstrip("\n").split("\n")
    assert np.array_equal(tensor, task.vectors)
    assert header.split("\t")[0] == "id"
    ids = [row.split("\t")[0] for row in rows]
    start = time.perf_counter()
    found = []
    for row in task.queries.tolist():
        if task.distance == "cosine":
            unit = tensor / np.linalg.norm(tensor, axis=1, keepdims=True)
            gaps = 1 - unit @ unit[row]
        else:
            gaps = np.linalg.norm(tensor - tensor[row], axis=1)
        found.append(task.others([ids[i] for i in np.argsort(gaps, kind="stable")[: NEAREST + 1]], row))
    return {"TensorBoard": (program, found, 1000 * (time.perf_counter() - start) / len(task.queries))}


def atlas(task: Task) -> dict[str, tuple[str, Found, float]]:
    """The neighbours that Embedding Atlas shows are those of the table, which it serves as it was written."""
    folder = task.folder / "parquet" / task.name
    (python,) = [each for each in (os.environ.get("ATLAS", sys.executable),) if each]
    ask = "import importlib.metadata as m; print(m.version('embedding-atlas'))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True)
    if done.returncode:
        raise MissingError("embedding-atlas")
    command, made = code(folder / "README.md", "Embedding Atlas", "sh").split(), folder / "application"
    program = str(Path(python).with_name(command[0]))
    subprocess.run(
        [program, *command[1:], "--export-application", str(made)], cwd=folder, check=True, capture_output=True
    )
    shown = json.loads(next(made.rglob("metadata.json")).read_text())["props"]["data"]
    assert shown["projection"]["x"] == "map_x"
    assert shown["neighbors"] == "neighbors"
    table = pq.read_table(next(made.rglob("*.parquet")))
    rows = table.column("neighbors").to_pylist()
    found = [[task.ids[i] for i in rows[row]["ids"]] for row in task.queries.tolist()]
    return {"Embedding Atlas": (f"embedding-atlas {done.stdout.strip()}", found, 0.0)}


PROGRAMS: tuple[Callable[[Task], dict[str, tuple[str, Found, float]]], ...] = (
    *(postgres, lance, qdrant_local, qdrant_edge),
    *(fiftyone, tensorboard, atlas),
)


def sets(encoder: str, cache: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, distance and arrays of each set of embeddings."""
    train = texts("banking77")[::2][:TEXTS]
    words = [text for text, _ in train]
    if not cache.is_file():
        np.save(cache, np.asarray(encoder_vectors(words, encoder), np.float32))
    vectors = np.load(cache)
    assert len(vectors) == len(words), f"{cache} holds the vectors of other texts: remove it"
    yield "banking77", "cosine", {"embeddings": vectors, "text": words}
    cone = np.ones(vectors.shape[1]) / np.sqrt(vectors.shape[1])
    yield "cone", "cosine", {"embeddings": (cone + 3e-3 * vectors).astype(np.float32)}
    pixels = idx("fashion-mnist", "t10k")[0][:GARMENTS]
    yield "garments", "euclidean", {"embeddings": pixels.reshape(len(pixels), -1).astype(np.float32) / 255}


def measured(task: Task, index: Index, found: Found) -> float:
    rows = {id: row for row, id in enumerate(task.ids)}
    last = index.search_rows(task.queries, NEAREST).distances[:, -1:]
    numbers = np.array([[rows[id] for id in each] + [-1] * (NEAREST - len(each)) for each in found])
    return float((index.distances_of_rows(task.queries, numbers) <= last).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, help="folder of the sentence encoder, all-MiniLM-L6-v2 here")
    parser.add_argument(
        "--vectors", type=Path, default=Path("banking77.npy"), help="file that keeps those of the texts"
    )
    options = parser.parse_args()
    item_table.MAPPED = 0  # maps by PCA, and no labels to judge: neighbours are what is measured
    start, results, programs, missing = time.perf_counter(), [], dict[str, str](), dict[str, str]()
    for name, distance, arrays in sets(options.encoder, options.vectors):
        with tempfile.TemporaryDirectory() as path:
            folder, count = Path(path), len(arrays["embeddings"])
            folder.chmod(0o755)
            arrays["id"] = [f"item {row:05}" for row in range(count)]
            np.savez(folder / "items.npz", **arrays)
            make_index(IndexOptions(source=folder / "items.npz", output=folder / "index", distance=distance))
            index = Index.load(folder / "index")
            own = {}
            for form in FORMS:
                (folder / form).mkdir()
                made = export_embeddings(
                    ExportOptions(source=folder / "items.npz", to=form, output=folder / form / name, distance=distance)
                )
                own[form] = made.recall
            queries = np.sort(np.random.default_rng(SEED).choice(count, QUERIES, replace=False))
            task = Task(folder, name, distance, arrays["id"], arrays["embeddings"], queries)
            shape = list(task.vectors.shape)
            results.append(
                {"set": name, "shape": shape, "distance": distance, "way": "stated", "recall": own["qdrant"]}
            )
            for tried in PROGRAMS:
                try:
                    answers = tried(task)
                except MissingError as error:
                    missing[tried.__name__] = str(error)
                    continue
                for way, (program, found, milliseconds) in answers.items():
                    programs[way] = program
                    recall = measured(task, index, found)
                    results.append(
                        {"set": name, "shape": shape, "distance": distance, "way": way, "recall": recall,
                         "milliseconds": round(milliseconds, 2)}
                    )  # fmt: skip
                    print(name, way, recall, round(milliseconds, 2), flush=True)
    record = {
        "date": str(datetime.now(UTC).date()),
        "machine": f"Python {platform.python_version()}, {platform.machine()} CPU, {os.cpu_count()} cores",
        "seconds": round(time.perf_counter() - start),
        "programs": programs,
        "missing": missing,
        "results": results,
    }
    (RESULTS / "hand_over.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "hand_over.md").write_text(report(record))


def report(record: dict[str, Any]) -> str:
    """The results as a page."""
    of_set = {each["set"]: each for each in record["results"]}
    heads = [f"{name}, {each['shape'][0]} x {each['shape'][1]}, {each['distance']}" for name, each in of_set.items()]
    recalls = {(each["way"], each["set"]): each["recall"] for each in record["results"]}
    lines = [
        "# Exported embeddings in other programs",
        "",
        "`TRIVET_DATA=... python studies/hand_over.py --encoder all-MiniLM-L6-v2`",
        "",
        f"{record['date']}, {record['machine']}, {record['seconds']} s.",
        "",
        f"Recall@{NEAREST} against `trivet search` of {QUERIES} items, in percent: neighbours that lie no farther than "
        f"the {NEAREST}th that it finds. Each program loads what `trivet export` wrote, by its card.",
        "",
        "| program | version | " + " | ".join(heads) + " |",
        "|---|---|" + "---:|" * len(heads),
    ]
    ways = dict.fromkeys(each["way"] for each in record["results"])
    for way in ways:
        label = "on the card: float32" if way == "stated" else way
        cells = [f"{100 * recalls[way, name]:.2f}" if (way, name) in recalls else "" for name in of_set]
        lines.append(f"| {label} | {record['programs'].get(way, '')} | {' | '.join(cells)} |")
    lines += [
        "",
        "banking77: texts by all-MiniLM-L6-v2. cone: the same beside a common direction 330 times as long, so that "
        "all cosine distances lie below 1e-4. garments: pixels of Fashion-MNIST. Neighbours of Embedding Atlas are "
        "those of the table; those of TensorBoard are computed here, from what its plugin serves.",
    ]
    if record["missing"]:
        lines += ["", f"Not tried: {', '.join(f'{name} ({why})' for name, why in record['missing'].items())}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
