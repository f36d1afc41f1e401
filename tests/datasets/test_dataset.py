from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trivet.datasets.dataset import (
    Dataset,
    Splits,
    check_disjoint,
    check_evaluable,
    check_trainable,
    choose_level,
    trained_classes,
)
from trivet.datasets.inputs import in_memory


def dataset(fine: list[int]) -> Dataset:
    pixels = np.arange(len(fine), dtype=np.uint8)[:, None, None, None] * np.ones((1, 1, 2, 3), np.uint8)
    labels = {"coarse": np.array(fine, np.int64) // 2, "fine": np.array(fine, np.int64)}
    names = {"coarse": ("x", "y"), "fine": ("x/a", "x/b", "y/c", "y/d")}
    return Dataset(
        "toy", in_memory(pixels, white=255, channels=None), labels, names, tuple(f"id{i}" for i in range(len(fine)))
    )


def test_a_subset_of_a_subset_keeps_inputs_labels_and_ids_together() -> None:
    subset = dataset([3, 2, 1, 0]).subset(np.array([3, 1, 0])).subset(np.array([2, 0]))
    assert len(subset) == len(subset.inputs) == 2
    assert subset.ids == ("id0", "id3")
    assert subset.labels["fine"].tolist() == [3, 0]
    assert subset.labels["coarse"].tolist() == [1, 0]
    assert subset.inputs.batch(np.array([1, 0]))[:, 0, 0, 0].tolist() == [3, 0]
    assert subset.names["fine"] == ("x/a", "x/b", "y/c", "y/d")


def test_the_coarsest_level_is_the_default_and_a_wrong_one_lists_the_right_ones() -> None:
    assert choose_level(None, ["coarse", "fine"]) == "coarse"
    assert choose_level("fine", ["coarse", "fine"]) == "fine"
    with pytest.raises(ValueError, match=r"did you mean 'fine'\? Allowed: coarse, fine\."):
        choose_level("fien", ["coarse", "fine"])


def test_training_needs_two_classes() -> None:
    check_trainable(dataset([0, 0, 2, 2, 2]), "fine")
    check_trainable(dataset([0, 1, 2, 3]), "coarse")
    check_trainable(dataset([0, 0, 2]), "fine")
    with pytest.raises(ValueError, match=r"two classes.*got \['x'\] at level 'coarse'"):
        check_trainable(dataset([0, 0, 1, 1]), "coarse")


@pytest.mark.parametrize("fine", [[], [2]])
def test_evaluation_needs_two_items_in_every_split(fine: list[int]) -> None:
    check_evaluable({"seen": dataset([0, 1])})
    with pytest.raises(ValueError, match=rf"at least two images.*'val' has {len(fine)}; add images to its folder"):
        check_evaluable({"seen": dataset([0, 1]), "val": dataset(fine)})


def process_slices(train: list[tuple[int, int]], unseen: list[tuple[int, int]]) -> Splits:
    """Items with a coarse and a fine class each."""
    both = np.array(train + unseen)
    whole = Dataset(
        "two levels",
        in_memory(np.zeros((len(both), 1, 2, 2), np.uint8)),
        {"coarse": both[:, 0], "fine": both[:, 1]},
        {"coarse": ("a", "b"), "fine": tuple("pqrstu")},
        tuple(map(str, range(len(both)))),
    )
    held_out = whole.subset(np.arange(len(train), len(both)))
    return Splits(whole.subset(np.arange(len(train))), {"unseen": held_out}, "coarse")


def test_no_class_and_no_item_is_both_trained_on_and_unseen() -> None:
    splits = process_slices([(0, 0), (0, 1), (1, 2)], [(0, 3), (1, 4)])
    check_disjoint(splits)
    assert trained_classes(splits, "unseen") == {"coarse": 2, "fine": 0}
    with pytest.raises(ValueError, match="no class of 'unseen' may be trained on: 1 are, at level 'fine'"):
        check_disjoint(process_slices([(0, 0), (0, 1), (1, 2)], [(0, 3), (1, 2)]))
    twice = replace(splits, evaluation={"unseen": splits.train.subset(np.array([2]))})
    with pytest.raises(ValueError, match="both trained on and evaluated: 1 of 'unseen' are, first '2'"):
        check_disjoint(twice)
