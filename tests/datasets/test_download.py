from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from torchvision import datasets

from trivet.datasets import DATA_SETS, download, find_root

FILES = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]


def fake(files: list[str], subfolder: str, error: Exception | None) -> type:
    class Fake:
        def __init__(self, root: Path, *, background: bool | None = None, download: bool) -> None:
            assert download
            (root / subfolder).mkdir(parents=True, exist_ok=True)
            for file in [files[not background]] if background is not None else files:
                (root / subfolder / file).write_text(file)
                if error is not None:
                    raise error

    return Fake


MIRRORS = "Error downloading x:\nTried http://a/, got:\n<refused>\nTried http://b/, got:\n<no name>\n"


@pytest.mark.parametrize(
    ("error", "cause"),
    [(RuntimeError(MIRRORS), "no name"), (OSError("no route to host"), "no route to host"), (OSError(), "OSError")],
)
def test_without_a_network_the_last_cause_and_the_files_to_copy_are_named_and_nothing_is_left(
    error: Exception, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MNIST", fake(FILES, "MNIST/raw", error))
    sentence = rf"^mnist could not be downloaded \({cause}\): connect .*copy train-images-idx3-ubyte\.gz, .* to .*mnist"
    with pytest.raises(ValueError, match=sentence):
        download("mnist", tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "kind", "subfolder", "files"),
    [
        ("mnist", "MNIST", "MNIST/raw", FILES),
        ("fashion-mnist", "FashionMNIST", "FashionMNIST/raw", FILES),
        ("flowers102", "Flowers102", "flowers-102", ["imagelabels.mat", "setid.mat", "jpg"]),
        ("omniglot", "Omniglot", "omniglot-py", ["images_background.zip", "images_evaluation.zip"]),
    ],
)
def test_only_whole_files_arrive_and_are_not_fetched_twice(
    name: str, kind: str, subfolder: str, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, kind, fake(files, subfolder, None))
    assert download(name, tmp_path) == tmp_path / name
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {path.name: path.read_text() for path in (tmp_path / name).iterdir()} == {file: file for file in files}
    monkeypatch.setattr(datasets, kind, fake(files, subfolder, OSError("asked again")))
    assert download(name, tmp_path) == tmp_path / name
    (tmp_path / name / files[0]).unlink()
    with pytest.raises(ValueError, match="asked again"):
        download(name, tmp_path)


def test_the_binary_version_of_cifar_is_unpacked_by_the_names_that_are_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(url: str, folder: str, *, md5: str) -> None:
        assert url.endswith("cifar-100-binary.tar.gz")
        assert len(md5) == 32
        with tarfile.open(Path(folder) / url.rpartition("/")[2], "w:gz") as packed:
            for name in ("cifar-100-binary/train.bin", "../test.bin", "/fine_label_names.txt", "../other.txt"):
                member = tarfile.TarInfo(name)
                member.size = 3
                packed.addfile(member, io.BytesIO(b"abc"))

    monkeypatch.setattr(datasets.utils, "download_url", fetch)
    unpacked = [f"cifar-100-binary/{name}" for name in ("fine_label_names.txt", "test.bin", "train.bin")]
    folder = tmp_path / "made"
    folder.mkdir()
    fetch_raw = DATA_SETS["cifar100"].fetch
    assert fetch_raw is not None
    fetch_raw(folder)
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert written == ["made/cifar-100-binary.tar.gz", *(f"made/{name}" for name in unpacked)]
    assert download("cifar100", tmp_path) == tmp_path / "cifar100"
    assert sorted(path.name for path in (tmp_path / "cifar100" / "cifar-100-binary").iterdir()) == [
        name.rpartition("/")[2] for name in unpacked
    ]
    with pytest.raises(ValueError, match=r"sop must be fetched by hand: get it from https://cvgl"):
        download("sop", tmp_path)


def test_the_argument_then_the_variable_then_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIVET_DATA", "/from/variable")
    monkeypatch.setenv("TRIVET_CACHE", "/from/cache")
    assert find_root(Path("given")) == Path("given")
    assert find_root(None) == Path("/from/variable")
    monkeypatch.delenv("TRIVET_DATA")
    assert find_root(None) == Path("/from/cache/data")


def test_names_that_need_no_download(tmp_path: Path) -> None:
    assert download("digits", tmp_path) is None
    with pytest.raises(ValueError, match="is your own data: there is nothing to download"):
        download("folder", tmp_path)
    with pytest.raises(ValueError, match="did you mean 'omniglot'"):
        download("omniglto", tmp_path)
