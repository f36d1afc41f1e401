"""The experiments of Xuan et al.: table 1 and figures 3, 4 and 6."""

from trivet_papers.experiment import Experiment
from trivet_papers.xuan2020.experiments.movement import FIG3
from trivet_papers.xuan2020.experiments.retrieval import FIG4, TABLE1
from trivet_papers.xuan2020.experiments.trajectories import FIG6

EXPERIMENTS: tuple[Experiment, ...] = (TABLE1, FIG3, FIG4, FIG6)
