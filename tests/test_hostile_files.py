"""Files made to crash a library, to fill memory or never to end: each is refused in a sentence.

Each is read in a process of its own, which may end by a signal without taking the tests with it.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.hostile.damage import bytes_changed, cut, grown, read_rows
from tests.miniatures import hugging_face
from tests.nightly import sampled
from torch import nn

from trivet.commands.main import main
from trivet.io.formats import open_rows
from trivet.io.read_embeddings import read_vectors
from trivet.io.shards import read_manifest
from trivet.models.weights import load_weights

SECONDS, ROOM = 20, 3 << 30  # of the processor; bytes of address space beside that of the tests


def refused(read: Callable[[], Any]) -> str:
    """The sentence that reading ends with; "" if it ends well.

    A crash, an unexpected error, no end, or a sentence within another fails.
    """
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(10 * SECONDS)
        warnings.simplefilter("ignore")
        try:
            read()
            said = ""
        except (ValueError, OSError) as error:  # of which the command line makes exit code 2
            said = str(error) or "no sentence"
        except BaseException as error:
            said = f"UNEXPECTED {type(error).__name__}: {error}"
        os.write(sink, said.encode(errors="replace")[:60_000])
        os._exit(0)
    os.close(sink)
    with open(source, encoding="utf-8", errors="replace") as file:
        said = file.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"ended by {os.waitstatus_to_exitcode(status)}"
    assert not said.startswith("UNEXPECTED"), said
    assert said.count(" must be ") < 2, said
    return said


def saved(folder: Path, table: pa.Table, compression: str | None = None, *, files: int = 1) -> Path:
    """A Hugging Face data set of one arrow file, which its description lists so many times."""
    folder.mkdir(exist_ok=True)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (
        pa.OSFile(str(folder / "data.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema, options=options) as f,
    ):
        f.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}] * files}))
    return folder


@pytest.mark.parametrize("compression", sampled(["zstd", None, "lz4"], 3))
def test_damaged_arrow_files_never_end_the_process(compression: str | None, tmp_path: Path) -> None:
    drawn = np.random.default_rng(0)
    table = pa.table(
        {
            "text": [f"a text {i}" for i in range(40)],
            "label": [i % 4 for i in range(40)],
            "image": pa.array([{"bytes": drawn.bytes(50), "path": "x"} for _ in range(40)]),
            "kind": pa.array([f"k{i % 3}" for i in range(40)]).dictionary_encode(),
        }
    )
    folder = saved(tmp_path / "saved", table, compression)
    assert refused(lambda: read_rows(folder)) == ""
    whole = (folder / "data.arrow").read_bytes()
    sentences = 0
    for seed in range(15):
        draw = random.Random(f"{compression} {seed}")
        (folder / "data.arrow").write_bytes(draw.choice((bytes_changed, cut, grown))(whole, draw))
        sentences += "must be" in refused(lambda: read_rows(folder))
    assert sentences >= 8
    (folder / "data.arrow").unlink()
    os.mkfifo(folder / "data.arrow")
    assert "is a device or a pipe" in refused(lambda: read_rows(folder))


def test_arrow_files_that_break_off_or_point_elsewhere_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved", pa.table({"text": ["a text."] * 40_000, "label": [0, 1] * 20_000}))
    path = folder / "data.arrow"
    whole = path.read_bytes()
    for length in (len(whole) // 4, len(whole) // 2, len(whole) - 70_000):
        path.write_bytes(whole[:length])
        assert "must be a complete arrow file" in refused(lambda: read_rows(folder))
    ends = np.arange(0, 7 * 40_001, 7, dtype=np.int32)  # of the texts
    at = whole.index(ends.tobytes())
    for value in (2**30, -(2**30)):
        ends[20_000] = value
        path.write_bytes(whole[:at] + ends.tobytes() + whole[at + ends.nbytes :])
        assert "must be a complete arrow file" in refused(lambda: read_rows(folder))


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit to what small files may expand to that is reached fast."""
    monkeypatch.setattr("trivet.runtime.safe_read.EXPANDED", 2**20)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_packed_arrow_files_are_refused_before_they_expand(compression: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "zeros", pa.table({"label": np.zeros(2_000_000)}), compression)
    assert "zeros/data.arrow has " in refused(lambda: open_rows(folder))


@pytest.mark.usefixtures("little")
def test_rows_that_take_no_room_and_texts_that_are_repeated_are_refused(tmp_path: Path) -> None:
    nothing = saved(tmp_path / "nothing", pa.table({"a": pa.nulls(10**6)}))
    assert "stand for far more than it holds" in refused(lambda: open_rows(nothing))
    small = pa.table({"text": ["a", "b"]})
    assert "names one twice" in refused(lambda: open_rows(saved(tmp_path / "twice", small, files=6)))
    many = pa.DictionaryArray.from_arrays(pa.array(np.zeros(5000, np.int32)), pa.array(["x" * 10**4]))
    folder = saved(tmp_path / "same", pa.table({"text": many}))
    hugging_face(tmp_path / "names", {"label": [0] * 5000}, label=["x" * 10**4])
    for read in (
        lambda: read_rows(folder),
        lambda: open_rows(folder).column("text", "the texts"),
        lambda: read_rows(tmp_path / "names"),
    ):
        assert "stand for far more than it holds" in refused(read)


@pytest.mark.parametrize("line", ["null", "[1]", "3", '"a"', "true"])
def test_a_line_of_json_that_is_no_object_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    for number, lines in enumerate(([line], [line, '{"a": 1}'], ['{"a": 1}', "", line])):
        path.write_text("\n".join(lines))
        assert f"line {1 if number < 2 else 3} is no object" in refused(lambda: read_rows(path))


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3))


SOUND = {"0.weight": torch.ones(3, 4), "0.bias": torch.ones(3)}
ITSELF: dict[str, Any] = {}
ITSELF["state_dict"] = ITSELF
WEIGHTS = {
    "stride 0": ({"0.weight": torch.zeros(1).expand(120_000_000, 1000)}, "far more than it holds"),
    "stride 0 beside": ({**SOUND, "x": torch.zeros(1).expand(120_000_000, 1000)}, "far more than it holds"),
    "itself": (ITSELF, "holds none"),
    "integer keys": ({1: torch.ones(2)}, "holds none"),
    "integer keys beside": ({1: torch.ones(2), **SOUND}, ""),
    "sparse": ({**SOUND, "0.weight": torch.ones(3, 4).to_sparse()}, "must hold plain tensors: 0.weight"),
    "meta": ({**SOUND, "0.weight": torch.ones(3, 4, device="meta")}, "must hold plain tensors: 0.weight"),
    "complex": ({**SOUND, "0.weight": torch.ones(3, 4, dtype=torch.complex64)}, "1 are of another type"),
    "whole numbers": ({**SOUND, "0.weight": torch.ones(3, 4, dtype=torch.int8)}, "0.weight is torch.int8"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_other_forms_are_refused(name: str, tmp_path: Path) -> None:
    content, sentence = WEIGHTS[name]
    torch.save(content, tmp_path / "w.pt")
    said = refused(lambda: load_weights(linear(), tmp_path / "w.pt"))
    assert sentence in said
    assert bool(said) == bool(sentence)


@pytest.mark.usefixtures("little")
def test_weights_that_are_packed_are_refused_before_they_expand(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"x")
        with archive.open("archive/data/0", "w") as member:
            for _ in range(3):
                member.write(bytes(1 << 20))
    assert "far more than it holds" in refused(lambda: load_weights(linear(), tmp_path / "w.pt"))


def test_a_folder_of_more_shards_than_there_can_be_is_refused(tmp_path: Path) -> None:
    manifest = {"key": "k", "trivet": "", "model": "m", "data": "d", "inputs": "i", "items": 10**12}
    manifest |= {"rows_per_shard": 1, "dimension": 3, "columns": [], "levels": []}
    (tmp_path / "shards.json").write_text(json.dumps(manifest))
    assert "it counts 1000000000000 shards" in refused(lambda: read_manifest(tmp_path))


def test_an_npz_file_of_many_columns_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {f"c{i}": np.arange(4) for i in range(40)}
    np.savez(tmp_path / "e.npz", embeddings=np.ones((4, 2)), **columns)
    opened = []
    monkeypatch.setattr(
        zipfile, "ZipFile", lambda *given, made=zipfile.ZipFile, **more: opened.append(1) or made(*given, **more)
    )
    assert len(read_vectors(tmp_path / "e.npz", levels=list(columns)).labels) == 40
    assert len(opened) == 2  # for the headers, and for the columns


def changed(tokenizer: dict[str, Any], change: str) -> None:
    """Make a tokenizer one over which its library panics, aborts or gives tokens that no network has."""
    if change == "padding":
        padding = {"strategy": {"Fixed": 2**40}, "direction": "Right", "pad_to_multiple_of": 0}
        tokenizer["padding"] = padding | {"pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    elif change == "charsmap":
        tokenizer["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "CAAAAP////8AAAAAAAAAAAAA"}
    elif change == "ids":
        tokenizer["model"]["vocab"]["card"] = 10**9
    elif change == "an id more":
        tokenizer["model"]["vocab"]["card"] = 18
    elif change == "unknown":
        del tokenizer["model"]["vocab"]["[UNK]"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("padding", ""),
        ("charsmap", "the tokenizer must take every text: it cannot take 'card"),
        ("ids", "it has the id 1000000000, and a network has at most 16777216 tokens"),
        ("an id more", "must give ids below 18, the vocabulary of the network: 'card"),
        ("unknown", "the tokenizer must take every text: it cannot take 'nothing"),
    ],
)
def test_tokenizers_that_panic_end_in_a_sentence(change: str, sentence: str, tmp_path: Path) -> None:
    from tests.small_texts import text_network

    from trivet.models.text_network import tokenize_of
    from trivet.models.text_settings import TextNetworkConfig

    folder = text_network(tmp_path / "network")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    changed(tokenizer, change)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

    def read() -> None:
        tokens = tokenize_of(TextNetworkConfig(name=f"text:{folder}"))
        assert tokens is not None
        tokens(["card lost", "nothing of it"])

    said = refused(read)
    assert sentence in said
    assert bool(said) == bool(sentence)


# Up to Python 3.12 the path itself raises.
LOOP = "must lead to a file or a folder, not to itself" if sys.version_info < (3, 13) else "loop.npz does not exist"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["evaluate", "loop.npz"], LOOP),
        (["evaluate", "e\udcff.npz"], r"names must be in UTF-8: got 'e\udcff.npz'; rename it."),
        (["train", "s.toml", "-o", "new", "--set", 'loss.positives={name={name="all"}}'], "loss.positives"),
        (
            ["train", "s.toml", "-o", "new", "--set", "data={}"],
            "the setting 'data.name' is missing; add it, one of digits, mnist",
        ),
    ],
)
def test_what_was_unexpected_is_a_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    (tmp_path / "s.toml").write_text('[data]\nname = "digits"\n[loss]\nname = "triplet"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["trivet", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert stop.value.code == 2, said
    assert sentence in said
