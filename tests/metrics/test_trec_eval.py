"""Measures by graded relevance against trec_eval, on distances that do not tie; grades of 1 and more are positives."""

from __future__ import annotations

import numpy as np
import pytest
from pytrec_eval import RelevanceEvaluator

from trivet import Grades
from trivet.metrics import retrieve

NAMES = {
    "map": "map",
    "ndcg": "ndcg",
    "ndcg@10": "ndcg_cut_10",
    "found@5": "recall_5",
    "recall@5": "success_5",
    "precision@5": "P_5",
    "r-precision": "Rprec",
    "mrr": "recip_rank",
    "map@10": "map_cut_10",
}


@pytest.mark.parametrize("most", [1, 3])
def test_of_queries_and_documents(most: int) -> None:
    generator = np.random.default_rng(most)
    queries, documents = generator.normal(size=(40, 4)), generator.normal(size=(90, 4))
    grades = generator.integers(1, most + 1, size=(40, 90)) * (generator.random((40, 90)) < 0.15)
    assert (grades > 0).any(axis=1).all()
    relation = Grades(grades, positive=1, sides=True)
    found = retrieve(queries, relation.left, gallery=documents, gallery_labels=relation.right, measures=tuple(NAMES))
    ranks = np.argsort(np.argsort(np.linalg.norm(queries[:, None] - documents, axis=2), axis=1), axis=1)
    qrels, run = (
        {str(q): {str(d): value for d, value in enumerate(row)} for q, row in enumerate(table.tolist())}
        for table in (grades, 90.0 - ranks)
    )
    evaluator = RelevanceEvaluator(
        qrels, {"map", "ndcg", "ndcg_cut", "recall", "success", "P", "Rprec", "recip_rank", "map_cut"}
    )
    expected = evaluator.evaluate(run)
    for column, (name, theirs) in enumerate(NAMES.items()):
        values = np.array([expected[str(q)][theirs] for q in range(40)])
        if name == "map@10":  # divided by all R, here by min(K, R)
            sizes = (grades > 0).sum(axis=1)
            values *= sizes / np.minimum(10, sizes)
        assert found.values[:, column] == pytest.approx(values, abs=1e-12), name
    assert found.values[:, 1].std() > 0.01
