"""Published sets of fine-grained classes: CUB-200-2011, Cars196, Flowers-102 and iNaturalist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from trivet.datasets.archives import Tree
from trivet.datasets.config import DatasetEntry
from trivet.datasets.dataset import Splits
from trivet.datasets.download import fetch_by_torchvision
from trivet.datasets.image_decoding import Progress
from trivet.datasets.image_files import numbered
from trivet.datasets.mat import Mat
from trivet.datasets.published import (
    SPLIT,
    BoxedConfig,
    Levels,
    OrPublished,
    PublishedConfig,
    by_id,
    find_published,
    halves,
    load_published,
    numbers,
)
from trivet.datasets.splitting import Split
from trivet.runtime.record import Record
from trivet.runtime.safe_read import parse_json

BIRD_LISTS = ("images.txt", "image_class_labels.txt")
PARENTS, NODES = "cub_flat.parent-child.txt", "classes_flat.txt"
CARS = "https://ai.stanford.edu/~jkrause/cars/car_dataset.html"
CARS_ALL = "cars_annos.mat"
CARS_TRAIN, CARS_META, UNLABELLED = "cars_train_annos.mat", "cars_meta.mat", "cars_test_annos.mat"
CARS_TEST = "cars_test_annos_withlabels.mat"
FLOWERS, FLOWER_SUBSETS = "imagelabels.mat", "setid.mat"
COMPETITIONS = {
    "2017": ("train2017.json", "val2017.json"),
    "2018": ("train2018.json", "val2018.json"),
    "2019": ("train2019.json", "val2019.json"),
    "2021": ("train.json", "val.json"),
    "2021-mini": ("train_mini.json", "val.json"),
}
RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")
TAXONOMY = "categories.json"  # of 2018, whose lists name no ranks


class CubConfig(BoxedConfig):
    """CUB-200-2011.

    Args:
        hierarchy: add the levels order and family, from cub_flat.parent-child.txt and classes_flat.txt of cvjena's
            semantic-embeddings (MIT) in its folder.
    """

    name: Literal["cub"] = "cub"
    split: OrPublished = Field("auto", description=f'{SPLIT} "published": train_test_split.txt.')
    hierarchy: bool = False

    @property
    def label_levels(self) -> tuple[str, ...]:
        return ("order", "family", "class") if self.hierarchy else ("class",)


def load_cub(config: CubConfig, data_root: Path, progress: Progress | None) -> Splits:
    """CUB-200-2011 as published: `images.txt`, `image_class_labels.txt`, `images/`, and other lists where asked for.

    Trained on: the first half of the classes by number, 1-100; "unseen": the others, 101-200.
    """
    tree = find_published(config, data_root, BIRD_LISTS)
    images = tree.rows(BIRD_LISTS[0], 2)
    ids = [id for id, _ in images]

    def columns(file: str, count: int) -> list[Sequence[str]]:
        return by_id(tree.rows(file, count), ids, file)

    class_ids = [row[0] for row in columns(BIRD_LISTS[1], 2)]
    named = dict(tree.rows("classes.txt", 2)) if tree.has("classes.txt") else {}
    order = sorted(set(class_ids), key=lambda id: (len(id), id))
    levels = {"class": numbered([named.get(id, id) for id in class_ids], [named.get(id, id) for id in order])}
    if config.hierarchy:
        levels = {**_hierarchy(tree, data_root, class_ids), **levels}
    subsets = None
    if config.split == "published":
        subsets = halves(numbers(columns("train_test_split.txt", 2), "train_test_split.txt")[:, 0] == 1)
    boxes = None
    if config.boxes:
        boxes = numbers(columns("bounding_boxes.txt", 5), "bounding_boxes.txt")  # left, upper, width, height
        boxes[:, 2:] += boxes[:, :2]
    paths = [path for _, path in images]
    return load_published(config, progress, tree, paths, levels, folder="images/", subsets=subsets, boxes=boxes)


def _hierarchy(tree: Tree, data_root: Path, class_ids: Sequence[str]) -> Levels:
    """The levels order and family, from the taxa above each class by its number."""
    folders = [tree, *(Tree(base / "hierarchy") for base in (tree.root, tree.root.parent, data_root / "cub"))]
    source = next((folder for folder in folders if folder.has(PARENTS) and folder.has(NODES)), None)
    if source is None:
        raise ValueError(
            f"data.hierarchy needs {PARENTS} and {NODES}: not found in {tree.root} or "
            f"{tree.root.parent / 'hierarchy'}; get them from https://github.com/cvjena/semantic-embeddings."
        )
    names = {row[0]: row[1] for row in source.rows(NODES, 2)}
    parent = {child: above for above, child in source.rows(PARENTS, 2)}
    taxa: dict[str, list[str]] = {}
    for id in set(class_ids):
        chain: list[str] = []
        node = id
        while node in parent and len(chain) < len(names):
            node = parent[node]
            chain.append(names.get(node, node))
        if len(chain) < 3:  # genus, family, order, class of animals
            raise ValueError(f"{PARENTS} must hold each class: class {id} has no order and family in it.")
        taxa[id] = chain
    return {level: numbered([taxa[id][-above] for id in class_ids]) for level, above in (("order", 2), ("family", 3))}


class Cars196Config(BoxedConfig):
    """Cars196."""

    name: Literal["cars196"] = "cars196"
    split: OrPublished = Field("auto", description=f'{SPLIT} "published": cars_train and cars_test.')


def load_cars196(config: Cars196Config, data_root: Path, progress: Progress | None) -> Splits:
    """Stanford Cars by `cars_annos.mat` and `car_ims/`, or by the devkit, `cars_train/` and `cars_test/`.

    Trained on: the first half of the classes by their number, 1-98; "unseen": the others, 99-196.
    """
    files = (CARS_ALL, f"or {CARS_TRAIN}", CARS_TEST)
    tree = find_published(config, data_root, files, lambda tree: tree.has(CARS_ALL) or _devkit(tree) is not None)
    mats, folders, names = cars_annotations(tree)
    field = "relative_im_path" if mats[0].has_field("annotations.relative_im_path") else "fname"
    listed = [
        [folder + name for name in mat.texts(f"annotations.{field}")] for mat, folder in zip(mats, folders, strict=True)
    ]
    classes = np.concatenate([mat.integers("annotations.class") for mat in mats]) - 1
    if classes.min(initial=0) < 0 or classes.max(initial=0) >= len(names):
        raise ValueError(
            f"cars_meta.mat, or {CARS_ALL}, must name each class: got {len(names)} names and a class "
            f"{classes.max() + 1} in {tree.root}; get it again."
        )
    edges = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
    boxes = np.stack([np.concatenate([mat.floats(f"annotations.{edge}") for mat in mats]) for edge in edges], axis=1)
    boxes[:, :2] -= 1  # pixels are counted from 1, and the last one belongs to the box
    if len(mats) == 2:
        testing = np.repeat([False, True], [len(paths) for paths in listed])
    else:
        testing = mats[0].integers("annotations.test").astype(bool)
    return load_published(
        config,
        progress,
        tree,
        [path for paths in listed for path in paths],
        {"class": (classes, names)},
        subsets=halves(~testing) if config.split == "published" else None,
        boxes=boxes if config.boxes else None,
    )


def cars_annotations(tree: Tree) -> tuple[list[Mat], list[str], tuple[str, ...]]:
    """The lists of images, the folder of each list, and the class names by number.

    Raises:
        ValueError: if a file is missing or broken, or the test images have no classes.
    """
    if tree.has(CARS_ALL):
        mats, folders = [Mat(tree, CARS_ALL)], [""]
        return mats, folders, tuple(mats[0].texts("class_names"))
    kit = _devkit(tree) or ""
    test = next((file for file in (kit + CARS_TEST, CARS_TEST) if tree.has(file)), None)
    if test is None:
        raise ValueError(
            f"cars196 needs the classes of its test images: {tree.source(kit + UNLABELLED)} has none; get {CARS_TEST} "
            f"from {CARS} too, or {CARS_ALL}, which has all."
        )
    mats, folders = [Mat(tree, kit + CARS_TRAIN), Mat(tree, test)], ["cars_train/", "cars_test/"]
    return mats, folders, tuple(Mat(tree, kit + CARS_META).texts("class_names"))


def _devkit(tree: Tree) -> str | None:
    """The folder in the tree with the annotations of the training images; None if there is none."""
    return next((folder for folder in ("devkit/", "") if tree.has(folder + CARS_TRAIN)), None)


class Flowers102Config(PublishedConfig):
    """Flowers-102."""

    name: Literal["flowers102"] = "flowers102"
    split: OrPublished = Field(
        "auto", description=f'{SPLIT} "published": setid.mat, in which all classes are trained on.'
    )


def load_flowers102(config: Flowers102Config, data_root: Path, progress: Progress | None) -> Splits:
    """Flowers-102 by `imagelabels.mat` and `jpg/image_00001.jpg`; a class is named by its number.

    Trained on: the first half of the classes by number, 1-51; "unseen": the others, 52-102. With split = "published"
    10 images of every class; "seen": its test images; "val": its validation images.
    """
    tree = find_published(config, data_root, (FLOWERS, "jpg/"), lambda tree: tree.has(FLOWERS))
    labels = Mat(tree, FLOWERS).integers("labels")
    classes = numbered([str(label) for label in labels.tolist()], [str(label) for label in np.unique(labels)])
    files = [f"jpg/image_{number:05d}.jpg" for number in range(1, len(labels) + 1)]
    subsets = flower_subsets(tree, len(files)) if config.split == "published" else None
    return load_published(config, progress, tree, files, {"class": classes}, subsets=subsets)


def flower_subsets(tree: Tree, count: int) -> dict[str, np.ndarray]:
    """The positions, from 0, of the images of each published part; ValueError if one is none of `count` images."""
    mat = Mat(tree, FLOWER_SUBSETS)
    return {
        subset: mat.positions(name, count) for subset, name in (("train", "trnid"), ("test", "tstid"), ("val", "valid"))
    }


class INaturalistConfig(PublishedConfig):
    """iNaturalist.

    Args:
        version: year of the competition; "mini" is the smaller training set of 2021.
    """

    name: Literal["inaturalist"] = "inaturalist"
    split: Split = Field("auto", description=SPLIT)
    level: str | None = "species"
    version: Literal["2017", "2018", "2019", "2021", "2021-mini"] = "2018"

    @property
    def label_levels(self) -> None:
        """None: the lists decide, by the ranks that they name."""

    @property
    def published_version(self) -> str:
        return self.version


class ListedImage(Record):
    """An image of a list of iNaturalist."""

    id: int
    file_name: str


class Annotation(Record):
    """The category of an image."""

    image_id: int
    category_id: int


class Taxon(Record):
    """A category: a species, and the ranks above it where the list names them."""

    id: int
    name: str
    supercategory: str | None = None
    kingdom: str | None = None
    phylum: str | None = None
    class_: str | None = Field(None, alias="class")
    order: str | None = None
    family: str | None = None
    genus: str | None = None

    def lineage(self, ranks: Sequence[str]) -> tuple[str, ...]:
        """The taxa of the ranks, and the species."""
        named = self.as_json()
        return (*(named[rank] or "" for rank in ranks), self.name)


class CompetitionList(Record):
    """A json file of a competition."""

    images: list[ListedImage]
    annotations: list[Annotation]
    categories: list[Taxon]


def load_inaturalist(config: INaturalistConfig, data_root: Path, progress: Progress | None) -> Splits:
    """iNaturalist by its json files of images, annotations and categories.

    Levels: the ranks that the categories name, kingdom > phylum > class > order > family > genus > species; else
    supercategory > species, or species. Trained on: the training list; "seen": the validation list.
    """
    files = COMPETITIONS[config.version]
    tree = find_published(config, data_root, files)
    paths, categories, counts = [], [], []
    taxa: list[Taxon] = []
    for file in files:
        listed = _competition(tree, file)
        taxa = taxa or listed.categories
        category = {annotation.image_id: annotation.category_id for annotation in listed.annotations}
        if lacking := next((image.file_name for image in listed.images if image.id not in category), None):
            raise ValueError(
                f"{file} must hold images, each with an annotation that names its category: {lacking} has none; get "
                "the file of training or validation, as the test images have no labels."
            )
        paths += [image.file_name for image in listed.images]
        categories += [category[image.id] for image in listed.images]
        counts.append(len(listed.images))
    if tree.has(TAXONOMY) and not all(taxon.genus for taxon in taxa):
        known = _competition(tree, TAXONOMY).categories
        taxa = known if all(taxon.genus for taxon in known) else taxa
    if unnamed := set(categories) - {taxon.id for taxon in taxa}:
        raise ValueError(f"{files[0]} must name each category: it has no {min(unnamed)}; get the files of one year.")
    training = np.repeat([True, False], counts)
    return load_published(config, progress, tree, paths, _ranks(taxa, categories), subsets=halves(training))


def _competition(tree: Tree, file: str) -> CompetitionList:
    text = tree.text(file)
    try:
        values = parse_json(text)
        return CompetitionList.read(
            {"images": [], "annotations": [], "categories": values} if file == TAXONOMY else values
        )
    except ValueError as error:
        raise ValueError(f"{tree.source(file)} must be a list of iNaturalist in json: {error}; get it again.") from None


def _ranks(taxa: Sequence[Taxon], categories: Sequence[int]) -> Levels:
    """Labels and names of each level; taxa of one name, such as genera in two kingdoms, are told by their parents."""
    ranks = [rank for rank in (*RANKS, "supercategory") if all(taxon.lineage([rank])[0] for taxon in taxa)]
    ranks = ranks[:-1] if len(ranks) > 1 and ranks[-1] == "supercategory" else ranks
    levels = {}
    for depth, level in enumerate((*ranks, "species"), start=1):
        lineages = {taxon.id: taxon.lineage(ranks)[:depth] for taxon in taxa}
        counts = Counter(lineage[-1] for lineage in set(lineages.values()))
        titles = {id: "/".join(lineage) if counts[lineage[-1]] > 1 else lineage[-1] for id, lineage in lineages.items()}
        levels[level] = numbered([titles[category] for category in categories])
    return levels


ENTRIES = {
    "cub": DatasetEntry(
        CubConfig,
        load_cub,
        description="11,788 birds of 200 species, with boxes",
        levels=("class",),
        published="https://www.vision.caltech.edu/datasets/cub_200_2011/ (non-commercial research and education)",
        folders=("cub", "CUB_200_2011"),
        counts={"": {"": (11_788, 200)}},
        files=(*BIRD_LISTS, "classes.txt", "images"),
    ),
    "cars196": DatasetEntry(
        Cars196Config,
        load_cars196,
        description="16,185 cars of 196 models, with boxes",
        levels=("class",),
        published=f"{CARS} (research use)",
        folders=("cars196", "cars196-devkit", "stanford_cars", "CARS196"),
        counts={"": {"": (16_185, 196)}},
        files=(CARS_ALL, "car_ims"),
    ),
    "flowers102": DatasetEntry(
        Flowers102Config,
        load_flowers102,
        description="8,189 flowers of 102 kinds",
        levels=("class",),
        published="https://www.robots.ox.ac.uk/~vgg/data/flowers/102/ (terms not stated)",
        folders=("flowers102", "flowers-102", "oxford-flowers-102"),
        counts={"": {"": (8_189, 102)}},
        files=("jpg", FLOWERS, FLOWER_SUBSETS),
        fetch=partial(fetch_by_torchvision, "Flowers102", "flowers-102", [{}]),
    ),
    "inaturalist": DatasetEntry(
        INaturalistConfig,
        load_inaturalist,
        description="461,939 photographs of 8,142 species (2018), and other years",
        levels=(*RANKS, "species"),
        published="https://github.com/visipedia/inat_comp (non-commercial research and education)",
        folders=("inaturalist", "inat", "iNaturalist"),
        counts={
            "2017": {"train": (579_184, 5_089), "test": (95_986, 5_089)},
            "2018": {"train": (437_513, 8_142), "test": (24_426, 8_142)},
            "2019": {"train": (265_213, 1_010), "test": (3_030, 1_010)},
            "2021": {"train": (2_686_843, 10_000), "test": (100_000, 10_000)},
            "2021-mini": {"train": (500_000, 10_000), "test": (100_000, 10_000)},
        },
        files=(*COMPETITIONS["2018"], "train_val2018"),
    ),
}
