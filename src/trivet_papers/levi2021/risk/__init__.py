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

from __future__ import annotations

from trivet_papers.levi2021.risk.easy_positives import *  # noqa: F403  # the files have no other names
from trivet_papers.levi2021.risk.theorems import *  # noqa: F403  # as above
