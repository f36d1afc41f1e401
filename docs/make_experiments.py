"""Write what `trivet reproduce list` shows from the experiments: .venv/bin/python docs/make_experiments.py"""

from __future__ import annotations

import json
from pathlib import Path

import trivet_papers
from trivet_papers.catalogue import experiments

FILE = Path(trivet_papers.__file__).with_name("experiments.json")
SIZES = ("here", "paper")


def page() -> str:
    """A line for each experiment: its key, its title, and how many runs it has in each size."""
    rows = []
    for experiment in experiments("all"):
        recipes = {size: experiment.recipe(size) for size in SIZES}
        runs = {size: len(recipe.arms) * recipe.seeds for size, recipe in recipes.items()}
        rows.append(json.dumps({"key": experiment.key, "title": experiment.title, "runs": runs}, ensure_ascii=False))
    return "[\n" + ",\n".join(rows) + "\n]\n"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
