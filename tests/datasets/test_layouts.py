"""Published layouts: each on a miniature in the published form, and on the real lists where these are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import miniatures

from trivet.datasets import DataConfig, Splits, load
from trivet.datasets.archives import Tree, find_tree
from trivet.datasets.fine_grained import cars_annotations, flower_subsets
from trivet.datasets.mat import Mat
from trivet.datasets.people import parse_names
from trivet.io.image_file import decode_image

REAL = Path(os.environ.get("TRIVET_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def read(name: str, data_root: Path, **values: Any) -> Splits:
    return load(DataConfig.parse({"name": name, "image_size": 4, **values}, source="data"), data_root)


def classes(splits: Splits, part: str, level: str = "class") -> list[str]:
    data = splits.train if part == "train" else splits.evaluation[part]
    return [data.names[level][label] for label in data.labels[level]]


def values(splits: Splits, part: str) -> list[int]:
    """The grey value of each image at its right lower corner."""
    data = splits.train if part == "train" else splits.evaluation[part]
    pixels = data.inputs.batch(np.arange(len(data)))
    return [int(value) for value in pixels[:, 0, -1, -1]]


def test_cub_by_number_with_boxes_and_its_published_split(tmp_path: Path) -> None:
    miniatures.cub(tmp_path / "cub" / "CUB_200_2011", classes=5)
    splits = read("cub", tmp_path)
    assert splits.level == "class"
    assert list(splits.evaluation) == ["unseen"]
    names = [f"{number:03d}.Bird_{letter}" for number, letter in enumerate("ABCDE", 1)]
    assert classes(splits, "train") == [name for name in names[:3] for _ in range(3)]
    assert classes(splits, "unseen") == [name for name in names[3:] for _ in range(3)]
    assert splits.train.ids[4] == "002.Bird_B/Bird_1.jpg"
    assert values(splits, "train") == list(range(9))
    assert splits.warnings == (
        "cub is not the published set: 15 images of 5 classes, where 11,788 images of 200 classes were published. Its "
        "results cannot be compared with those of papers.",
    )
    published = read("cub", tmp_path, split="published", boxes=True)
    assert len(published.train) == 10
    assert list(published.evaluation) == ["seen"]
    boxed = published.train.inputs.batch(np.arange(10))
    assert boxed.unique().tolist() == [250]  # the bright quarter alone
    reaching_out = published.evaluation["seen"].inputs.batch(np.array([0]))  # below the image: cut to what is there
    assert reaching_out[0, 0, [0, -1], 0].tolist() == [252, 0]


def test_cub_in_a_zip_file_and_its_hierarchy(tmp_path: Path) -> None:
    folder = miniatures.cub(tmp_path / "made")
    archive = miniatures.zipped(folder, tmp_path / "cub" / "birds.zip", inside="CUB_200_2011/")
    splits = read("cub", tmp_path, memory_gb=0)
    assert values(splits, "unseen") == [6, 7, 8, 9, 10, 11]
    assert read("cub", Path("elsewhere"), root=archive).train.ids == splits.train.ids
    with pytest.raises(ValueError, match=r"data\.hierarchy needs cub_flat\.parent-child\.txt .*: not found in"):
        read("cub", tmp_path, hierarchy=True)
    taxa = ["Larus", "Sterna", "Laridae", "Alcidae", "Gulls", "Aves"]
    nodes = [*enumerate("abcd", 1), *enumerate(taxa, 10)]
    miniatures.lines(tmp_path / "cub" / "hierarchy" / "classes_flat.txt", nodes)
    parents = [(10, 1), (10, 2), (11, 3), (13, 4), (12, 10), (12, 11), (14, 12), (14, 13), (15, 14)]
    miniatures.lines(tmp_path / "cub" / "hierarchy" / "cub_flat.parent-child.txt", parents)
    deep = read("cub", tmp_path, hierarchy=True)
    assert list(deep.train.names) == ["order", "family", "class"]
    assert deep.level == "class"
    assert classes(deep, "unseen", "family") == ["Laridae"] * 3 + ["Alcidae"] * 3
    assert set(classes(deep, "train", "order")) == {"Gulls"}


def test_cars_are_divided_by_number_and_not_by_name(tmp_path: Path) -> None:
    miniatures.cars196(tmp_path / "cars196")
    splits = read("cars196", tmp_path)
    assert classes(splits, "train") == ["Z car 0"] * 2 + ["Y car 1"] * 2
    assert classes(splits, "unseen") == ["X car 2"] * 2 + ["W car 3"] * 2
    assert len(set(classes(read("cars196", tmp_path, split="published"), "train"))) == 4  # one image of each


def test_cars_from_the_devkit_need_the_classes_of_the_test_images(tmp_path: Path) -> None:
    miniatures.cars196_devkit(tmp_path / "cars196")
    splits = read("cars196", tmp_path, boxes=True)
    assert splits.train.ids == (
        "cars_train/00001.jpg",
        "cars_train/00002.jpg",
        "cars_test/00001.jpg",
        "cars_test/00002.jpg",
    )
    assert splits.train.inputs.batch(np.arange(4)).unique().tolist() == [250]
    miniatures.cars196_devkit(tmp_path / "without", labelled=False)
    with pytest.raises(ValueError, match=r"needs the classes of its test images.*get cars_test_annos_withlabels\.mat"):
        read("cars196", tmp_path, root=tmp_path / "without")


def test_sop_by_its_lists(tmp_path: Path) -> None:
    miniatures.sop(tmp_path / "sop" / "Stanford_Online_Products")
    splits = read("sop", tmp_path)
    assert splits.level == "class"
    assert classes(splits, "train") == ["1", "1", "2", "2", "3", "3"]
    assert classes(splits, "unseen") == ["4", "4", "5", "5", "6", "6"]
    assert classes(splits, "train", "super-class") == ["mug", "mug", "chair", "chair", "mug", "mug"]
    assert "train 6 images of 3 classes; test 6 images of 3 classes, where train 59,551" in splits.warnings[0]
    assert len(read("sop", tmp_path, split="class-disjoint", level="class").train) == 6


def test_in_shop_queries_retrieve_from_the_gallery(tmp_path: Path) -> None:
    miniatures.in_shop(tmp_path / "in-shop")
    splits = read("in-shop", tmp_path, boxes=True)
    unseen = splits.evaluation["unseen"]
    assert unseen.protocol is not None
    assert unseen.protocol.query.tolist() == [True, False, False, True, False, False]
    assert unseen.protocol.gallery.tolist() == [False, True, True, False, True, True]
    assert unseen.protocol.cameras is None
    assert splits.level == "item"
    assert classes(splits, "train", "item") == ["id_00000000"] * 2 + ["id_00000001"] * 2
    assert classes(splits, "train", "category") == ["WOMEN/Tees"] * 2 + ["MEN/Tees"] * 2
    assert splits.train.inputs.batch(np.arange(4)).unique().tolist() == [250]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "must hold|must list as many images as its first line says"),
        (lambda text: text.replace(" train", "", 1), "must hold 3 values: line 3 has 2, 'img/WOMEN"),
        (lambda text: text[text.index("\n") :], "must list as many images as its first line says: got ''"),
        (lambda text: "[" * 500, "must hold lines of 3 values: it has none"),
        (lambda text: "", "must hold lines of 3 values: it has none"),
    ],
    ids=["cut", "a value gone", "no number", "one line", "empty"],
)
def test_a_damaged_list_of_in_shop_loses_no_line_silently(
    change: Callable[[str], str], said: str, tmp_path: Path
) -> None:
    file = miniatures.in_shop(tmp_path / "in-shop") / "Eval" / "list_eval_partition.txt"
    file.write_text(change(file.read_text()))
    with pytest.raises(ValueError, match=said):
        read("in-shop", tmp_path)


def test_market_by_its_file_names(tmp_path: Path) -> None:
    miniatures.market1501(tmp_path / "market1501" / "Market-1501-v15.09.15")
    splits = read("market1501", tmp_path)
    unseen = splits.evaluation["unseen"]
    assert unseen.protocol is not None
    assert unseen.protocol.cameras is not None
    assert classes(splits, "unseen", "identity") == ["0001", "0003", "-1", "0000", "0001", "0001", "0003"]
    assert unseen.protocol.query.tolist() == [True, True, False, False, False, False, False]
    assert unseen.protocol.junk.tolist() == [False, False, True, False, False, False, False]
    assert unseen.protocol.cameras.tolist() == [1, 2, 1, 1, 1, 4, 5]
    assert classes(splits, "train", "identity") == ["0002", "0002", "0007", "0007"]
    with pytest.raises(ValueError, match=r"0002_c1s1_000451_03\.jpg, identity 0002 and camera 1: got 'me\.jpg'"):
        parse_names(["me.jpg"])


def test_cuhk03_by_its_new_protocol(tmp_path: Path) -> None:
    miniatures.cuhk03(tmp_path / "cuhk03")
    splits = read("cuhk03", tmp_path)
    unseen = splits.evaluation["unseen"]
    assert unseen.protocol is not None
    assert unseen.protocol.cameras is not None
    assert unseen.ids == ("1_003_1_01.png", "1_010_1_01.png", "1_003_2_02.png", "1_010_2_02.png")
    assert unseen.protocol.query.tolist() == [True, True, False, False]
    assert unseen.protocol.cameras.tolist() == [1, 1, 2, 2]
    assert splits.train.names["identity"] == ("1", "2", "3", "10")
    for path in (tmp_path / "cuhk03" / "images_detected").iterdir():
        path.unlink()
    (tmp_path / "cuhk03" / "cuhk-03.mat").touch()
    with pytest.raises(ValueError, match=r"cuhk-03\.mat holds them in a mat file of version 7\.3, which is not read"):
        read("cuhk03", tmp_path)


def test_flowers_in_halves_or_as_published(tmp_path: Path) -> None:
    miniatures.flowers102(tmp_path / "flowers102")
    splits = read("flowers102", tmp_path)
    assert sorted(classes(splits, "train")) == ["1"] * 3 + ["2"] * 3
    assert sorted(classes(splits, "unseen")) == ["11"] * 3 + ["3"] * 3
    assert values(splits, "train") == [1, 3, 5, 7, 9, 11]
    published = read("flowers102", tmp_path, split="published")
    assert [len(published.train), len(published.evaluation["seen"]), len(published.evaluation["val"])] == [8, 2, 2]


def test_inaturalist_by_its_json(tmp_path: Path) -> None:
    miniatures.inaturalist(tmp_path / "inaturalist")
    splits = read("inaturalist", tmp_path)
    assert list(splits.train.names) == ["kingdom", "phylum", "class", "order", "family", "genus", "species"]
    assert splits.level == "species"
    assert splits.evaluation["seen"].ids[0] == "train_val2018/Aves/val0.jpg"
    genera = [
        f"{kingdom}/{name}/{name}/{name}/Prunella/Prunella"
        for kingdom, name in (("Animalia", "Aves"), ("Plantae", "Magnoliopsida"))
    ]
    assert classes(splits, "seen", "genus") == [genera[0], genera[1], "Salvia", genera[0]]
    miniatures.inaturalist(tmp_path / "inaturalist", ranks=False)
    assert list(read("inaturalist", tmp_path).train.names) == ["supercategory", "species"]
    (tmp_path / "inaturalist" / "val2018.json").write_text('{"images": [{"id": 1, "file_name": "x"}]}')
    with pytest.raises(
        ValueError, match=r"val2018\.json must be a list of iNaturalist in json: annotations must be there"
    ):
        read("inaturalist", tmp_path)


def test_a_list_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    miniatures.cub(tmp_path / "cub")
    text = (tmp_path / "cub" / "images.txt").read_text()
    (tmp_path / "cub" / "images.txt").write_text(text.replace("001.Bird_A/Bird_0.jpg", "../../secret.jpg"))
    with pytest.raises(ValueError, match=r"a path must lie below .*cub: got 'images/\.\./\.\./secret\.jpg'"):
        read("cub", tmp_path)


TWICE = "1 001.Bird_A/Bird_0.jpg\n2 001.Bird_A/Bird_0.jpg\n"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("images.txt", None, r"cub needs images\.txt and .* not found in .*vision\.caltech\.edu"),
        ("images", None, r"of 12, such as .*Bird_0\.jpg, none was found; get the images too from https://www\.vision"),
        ("image_class_labels.txt", b"1 1\n2 1\n", r"a line for each image: that of image 3"),
        ("image_class_labels.txt", b"1\n", r"must hold 2 values: line 1 has 1, '1'"),
        ("images.txt", TWICE.encode(), r"'001\.Bird_A/Bird_0\.jpg' is listed twice, as items 0 and 1"),
        ("images.txt", b"1 \xff\n", r"images\.txt must be a text in UTF-8"),
        ("bounding_boxes.txt", b"1 a b c d\n" * 12, r"bounding_boxes\.txt must"),
        ("bounding_boxes.txt", None, r"bounding_boxes\.txt must be a file .*: it is not there"),
        ("images/002.Bird_B/Bird_1.jpg", b"", r"1 of 12 in .*002\.Bird_B/Bird_1"),
    ],
)
def test_what_is_missing_or_broken_is_said_in_a_sentence(
    file: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = miniatures.cub(tmp_path / "cub") / file
    if content is not None:
        path.write_bytes(content)
    else:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ValueError, match=message):
        read("cub", tmp_path, boxes=True)


def test_archives_that_must_be_unpacked_and_broken_ones(tmp_path: Path) -> None:
    (tmp_path / "cub").mkdir()
    (tmp_path / "cub" / "CUB_200_2011.tgz").touch()
    with pytest.raises(ValueError, match=r"unpack .*CUB_200_2011\.tgz, for instance with `tar -xf`"):
        read("cub", tmp_path)
    (tmp_path / "cub" / "birds.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"birds\.zip must be a complete zip file"):
        read("cub", tmp_path)
    assert find_tree([tmp_path / "absent"], lambda tree: True) is None


@pytest.mark.skipif(not REAL.is_dir(), reason="needs $TRIVET_DATA")
class TestRealLists:
    def test_cub(self) -> None:
        tree = find_tree([REAL / "cub"], lambda one: one.has("images.txt"))
        assert tree is not None
        assert len(tree.rows("images.txt", 2)) == len(tree.rows("image_class_labels.txt", 2)) == 2889
        assert tree.prefix == "CUB_200_2011/"
        path = tree.rows("images.txt", 2)[-1][1]
        box = np.array([float(text) for text in tree.rows("bounding_boxes.txt", 5)[-1][1:]])
        whole, cut = (
            decode_image(tree.source(f"images/{path}"), size=32, channels=3, box=edges) for edges in (None, box)
        )
        assert whole.shape == cut.shape == (3, 32, 32)
        assert (whole != cut).any()

    def test_cars196(self) -> None:
        mat = Mat(Tree(REAL / "cars196-devkit"), "cars_train_annos.mat")
        numbers = mat.integers("annotations.class")
        assert [len(numbers), len(np.unique(numbers)), int(numbers.min())] == [8144, 196, 1]
        assert mat.texts("annotations.fname")[0] == "00001.jpg"
        assert len(Mat(Tree(REAL / "cars196-devkit"), "cars_meta.mat").texts("class_names")) == 196
        with pytest.raises(ValueError, match=r"cars_test_annos\.mat has none"):
            cars_annotations(Tree(REAL / "cars196-devkit"))

    def test_market1501(self) -> None:
        folder = REAL / "reid-lists" / "market1501"
        rows = Tree(folder).rows("train.txt", 2) + Tree(folder).rows("val.txt", 2)
        people, cameras = parse_names([path.split("/")[1] for path, _ in rows])
        assert [len(people), len(set(people))] == [12_936, 751]
        published = Mat(Tree(folder), "train_cam.mat").integers("cam")
        order = np.argsort([path for path, _ in rows])
        assert (np.bincount(cameras) == np.bincount(published)).all()
        assert (cameras[order] == published).mean() == 1
        test = Mat(Tree(folder), "testID.mat").integers("testID")
        assert [len(test), len(np.unique(test))] == [19_732, 752]

    @pytest.mark.parametrize(("people", "train", "gallery"), [("detected", 7365, 5332), ("labeled", 7368, 5328)])
    def test_cuhk03(self, people: str, train: int, gallery: int) -> None:
        mat = Mat(Tree(REAL / "reid-lists" / "cuhk03"), f"cuhk03_new_protocol_config_{people}.mat")
        files, identities, cameras = mat.texts("filelist"), mat.integers("labels"), mat.integers("camId")
        parts = {part: mat.positions(f"{part}_idx", len(files)) for part in ("train", "query", "gallery")}
        assert {part: len(index) for part, index in parts.items()} == {
            "train": train,
            "query": 1400,
            "gallery": gallery,
        }
        assert len(set(identities)) == 1467
        assert not set(identities[parts["train"]]) & set(identities[parts["query"]])
        assert set(cameras.tolist()) == {1, 2}
        assert [int(name.split("_")[2]) for name in files] == cameras.tolist()

    def test_flowers102(self) -> None:
        tree = Tree(REAL / "oxford-flowers-102")
        assert np.unique(Mat(tree, "imagelabels.mat").integers("labels")).tolist() == list(range(1, 103))
        parts = flower_subsets(tree, 8189)
        assert {part: len(index) for part, index in parts.items()} == {"train": 1020, "test": 6149, "val": 1020}
        assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(8189))
