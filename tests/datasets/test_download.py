from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from torchvision import datasets

from trivet.datasets import download

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


@pytest.mark.parametrize("error", [RuntimeError("Error downloading"), OSError("no route to host")])
def test_without_a_network_the_files_to_copy_are_named_and_nothing_is_left(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MNIST", fake(FILES, "MNIST/raw", error))
    with pytest.raises(ValueError, match=rf"{error}.*copy train-images-idx3-ubyte\.gz, .* to .*mnist"):
        download("mnist", tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_the_list_of_mirrors_tried_is_cut_to_the_last_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("Error downloading x:\nTried http://a/, got:\n<refused>\nTried http://b/, got:\n<no name>\n")
    monkeypatch.setattr(datasets, "MNIST", fake(FILES, "MNIST/raw", error))
    with pytest.raises(ValueError, match=r"^mnist could not be downloaded \(no name\): connect"):
        download("mnist", tmp_path)


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


def test_the_binary_version_of_cifar_is_fetched_because_the_other_is_pickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(url: str, folder: str, *, md5: str) -> None:
        assert url.endswith("cifar-10-binary.tar.gz")
        assert len(md5) == 32
        with tarfile.open(Path(folder) / "cifar-10-binary.tar.gz", "w:gz") as packed:
            packed.addfile(tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin"), io.BytesIO())

    monkeypatch.setattr(datasets.utils, "download_url", fetch)
    assert download("cifar10", tmp_path) == tmp_path / "cifar10"
    assert (tmp_path / "cifar10" / "cifar-10-batches-bin" / "test_batch.bin").is_file()
    with pytest.raises(ValueError, match=r"sop must be fetched by hand: get it from https://cvgl"):
        download("sop", tmp_path)


def test_names_that_need_no_download(tmp_path: Path) -> None:
    assert download("digits", tmp_path) is None
    with pytest.raises(ValueError, match="is your own data: there is nothing to download"):
        download("folder", tmp_path)
    with pytest.raises(ValueError, match="did you mean 'omniglot'"):
        download("omniglto", tmp_path)
