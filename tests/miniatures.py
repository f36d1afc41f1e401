"""Published data sets in miniature: a few tiny images, in the folders and lists of the publisher."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from scipy.io import savemat

SIDE = 12


def picture(path: Path, value: int) -> None:
    """An image whose left upper quarter is bright and whose rest has the grey value `value`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((SIDE, SIDE, 3), value, np.uint8)
    pixels[: SIDE // 2, : SIDE // 2] = 250
    Image.fromarray(pixels).save(path, "PNG")  # whatever the suffix: exact pixels


def zipped(folder: Path, archive: Path, inside: str = "") -> Path:
    """The files of a folder in a zip file, below `inside`."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, f"{inside}{path.relative_to(folder).as_posix()}")
    return archive


def lines(path: Path, rows: Iterable[Iterable[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))


def cub(root: Path, classes: int = 4, each: int = 3) -> Path:
    names = [f"{number:03d}.Bird_{chr(64 + number)}" for number in range(1, classes + 1)]
    paths = [f"{name}/Bird_{image}.jpg" for name in names for image in range(each)]
    for value, path in enumerate(paths):
        picture(root / "images" / path, value)
    lines(root / "images.txt", enumerate(paths, 1))
    lines(root / "image_class_labels.txt", ((i + 1, i // each + 1) for i in range(len(paths))))
    lines(root / "classes.txt", enumerate(names, 1))
    lines(root / "train_test_split.txt", ((i + 1, int(i % each > 0)) for i in range(len(paths))))
    lines(
        root / "bounding_boxes.txt", ((i + 1, 0.0, 0.0, SIDE / 2, SIDE / 2 + 20 * (i == 0)) for i in range(len(paths)))
    )
    return root


def structs(rows: Iterable[Mapping[str, Any]]) -> np.ndarray:
    """Rows as the structure array that Matlab writes."""
    listed = list(rows)
    made = np.empty((1, len(listed)), [(key, object) for key in listed[0]])
    for place, row in enumerate(listed):
        made[0, place] = tuple(row.values())
    return made


# The last bright pixel alone, counted from 1.
EDGES = {"bbox_x1": SIDE // 2, "bbox_y1": SIDE // 2, "bbox_x2": SIDE // 2, "bbox_y2": SIDE // 2}


def cars_names(count: int) -> np.ndarray:
    """Their sorted order is not that of the numbers."""
    names = np.empty((1, count), object)
    names[0] = [f"{chr(90 - number)} car {number}" for number in range(count)]
    return names


def cars196(root: Path, classes: int = 4, each: int = 2) -> Path:
    paths = [f"car_ims/{number:06d}.jpg" for number in range(1, classes * each + 1)]
    for value, path in enumerate(paths):
        picture(root / path, value)
    rows = [
        {"relative_im_path": path, **EDGES, "class": i // each + 1, "test": i % each} for i, path in enumerate(paths)
    ]
    savemat(root / "cars_annos.mat", {"annotations": structs(rows), "class_names": cars_names(classes)})
    return root


def cars196_devkit(root: Path, *, labelled: bool = True) -> Path:
    """Two images of each of four classes; the first of each is for training."""
    for part in ("train", "test"):
        for number in range(4):
            picture(root / f"cars_{part}" / f"{number + 1:05d}.jpg", number)
        rows = [{**EDGES, "class": number + 1, "fname": f"{number + 1:05d}.jpg"} for number in range(4)]
        (root / "devkit").mkdir(exist_ok=True)
        name = "devkit/cars_train_annos.mat" if part == "train" else "cars_test_annos_withlabels.mat"
        if part == "train" or labelled:
            savemat(root / name, {"annotations": structs(rows)})
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": cars_names(4)})
    return root


def sop(root: Path, photos: int = 2) -> Path:
    number = 0
    for part, first in (("train", 1), ("test", 4)):
        rows = []
        for product in range(first, first + 3):
            for photo in range(photos):
                number += 1
                path = f"{('chair', 'mug')[product % 2]}_final/{product}_{photo}.JPG"
                picture(root / path, number)
                rows.append((number, product, product % 2 + 1, path))
        lines(root / f"Ebay_{part}.txt", [("image_id", "class_id", "super_class_id", "path"), *rows])
    return root


def in_shop(root: Path) -> Path:
    rows, boxes = [], []
    for item in range(4):
        for photo, part in enumerate(("train", "train") if item < 2 else ("query", "gallery", "gallery")):
            path = f"img/{('WOMEN/Tees', 'MEN/Tees')[item % 2]}/id_{item:08d}/{photo}_front.jpg"
            picture(root / path, 10 * item + photo)
            rows.append((path, f"id_{item:08d}", part))
            boxes.append((path, 1, 1, *[SIDE // 2] * 4))  # the last bright pixel alone, counted from 1
    lines(
        root / "Eval" / "list_eval_partition.txt", [(len(rows),), ("image_name", "item_id", "evaluation_status"), *rows]
    )
    header = ("image_name", "clothes_type", "pose_type", "x_1", "y_1", "x_2", "y_2")
    lines(root / "Anno" / "list_bbox_inshop.txt", [(len(rows),), header, *boxes])
    return root


def market1501(root: Path, people: int = 0) -> Path:
    """Two people to train on, and so many more with four images each."""
    more = [f"{person:04d}_c{camera}s1_5_0" for person in range(10, 10 + people) for camera in range(1, 5)]
    for folder, names in {
        "bounding_box_train": ["0002_c1s1_000451_03", "0002_c2s1_000451_03", "0007_c1s1_1_1", "0007_c3s1_1_1", *more],
        "query": ["0001_c1s1_001051_00", "0003_c2s1_2_0"],
        "bounding_box_test": ["0001_c1s1_3_0", "0001_c4s1_3_0", "0003_c5s1_3_0", "-1_c1s1_4_0", "0000_c1s1_5_0"],
    }.items():
        for value, name in enumerate(names):
            picture(root / folder / f"{name}.jpg", value)
        (root / folder / "Thumbs.db").write_bytes(b"not an image")
    return root


def cuhk03(root: Path) -> Path:
    names = [f"1_{person:03d}_{camera}_0{camera}.png" for person in (1, 2, 3, 10) for camera in (1, 2)]
    for value, name in enumerate(names):
        picture(root / "images_detected" / name, value)
    files = np.empty((len(names), 1), object)
    files[:, 0] = names
    column = np.array([[1], [2], [5], [6], [7], [8]], np.uint16)
    savemat(
        root / "cuhk03_new_protocol_config_detected.mat",
        {
            "filelist": files,
            "labels": np.array([[1], [1], [2], [2], [3], [3], [10], [10]], np.uint16),
            "camId": np.array([[1], [2]] * 4, np.uint8),
            "train_idx": np.array([[1], [2], [3], [4]], np.uint16),
            "query_idx": column[[2, 4]],
            "gallery_idx": column[[3, 5]],
        },
    )
    return root


def flowers102(root: Path, each: int = 3) -> Path:
    """Images of each of four kinds, not in their order: most to train on, two to test and two to validate."""
    labels = np.array([[2, 11, 1, 3] * each], np.uint8)
    for number in range(1, 4 * each + 1):
        picture(root / "jpg" / f"image_{number:05d}.jpg", number)
    savemat(root / "imagelabels.mat", {"labels": labels})
    every = np.arange(1, 4 * each + 1, dtype=np.uint16)[None]
    savemat(root / "setid.mat", {"trnid": every[:, :-4], "valid": every[:, -4:-2], "tstid": every[:, -2:]})
    return root


TAXA = [  # two genera of one name, in two kingdoms
    ("Animalia", "Aves", "Prunella", "Prunella modularis"),
    ("Plantae", "Magnoliopsida", "Prunella", "Prunella vulgaris"),
    ("Plantae", "Magnoliopsida", "Salvia", "Salvia pratensis"),
    ("Animalia", "Aves", "Prunella", "Prunella collaris"),
]


def inaturalist(root: Path, *, ranks: bool = True) -> Path:
    categories = []
    for number, (kingdom, order, genus, species) in enumerate(TAXA):
        known = {"kingdom": kingdom, "phylum": order, "class": order, "order": order, "family": genus, "genus": genus}
        categories.append({"id": number, "name": species, "supercategory": order, **(known if ranks else {})})
    for part, each in (("train", 2), ("val", 1)):
        images, annotations = [], []
        for number in range(len(TAXA) * each):
            path = f"train_val2018/{TAXA[number // each][1]}/{part}{number}.jpg"
            picture(root / path, number)
            images.append({"id": 100 + number, "file_name": path})
            annotations.append({"id": number, "image_id": 100 + number, "category_id": number // each})
        values = {"images": images, "annotations": annotations, "categories": categories}
        (root / f"{part}2018.json").write_text(json.dumps(values))
    return root


def cifar10(root: Path, counts: tuple[int, int] = (6, 4)) -> np.ndarray:
    """Five training batches and one for tests; the training labels, in the published order."""
    generator = np.random.default_rng(0)
    labels = []
    for number in range(6):
        count = counts[number == 5]
        rows = generator.integers(0, 256, (count, 1 + 3 * 32 * 32)).astype(np.uint8)
        rows[:, 0] = (np.arange(count) + number) % 3
        labels.append(rows[:, 0])
        name = "test_batch.bin" if number == 5 else f"data_batch_{number + 1}.bin"
        (root / "cifar-10-batches-bin").mkdir(parents=True, exist_ok=True)
        (root / "cifar-10-batches-bin" / name).write_bytes(rows.tobytes())
    return np.concatenate(labels[:-1])


def omniglot(root: Path) -> None:
    """Two alphabets of two characters of three drawings in each part."""
    root.mkdir()
    noise = np.random.default_rng(0)
    for part in ("images_background", "images_evaluation"):
        with zipfile.ZipFile(root / f"{part}.zip", "w") as archive:
            for number in range(12):
                file = io.BytesIO()
                Image.fromarray(noise.random((105, 105)) < 0.5).convert("1").save(file, "PNG")
                place = f"{part}/{part[7:10]}{number // 6}/character0{number // 3 % 2}/{number}.png"
                archive.writestr(place, file.getvalue())


def cifar100(root: Path) -> None:
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    for name, count in (("train.bin", 12), ("test.bin", 6)):
        rows = np.zeros((count, 2 + 3 * 32 * 32), np.uint8)
        rows[:, 0], rows[:, 1] = np.arange(count) % 2, np.arange(count) % 4
        (folder / name).write_bytes(rows.tobytes())
    (folder / "coarse_label_names.txt").write_text("fish\nflowers\n")
    (folder / "fine_label_names.txt").write_text("cod\nrose\neel\niris\n")


def mnist(folder: Path, part: str, labels: list[int], *, compress: bool = True) -> None:
    """Images whose pixels all equal 10 x label + position, modulo 256."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = b"".join(bytes([(10 * label + i) % 256]) * 784 for i, label in enumerate(labels))
    files = {
        f"{part}-images-idx3-ubyte": struct.pack(">4B3I", 0, 0, 8, 3, len(labels), 28, 28) + pixels,
        f"{part}-labels-idx1-ubyte": struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + bytes(labels),
    }
    for name, data in files.items():
        (folder / (f"{name}.gz" if compress else name)).write_bytes(gzip.compress(data) if compress else data)


def hugging_face(folder: Path, columns: Mapping[str, Sequence[Any]], **classes: Sequence[str]) -> None:
    """What `datasets.Dataset.save_to_disk` writes: the column "image" holds bytes of files, others are class numbers.

    Args:
        classes: column of class numbers -> the names of the classes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    arrays = {
        name: pa.array([{"bytes": data, "path": None} for data in values], kind)
        if name == "image"
        else pa.array(values)
        for name, values in columns.items()
    }
    table = pa.table(arrays)
    with pa.OSFile(str(folder / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as file:
        file.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    features: dict[str, Any] = {name: {"_type": "ClassLabel", "names": list(names)} for name, names in classes.items()}
    features |= {"image": {"_type": "Image"}} if "image" in columns else {}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
