"""Damaged files: every command on files whose bytes were changed, cut off or swapped must end in 0 or in one sentence.

    .venv/bin/python tests/hostile/damage.py [--cases 3000] [--minutes 600] [--seed 0] [--kind TEXT]

The results are tests/hostile/results/damage.json.

Each case damages one file of one kind and runs a command that reads it, in a process of its own that may use 2 GiB more
address space than the libraries take. Exit code 1 ("unexpected"), a signal, no sentence, or no end within half a minute
of the processor is a fault.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import platform
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # miniatures of the published data sets
RESULTS = Path(__file__).parent / "results"
FEW = 400  # digits, so that a run is evaluated fast
ROOM = 2 << 30  # bytes of address space that a case may use
SECONDS, LONGEST = 30, 300  # of the processor, and in all, after which a case is ended

LAYOUT = """
[data]
name = "{name}"
{more}
[batch]
num_classes = 2
samples_per_class = 2
[model]
name = "{model}"
embedding_dim = 3
[loss]
name = "triplet"
[training]
steps = 1
accelerator = "cpu"
[evaluation]
map_points = 10
sample = 20
nmi_plus = 1
"""
BACKBONE = "test_resnet"
SETTINGS = (
    LAYOUT.format(name="digits", more="", model="linear")
    .replace("steps = 1", "steps = 6\ncheckpoint_every = 2")
    .replace("samples_per_class = 2", "samples_per_class = 4")
)
EVALUATE = "evaluate {} --nmi-plus 1"
# Miniatures of the published data sets, each with the settings that read it: image by image, with the published boxes.
BOXED, SMALL = "image_size = 8\nboxes = true", "image_size = 8"
LAYOUTS = {  # name -> how `tests/miniatures.py` makes it, and further settings
    "cub": (lambda made, root: made.cub(root, classes=5), BOXED),
    "cars196": (lambda made, root: made.cars196(root), BOXED),
    "sop": (lambda made, root: made.sop(root), SMALL),
    "in-shop": (lambda made, root: made.in_shop(root), BOXED),
    "market1501": (lambda made, root: made.market1501(root, people=2), SMALL),
    "cuhk03": (lambda made, root: made.cuhk03(root), SMALL),
    "flowers102": (lambda made, root: made.flowers102(root, each=6), SMALL),
    "inaturalist": (lambda made, root: made.inaturalist(root), SMALL + '\nlevel = "genus"'),
    "cifar10": (lambda made, root: made.cifar10(root), 'level = "worse"'),
    "omniglot": (lambda made, root: made.omniglot(root), SMALL),
}
RUN = LAYOUT.format(name="vectors", more='path = "many.npz"', model="linear").replace("steps = 1", "steps = 2")
SWEEP = (
    RUN.replace('path = "many.npz"', 'path = "many.npz"\nfolds = 2').replace("[evaluation]", "[evaluation]\nevery = 1")
    + """
[sweep]
trials = 2
heartbeat = 1
vary = {"loss.margin" = [0.1, 0.2, 0.4]}
"""
)


class Kind(NamedTuple):
    """A file, what reads it, and what it is swapped with."""

    file: str
    commands: tuple[str, ...]


KINDS = {
    "npz": Kind("e.npz", (EVALUATE.format("e.npz"), "diagnose e.npz", "audit e.npz", "search found e.npz")),
    "npz, compressed": Kind("c.npz", (EVALUATE.format("c.npz"), "audit c.npz")),
    "npy": Kind("e.npy", (EVALUATE.format("e.npy"), "search found e.npy")),
    "csv beside an npy": Kind("e.csv", (EVALUATE.format("e.npy"), "index e.npy -o new")),
    "parquet of lists": Kind(
        "e.parquet",
        (
            *(EVALUATE.format("e.parquet"), "diagnose e.parquet", "index e.parquet -o new"),
            "export e.parquet --to qdrant -o new",
        ),
    ),
    "parquet of columns": Kind("wide.parquet", (EVALUATE.format("wide.parquet"), "search found wide.parquet")),
    "texts": Kind("texts.csv", ("audit texts.csv", "audit texts.csv --apply d.csv -o new.csv")),
    "decisions": Kind("d.csv", ("audit texts.csv --apply d.csv -o new.csv", "train s.toml --labels td.csv -o new")),
    "settings": Kind("s.toml", ("train s.toml -o new --set training.steps=1", "forecast s.toml --steps 5")),
    "an option --set": Kind("set.txt", ("train s.toml -o new --set @set.txt --set training.steps=1",)),
    "exact index": Kind("found/index.faiss", ("search found 3", "search found q.npy")),
    "hnsw index": Kind("hnsw/index.faiss", ("search hnsw 3", "search hnsw q.npy")),
    "ivf index": Kind("ivf/index.faiss", ("search ivf 3", "search ivf q.npy")),
    "index.json": Kind("found/index.json", ("search found 3", "search found q.npy", "search found 3 --sheet new.html")),
    "items of an index": Kind("found/items.parquet", ("search found 3", "search found q.npy")),
    "record": Kind(
        "run/record.json",
        ("diagnose run", EVALUATE.format("run"), "index run -o new", "evaluate run", "train --resume run"),
    ),
    "settings of a run": Kind("run/config.toml", ("diagnose run", "evaluate run", "embed run pictures -o new.parquet")),
    "metrics": Kind("run/metrics.csv", ("train --resume run",)),
    "model.json": Kind("run/model/model.json", ("evaluate run", "embed run digits -o new.parquet")),
    "weights": Kind("run/model/model.safetensors", ("evaluate run", "embed run digits -o new.parquet")),
    "checkpoint": Kind("run/checkpoints/step-00000006.safetensors", ("train --resume run", "diagnose run")),
    "embeddings of a run": Kind("run/embeddings/seen.parquet", (EVALUATE.format("run"), "index run -o new")),
    "images": Kind("pictures/a/0.png", ("embed run pictures -o new.parquet", "search made pictures/a/0.png")),
    "jpeg": Kind("pictures/a/1.jpg", ("embed run pictures -o new.parquet", "search made pictures/a/1.jpg")),
    "gif": Kind("pictures/b/0.gif", ("search made pictures/b/0.gif",)),
    "tiff": Kind("pictures/b/1.tif", ("search made pictures/b/1.tif",)),
    "webp": Kind("pictures/b/2.webp", ("search made pictures/b/2.webp",)),
    "bmp": Kind("pictures/b/3.bmp", ("search made pictures/b/3.bmp",)),
    "compared run": Kind("run/record.json", ("compare run other", "export run --to safetensors -o new")),
    "metrics of a compared run": Kind("run/metrics.csv", ("compare run other",)),
    "shards.json": Kind("shards/shards.json", (EVALUATE.format("shards"), "embed run digits -o shards")),
    "a shard": Kind("shards/part-00001.parquet", (EVALUATE.format("shards"), "embed run digits -o shards")),
    "vectors of shards": Kind(
        "shards/vectors.npy", ("index shards -o new", "mine shards --labels digit -o new.parquet")
    ),
    "pairs": Kind("pairs.csv", ("mine e.npz --pairs pairs.csv -o new.parquet",)),
    "mined triplets": Kind("mined.parquet", ("train mined.toml -o new",)),
    "settings of a sweep": Kind("sweep.toml", ("sweep sweep.toml -o new --set sweep.trials=1",)),
    "study": Kind("swept/study.db", ("sweep --join swept",)),
    "record of a sweep": Kind("swept/sweep.json", ("sweep --join swept",)),
    "settings in a sweep": Kind("swept/sweep.toml", ("sweep --join swept",)),
    "folds": Kind("folds/folds.json", ("train --resume folds",)),
    "settings of folds": Kind("folds/folds.toml", ("train --resume folds",)),
    "hugging face, arrow": Kind("saved/data.arrow", ("init saved -o new.toml", "train saved.toml -o new")),
    "hugging face, state": Kind("saved/state.json", ("init saved -o new.toml", "train saved.toml -o new")),
    "hugging face, info": Kind("saved/dataset_info.json", ("init saved -o new.toml", "train saved.toml -o new")),
    "hugging face, zstd": Kind("packed/data.arrow", ("init packed -o new.toml", "train packed.toml -o new")),
    "hugging face, lz4": Kind("dense/data.arrow", ("init dense -o new.toml", "train dense.toml -o new")),
    "JSON lines of vectors": Kind("v.jsonl", (EVALUATE.format("v.jsonl"), "audit v.jsonl")),
    "csv of vectors": Kind("v.csv", (EVALUATE.format("v.csv"), "index v.csv -o new")),
    "words and numbers": Kind("words.txt", (EVALUATE.format("words.txt"), "index words.txt -o new")),
    "weights of torch": Kind("w.pt", ("train net.toml -o new",)),
    "older weights of torch": Kind("w0.pt", ("train net.toml -o new --set model.weights=w0.pt",)),
    **{
        f"text network, {file}": Kind(f"text/{file}", ("train text.toml -o new",))
        for file in ("tokenizer.json", "config.json", "model.safetensors", "tokenizer_config.json", "modules.json")
    },
    **{
        f"text model, {file}": Kind(f"textrun/model/{file}", ("embed textrun texts.csv -o new.parquet",))
        for file in ("tokenizer.json", "transformer.json", "model.json")
    },
    "JSON lines": Kind("texts.jsonl", ("init texts.jsonl -o new.toml",)),
    "table of images": Kind("items.csv", ("init items.csv -o new.toml", "train items.toml -o new")),
    "vectors to begin with": Kind("e.npz", ("init e.npz -o new.toml", "mine e.npz -o new.parquet")),
    **{
        f"{name}, {file}": Kind(f"{name}/{file}", (f"train {name}.toml -o new --data-root .",))
        for name, files in {
            "cub": ("images.txt", "image_class_labels.txt", "classes.txt", "bounding_boxes.txt"),
            "cars196": ("cars_annos.mat",),
            "sop": ("Ebay_train.txt", "Ebay_test.txt"),
            "in-shop": ("Eval/list_eval_partition.txt", "Anno/list_bbox_inshop.txt"),
            "market1501": ("query/0001_c1s1_001051_00.jpg",),
            "cuhk03": ("cuhk03_new_protocol_config_detected.mat",),
            "flowers102": ("imagelabels.mat", "setid.mat"),
            "inaturalist": ("train2018.json", "val2018.json"),
            "cifar10": ("cifar_n_labels.npz", "cifar-10-batches-bin/data_batch_1.bin"),
            "omniglot": ("images_background.zip",),
        }.items()
        for file in files
    },
}


def call(line: str, out: Path | None = None) -> int:
    """The exit code of a command, in this process; what it prints goes to a file, or nowhere."""
    from trivet.commands.main import _run

    words = [
        Path(word[1:]).read_text(errors="replace").replace("\0", "") if word[0] == "@" else word
        for word in line.split()
    ]
    with Path(out or os.devnull).open("w") as sink, contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        sys.argv = ["trivet", *words]
        return _run(words, [])


def prepare(folder: Path) -> None:
    """Write a sound file of every kind, and see that every command ends well on them."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    os.chdir(folder)
    drawn = np.random.default_rng(0)
    embeddings = drawn.normal(size=(40, 3)).astype(np.float32)
    kinds = np.array(["cat", "dog"]).repeat(20)
    ids = [f"{i}" for i in range(40)]
    np.savez("e.npz", embeddings=embeddings, kind=kinds, id=ids, weight=drawn.normal(size=40))
    np.savez_compressed("c.npz", embeddings=embeddings, kind=kinds)
    np.save("e.npy", embeddings)
    np.save("q.npy", embeddings[:2])
    rows = [f'{i},{kind},"a {kind}, {int(i) % 7}"' for i, kind in zip(ids, kinds, strict=True)]
    Path("e.csv").write_text("\n".join(["id,kind,text", *rows]) + "\n")
    Path("texts.csv").write_text("\n".join(["id,kind,text", *rows]) + "\n")
    Path("d.csv").write_text("id,decision,label\n3,keep,\n4,relabel,dog\n5,drop,\n")
    Path("td.csv").write_text("id,decision,label\n")
    Path("set.txt").write_text("training.steps=1")
    columns = {"id": ids, "kind": kinds.tolist(), "embedding": embeddings.tolist()}
    pq.write_table(pa.table(columns), "e.parquet")
    wide = {f"e{i}": embeddings[:, i] for i in range(3)}
    pq.write_table(pa.table(wide | {"kind": kinds.tolist()}), "wide.parquet")
    Path("s.toml").write_text(SETTINGS)
    for name in ("a/0.png", "a/1.jpg", "b/0.gif", "b/1.tif", "b/2.webp", "b/3.bmp"):
        Path("pictures", name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn.integers(0, 255, (12, 12, 3), dtype=np.uint8)).save(Path("pictures", name))
    prepare_others(drawn)


def prepare_others(drawn: Any) -> None:
    """What a command of its own reads: layouts as they were published, sweeps, pairs, tables and saved data sets."""
    import numpy as np
    import pyarrow as pa
    from tests import miniatures

    for subset in ("train", "t10k"):
        miniatures.mnist(Path("mnist"), subset, [row % 10 for row in range(100)], compress=subset == "t10k")
    for name, (make, more) in LAYOUTS.items():
        made = make(miniatures, Path(name))
        if name == "cifar10":
            np.savez("cifar10/cifar_n_labels.npz", c10_clean_label=made, c10_worse_label=made[::-1])
        model = "linear" if name == "cifar10" else "conv3"
        Path(f"{name}.toml").write_text(LAYOUT.format(name=name, more=more, model=model))
    many = drawn.normal(size=(48, 3)).astype(np.float32)
    np.savez("many.npz", embeddings=many, kind=np.array(list("abcdefgh")).repeat(6), id=[str(i) for i in range(48)])
    Path("sweep.toml").write_text(SWEEP)
    Path("pairs.csv").write_text("anchor,positive\n" + "".join(f"{i},{i + 1}\n" for i in range(12)))
    batch = "num_classes = 2\nsamples_per_class = 2"
    Path("mined.toml").write_text(RUN.replace(batch, 'mined = "mined.parquet"\nsize = 8'))
    Path("folds.toml").write_text(RUN)
    texts = [{"id": str(i), "kind": "ab"[i % 2], "text": f"a thing {i}"} for i in range(40)]
    Path("texts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in texts))
    table = LAYOUT.format(name="table", more='path = "items.csv"\nimage_size = 8', model="conv3")
    Path("items.toml").write_text(table)
    Path("saved.toml").write_text(table.replace("items.csv", "saved"))
    names = [path.as_posix() for path in sorted(Path("sop").rglob("*.JPG"))]
    Path("items.csv").write_text("path,label\n" + "".join(f"{name},{i // 3}\n" for i, name in enumerate(names)))
    columns = {"image": [Path(name).read_bytes() for name in names], "label": [i // 3 for i in range(len(names))]}
    miniatures.hugging_face(Path("saved"), columns, label="abcd")
    for folder, compression in (("packed", "zstd"), ("dense", "lz4")):
        miniatures.hugging_face(Path(folder), columns, label="abcd")
        rows = pa.ipc.open_stream(Path(folder, "data.arrow").read_bytes()).read_all()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with (
            pa.OSFile(f"{folder}/data.arrow", "wb") as sink,
            pa.ipc.new_stream(sink, rows.schema, options=options) as f,
        ):
            f.write_table(rows)
        Path(f"{folder}.toml").write_text(table.replace("items.csv", folder))
    vectors = [{"kind": "ab"[i % 2], "embedding": row.tolist()} for i, row in enumerate(many)]
    Path("v.jsonl").write_text("".join(json.dumps(one) + "\n" for one in vectors))
    lines = [f'{one["kind"]},"{one["embedding"]}"' for one in vectors]
    Path("v.csv").write_text("\n".join(["kind,embedding", *lines]) + "\n")
    words = [" ".join([one["kind"], *map(str, one["embedding"] * 2)]) for one in vectors]
    Path("words.txt").write_text("\n".join(["48 6", *words]) + "\n")


def prepare_networks() -> None:
    """Write weights of a backbone, and a text network, with settings that train on them."""
    import timm
    import torch
    from tests.small_texts import text_network

    weights = timm.create_model(BACKBONE, num_classes=0).state_dict()
    torch.save(weights, "w.pt")
    torch.save(weights, "w0.pt", _use_new_zipfile_serialization=False)
    network = f'"timm:{BACKBONE}"\nweights = "w.pt"'
    table = Path("items.toml").read_text()
    Path("net.toml").write_text(table.replace('"conv3"', network).replace("image_size = 8", "image_size = 32"))
    text_network(Path("text"), normalize=True)
    words = LAYOUT.format(
        name="texts", more='path = "texts.csv"\nlevels = ["kind"]\nsplit = "in-class"', model="text:text"
    )
    Path("text.toml").write_text(words.replace("embedding_dim = 3", ""))


COMMANDS = (
    "train s.toml -o run",
    "index e.npz -o found",
    "index e.npz -o hnsw --kind hnsw",
    "index e.npz -o ivf --kind ivf",
    "index run -o made",
    "train s.toml -o other --set seed=1",
    "embed run digits -o shards --shard-rows 150",
    "mine many.npz -o mined.parquet",
    "sweep sweep.toml -o swept",
    "train folds.toml --folds 2 -o folds",
    "train text.toml -o textrun",
)


def bytes_changed(data: bytes, draw: random.Random) -> bytes:
    """A few bytes changed, at the ends more often, where headers and footers are."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 16))):
        if changed:
            place = draw.choice((draw.randrange(len(changed)), draw.randrange(min(200, len(changed)))))
            place = len(changed) - 1 - place if draw.random() < 0.3 else place
            changed[place] = draw.choice((0, 255, draw.randrange(256), changed[place] ^ (1 << draw.randrange(8))))
    return bytes(changed)


def cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.choice((0, 1, draw.randrange(len(data)), len(data) - 1))]


def grown(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data) + 1)
    return data[:place] + draw.choice((b"\0" * 64, draw.randbytes(9), data[:100], b"9" * 20)) + data[place:]


NUMBERS = (None, True, 0, -1, 10**12, 10**400, 1.5, -1e308)
VALUES = (*NUMBERS, "", "x", "9" * 3000, [], [1], [[[]]], {}, {"x": 1}, {"name": []})


def value_swapped(data: bytes, draw: random.Random) -> bytes:
    """In JSON, a value of another type or size, or a key gone; otherwise a number in the text."""
    try:
        tree = json.loads(data)
    except ValueError:
        return number_swapped(data, draw)
    places = list(_places(tree))
    holder, key = draw.choice(places[: draw.choice((8, len(places)))])
    if draw.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = draw.choice(VALUES)
    return json.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def number_swapped(data: bytes, draw: random.Random) -> bytes:
    """A run of digits, or a pair of bytes, is another number."""
    places = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if not places:
        return bytes_changed(data, draw)
    place = draw.choice(places)
    return data[:place] + draw.choice((b"-1", b"1000000000000", b"1e400", b"[]", b"''", b"x")) + data[place + 1 :]


LINES = (
    b"null",
    b"[]",
    b"{}",
    b"",
    b'"',
    b"\0",
    b"9" * 300_000,
    b"a" * 300_000,
    b'{"text": "\\ud800"}',
    b"\xff",
    b",,,,",
)


def line_swapped(data: bytes, draw: random.Random) -> bytes:
    """A line of a text, or all before it, is another."""
    lines = data.split(b"\n")
    place = draw.choice((0, draw.randrange(len(lines))))
    return b"\n".join([*lines[: draw.choice((0, place))], draw.choice(LINES), *lines[place + 1 :]])


def nested(data: bytes, draw: random.Random) -> bytes:
    """Brackets within brackets, as JSON, TOML or csv."""
    deep = draw.choice((500, 5000, 200_000))
    start, opened, end = draw.choice(
        ((b"", b"[", b"]"), (b'{"a":', b'{"a":', b"}"), (b"a = ", b"[", b"]"), (b"a", b".a", b"=1"))
    )
    return start + opened * deep + b"1" * (end != b"=1") + (end if end == b"=1" else end * deep)


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "bytes": bytes_changed,
    "cut": cut,
    "grown": grown,
    "value": value_swapped,
    "line": line_swapped,
    "nested": nested,
}


def damaged(name: str, sound: Path, draw: random.Random) -> tuple[str, bytes]:
    """The name of the damage, and the file of a kind after it."""
    data = (sound / KINDS[name].file).read_bytes()
    if draw.random() < 0.08:
        other = draw.choice([kind for kind in KINDS if kind != name])
        return f"swapped with {other}", (sound / KINDS[other].file).read_bytes()
    text = KINDS[name].file.endswith((".json", ".toml", ".txt", ".csv", ".jsonl"))
    weights = (2, 1, 1, 4, 3, 1) if text else (6, 2, 2, 2, 0, 0)
    (damage,) = draw.choices(list(DAMAGES), weights)
    return damage, DAMAGES[damage](data, draw)


def read_rows(path: Path) -> None:
    """Read all columns of a table, and all rows."""
    from trivet.io.formats import open_rows

    table = open_rows(path)
    for name in table.columns:
        table.values(name)
    for batch in table.batches(table.names):
        len(batch)


class Ended(NamedTuple):
    """How a case ended: exit code (negative: a signal), seconds of the processor, peak of memory in MiB, last line."""

    code: int
    seconds: float
    peak: int
    said: str


def load_modules(names: Path) -> None:
    """Import what a command imported, so that not each case does it anew."""
    for name in names.read_text().splitlines():
        if name not in sys.modules and all(part.isidentifier() for part in name.split(".")):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    names.unlink()


def in_process(line: str, folder: Path, limit: int) -> Ended:
    """Run a command in a process of its own."""
    gc.freeze()
    child = os.fork()
    if not child:
        code = 70
        try:
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            signal.alarm(LONGEST)
            code = call(line, folder / "said.txt")
            (folder / "modules.txt").write_text("\n".join(sys.modules))
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    said = (folder / "said.txt").read_text(errors="replace") if (folder / "said.txt").exists() else ""
    code = os.waitstatus_to_exitcode(status)
    return Ended(
        code,
        round(used.ru_utime + used.ru_stime, 3),
        used.ru_maxrss // 1024,
        said.strip().splitlines()[-1] if said.strip() else "",
    )


def linked(sound: Path, work: Path) -> None:
    """Fill a folder with links to sound files; commands replace files, but for a database, and change none."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(sound, work, copy_function=lambda a, b: (shutil.copy2 if a.endswith(".db") else os.link)(a, b))


def address_space() -> int:
    """The bytes of address space that this process has taken."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--cases", type=int, default=3000)
    options.add_argument("--minutes", type=float, default=600, help="then no further case is begun")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--workers", type=int, default=2, help="processes")
    options.add_argument("--kind", help="only those whose name holds this")
    options.add_argument("--out", type=Path, default=RESULTS / "damage")
    asked = options.parse_args()
    sys.setrecursionlimit(1000)
    import faiss  # noqa: F401  # loaded once, and used in the children only
    import pyarrow.parquet  # noqa: F401  # loaded once, for the children
    import transformers  # noqa: F401  # loaded once, for the children
    from sklearn import datasets

    import trivet.commands.audit.run
    import trivet.commands.compare.run
    import trivet.commands.diagnose.run
    import trivet.commands.embed.run
    import trivet.commands.evaluate.run
    import trivet.commands.export.run
    import trivet.commands.forecast.run
    import trivet.commands.init.run
    import trivet.commands.mine.run
    import trivet.commands.search.run
    import trivet.commands.sweep.run
    import trivet.commands.train.run  # noqa: F401  # loaded once, for the children

    few = datasets.load_digits()
    few = type(few)(images=few.images[:FEW], target=few.target[:FEW])
    datasets.load_digits = lambda: few
    began = time.perf_counter()
    virtual = address_space()
    with tempfile.TemporaryDirectory() as temporary:
        sound, work = Path(temporary, "sound"), Path(temporary, "work")
        sound.mkdir()
        prepare(sound)
        prepare_networks()
        for line in COMMANDS:
            ended = in_process(line, sound, virtual + ROOM)
            assert ended.code == 0, (line, ended)
            load_modules(sound / "modules.txt")
        (sound / "said.txt").unlink()
        names = [name for name in KINDS if (asked.kind or "") in name]
        peak_sound = 0
        for name in names:  # a sound file first: what is refused without damage tells nothing
            for line in KINDS[name].commands:
                linked(sound, work)
                ended = in_process(line, work, virtual + ROOM)
                peak_sound = max(peak_sound, ended.peak)
                assert ended.code == 0, (line, ended)
                load_modules(work / "modules.txt")
        virtual = address_space()
        print(f"{time.perf_counter() - began:.0f} s: all commands end well on sound files", flush=True)
        end = began + 60 * asked.minutes
        workers = [
            os.fork() or worked(number, asked, names, sound, virtual + ROOM, end) for number in range(asked.workers)
        ]
        for worker in workers:
            assert os.waitpid(worker, 0)[1] == 0
        lines = [line for path in sound.parent.glob("cases-*") for line in path.read_text().splitlines()]
        cases = sorted(map(json.loads, lines), key=lambda case: case["case"])
    write(cases, asked, time.perf_counter() - began, peak_sound)


def worked(worker: int, asked: argparse.Namespace, names: list[str], sound: Path, limit: int, end: float) -> NoReturn:
    """Run the cases of one of several processes, which ends with them, and write them to a file."""
    work = sound.parent / f"work-{worker}"
    with (sound.parent / f"cases-{worker}").open("w") as file:
        for number in range(worker, asked.cases, asked.workers):
            if time.perf_counter() > end:
                break
            draw = random.Random(f"{asked.seed} {number}")
            name = names[number % len(names)]
            line = draw.choice(KINDS[name].commands)
            linked(sound, work)
            damage, data = damaged(name, sound, draw)
            (work / KINDS[name].file).unlink()
            (work / KINDS[name].file).write_bytes(data)
            ended = in_process(line, work, limit)
            case = {"case": number, "kind": name, "damage": damage, "command": line, **ended._asdict()}
            print(json.dumps(case), file=file, flush=True)
            if is_fault(case) or number % 100 == 99:
                print(json.dumps(case), flush=True)
    os._exit(0)


def is_fault(case: dict[str, Any]) -> bool:
    """Whether a case ended in anything but 0, or 2 with a sentence."""
    return case["code"] != 0 and (case["code"] != 2 or not case["said"].startswith("trivet: "))


def write(cases: list[dict[str, Any]], asked: argparse.Namespace, seconds: float, peak_sound: int) -> None:
    """The results as JSON, in all and by kind of file."""
    kinds = {
        kind: Counter(str(case["code"]) for case in cases if case["kind"] == kind)
        for kind in dict.fromkeys(case["kind"] for case in cases)
    }
    faults = [case for case in cases if is_fault(case)]
    record = {
        "command": f"tests/hostile/damage.py --cases {asked.cases} --minutes {asked.minutes:g} --seed {asked.seed}",
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cases": len(cases),
        "read all the same": sum(case["code"] == 0 for case in cases),
        "refused in a sentence": sum(case["code"] == 2 for case in cases),
        "faults": faults,
        "peak_mib": max(case["peak"] for case in cases),
        "peak_mib_sound": peak_sound,
        "longest_seconds": round(max(case["seconds"] for case in cases), 2),
        "seconds": round(seconds),
        "exit codes": kinds,
    }
    asked.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({name: value for name, value in record.items() if name != "faults"}, indent=1))


if __name__ == "__main__":
    main()
