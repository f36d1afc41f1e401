"""Expected triplet and margin losses when labels are drawn at random, and the embeddings that minimise them.

The label model: t classes of s samples each, n = t s. Labels Y_1 .. Y_n are independent; a sample shows the label of
its own class with probability p and each of the others with probability q = (1 - p) / (t - 1). D is the squared
Euclidean distance. Probabilities are rows of an `(n, t)` tensor, so other models of independent labels work as well.

Import from here; the files follow the paper's sections, theorems and claims. An argument that is out of range, or whose
shape does not fit the others, is a ValueError.

Source:
    Levi, Xiao, Wang, Darrell, "Rethinking preventing class-collapsing in metric learning with margin-based losses",
    2021, sections 4.1 and 4.2 and appendices A and B, with their slips mended.
"""

# ruff: isort: skip_file
from __future__ import annotations

from trivet_papers.levi2021.risk.easy_positives import (
    NearerOrder,
    TheoryPositives,
    collapsed_and_split_margin_losses,
    collapsed_and_split_triplet_losses,
    easy_positive_probabilities,
    easy_triplet_weights,
    expected_easy_margin_losses,
    expected_easy_triplet_losses,
    margin_split_threshold,
    pair_pull_push_ratio,
    pair_push_threshold,
    pull_push_ratio,
    push_threshold,
    triplet_split_threshold,
)
from trivet_papers.levi2021.risk.theorems import (
    RiskMinimum,
    HingeMinimum,
    SelfTerms,
    affine_dimension,
    class_distances,
    collapse_turn_limit,
    expected_margin_loss,
    expected_triplet_loss,
    label_probabilities,
    margin_lower_bound,
    margin_noise_limit,
    match_probabilities,
    opposed_hinges,
    opposed_hinges_minimum,
    search_margin_minimum,
    search_triplet_minimum,
    triplet_lower_bound,
    triplet_weights,
)

__all__ = [
    "HingeMinimum",
    "NearerOrder",
    "RiskMinimum",
    "SelfTerms",
    "TheoryPositives",
    "affine_dimension",
    "class_distances",
    "collapse_turn_limit",
    "collapsed_and_split_margin_losses",
    "collapsed_and_split_triplet_losses",
    "easy_positive_probabilities",
    "easy_triplet_weights",
    "expected_easy_margin_losses",
    "expected_easy_triplet_losses",
    "expected_margin_loss",
    "expected_triplet_loss",
    "label_probabilities",
    "margin_lower_bound",
    "margin_noise_limit",
    "margin_split_threshold",
    "match_probabilities",
    "opposed_hinges",
    "opposed_hinges_minimum",
    "pair_pull_push_ratio",
    "pair_push_threshold",
    "pull_push_ratio",
    "push_threshold",
    "search_margin_minimum",
    "search_triplet_minimum",
    "triplet_lower_bound",
    "triplet_split_threshold",
    "triplet_weights",
]
